package tfrecord

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
)

// openLog opens a file and returns what was logged about its index.
func openLog(t *testing.T, path string, opts ...ReaderOption) (*IndexedFile, string) {
	t.Helper()
	var log bytes.Buffer
	l := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	x, err := OpenIndexed(path, append(opts, Logger(l))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x, log.String()
}

func wantRecords(t *testing.T, x *IndexedFile, want [][]byte) {
	t.Helper()
	if x.Len() != len(want) {
		t.Fatalf("%d records, want %d", x.Len(), len(want))
	}
	var buf []byte
	var err error
	for _, i := range []int{len(want) - 1, 0, len(want) / 2} {
		if buf, err = x.Record(i, buf); err != nil || !bytes.Equal(buf, want[i]) {
			t.Fatalf("record %d: %q, %v", i, buf, err)
		}
	}
}

func TestIndexIsUsed(t *testing.T) {
	want := sample(20)
	data, _ := stream(t, None, want...)
	path := writeFile(t, "x.tfrecord", data)
	x, _ := openLog(t, path)
	wantRecords(t, x, want)

	// An index that is used is believed, which a harmless lie in it shows.
	st, err := os.Stat(path + ".index")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path + ".index")
	if err != nil {
		t.Fatal(err)
	}
	id, idx, err := decodeIndex(b)
	if err != nil || st.Size() != int64(72+8*20+4) {
		t.Fatalf("%d bytes, %v", st.Size(), err)
	}
	idx.offsets = idx.offsets[:19]
	if err := os.WriteFile(path+".index", encodeIndex(id, idx), 0o666); err != nil {
		t.Fatal(err)
	}
	x, log := openLog(t, path)
	if x.Len() != 19 || log != "" {
		t.Errorf("Len() = %d with an index of 19 records; log %q", x.Len(), log)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("files %v, %v", entries, err)
	}
}

func TestIndexIsRebuilt(t *testing.T) {
	want := sample(20)
	data, _ := stream(t, None, want...)
	other, _ := stream(t, None, want[1:]...)
	// The same size and time, other records in other places.
	swapped, _ := stream(t, None, slices.Concat(want[10:], want[:10])...)
	tail, _ := stream(t, None, slices.Concat(want[:18], want[19:], want[18:19])...)
	reseal := func(b []byte) []byte {
		return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32c.Table))
	}
	edit := func(change func(b []byte) []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			b, err := os.ReadFile(path + ".index")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path+".index", change(b), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(data []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, path string)
		want   [][]byte
		log    string
	}{
		{"flipped bit", edit(func(b []byte) []byte { b[70] ^= 4; return b }), want, "index checksum is"},
		{"truncated", edit(func(b []byte) []byte { return b[:100] }), want, "index checksum is"},
		{"cut to nothing", edit(func(b []byte) []byte { return nil }), want, "index has 0 bytes; it is truncated"},
		{"too large", edit(func(b []byte) []byte { return append(b, make([]byte, 1<<20)...) }), want, "expected at most"},
		{"another file", edit(func(b []byte) []byte { return bytes.Repeat([]byte("{}"), 50) }), want, "index begins with"},
		{"another version", edit(func(b []byte) []byte { b[8] = 1; return reseal(b[:len(b)-4]) }), want, "version is 1; expected 2"},
		{"wrong count", edit(func(b []byte) []byte { b[56]++; return reseal(b[:len(b)-4]) }), want, "count of 21 records"},
		{"falling offsets", edit(func(b []byte) []byte { b[80] = 3; return reseal(b[:len(b)-4]) }), want, "expected at least 16"},
		{"offset beyond the end", edit(func(b []byte) []byte { b[len(b)-6] = 1; return reseal(b[:len(b)-4]) }), want, "at most the file size"},
		{"offset of 2^63", edit(func(b []byte) []byte { b[len(b)-5] = 0x80; return reseal(b[:len(b)-4]) }), want, "index offset"},
		{"the file was replaced", replace(other), want[1:], "an earlier state"},
		{"and has the same size and time", replace(swapped), slices.Concat(want[10:], want[:10]), "an earlier state"},
		{"and begins the same", replace(tail), slices.Concat(want[:18], want[19:], want[18:19]), "an earlier state"},
		{"the file was touched", func(t *testing.T, path string) {
			if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}, want, "an earlier state"},
		{"a folder instead", func(t *testing.T, path string) {
			if err := errors.Join(os.Remove(path+".index"), os.Mkdir(path+".index", 0o777)); err != nil {
				t.Fatal(err)
			}
		}, want, "index is kept in memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, "x.tfrecord", data)
			x, log := openLog(t, path)
			wantRecords(t, x, want)
			if log != "" {
				t.Errorf("log %q", log)
			}
			tt.damage(t, path)
			x, log = openLog(t, path)
			wantRecords(t, x, tt.want)
			if !strings.Contains(log, tt.log) || !strings.Contains(log, "DEBUG") {
				t.Errorf("log %q, want %q", log, tt.log)
			}
			if strings.Contains(tt.log, "kept") {
				return
			}
			if x, log = openLog(t, path); log != "" {
				t.Errorf("the new index is not used: %q", log)
			}
			wantRecords(t, x, tt.want)
		})
	}
}

func TestIndexInUnwritableFolder(t *testing.T) {
	want := sample(5)
	data, _ := stream(t, None, want...)
	// /proc takes no new files, not even from root.
	f, err := os.Open(writeFile(t, "x.tfrecord", data))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := openIndexed(f, "/proc/x.tfrecord", int64(len(data)), newReaderConfig(nil))
	if err != nil {
		t.Fatal(err)
	}
	wantRecords(t, x, want)
}

func TestIndexOfDamagedFile(t *testing.T) {
	want := sample(20)
	data, offsets := stream(t, None, want...)
	data[offsets[7]+20] ^= 1 // data
	data[offsets[12]+3] ^= 1 // length
	path := writeFile(t, "x.tfrecord", data)
	rest := slices.Concat(want[:7], want[8:12], want[13:])
	lost := Skipped{2, offsets[8] - offsets[7] + offsets[13] - offsets[12]}
	for range 2 { // built, then loaded
		x, _ := openLog(t, path, OnCorrupt(Skip))
		if x.Skipped() != lost {
			t.Errorf("skipped %+v, want %+v", x.Skipped(), lost)
		}
		var buf []byte
		for i := range rest {
			var err error
			if buf, err = x.Record(i, buf); err != nil || !bytes.Equal(buf, rest[i]) {
				t.Fatalf("record %d: %q, %v", i, buf, err)
			}
		}
		// An index that leaves records out does not hide that there is damage.
		_, err := OpenIndexed(path)
		var c *CorruptError
		if !errors.As(err, &c) || c.Path != path || c.Record != 7 || c.Offset != offsets[7] {
			t.Errorf("error %v", err)
		}
	}
}

// Records are checked when they are read, too: what the index was built from
// may have changed under the open file.
func TestRecordErrors(t *testing.T) {
	records := [][]byte{make([]byte, 100), make([]byte, 200_000), make([]byte, 50)}
	data, offsets := stream(t, None, records...)
	for _, tt := range []struct {
		name   string
		change func(b []byte) []byte
		record int
		want   string
	}{
		{"length", func(b []byte) []byte { b[1] ^= 1; return b }, 0, "record 0 at byte 0: length checksum is"},
		{"data", func(b []byte) []byte { b[offsets[2]+15] ^= 1; return b }, 2, "data checksum is"},
		{"data of a long record", func(b []byte) []byte { b[offsets[1]+150_000] ^= 1; return b }, 1, "record 1 at byte 116: data checksum is"},
		{"longer", func(b []byte) []byte { copy(b, appendHeader(nil, 101)); return b }, 0, "truncated: has 104 bytes of data and checksum; expected 105"},
		{"truncated", func(b []byte) []byte { return b[:offsets[1]+100_000] }, 1, "truncated: has 99988 bytes of data and checksum; expected 200004"},
		{"truncated header", func(b []byte) []byte { return b[:offsets[2]+3] }, 2, "truncated: header has 3 bytes; expected 12"},
		{"over the limit", func(b []byte) []byte { copy(b, appendHeader(nil, 300_000)); return b }, 0, "length is 300000 bytes; expected at most 250000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, "x.tfrecord", data)
			x, _ := openLog(t, path, MaxRecordBytes(250_000))
			if err := os.WriteFile(path, tt.change(bytes.Clone(data)), 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := x.Record(tt.record, nil)
			var c *CorruptError
			if !errors.As(err, &c) || c.Path != path || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	path := writeFile(t, "x.tfrecord", data)
	x, _ := openLog(t, path)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Record(0, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Record after Close: %v", err)
	}
}

func TestRecordConcurrently(t *testing.T) {
	want := sample(50)
	for _, c := range []Compression{None, Gzip} {
		data, _ := stream(t, c, want...)
		x, _ := openLog(t, writeFile(t, "x.tfrecord", data))
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				var buf []byte
				for i := range 200 {
					i = (i*7 + g) % len(want)
					var err error
					if buf, err = x.Record(i, buf); err != nil || !bytes.Equal(buf, want[i]) {
						t.Errorf("record %d: %v", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestRecordReusesBuffer(t *testing.T) {
	data, _ := stream(t, None, sample(30)...)
	x, _ := openLog(t, writeFile(t, "x.tfrecord", data))
	var buf []byte
	i := 0
	next := func() {
		var err error
		if buf, err = x.Record(i%30, buf); err != nil {
			t.Fatal(err)
		}
		i++
	}
	for range 30 {
		next()
	}
	room := cap(buf)
	if n := testing.AllocsPerRun(90, next); n != 0 || cap(buf) != room {
		t.Errorf("%v allocations per record, room for %d bytes after %d", n, cap(buf), room)
	}
}

func TestIndexedCompressed(t *testing.T) {
	want := sample(40)
	data, _ := stream(t, Zlib, want...)
	path := writeFile(t, "x.tfrecord", data)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	x, _ := openLog(t, path)
	wantRecords(t, x, want)
	for dir, n := range map[string]int{tmp: 0, filepath.Dir(path): 1} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != n {
			t.Errorf("%s holds %v, %v", dir, left, err)
		}
	}
	_, err := OpenIndexed(path, MaxInflatedBytes(1000), OnCorrupt(Skip))
	if err == nil || !strings.Contains(err.Error(), "uncompressed content is larger than the limit of 1000 bytes") || errors.As(err, new(*CorruptError)) {
		t.Errorf("beyond the limit: %v", err)
	}
	t.Setenv("TMPDIR", tmp+"/none")
	if _, err = OpenIndexed(path); err == nil || !strings.Contains(err.Error(), "temporary file") {
		t.Errorf("without a folder for temporary files: %v", err)
	}
}

// A file that changes while it is indexed is no file to index. The log's
// handler is what runs in the middle.
func TestIndexOfChangingFile(t *testing.T) {
	data, offsets := stream(t, None, sample(5)...)
	data[offsets[2]] ^= 1
	path := writeFile(t, "x.tfrecord", data)
	h := handler(func() {
		if err := os.WriteFile(path, data[:offsets[4]], 0o666); err != nil {
			t.Fatal(err)
		}
	})
	_, err := OpenIndexed(path, OnCorrupt(Skip), Logger(slog.New(h)))
	if err == nil || err.Error() != path+" changed while it was read; try again" {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(path + ".index"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an index was written: %v", err)
	}
}

// handler is a slog.Handler that does something at every record.
type handler func()

func (handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h handler) WithGroup(string) slog.Handler          { return h }
func (h handler) Handle(context.Context, slog.Record) error {
	h()
	return nil
}

func TestOpenIndexedErrors(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{dir: "is a folder", dir + "/none": "no such file", "/dev/null": "expected a regular file"} {
		if x, err := OpenIndexed(name); x != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzIndex gives the parser bytes with a good checksum, so that it must judge
// them by what they say.
func FuzzIndex(f *testing.F) {
	id := identity{size: 1000, mtime: 1, head: 2, tail: 3}
	good := encodeIndex(id, index{offsets: []int64{0, 16, 500}, size: 1000, skipped: Skipped{1, 20}, digest: 1 << 63})
	f.Add(good[:len(good)-4])
	f.Add(good[:64])
	f.Add([]byte(indexMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32c.Table))
		id, idx, err := decodeIndex(b)
		if err != nil {
			return
		}
		if again := encodeIndex(id, idx); !bytes.Equal(again, b) {
			t.Errorf("decoded %x, encoded %x", b, again)
		}
		for i, o := range idx.offsets {
			if o < 0 || o+frameBytes > idx.size || i > 0 && o < idx.offsets[i-1]+frameBytes {
				t.Errorf("offsets %v in a file of %d", idx.offsets, idx.size)
			}
		}
	})
}

// TestDigest wants a digest to tell records from others, and to stay the same when the index
// is read back or the file is compressed.
func TestDigest(t *testing.T) {
	want := sample(20)
	digest := func(name string, c Compression, records [][]byte) uint64 {
		t.Helper()
		data, _ := stream(t, c, records...)
		path := writeFile(t, name, data)
		built, _ := openLog(t, path)
		read, _ := openLog(t, path)
		if built.Digest() != read.Digest() {
			t.Errorf("%s: digest %x, read back %x", name, built.Digest(), read.Digest())
		}
		return built.Digest()
	}
	plain := digest("x.tfrecord", None, want)
	if got := digest("x.tfrecord.gz", Gzip, want); got != plain {
		t.Errorf("compressed: digest %x, want %x", got, plain)
	}
	other := slices.Clone(want)
	other[10] = bytes.Clone(other[10])
	other[10][len(other[10])/2] ^= 1
	swapped := slices.Clone(want)
	swapped[3], swapped[4] = swapped[4], swapped[3]
	for name, records := range map[string][][]byte{"one bit": other, "another order": swapped, "one less": want[:19], "none": nil} {
		if got := digest("x.tfrecord", None, records); got == plain {
			t.Errorf("%s: the same digest %x", name, got)
		}
	}
}
