package tfrecord

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// stream writes the records and returns the bytes and where each begins.
func stream(t testing.TB, c Compression, records ...[]byte) ([]byte, []int64) {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, Compress(c))
	var offsets []int64
	var framed []byte
	for _, r := range records {
		offsets = append(offsets, w.Size())
		framed = AppendRecord(framed, r)
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Size() != int64(len(framed)) || w.Records() != int64(len(records)) || c == None && !bytes.Equal(buf.Bytes(), framed) {
		t.Fatalf("%d records in %d bytes, AppendRecord makes %d", w.Records(), w.Size(), len(framed))
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

// goldenRecords are those of testdata/generate.py.
func goldenRecords() [][]byte {
	var records [][]byte
	for i, n := range []int{0, 1, 11, 12, 13, 376, 1000, 4096, 2} {
		r := make([]byte, n)
		for j := range r {
			r[j] = byte((i*7 + j) % 251)
		}
		records = append(records, r)
	}
	return records
}

func TestGoldenRecords(t *testing.T) {
	want := goldenRecords()
	for name, c := range map[string]Compression{"records.tfrecord": None, "records.tfrecord.gz": Gzip, "records.tfrecord.zz": Zlib} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		got, rd, err := readAll(t, bytes.NewReader(data))
		if err != nil || !equalRecords(got, want) || rd.Compression() != c {
			t.Errorf("%s: %d records, %v, %v", name, len(got), rd.Compression(), err)
		}
		if wrote, _ := stream(t, None, want...); c == None && !bytes.Equal(wrote, data) {
			t.Errorf("%s: wrote other bytes than TensorFlow", name)
		}
	}
}

// TestTensorFlowReads lets TensorFlow read what is written here.
func TestTensorFlowReads(t *testing.T) {
	const script = `
import hashlib, sys
import tensorflow as tf
for path, compression in zip(sys.argv[1::2], sys.argv[2::2]):
    for r in tf.data.TFRecordDataset(path, compression).as_numpy_iterator():
        print(compression, len(r), hashlib.sha256(r).hexdigest())
spec = {
    "ids": tf.io.FixedLenFeature([3], tf.int64), "w": tf.io.VarLenFeature(tf.float32),
    "s": tf.io.FixedLenFeature([], tf.string), "none": tf.io.FixedLenFeature([1], tf.int64, [7]),
}
for r in tf.data.TFRecordDataset(sys.argv[1]).skip(9):
    e = tf.io.parse_single_example(r, spec)
    print(e["ids"].numpy(), e["w"].values.numpy(), e["s"].numpy(), e["none"].numpy())
`
	ex, err := AppendExample(nil, Int64Feature("ids", 1, -2, 1<<62), FloatFeature("w", 0.5, -1),
		BytesFeature("s", []byte("\x00é")), Feature{Name: "none"})
	if err != nil {
		t.Fatal(err)
	}
	records := append(goldenRecords(), ex)
	var args []string
	var want bytes.Buffer
	for c, name := range map[Compression]string{None: "", Gzip: "GZIP", Zlib: "ZLIB"} {
		path := filepath.Join(t.TempDir(), c.String())
		w, err := Create(path, Compress(c))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		args = append(args, path, name)
		if c == None { // the script reads the first file's Example
			args = append([]string{path, name}, args[:len(args)-2]...)
		}
	}
	for i := 1; i < len(args); i += 2 {
		for _, r := range records {
			fmt.Fprintf(&want, "%s %d %x\n", args[i], len(r), sha256.Sum256(r))
		}
	}
	want.WriteString("[                  1                  -2 4611686018427387904] [ 0.5 -1. ] b'\\x00\\xc3\\xa9' [7]\n")
	if got := testkit.RunPython(t, script, args...); got != want.String() {
		t.Errorf("TensorFlow read\n%s\nwant\n%s", got, want.String())
	}
}

// FuzzReader holds that any bytes are read to their end under Skip, that every
// byte is either in a record or counted as lost, and that Fail gives the same
// records up to the damage.
func FuzzReader(f *testing.F) {
	data, _ := stream(f, None, sample(4)...)
	f.Add(data)
	f.Add(data[3:])
	f.Add(append(bytes.Clone(data[:60]), data...))
	f.Add(append(appendHeader(nil, 1<<30), data...))
	for _, c := range []Compression{Gzip, Zlib} {
		z, _ := stream(f, c, sample(4)...)
		f.Add(z)
		f.Add(z[:len(z)-5])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, rd, err := readAll(t, bytes.NewReader(data), OnCorrupt(Skip), MaxRecordBytes(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		total := rd.Skipped().Bytes
		for _, r := range all {
			total += int64(len(r) + frameBytes)
		}
		if total != rd.pos() || rd.Compression() == None && total != int64(len(data)) {
			t.Fatalf("%d bytes in records and skipped, of %d", total, rd.pos())
		}
		if n := int64(len(all)) + rd.Skipped().Records; n != rd.Records() {
			t.Fatalf("%d records and damaged places, Records() = %d", n, rd.Records())
		}
		first, _, err := readAll(t, bytes.NewReader(data), MaxRecordBytes(1<<20))
		if len(first) > len(all) || !equalRecords(first, all[:len(first)]) || (err != nil) != (rd.Skipped().Records > 0) {
			t.Fatalf("%d of %d records, skipped %+v, %v", len(first), len(all), rd.Skipped(), err)
		}
		if err != nil && !errors.As(err, new(*CorruptError)) {
			t.Fatal(err)
		}
	})
}

func TestParse(t *testing.T) {
	for s, want := range map[string]Compression{"": None, "none": None, "GZIP": Gzip, "gzip": Gzip, "Zlib": Zlib} {
		if c, err := ParseCompression(s); c != want || err != nil {
			t.Errorf("%q: %v, %v", s, c, err)
		}
	}
	if _, err := ParseCompression("bzip2"); err == nil {
		t.Error("bzip2 is accepted")
	}
	for _, p := range []Policy{Fail, Skip} {
		if got, err := ParsePolicy(p.String()); got != p || err != nil {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("ignore"); err == nil {
		t.Error("ignore is accepted")
	}
}
