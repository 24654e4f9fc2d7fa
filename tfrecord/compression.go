package tfrecord

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// Compression is how a whole TFRecord file is compressed.
type Compression uint8

// The compressions of TensorFlow's TFRecordOptions.
const (
	None Compression = iota // plain records
	Gzip                    // RFC 1952, of one or more members
	Zlib                    // RFC 1950
)

// String returns "none", "gzip" or "zlib".
func (c Compression) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Zlib:
		return "zlib"
	}
	return fmt.Sprintf("Compression(%d)", uint8(c))
}

// ParseCompression is the inverse of String. The empty string means none, and case is
// ignored, so TensorFlow's "", "GZIP" and "ZLIB" are accepted too.
func ParseCompression(s string) (Compression, error) {
	switch {
	case s == "":
		return None, nil
	case bytes.EqualFold([]byte(s), []byte("none")):
		return None, nil
	case bytes.EqualFold([]byte(s), []byte("gzip")):
		return Gzip, nil
	case bytes.EqualFold([]byte(s), []byte("zlib")):
		return Zlib, nil
	}
	return None, fmt.Errorf("compression is %q; expected none, gzip or zlib", s)
}

// sniffBytes is how much of a stream is read to detect its compression. A gzip header
// may contain a file name and a comment before its data.
const sniffBytes = 64 << 10

// sniff detects the compression of the stream without consuming any of it.
//
// A record header with a valid checksum means plain records, because its length may
// look like any magic number. Otherwise gzip's magic number decides. One in 1,000
// damaged headers has zlib's weak magic number, so such a stream must also inflate to
// something.
func sniff(br *bufio.Reader) Compression {
	head, _ := br.Peek(headerBytes)
	if len(head) == headerBytes {
		if _, ok := parseHeader(head); ok {
			return None
		}
	}
	c := magic(head)
	if c != Zlib {
		return c
	}
	sample, _ := br.Peek(sniffBytes)
	r, err := newInflater(bytes.NewReader(sample), c)
	if err != nil {
		return None
	}
	defer r.Close()
	_, err = io.ReadFull(r, make([]byte, headerBytes))
	if err == nil || err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return c
	}
	return None
}

// magic returns the compression that the first bytes of a file indicate.
func magic(head []byte) Compression {
	if len(head) >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 {
		return Gzip
	}
	// Deflate, a window of at most 32 KiB, and the check bits of RFC 1950.
	if len(head) >= 2 && head[0]&0x0f == 8 && head[0]>>4 <= 7 &&
		(uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return Zlib
	}
	return None
}

func newInflater(r io.Reader, c Compression) (io.ReadCloser, error) {
	switch c {
	case Gzip:
		return gzip.NewReader(r)
	case Zlib:
		return zlib.NewReader(r)
	}
	return io.NopCloser(r), nil
}
