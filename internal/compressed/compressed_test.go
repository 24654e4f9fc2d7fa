package compressed

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	content := strings.Repeat("a line\n", 10_000)
	for name, small := range map[string]bool{"a.csv": false, "a.csv.gz": true, "a.csv.zst": true, "A.CSV.GZ": true, "a.gz.csv": false} {
		var files [2]bytes.Buffer
		for i := range files {
			w, err := NewWriter(&files[i], name)
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
		if _, is := Cut(name); is != small {
			t.Errorf("%s is taken for compressed: %v", name, is)
		}
		r, err := NewReader(&files[0], name)
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
	w, err := NewWriter(&file, "a.gz")
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
		r, err := NewReader(strings.NewReader("no such file at all"), name)
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if err == nil {
			t.Errorf("%s of another format was read", name)
		}
	}
}

func TestCut(t *testing.T) {
	for name, want := range map[string]string{"a/b.csv.gz": "a/b.csv", "b.Zst": "b", "b.gz.csv": "b.gz.csv", "": ""} {
		if got, _ := Cut(name); got != want {
			t.Errorf("%s is %s without its ending, expected %s", name, got, want)
		}
	}
}
