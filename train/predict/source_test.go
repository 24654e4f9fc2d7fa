package predict

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
)

func readAll(t *testing.T, l *Lines) ([]text.Pair, error) {
	t.Helper()
	var out []text.Pair
	for {
		e, err := l.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

func TestLines(t *testing.T) {
	for _, test := range []struct {
		name  string
		input string
		parse func(string) (text.Pair, error)
		want  []text.Pair
		err   string
	}{
		{"last line without end", "a\nb", ParseTSV, []text.Pair{{A: "a", B: ""}, {A: "b", B: ""}}, ""},
		{"blank lines are texts", "a\n\nb\n", ParseTSV, []text.Pair{{A: "a", B: ""}, {A: "", B: ""}, {A: "b", B: ""}}, ""},
		{"quotes mean nothing", "\"a\tb\"\n", ParseTSV, []text.Pair{{A: `"a`, B: `b"`}}, ""},
		{"byte order mark and CRLF", "\xef\xbb\xbfa\r\nb\tc\r\n", ParseTSV, []text.Pair{{A: "a", B: ""}, {A: "b", B: "c"}}, ""},
		{"long line", strings.Repeat("ab ", 100_000) + "\nb\n", ParseTSV, []text.Pair{{A: strings.Repeat("ab ", 100_000), B: ""}, {A: "b", B: ""}}, ""},
		{"objects", `{"text":"a"}` + "\n" + `{"text_pair":"c","text":"b\tb"}`, ParseJSON, []text.Pair{{A: "a", B: ""}, {A: "b\tb", B: "c"}}, ""},
		{"blank lines between objects", "\n{\"text\":\"a\"}\n \t\r\n\n{\"text\":1}\n\n", ParseJSON, []text.Pair{{A: "a"}}, `in:5: "text" is 1`},
		{"no text", `{"text":"a"}` + "\n{}\n", ParseJSON, []text.Pair{{A: "a", B: ""}}, `in:2: the field "text" is missing`},
		{"no object", `["a"]`, ParseJSON, nil, `in:1: the line is ["a"]; expected an object with the field "text"`},
		{"no JSON", `{"text":`, ParseJSON, nil, `in:1: not an object with the field "text": unexpected end of JSON input`},
		{"null", `{"text":null}`, ParseJSON, nil, `in:1: the field "text" is missing`},
		{"other fields", `{"text":"a","Text":1,"id":[2]}`, ParseJSON, []text.Pair{{A: "a"}}, ""},
		{"text of another type", `{"text":1}`, ParseJSON, nil, `in:1: "text" is 1; expected a text in quotes`},
		{"pair of another type", `{"text":"a","text_pair":["b"]}`, ParseJSON, nil, `in:1: "text_pair" is ["b"]; expected a text in quotes`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := readAll(t, NewLines(iotest.OneByteReader(strings.NewReader(test.input)), "in", test.parse))
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if len(got) != len(test.want) {
				t.Fatalf("%d examples, want %d", len(got), len(test.want))
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("example %d is %q, want %q", i, got[i], test.want[i])
				}
			}
		})
	}
}

// TestFilesWithoutLines wants no answers to texts that are not there.
func TestFilesWithoutLines(t *testing.T) {
	for input, want := range map[string]string{
		"a\x00b\x00c\x00\n\x00": "in:1: is UTF-16; expected UTF-8; convert the file, as with iconv -f UTF-16LE -t UTF-8",
		"a\rb\r":                `in:1: lines end with carriage returns alone; expected line feeds; convert the file, as with tr '\r' '\n'`,
	} {
		if got, err := readAll(t, NewLines(strings.NewReader(input), "in", ParseTSV)); len(got) > 0 || err == nil || err.Error() != want {
			t.Errorf("%q: %q, error %v; expected %s", input, got, err, want)
		}
	}
	if got, err := readAll(t, NewLines(strings.NewReader("a\r"), "in", ParseTSV)); err != nil || len(got) != 1 || got[0].A != "a" {
		t.Errorf("a carriage return at the end: %q, error %v", got, err)
	}
}

func TestLineWithoutEnd(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("a\n"), strings.NewReader(strings.Repeat("x", maxLineBytes+1)))
	got, err := readAll(t, NewLines(endless, "in", ParseTSV))
	if len(got) != 1 || err == nil || !strings.Contains(err.Error(), "in:2: the line has more than") {
		t.Errorf("%d examples, error %v", len(got), err)
	}
}

func TestReadError(t *testing.T) {
	failing := io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("disk on fire")))
	got, err := readAll(t, NewLines(failing, "in", ParseTSV))
	if len(got) != 1 || err == nil || err.Error() != "in:2: disk on fire" {
		t.Errorf("%d examples, error %v", len(got), err)
	}
}

func FuzzLines(f *testing.F) {
	f.Add("a\tb\nc\n", false)
	f.Add(`{"text":"a","text_pair":"b"}`, true)
	f.Fuzz(func(t *testing.T, input string, objects bool) {
		parse := ParseTSV
		if objects {
			parse = ParseJSON
		}
		got, err := readAll(t, NewLines(strings.NewReader(input), "in", parse))
		if most := strings.Count(input, "\n") + 1; len(got) > most {
			t.Errorf("%d examples in %d lines", len(got), most)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "in:") {
			t.Errorf("an error that names no line: %v", err)
		}
	})
}

// A text of the command line is held to what a file's is.
func TestListIsUTF8(t *testing.T) {
	for _, l := range []*List{{Texts: []string{"a\xff"}}, {Texts: []string{"a"}, Pairs: []string{"\xfe"}}} {
		if _, err := l.Next(); !errors.Is(err, fault.Usage) || err.Error() != "text 1 is not valid UTF-8" {
			t.Errorf("error %v", err)
		}
	}
}
