package shown

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"plain\ttext, übung 日本 🙂\n": "plain\ttext, übung 日本 🙂\n",
		"\x1b[31mred\x1b[0m":        `\x1b[31mred\x1b[0m`,
		"\x1b]0;title\a\b\r\x00":    `\x1b]0;title\x07\x08\x0d\x00`,
		"del\x7f c1\u009b2J\u0085":  `del\u007f c1\u009b2J\u0085`,
		"safe\u202etxt.exe\u2066":   `safe\u202etxt.exe\u2066`,
		"bad \xff\xc3( \xed\xa0":    `bad \xff\xc3( \xed\xa0`,
		"kept \u200d\u200f\ufffd":   "kept \u200d\u200f\ufffd",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: %q, expected %q", text, got, want)
		}
		// The same in writes of a byte each.
		var out bytes.Buffer
		w := Writer(&out)
		for i := range len(text) {
			if n, err := w.Write([]byte(text[i : i+1])); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		_, _ = io.WriteString(w, "\n")
		if got := out.String(); got != want+"\n" {
			t.Errorf("%q byte by byte: %q, expected %q", text, got, want)
		}
	}
}

// JSON that was written out is JSON of the same values.
func TestJSONStaysJSON(t *testing.T) {
	want := "\x1b\x7f\u009b\u202e\u2069é"
	line, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(Text(string(line))), &got); err != nil || got != want {
		t.Errorf("%q, %v; expected %q", got, err, want)
	}
}
