// Package compressed reads and writes files whose names say how they are compressed: with gzip if they
// end in .gz, and with Zstandard if they end in .zst.
package compressed

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow limits the memory in bytes that a Zstandard file may ask for.
const maxWindow = 1 << 30

// The endings of names.
const (
	gz  = ".gz"
	zst = ".zst"
)

// Cut returns a name without the ending that says how the file is compressed, and whether it has one.
func Cut(path string) (plain string, compressed bool) {
	switch ext := filepath.Ext(path); strings.ToLower(ext) {
	case gz, zst:
		return strings.TrimSuffix(path, ext), true
	}
	return path, false
}

// NewReader returns the content of r, which is that of a file with the given name. Closing it does not
// close r.
func NewReader(r io.Reader, path string) (io.ReadCloser, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case gz:
		return gzip.NewReader(r)
	case zst:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// NewWriter returns a writer of the content of a file with the given name, whose bytes go to w. Closing
// it ends the content, and does not close w. The same content gives the same bytes.
func NewWriter(w io.Writer, path string) (io.WriteCloser, error) {
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
