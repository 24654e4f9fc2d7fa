package tfrecord

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// Policy is what a reader does about damage.
type Policy uint8

// The two policies.
const (
	Fail Policy = iota // end with a CorruptError
	Skip               // go on with the next whole record, and count what was lost
)

// String returns "fail" or "skip".
func (p Policy) String() string {
	if p == Skip {
		return "skip"
	}
	return "fail"
}

// ParsePolicy is the inverse of String.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "fail":
		return Fail, nil
	case "skip":
		return Skip, nil
	}
	return Fail, fmt.Errorf("unknown policy %q: expected fail or skip", s)
}

// Skipped counts what a reader passed over because it was damaged.
type Skipped struct {
	Records int64 // damaged places; one may have held several records, whose number nobody can know
	Bytes   int64 // bytes of the uncompressed stream, framing included
}

type readerConfig struct {
	policy    Policy
	maxRecord int64
	maxSpill  int64
	log       *slog.Logger
}

// ReaderOption is a setting of NewReader, Open and OpenIndexed.
type ReaderOption func(*readerConfig)

// OnCorrupt sets what happens on damage. The default is Fail.
func OnCorrupt(p Policy) ReaderOption {
	return func(c *readerConfig) { c.policy = p }
}

// MaxRecordBytes sets the size above which a record counts as damaged. The
// default is 2 GiB less one byte, protobuf's limit on a message.
func MaxRecordBytes(n int64) ReaderOption {
	return func(c *readerConfig) { c.maxRecord = n }
}

// Logger sets where skipped damage (as a warning) and the fate of index files
// (for debugging) are written. The default is nowhere.
func Logger(l *slog.Logger) ReaderOption {
	return func(c *readerConfig) {
		if l != nil {
			c.log = l
		}
	}
}

func newReaderConfig(opts []ReaderOption) readerConfig {
	c := readerConfig{maxRecord: defaultMaxRecordBytes, maxSpill: defaultMaxInflatedBytes, log: slog.New(slog.DiscardHandler)}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// Reader reads the records of a stream in order. It is not safe for
// concurrent use.
type Reader struct {
	cfg         readerConfig
	name        string
	compression Compression
	raw         *source   // the stream as it is stored
	src         io.Reader // the same, inflated
	closers     []io.Closer

	// buf[r:w] is read and not yet consumed; base is the offset of buf[0].
	buf     []byte
	r, w    int
	base    int64
	size    int64 // of the whole stream, or -1 where unknown
	srcErr  error // what ended the source
	pending int   // bytes of the record given out last, consumed by the next call

	number  int64 // of the next record
	offset  int64 // of the record given out last
	skipped Skipped
	checked int64 // bytes of data whose checksum was computed and failed
	err     error // sticky
}

// NewReader returns a reader of the records in r. How they are compressed is
// found out from the first bytes. The name stands for the stream in errors.
func NewReader(r io.Reader, name string, opts ...ReaderOption) (*Reader, error) {
	return newReader(r, name, -1, newReaderConfig(opts))
}

// Open returns a reader of the records of a file. The caller closes it.
func Open(path string, opts ...ReaderOption) (*Reader, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	rd, err := newReader(f, path, size, newReaderConfig(opts))
	if err != nil {
		f.Close()
		return nil, err
	}
	rd.closers = append(rd.closers, f)
	return rd, nil
}

// openRegular opens a file and tells its size, or -1 for a pipe or device.
func openRegular(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	switch {
	case st.IsDir():
		f.Close()
		return nil, 0, fmt.Errorf("%s: is a folder; expected a TFRecord file", path)
	case !st.Mode().IsRegular():
		return f, -1, nil
	}
	return f, st.Size(), nil
}

func newReader(r io.Reader, name string, size int64, cfg readerConfig) (*Reader, error) {
	if cfg.maxRecord <= 0 {
		return nil, fmt.Errorf("%s: limit of %d bytes on a record: expected a positive number", name, cfg.maxRecord)
	}
	raw := &source{r: r}
	br := bufio.NewReaderSize(raw, sniffBytes)
	rd := &Reader{cfg: cfg, name: name, raw: raw, src: br, size: size, compression: sniff(br)}
	if raw.err != nil && br.Buffered() == 0 {
		return nil, fmt.Errorf("%s: %w", name, raw.err)
	}
	if rd.compression != None {
		rd.size = -1
		in, err := newInflater(br, rd.compression)
		if err != nil {
			if raw.err != nil {
				return nil, fmt.Errorf("%s: %w", name, raw.err)
			}
			rd.srcErr = err // damage, told by Next like all other damage
			return rd, nil
		}
		rd.src = in
		rd.closers = append(rd.closers, in)
	}
	return rd, nil
}

// Compression tells how the stream is compressed.
func (rd *Reader) Compression() Compression { return rd.compression }

// Offset returns where the record that Next returned last begins in the
// uncompressed stream.
func (rd *Reader) Offset() int64 { return rd.offset }

// Records returns how many records have been passed, damaged ones included.
func (rd *Reader) Records() int64 { return rd.number }

// Skipped returns what has been passed over so far because it was damaged.
func (rd *Reader) Skipped() Skipped { return rd.skipped }

// Close releases what Open holds. It never closes a reader given to NewReader.
func (rd *Reader) Close() error {
	var errs []error
	for _, c := range rd.closers {
		errs = append(errs, c.Close())
	}
	rd.closers = nil
	if rd.err == nil {
		rd.err = fmt.Errorf("%s: %w", rd.name, os.ErrClosed)
	}
	return errors.Join(errs...)
}

// Next returns the data of the next record. The slice is valid until the next
// call. A stream that ends between two records gives io.EOF, and a stream
// without any bytes is one of no records.
func (rd *Reader) Next() ([]byte, error) {
	if rd.err != nil {
		return nil, rd.err
	}
	data, err := rd.next()
	if err != nil {
		rd.err = err
		return nil, err
	}
	return data, nil
}

func (rd *Reader) next() ([]byte, error) {
	rd.r += rd.pending
	rd.pending = 0
	for {
		data, reason, err := rd.frame()
		if err != nil {
			return nil, err
		}
		if reason == "" {
			rd.offset = rd.pos()
			rd.pending = len(data) + frameBytes
			rd.number++
			return data, nil
		}
		corrupt := &CorruptError{Path: rd.name, Record: rd.number, Offset: rd.pos(), Compression: rd.compression, Reason: reason}
		if rd.cfg.policy == Fail {
			return nil, corrupt
		}
		lost, err := rd.resync()
		if err != nil {
			return nil, err
		}
		rd.number++
		rd.skipped.Records++
		rd.skipped.Bytes += lost
		rd.cfg.log.Warn("skipped damaged data", "file", rd.name, "record", corrupt.Record, "offset", corrupt.Offset, "bytes", lost, "reason", reason)
	}
}

// Data is checked only as long as the bytes that failed before stay in this
// relation to the position in the stream. Real damage is far from it; a file of
// lying headers, each over all that follows, would cost quadratic time.
const (
	checkFactor    = 16
	checkAllowance = 64 << 20
)

// frame looks at what lies at the current position, consuming nothing: the
// data of a whole record; or the reason why there is none; or io.EOF where the
// stream ends cleanly; or a failure of the source, which is no damage.
func (rd *Reader) frame() (data []byte, reason string, err error) {
	have := rd.fill(headerBytes)
	switch {
	case have == headerBytes:
	case rd.raw.err != nil:
		return nil, "", rd.ioError()
	case have == 0 && rd.srcErr == io.EOF:
		return nil, "", io.EOF
	default:
		return nil, rd.shortReason(reasonTruncatedHeader(have)), nil
	}
	header := rd.buf[rd.r:][:headerBytes]
	length, ok := parseHeader(header)
	if !ok {
		reason := reasonLengthCRC(header)
		if rd.pos() == 0 {
			reason += " (not a TFRecord file, or damaged from its first bytes on)"
		}
		return nil, reason, nil
	}
	if length > uint64(rd.cfg.maxRecord) {
		return nil, reasonTooLong(length, rd.cfg.maxRecord), nil
	}
	end := frameBytes + int(length)
	if rd.size >= 0 && int64(end) > rd.size-rd.pos() {
		return nil, reasonTruncated(length+footerBytes, rd.size-rd.pos()-headerBytes), nil
	}
	if have = rd.fill(end); have < end {
		if rd.raw.err != nil {
			return nil, "", rd.ioError()
		}
		return nil, rd.shortReason(reasonTruncated(length+footerBytes, int64(have-headerBytes))), nil
	}
	b := rd.buf[rd.r:][headerBytes:end:end]
	data, footer := b[:length:length], b[length:]
	if rd.checked > checkAllowance+checkFactor*rd.pos() {
		return nil, "too many headers before it have led to nothing", nil
	}
	if binary.LittleEndian.Uint32(footer) != maskedCRC(data) {
		rd.checked += int64(length)
		return nil, reasonDataCRC(data, footer), nil
	}
	return data, "", nil
}

// shortReason explains a stream that ended too early: compressed data that
// cannot be inflated any further, or else the reason given.
func (rd *Reader) shortReason(reason string) string {
	if rd.srcErr == io.EOF {
		return reason
	}
	return fmt.Sprintf("damaged %s data: %v", rd.compression, rd.srcErr)
}

// resync moves from a damaged record to the next whole one, or to the end of
// the stream, and returns how many bytes it passed.
func (rd *Reader) resync() (lost int64, err error) {
	if n := rd.confirmedEnd(); n > 0 {
		rd.r += n
		return int64(n), nil
	}
	// Every byte may be where the next record begins.
	for rd.r < rd.w {
		rd.r++
		lost++
		if rd.fill(headerBytes) < headerBytes {
			break
		}
		if _, ok := parseHeader(rd.buf[rd.r:]); !ok {
			continue
		}
		_, reason, err := rd.frame()
		if err != nil {
			return lost, err
		}
		if reason == "" {
			return lost, nil
		}
	}
	lost += int64(rd.w - rd.r)
	rd.r = rd.w
	rd.srcErr = io.EOF // an inflater's error has been reported with this damage
	return lost, nil
}

// confirmedEnd returns the size of the record at the current position if both
// its header and what follows it speak for it, so that only its data can be
// damaged: they may hold records themselves and must not be searched.
func (rd *Reader) confirmedEnd() int {
	if rd.fill(headerBytes) < headerBytes {
		return 0
	}
	length, ok := parseHeader(rd.buf[rd.r:])
	if !ok || length > uint64(rd.cfg.maxRecord) {
		return 0
	}
	end := frameBytes + int(length)
	if rd.size >= 0 && int64(end) > rd.size-rd.pos() {
		return 0
	}
	switch have := rd.fill(end + headerBytes); {
	case have == end && rd.srcErr == io.EOF:
		return end
	case have == end+headerBytes:
		if _, ok := parseHeader(rd.buf[rd.r+end:]); ok {
			return end
		}
	}
	return 0
}

// pos returns the offset of the first byte not yet consumed.
func (rd *Reader) pos() int64 { return rd.base + int64(rd.r) }

// fill reads until n bytes are at hand or the source ends, and returns how
// many there are, n at most. The buffer grows only as bytes really arrive.
func (rd *Reader) fill(n int) int {
	for rd.w-rd.r < n && rd.srcErr == nil {
		if rd.w == len(rd.buf) {
			rd.makeRoom()
		}
		m, err := rd.src.Read(rd.buf[rd.w:])
		rd.w += m
		if err != nil {
			rd.srcErr = err
		}
	}
	return min(n, rd.w-rd.r)
}

const initialBuffer = 64 << 10

// makeRoom moves what is at hand to the front of the buffer, which doubles
// when that alone would leave it more than half full.
func (rd *Reader) makeRoom() {
	have := rd.w - rd.r
	to := rd.buf
	if have > len(rd.buf)/2 || len(rd.buf) == 0 {
		to = make([]byte, max(initialBuffer, 2*len(rd.buf)))
	}
	copy(to, rd.buf[rd.r:rd.w])
	rd.base += int64(rd.r)
	rd.buf, rd.r, rd.w = to, 0, have
}

func (rd *Reader) ioError() error {
	return fmt.Errorf("%s: reading after byte %d: %w", rd.name, rd.base+int64(rd.w), rd.raw.err)
}

// source remembers how reading failed, to tell a failure of the disk from what
// an inflater says about the bytes.
type source struct {
	r   io.Reader
	err error // other than io.EOF
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
