package tfrecord

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// allocated returns how many bytes of memory a function allocates in all.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// zipped returns data as a gzip file.
func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestDeclaredLength reads records whose headers are whole and announce more than there is, or more than
// there may be: memory is that of the bytes that arrive.
func TestDeclaredLength(t *testing.T) {
	const limit = defaultMaxInflatedRecordBytes
	follow := make([]byte, 1<<20)
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"more than arrives", append(appendHeader(nil, defaultMaxRecordBytes), follow...), "truncated"},
		{"compressed, more than arrives", zipped(t, append(appendHeader(nil, limit), follow...)), "truncated"},
		{"compressed, more than may be", zipped(t, append(appendHeader(nil, limit+1), follow...)), "expected at most 268435456; records that are to be longer can be read from a file without compression"},
	} {
		for _, policy := range []Policy{Fail, Skip} {
			var err error
			used := allocated(func() {
				var rd *Reader
				if rd, err = NewReader(bytes.NewReader(tt.file), tt.name, OnCorrupt(policy)); err == nil {
					_, err = rd.Next()
				}
			})
			if policy == Skip && err != io.EOF || policy == Fail && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s, %v: %v; expected %q", tt.name, policy, err, tt.want)
			}
			if used > 16<<20 {
				t.Errorf("%s, %v: %d bytes of memory for the %d that there are", tt.name, policy, used, len(follow))
			}
		}
	}
}

// TestEmptyRecords indexes a file with more records than a file of its size may have.
func TestEmptyRecords(t *testing.T) {
	defer func(was int64) { freeOffsets = was }(freeOffsets)
	freeOffsets = 1000
	path := filepath.Join(t.TempDir(), "a.gz")
	file := zipped(t, bytes.Repeat(AppendRecord(nil, nil), 10_000))
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
	if x, err := OpenIndexed(path); x != nil || !errors.As(err, new(*CorruptError)) || !strings.Contains(err.Error(), "is one more than there may be") {
		t.Errorf("10000 records in %d bytes: %v", len(file), err)
	}
}

// TestUntil ends reading when the context is done.
func TestUntil(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go w.Write(AppendRecord(AppendRecord(nil, []byte("one")), make([]byte, 2*sniffBytes)))
	rd, err := NewReader(r, "stream", Until(ctx))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rd.Next(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := rd.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; expected that of the context", err)
	}
}

// TestDecodedSize decodes records whose features take many times their size in memory. What is not
// asked for takes none.
func TestDecodedSize(t *testing.T) {
	defer func(was int) { freeDecoded = was }(freeDecoded)
	freeDecoded = 1 << 20
	const n = 1 << 20
	field := func(num protowire.Number, content ...[]byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), slices.Concat(content...))
	}
	example := func(value []byte) []byte {
		return field(exampleFeatures, field(featuresFeature, field(entryKey, []byte("a")), value))
	}
	names := func() (b []byte) {
		for i := range n / 100 {
			b = append(b, field(featuresFeature, field(entryKey, strconv.AppendInt(nil, int64(i), 10)), field(entryValue))...)
		}
		return field(exampleFeatures, b)
	}
	for _, tt := range []struct {
		name   string
		record []byte
		all    bool // only ParseSequenceExample takes that much
	}{
		{"numbers", example(field(entryValue, field(3, field(listValue, make([]byte, n))))), false},
		{"strings", example(field(entryValue, field(1, bytes.Repeat([]byte{listValue<<3 | 2, 0}, n/2)))), false},
		{"steps", field(sequenceLists, field(listsEntry, field(entryKey, []byte("a")), field(entryValue, bytes.Repeat([]byte{listFeature<<3 | 2, 0}, n/4)))), true},
		{"names", names(), true},
	} {
		var v Values
		var err error
		if !tt.all {
			if err := NewSequenceDecoder("a").Decode(tt.record, &v); !errors.As(err, new(*ExampleError)) {
				t.Errorf("%s: error %v; expected that they take too much", tt.name, err)
			}
		}
		if _, _, err := ParseSequenceExample(tt.record); !errors.As(err, new(*ExampleError)) {
			t.Errorf("%s: all features: error %v; expected that they take too much", tt.name, err)
		}
		v = Values{}
		used := allocated(func() { err = NewSequenceDecoder("b").Decode(tt.record, &v) })
		if err != nil || used > 1<<16 {
			t.Errorf("%s: %d bytes of memory for features that are not wanted, %v", tt.name, used, err)
		}
	}
}
