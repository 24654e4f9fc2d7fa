package stream

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// maxWindow limits the memory in bytes that a Zstandard file may ask for.
const maxWindow = 1 << 30

// The endings of names.
const (
	gz  = ".gz"
	zst = ".zst"
)

// CutSuffix returns a name without the ending that says how the file is compressed, and whether it has one.
func CutSuffix(path string) (plain string, compressed bool) {
	switch ext := filepath.Ext(path); strings.ToLower(ext) {
	case gz, zst:
		return strings.TrimSuffix(path, ext), true
	}
	return path, false
}

// Decompress returns the content of r, which is that of a file with the given name. Closing it does not
// close r. Where reading fails, though r can be read, the file is damaged, for instance cut short: the
// error is of class fault.Damaged.
func Decompress(r io.Reader, path string) (io.ReadCloser, error) {
	file := &source{r: r}
	switch strings.ToLower(filepath.Ext(path)) {
	case gz:
		z, err := gzip.NewReader(file)
		if err != nil {
			return nil, file.cause(err)
		}
		return &content{z, file}, nil
	case zst:
		z, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, file.cause(err)
		}
		return &content{z.IOReadCloser(), file}, nil
	}
	return io.NopCloser(r), nil
}

// source is a compressed file.
type source struct {
	r   io.Reader
	n   int64
	err error // of reading it
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != io.EOF {
		s.err = err
	}
	return n, err
}

// cause returns the error that an error in decompression comes from.
func (s *source) cause(err error) error {
	if err == nil || err == io.EOF || s.err != nil {
		return err
	}
	return fault.Damagedf("cannot be decompressed beyond byte %d of the file: %w; is the file whole?", s.n, err)
}

// content is what a compressed file holds.
type content struct {
	io.ReadCloser
	file *source
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	return n, c.file.cause(err)
}

// Compress returns a writer of the content of a file with the given name, whose bytes go to w. Closing
// it ends the content, and does not close w. The same content gives the same bytes.
func Compress(w io.Writer, path string) (io.WriteCloser, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case gz:
		return gzip.NewWriter(w), nil
	case zst:
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	}
	return plain{w}, nil
}

type plain struct{ io.Writer }

// Close implements io.Closer.
func (plain) Close() error { return nil }
