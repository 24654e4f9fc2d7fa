package tfrecord

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// wantCorrupt checks that err is damage of the record at the offset.
func wantCorrupt(t *testing.T, err error, record, offset int64) {
	t.Helper()
	var c *CorruptError
	if !errors.As(err, &c) {
		t.Fatalf("error %v, want a CorruptError", err)
	}
	if c.Path != "test" || c.Record != record || c.Offset != offset || c.Reason == "" {
		t.Fatalf("error %+v, want record %d at %d", *c, record, offset)
	}
}

// Every single flipped bit of a plain file is damage of the record that it is
// in, and costs no other record.
func TestEveryFlippedBit(t *testing.T) {
	want := sample(5)
	data, offsets := stream(t, None, want...)
	for bit := range 8 * len(data) {
		bad := bytes.Clone(data)
		bad[bit/8] ^= 1 << (bit % 8)
		i := len(offsets) - 1
		for offsets[i] > int64(bit/8) {
			i--
		}
		got, _, err := readAll(t, bytes.NewReader(bad))
		wantCorrupt(t, err, int64(i), offsets[i])
		if !equalRecords(got, want[:i]) {
			t.Fatalf("bit %d: %d records before the damage, want %d", bit, len(got), i)
		}

		got, rd, err := readAll(t, bytes.NewReader(bad), OnCorrupt(Skip))
		if err != nil {
			t.Fatalf("bit %d: %v", bit, err)
		}
		rest := slices.Concat(want[:i], want[i+1:])
		if !equalRecords(got, rest) {
			t.Fatalf("bit %d: read %d records around the damage, want %d", bit, len(got), len(rest))
		}
		if s := rd.Skipped(); s != (Skipped{1, int64(len(want[i]) + frameBytes)}) || rd.Records() != int64(len(want)) {
			t.Fatalf("bit %d: skipped %+v of %d", bit, s, rd.Records())
		}
	}
}

func TestEveryTruncation(t *testing.T) {
	want := sample(5)
	data, offsets := stream(t, None, want...)
	for n := range data {
		whole, clean := slices.BinarySearch(offsets, int64(n))
		if !clean {
			whole--
		}
		for _, r := range []io.Reader{bytes.NewReader(data[:n]), iotest.OneByteReader(bytes.NewReader(data[:n]))} {
			got, _, err := readAll(t, r)
			if !equalRecords(got, want[:whole]) {
				t.Fatalf("cut at %d: %d records, want %d", n, len(got), whole)
			}
			if clean {
				if err != nil {
					t.Fatalf("cut at %d, between records: %v", n, err)
				}
				continue
			}
			wantCorrupt(t, err, int64(whole), offsets[whole])
		}
		got, rd, err := readAll(t, bytes.NewReader(data[:n]), OnCorrupt(Skip))
		if err != nil || !equalRecords(got, want[:whole]) {
			t.Fatalf("cut at %d: %d records, %v", n, len(got), err)
		}
		if lost := int64(n) - offsets[min(whole, len(offsets)-1)]; !clean && rd.Skipped() != (Skipped{1, lost}) {
			t.Fatalf("cut at %d: skipped %+v, want %d bytes", n, rd.Skipped(), lost)
		}
	}
}

// Compressed streams must never give a record that was not written, whatever
// happens to them, and must call their damage by its name.
func TestDamagedCompression(t *testing.T) {
	want := sample(6)
	for _, c := range []Compression{Gzip, Zlib} {
		data, _ := stream(t, c, want...)
		check := func(what string, at int, bad []byte) {
			got, _, err := readAll(t, bytes.NewReader(bad))
			if err != nil && !errors.As(err, new(*CorruptError)) {
				t.Fatalf("%v, %s %d: %v is no CorruptError", c, what, at, err)
			}
			if len(got) > len(want) || !equalRecords(got, want[:len(got)]) || err == nil && len(got) != len(want) && len(bad) > 0 {
				t.Fatalf("%v, %s %d: %d records, %v", c, what, at, len(got), err)
			}
			if _, _, err := readAll(t, bytes.NewReader(bad), OnCorrupt(Skip)); err != nil {
				t.Fatalf("%v, %s %d: %v under Skip", c, what, at, err)
			}
		}
		for bit := range 8 * len(data) {
			bad := bytes.Clone(data)
			bad[bit/8] ^= 1 << (bit % 8)
			check("bit", bit, bad)
		}
		for n := range data {
			check("cut at", n, data[:n])
		}
	}
}

func TestErrorText(t *testing.T) {
	data, _ := stream(t, None, []byte("first"), []byte("second"))
	big, _ := stream(t, None, []byte("first"), make([]byte, 2000))
	zipped, _ := stream(t, Gzip, []byte("first"), []byte("second"))
	flip := func(b []byte, i int) []byte {
		b = bytes.Clone(b)
		b[i] ^= 0x10
		return b
	}
	tests := []struct {
		name string
		data []byte
		want string
	}{
		{"length", flip(data, 21), "test: record 1 at byte 21: length checksum is 0x"},
		{"length checksum", flip(data, 21+9), "test: record 1 at byte 21: length checksum is 0x"},
		{"data", flip(data, 21+12), "test: record 1 at byte 21: data checksum is 0x"},
		{"data checksum", flip(data, len(data)-1), "for the 6 data bytes"},
		{"short header", data[:25], "record 1 at byte 21: truncated: header has 4 bytes; expected 12"},
		{"short data", data[:36], "record 1 at byte 21: truncated: has 3 bytes of data and checksum; expected 10"},
		{"too long", big, "record 1 at byte 21: length is 2000 bytes; expected at most 1000"},
		{"text", []byte("id\ttext\n1\tno record\n"), "record 0 at byte 0: length checksum is 0x"},
		{"not a TFRecord", []byte("id\ttext\n1\tno record\n"), "(not a TFRecord file, or damaged at its beginning)"},
		{"gzip cut", zipped[:len(zipped)-9], "of the uncompressed content: damaged gzip data: unexpected EOF"},
		{"gzip checksum", flip(zipped, len(zipped)-8), "record 2 at byte 43 of the uncompressed content: damaged gzip data: "},
		{"zlib cut", deflated(t, Zlib, data)[:8], "of the uncompressed content: damaged zlib data: unexpected EOF"},
		{"gzip header", zipped[:5], "record 0 at byte 0 of the uncompressed content: damaged gzip data: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, rd, err := readAll(t, bytes.NewReader(tt.data), MaxRecordBytes(1000))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q\nwant it to hold %q", err, tt.want)
			}
			if _, again := rd.Next(); again != err {
				t.Errorf("the second error is %v", again)
			}
		})
	}
}

// A length that its checksum confirms and that nothing else does must not
// decide what is allocated.
func TestLyingLength(t *testing.T) {
	data, _ := stream(t, None, []byte("good"))
	lie := append(appendHeader(bytes.Clone(data), 1<<31-100), make([]byte, 1<<20)...)
	whole, _ := stream(t, None, []byte("after"))
	for name, bad := range map[string][]byte{"at the end": lie, "in the middle": append(bytes.Clone(lie), whole...)} {
		unsized, err := NewReader(bytes.NewReader(bad), "test")
		if err != nil {
			t.Fatal(err)
		}
		sized, err := Open(writeFile(t, "x", bad))
		if err != nil {
			t.Fatal(err)
		}
		defer sized.Close()
		sized.name = "test"
		for _, rd := range []*Reader{unsized, sized} {
			for err = nil; err == nil; {
				_, err = rd.Next()
			}
			wantCorrupt(t, err, 1, 20)
			limit := initialBuffer
			if rd == unsized {
				limit = 4 << 20
			}
			if len(rd.buf) > limit {
				t.Errorf("%s: a buffer of %d bytes for a stream of %d", name, len(rd.buf), len(bad))
			}
		}
	}
	rd, err := Open(writeFile(t, "x", append(lie, whole...)), OnCorrupt(Skip))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	for _, want := range []string{"good", "after"} {
		if got, err := rd.Next(); err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if _, err := rd.Next(); err != io.EOF || rd.Skipped() != (Skipped{1, 12 + 1<<20}) || len(rd.buf) > initialBuffer {
		t.Errorf("skipped %+v with a buffer of %d bytes, %v", rd.Skipped(), len(rd.buf), err)
	}
}

// Files of lying headers, each over half of what follows, take linear time.
func TestLyingHeaders(t *testing.T) {
	const n = 100_000
	var headers, between []byte
	for i := range n {
		headers = appendHeader(headers, (n-i)*headerBytes/2)
		between = appendHeader(between, (n-i)*(headerBytes+frameBytes)/2)
		between = AppendRecord(between, nil)
	}
	for name, bad := range map[string][]byte{"headers only": headers, "between records": between} {
		_, rd, err := readAll(t, bytes.NewReader(bad), OnCorrupt(Skip))
		if err != nil || rd.Skipped().Bytes < n*headerBytes {
			t.Errorf("%s: skipped %+v, %v", name, rd.Skipped(), err)
		}
		if bound := int64(checkAllowance + (checkFactor+1)*len(bad)); rd.checked > bound {
			t.Errorf("%s: %d bytes checked of %d", name, rd.checked, len(bad))
		}
	}
}

// Records inside a damaged record's data are not taken for records.
func TestNestedRecords(t *testing.T) {
	inner, _ := stream(t, None, []byte("inner"))
	data, offsets := stream(t, None, []byte("before"), inner, []byte("after"))
	data[offsets[2]-1] ^= 1
	for _, tt := range []struct {
		data []byte
		want [][]byte
	}{
		{data, [][]byte{[]byte("before"), []byte("after")}},
		{data[:offsets[2]], [][]byte{[]byte("before")}},
	} {
		got, _, err := readAll(t, bytes.NewReader(tt.data), OnCorrupt(Skip))
		if err != nil || !equalRecords(got, tt.want) {
			t.Errorf("read %q, %v, want %q", got, err, tt.want)
		}
	}
}

// A writer that was killed, and another that continued after its torn record.
func TestTornThenAppended(t *testing.T) {
	want := sample(4)
	first, _ := stream(t, None, want[:3]...)
	second, _ := stream(t, None, want[3])
	got, rd, err := readAll(t, bytes.NewReader(append(first[:len(first)-7], second...)), OnCorrupt(Skip))
	if err != nil || !equalRecords(got, slices.Concat(want[:2], want[3:])) || rd.Skipped().Records != 1 {
		t.Errorf("read %d records, skipped %+v, %v", len(got), rd.Skipped(), err)
	}
}

func TestSniff(t *testing.T) {
	// Lengths whose first bytes are magic numbers.
	plain := map[string]int{"gzip": 0x088b1f, "zlib": 0x0178, "zlib default": 0x9c78, "zlib small window": 0x1d08}
	for name, n := range plain {
		data, _ := stream(t, None, make([]byte, n))
		_, rd, err := readAll(t, bytes.NewReader(data))
		if err != nil || rd.Compression() != None || rd.Records() != 1 {
			t.Errorf("a length like %s: %v, %d records, %v", name, rd.Compression(), rd.Records(), err)
		}
		if name == "gzip" {
			continue
		}
		data[8] ^= 1
		_, _, err = readAll(t, bytes.NewReader(data))
		if err == nil || !strings.Contains(err.Error(), "length checksum") {
			t.Errorf("a damaged length like %s: %v", name, err)
		}
	}
	// Several gzip members are one stream, even where they split a record.
	data, _ := stream(t, None, sample(10)...)
	var members []byte
	for part := range slices.Chunk(data, 100) {
		members = append(members, deflated(t, Gzip, part)...)
	}
	got, rd, err := readAll(t, bytes.NewReader(members))
	if err != nil || !equalRecords(got, sample(10)) || rd.Compression() != Gzip {
		t.Errorf("%d records of several members, %v", len(got), err)
	}
	for _, c := range []Compression{Gzip, Zlib} {
		got, _, err := readAll(t, bytes.NewReader(deflated(t, c, nil)))
		if err != nil || len(got) != 0 {
			t.Errorf("an empty %v stream: %d records, %v", c, len(got), err)
		}
	}
}

func deflated(t *testing.T, c Compression, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, Compress(c))
	if _, err := w.buf.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// A failing disk is not damage, and is not skipped.
func TestReadFailure(t *testing.T) {
	failure := errors.New("disk on fire")
	want := sample(4)
	for _, c := range []Compression{None, Gzip, Zlib} {
		data, _ := stream(t, c, want...)
		for n := range data {
			for _, policy := range []Policy{Fail, Skip} {
				r := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(failure))
				_, _, err := readAll(t, r, OnCorrupt(policy))
				if !errors.Is(err, failure) || !strings.HasPrefix(err.Error(), "test: ") {
					t.Fatalf("%v, %v, failure after %d bytes: %v", c, policy, n, err)
				}
			}
		}
		// In the middle of the search for the next record, too.
		r := io.MultiReader(bytes.NewReader(deflated(t, c, make([]byte, 100))), iotest.ErrReader(failure))
		if _, _, err := readAll(t, r, OnCorrupt(Skip)); c != Zlib && !errors.Is(err, failure) {
			t.Errorf("%v, failure after damage: %v", c, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := NewReader(strings.NewReader(""), "test", MaxRecordBytes(0)); err == nil {
		t.Error("a limit of 0 is accepted")
	}
	rd, err := Open(writeFile(t, "x", nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := rd.Close(); err != nil {
		t.Error(err)
	}
	if _, err := rd.Next(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Next after Close: %v", err)
	}
}

// A file that fails to take all of a record takes nothing after it.
func TestWriteFailure(t *testing.T) {
	for _, c := range []Compression{None, Gzip, Zlib} {
		full := &fullDisk{room: 100}
		w := NewWriter(full, Compress(c))
		var err error
		for i := 0; err == nil && i < 1<<20; i++ {
			noise := make([]byte, 997)
			for j := range noise {
				noise[j] = byte((i*j*j + j>>3*i) * 131 >> 5)
			}
			err = w.Write(noise)
		}
		if !errors.Is(err, errFull) {
			t.Fatalf("%v: %v", c, err)
		}
		full.room = 1 << 20
		if again := w.Write(nil); again != err {
			t.Errorf("%v: the second error is %v", c, again)
		}
		if again := w.Close(); again != err {
			t.Errorf("%v: Close gives %v", c, again)
		}
		if full.room != 1<<20 {
			t.Errorf("%v: %d bytes written after the failure", c, 1<<20-full.room)
		}
		if w.Close() != nil || w.Write(nil) == nil {
			t.Errorf("%v: a closed writer goes on", c)
		}
	}
	if err := NewWriter(io.Discard, Compress(9)).Write(nil); err == nil {
		t.Error("compression 9 is accepted")
	}
}

var errFull = errors.New("disk full")

type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if len(p) > d.room {
		return 0, errFull
	}
	d.room -= len(p)
	return len(p), nil
}
