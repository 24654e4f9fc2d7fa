package convert

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"unicode/utf8"
)

// Whatever a file holds, reading it ends, each bad row is told with a line that the
// file has, and what comes out is UTF-8.
func FuzzTable(f *testing.F) {
	formats := []Format{TSV, CSV, JSONL}
	charsets := []Charset{UTF8, Latin1, Windows1252}
	f.Add([]byte("\ufefft\tl\r\na\tb\r\n\n\"\t\xff\n"), byte(0), byte(0), false)
	f.Add([]byte("t,l\n\"a\n\"\"b\",c\nd,\"e\nf"), byte(1), byte(1), false)
	f.Add([]byte(`{"t":"a","l":1}`+"\n{\n"+`{"t":null}`), byte(2), byte(2), false)
	f.Add([]byte("a\tb\nc"), byte(0), byte(2), true)
	f.Fuzz(func(t *testing.T, data []byte, format, charset byte, bare bool) {
		cfg := &Config{Format: formats[int(format)%3], Charset: charsets[int(charset)%3], NoHeader: bare}
		columns := []column{{name: "t", words: true}, {name: "l", optional: true}, {name: "", optional: true}}
		if bare {
			columns[0].name, columns[1].name = "1", "2"
		}
		line := func(err error) {
			var row *RowError
			if !errors.As(err, &row) || row.Line < 1 || row.Line > int64(len(data))+1 || !utf8.ValidString(row.Reason) {
				t.Fatalf("%q: %v", data, err)
			}
		}
		tab, err := newTable(cfg, &meter{r: bytes.NewReader(data)}, "x", columns)
		if err != nil {
			line(err)
			return
		}
		c := cutter{t: tab}
		for n := int64(0); ; n++ {
			text, at, number, err := tab.next()
			if err == io.EOF {
				break
			}
			if number != n {
				t.Fatalf("%q: row %d has number %d", data, n, number)
			}
			var fields []field
			if err == nil {
				fields, err = c.cut(string(text), at)
			}
			if err != nil {
				line(err)
				continue
			}
			if len(fields) != 3 || !fields[0].ok || fields[2].ok {
				t.Fatalf("%q: fields %v", data, fields)
			}
			for _, f := range fields {
				if !utf8.ValidString(f.text) {
					t.Fatalf("%q: field %q", data, f.text)
				}
			}
		}
		if tab.raw.n != int64(len(data)) {
			t.Fatalf("%q: %d bytes read", data, tab.raw.n)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":"gorbit-dataset","version":1,"vocab":{"file":"v","size":1},"max_length":3,"splits":{"train":null}}`))
	f.Add([]byte(`{"format":"gorbit-dataset","version":1,"vocab":{"file":"v","size":1},"max_length":3,"labels":["a"],"splits":{"train":{"files":[{"name":"x","records":1}],"records":1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, reason := parseManifest(data)
		if reason != "" {
			return
		}
		if err := m.TokenizerConfig().Validate(); err != nil && m.Vocab.MaxWordChars >= 0 {
			t.Fatal(err)
		}
		if err := m.Verify(context.Background(), t.TempDir()); err == nil {
			t.Fatalf("an empty folder passes for %s", data)
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, reason := parseManifest(again); reason != "" {
			t.Fatalf("%s: %s", again, reason)
		}
	})
}
