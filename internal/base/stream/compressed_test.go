package stream

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

func TestRoundTrip(t *testing.T) {
	content := strings.Repeat("a line\n", 10_000)
	for name, small := range map[string]bool{"a.csv": false, "a.csv.gz": true, "a.csv.zst": true, "A.CSV.GZ": true, "a.gz.csv": false} {
		var files [2]bytes.Buffer
		for i := range files {
			w, err := Compress(&files[i], name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(files[0].Bytes(), files[1].Bytes()) {
			t.Errorf("%s: the same content gives other bytes", name)
		}
		if got := files[0].Len() < 1000; got != small {
			t.Errorf("%s has %d bytes of %d", name, files[0].Len(), len(content))
		}
		if _, is := CutSuffix(name); is != small {
			t.Errorf("%s is taken for compressed: %v", name, is)
		}
		r, err := Decompress(&files[0], name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != content || r.Close() != nil {
			t.Errorf("%s: read %d bytes, %v; expected %d", name, len(got), err, len(content))
		}
	}
}

// TestOtherReaders reads what is written with the standard library, and a file that has an end too
// early.
func TestOtherReaders(t *testing.T) {
	var file bytes.Buffer
	w, err := Compress(&file, "a.gz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "content"); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "content" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	for _, name := range []string{"a.gz", "a.zst"} {
		r, err := Decompress(strings.NewReader("no such file at all"), name)
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if err == nil {
			t.Errorf("%s of another format was read", name)
		}
	}
}

// TestDamage reads a file that is cut short, as by a download that broke off, and one that cannot be
// read to its end for another reason.
func TestDamage(t *testing.T) {
	for _, name := range []string{"a.gz", "a.zst"} {
		var file bytes.Buffer
		w, err := Compress(&file, name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			fmt.Fprintf(w, "line %d\n", i*i)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		half := file.Bytes()[:file.Len()/2]
		away := errors.New("the disk is away")
		for _, tt := range []struct {
			r    io.Reader
			want fault.Class
		}{{bytes.NewReader(half), fault.Damaged}, {io.MultiReader(bytes.NewReader(half), iotest.ErrReader(away)), fault.Failed}} {
			r, err := Decompress(tt.r, name)
			if err == nil {
				_, err = io.ReadAll(r)
			}
			if err == nil || fault.Of(err) != tt.want || errors.Is(err, away) != (tt.want == fault.Failed) {
				t.Errorf("%s: got %v, expected class %v", name, err, tt.want)
			}
		}
	}
}

func TestCut(t *testing.T) {
	for name, want := range map[string]string{"a/b.csv.gz": "a/b.csv", "b.Zst": "b", "b.gz.csv": "b.gz.csv", "": ""} {
		if got, _ := CutSuffix(name); got != want {
			t.Errorf("%s is %s without its ending, expected %s", name, got, want)
		}
	}
}
