package table

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Whatever a file holds, reading it ends, each bad row is told with a line that the
// file has, and what comes out is UTF-8.
func FuzzTable(f *testing.F) {
	formats := []Format{TSV, CSV, JSONL, JSON}
	charsets := []Charset{UTF8, Latin1, Windows1252}
	f.Add([]byte("\ufefft\tl\r\na\tb\r\n\n\"\t\xff\n"), byte(0), byte(0), false)
	f.Add([]byte("t,l\n\"a\n\"\"b\",c\nd,\"e\nf"), byte(1), byte(1), false)
	f.Add([]byte(`{"t":"a","l":1}`+"\n{\n"+`{"t":null}`), byte(2), byte(2), false)
	f.Add([]byte("a\tb\nc"), byte(0), byte(2), true)
	f.Add([]byte("t;l\n\"a;b\";c"), byte(5), byte(0), false)
	f.Add([]byte("\n[{\"t\": \"a]\\\"\",\n \"l\": [1]}, 2 , {\"t\":\"b\"}]\n"), byte(3), byte(0), false)
	f.Add([]byte(`[{"t":1}`), byte(3), byte(0), false)
	f.Fuzz(func(t *testing.T, data []byte, format, charset byte, bare bool) {
		cfg := Config{Format: formats[int(format)%4], Charset: charsets[int(charset)%3]}
		if !cfg.Format.Objects() && format >= 4 {
			cfg.Delimiter = ';'
		}
		columns := []Column{{Name: "t", Words: true}, {Name: "l", Optional: true}, {Name: "", Optional: true}}
		if bare {
			cfg.Names = Numbered
			columns[0].Name, columns[1].Name = "1", "2"
		}
		line := func(err error) {
			var row *Error
			if !errors.As(err, &row) || row.Line < 1 || row.Line > int64(len(data))+1 || !utf8.ValidString(row.Reason) {
				t.Fatalf("%q: %v", data, err)
			}
		}
		tab, err := New(bytes.NewReader(data), "x", cfg)
		if err == nil {
			err = tab.Select(columns...)
		}
		if err != nil {
			line(err)
			return
		}
		c := tab.NewCutter()
		for n := int64(0); ; n++ {
			text, at, number, err := tab.Next()
			if err == io.EOF {
				break
			}
			if err != nil && cfg.Format == JSON && !errors.As(err, new(*Error)) {
				// A broken array cannot be read on.
				if _, _, _, again := tab.Next(); fault.Of(err) != fault.Damaged || again != io.EOF {
					t.Fatalf("%q: %v, then %v", data, err, again)
				}
				return
			}
			if number != n {
				t.Fatalf("%q: row %d has number %d", data, n, number)
			}
			var fields []Field
			if err == nil {
				fields, err = c.Cut(string(text), at)
			}
			if err != nil {
				line(err)
				continue
			}
			if len(fields) != 3 || !fields[0].OK || fields[2].OK {
				t.Fatalf("%q: fields %v", data, fields)
			}
			for _, f := range fields {
				if !utf8.ValidString(f.Text) {
					t.Fatalf("%q: field %q", data, f.Text)
				}
			}
		}
		if tab.Bytes() != int64(len(data)) {
			t.Fatalf("%q: %d bytes read", data, tab.Bytes())
		}
	})
}
