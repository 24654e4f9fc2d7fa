package tfrecord

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// stream writes the records and returns the bytes and where each begins.
func stream(t testing.TB, c Compression, records ...[]byte) ([]byte, []int64) {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, Compress(c))
	var offsets []int64
	for _, r := range records {
		offsets = append(offsets, w.Size())
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), offsets
}

// sample returns n records of different sizes, the first one empty.
func sample(n int) [][]byte {
	records := make([][]byte, n)
	for i := range records {
		records[i] = bytes.Repeat([]byte(fmt.Sprintf("record %d.", i)), i*i)
	}
	return records
}

// readAll reads a stream to its end and returns copies of the records.
func readAll(t testing.TB, r io.Reader, opts ...ReaderOption) ([][]byte, *Reader, error) {
	t.Helper()
	rd, err := NewReader(r, "test", opts...)
	if err != nil {
		return nil, nil, err
	}
	defer rd.Close()
	var records [][]byte
	for {
		rec, err := rd.Next()
		if err == io.EOF {
			return records, rd, nil
		}
		if err != nil {
			return records, rd, err
		}
		records = append(records, bytes.Clone(rec))
	}
}

func writeFile(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func equalRecords(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func TestRoundTrip(t *testing.T) {
	for _, c := range []Compression{None, Gzip, Zlib} {
		for _, n := range []int{0, 1, 2, 60} {
			t.Run(fmt.Sprintf("%v/%d", c, n), func(t *testing.T) {
				want := sample(n)
				data, offsets := stream(t, c, want...)
				got, rd, err := readAll(t, bytes.NewReader(data))
				if err != nil || !equalRecords(got, want) {
					t.Fatalf("read %d records, %v; wrote %d", len(got), err, n)
				}
				if rd.Compression() != c || rd.Records() != int64(n) || (rd.Skipped() != Skipped{}) {
					t.Errorf("compression %v, records %d, skipped %v", rd.Compression(), rd.Records(), rd.Skipped())
				}
				x, err := OpenIndexed(writeFile(t, "x.tfrecord", data))
				if err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				if x.Len() != n {
					t.Fatalf("Len() = %d, want %d", x.Len(), n)
				}
				var buf []byte
				for i := n - 1; i >= 0; i-- {
					if buf, err = x.Record(i, buf); err != nil || !bytes.Equal(buf, want[i]) {
						t.Fatalf("record %d at %d: %q, %v", i, offsets[i], buf, err)
					}
				}
				var oob error
				if _, oob = x.Record(n, nil); oob == nil || errors.As(oob, new(*CorruptError)) {
					t.Errorf("Record(%d) = %v", n, oob)
				}
			})
		}
	}
}
