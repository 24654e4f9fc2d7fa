package tfrecord

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// WriterOption is a setting of NewWriter and Create.
type WriterOption func(*Writer)

// Compress sets how the whole stream is compressed. The default is None.
func Compress(c Compression) WriterOption {
	return func(w *Writer) { w.compression = c }
}

// Writer writes records to a stream. It is not safe for concurrent use.
type Writer struct {
	compression Compression
	buf         *bufio.Writer // where Write writes
	deflater    interface {   // between buf and the stream, if compressed
		io.WriteCloser
		Flush() error
	}
	out     *bufio.Writer // the stream itself, if it is not buf
	file    vfs.WorkFile  // the file made by Create
	scratch []byte
	records int64
	size    int64
	err     error // sticky: a torn record must not be followed by another
}

const writeBuffer = 64 << 10

// NewWriter returns a writer of records to w. Close ends the stream but does not close w.
func NewWriter(w io.Writer, opts ...WriterOption) *Writer {
	wr := &Writer{}
	for _, o := range opts {
		o(wr)
	}
	out := bufio.NewWriterSize(w, writeBuffer)
	switch wr.compression {
	case None:
		wr.buf = out
		return wr
	case Gzip:
		wr.deflater = gzip.NewWriter(out)
	case Zlib:
		wr.deflater = zlib.NewWriter(out)
	default:
		wr.err = fmt.Errorf("tfrecord: compression is %v; expected None, Gzip or Zlib", wr.compression)
		return wr
	}
	wr.out = out
	wr.buf = bufio.NewWriterSize(wr.deflater, writeBuffer)
	return wr
}

// Create returns a writer to a new file, which replaces an existing one.
func Create(path string, opts ...WriterOption) (*Writer, error) {
	f, err := vfs.Create(path)
	if err != nil {
		return nil, err
	}
	w := NewWriter(f, opts...)
	w.file = f
	if w.err != nil {
		f.Close()
		return nil, w.err
	}
	return w, nil
}

// Write appends one record. After an error it writes nothing more and returns the same
// error again.
func (w *Writer) Write(record []byte) error {
	if w.err != nil {
		return w.err
	}
	w.scratch = appendHeader(w.scratch[:0], len(record))
	w.scratch = binary.LittleEndian.AppendUint32(w.scratch, maskedCRC(record))
	for _, b := range [...][]byte{w.scratch[:headerBytes], record, w.scratch[headerBytes:]} {
		if _, err := w.buf.Write(b); err != nil {
			w.err = err
			return err
		}
	}
	w.records++
	w.size += int64(len(record)) + frameBytes
	return nil
}

// WriteFramed appends one record that AppendRecord has framed. Otherwise it is like
// Write.
func (w *Writer) WriteFramed(framed []byte) error {
	if w.err != nil {
		return w.err
	}
	if _, err := w.buf.Write(framed); err != nil {
		w.err = err
		return err
	}
	w.records++
	w.size += int64(len(framed))
	return nil
}

// Records returns the number of records written.
func (w *Writer) Records() int64 { return w.records }

// Size returns the uncompressed size in bytes of the records written, for callers who
// begin a new shard when one is large enough.
func (w *Writer) Size() int64 { return w.size }

// Close flushes, ends the compressed stream if there is one, and closes the file if
// Create made it. A second Close does nothing.
func (w *Writer) Close() error {
	if errors.Is(w.err, os.ErrClosed) {
		return nil
	}
	err := w.err
	if err == nil {
		err = w.finish()
	}
	if w.file != nil {
		if cerr := w.file.Close(); err == nil {
			err = cerr
		}
	}
	w.err = fmt.Errorf("tfrecord: writer: %w", os.ErrClosed)
	return err
}

func (w *Writer) finish() error {
	if err := w.buf.Flush(); err != nil || w.deflater == nil {
		return err
	}
	if err := w.deflater.Close(); err != nil {
		return err
	}
	return w.out.Flush()
}
