package table

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// read returns the fields of all rows, as "line: a|b", and the error of a row in its place. The last
// error is the one that ended reading, "" for the end of the file.
func read(t *testing.T, data []byte, path string, cfg Config) (rows []string, last string) {
	t.Helper()
	tab, err := New(bytes.NewReader(data), path, cfg)
	if err == nil {
		err = tab.Select(Column{Name: "a"}, Column{Name: "b", Optional: true})
	}
	if err != nil {
		return nil, err.Error()
	}
	for c := tab.NewCutter(); ; {
		text, line, _, err := tab.Next()
		if err == io.EOF {
			return rows, ""
		}
		if err == nil {
			var f []Field
			if f, err = c.Cut(string(text), line); err == nil {
				rows = append(rows, fmt.Sprintf("%d: %s|%s", line, f[0].Text, f[1].Text))
				continue
			}
		}
		if !errors.As(err, new(*Error)) {
			if fault.Of(err) != fault.Damaged {
				t.Errorf("%v is no damage", err)
			}
			return rows, err.Error()
		}
		rows = append(rows, err.Error())
	}
}

func TestDelimitersAndArrays(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		data string
		rows string
		last string
	}{
		{"semicolons", Config{Format: CSV, Delimiter: ';'}, "a;b\n\"x;y\";\"1,5\"\nz;\n", "2: x;y|1,5 3: z|", ""},
		{"bars without quoting", Config{Format: TSV, Delimiter: '|'}, "a|b\n\"x|y\n", `2: "x|y`, ""},
		{"blank lines between objects", Config{Format: JSONL}, "\n{\"a\":1}\n \t\r\n\n{\"a\":2}\n  \n", "2: 1| 5: 2|", ""},
		{"quoted tabs", Config{Format: CSV, Delimiter: '\t'}, "a\tb\n\"x\ty\"\tz\n", "2: x\ty|z", ""},
		{"no delimiter", Config{Format: JSONL, Delimiter: ';'}, "{}", "", "x has format jsonl, which has no delimiter; expected tsv or csv"},
		{"array", Config{Format: JSON}, "\ufeff [\n{\"a\": \"]},\\\"\", \"b\": 1.5},\n\n{\"a\": true\n} ]\n ", `2: ]},"|1.5 4: true|`, ""},
		{"empty array", Config{Format: JSON}, "[ ]", "", ""},
		{"wrong element", Config{Format: JSON}, `[{"a":1}, 2, {"b":2}, {"a" 1}, {"a":3}]`,
			`1: 1| x:1: is 2; expected a JSON object x:1: has no "a"; its members are "b" x:1: is not a JSON object: invalid character '1' after object key 1: 3|`, ""},
		{"empty file", Config{Format: JSON}, "\n", "", "x:2: the file is empty; expected an array of objects, [{...}, ...]"},
		{"an object", Config{Format: JSON}, "\n{\"a\":1}\n{\"a\":2}\n", "", "x:2: begins with an object; expected an array of objects, [{...}, ...]; for an object on each line, choose the format jsonl"},
		{"a number", Config{Format: JSON}, "1", "", "x:1: begins with '1'; expected an array of objects, [{...}, ...]"},
		{"no end", Config{Format: JSON}, "[{\"a\":1},\n{\"a\":2}", "1: 1|", "x:2: the array does not end; expected ]"},
		{"two commas", Config{Format: JSON}, `[{"a":1},,{"a":2}]`, "1: 1|", "x:1: an element is missing before ','"},
		{"comma at the end", Config{Format: JSON}, `[{"a":1},]`, "1: 1|", "x:1: an element is missing before ']'"},
		{"two arrays", Config{Format: JSON}, "[{\"a\":1}]\n[{\"a\":2}]", "", "x:2: '[' follows the array; expected nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows, last := read(t, []byte(tt.data), "x", tt.cfg)
			if got := strings.Join(rows, " "); got != tt.rows || last != tt.last {
				t.Errorf("rows\n%s\n%q, expected\n%s\n%q", got, last, tt.rows, tt.last)
			}
		})
	}
}

func TestCompressed(t *testing.T) {
	plain := `[{"a":1},{"a":2}]`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, plain)
	z.Close()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{"x.json.gz": zipped.Bytes(), "x.json.zst": e.EncodeAll([]byte(plain), nil)} {
		rows, last := read(t, data, path, Config{Format: FormatOf(path)})
		if got := strings.Join(rows, " "); got != "1: 1| 1: 2|" || last != "" {
			t.Errorf("%s: rows %s, error %q", path, got, last)
		}
	}
}

func TestParseDelimiter(t *testing.T) {
	for s, want := range map[string]byte{"": 0, ";": ';', "tab": '\t', `\t`: '\t', "\t": '\t', " ": ' ', "|": '|'} {
		if got, err := ParseDelimiter(s); got != want || err != nil {
			t.Errorf("%q: %q, %v; expected %q", s, got, err, want)
		}
	}
	for _, s := range []string{"ab", "é", `"`, "\n", "\r", "\x00"} {
		if got, err := ParseDelimiter(s); err == nil {
			t.Errorf("%q: %q, expected an error", s, got)
		}
	}
}
