package predict

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
)

// A text without tokens is refused with its line, and so is a second text, as far as it is given, and a
// row without one for a model of pairs. With Skip the others
// are answered, each in its own row.
func TestEmptyTexts(t *testing.T) {
	lines := func(parse func(string) (text.Pair, error)) func(string) Source {
		return func(s string) Source { return NewLines(strings.NewReader(s), "x", parse) }
	}
	rows := func(columns Columns) func(string) Source {
		return func(s string) Source {
			in, err := NewTable(strings.NewReader(s), "x.tsv", columns)
			if err != nil {
				t.Fatal(err)
			}
			return in
		}
	}
	p := newPredictor(t, lengths{}, Config{Window: 1})
	for name, c := range map[string]struct {
		open  func(string) Source
		text  string
		wants []string // one for each line that is refused
		good  int
	}{
		"lines":   {lines(ParseTSV), "a\n\na\n \t a\n\u200b\na\xff\na\n", []string{"x:2: the text is empty", "x:4: the first text is empty", "x:5: the text is empty", "x:6: the line is not valid UTF-8"}, 3},
		"pairs":   {lines(ParseTSV), "a\ta\na\t\u200b\na\n", []string{"x:2: the second text is empty"}, 2},
		"objects": {lines(ParseJSON), `{"text":" "}` + "\n" + `{"text":"a","text_pair":" "}` + "\n" + `{"text":"a","text_pair":null}`, []string{"x:1: the text is empty", "x:2: the second text is empty"}, 1},
		"columns": {rows(Columns{Text: "t"}), "n\tt\n1\t\n2\ta\n3\n4\ta\n", []string{"x.tsv:2: the text is empty", "x.tsv:4: has 1 column"}, 2},
		"both":    {rows(Columns{Text: "t", Pair: "u"}), "t\tu\na\t \na\ta\n\ta\na\t\n", []string{"x.tsv:2: the second text is empty", "x.tsv:4: the first text is empty", "x.tsv:5: the second text is empty"}, 1},
	} {
		open := func() Source {
			return CheckPairs(c.open(c.text), name == "both", func(int, string) {})
		}
		_, err := p.Each(t.Context(), open(), func(Answer) error { return nil })
		if fault.Of(err) != fault.Damaged || !strings.Contains(fmt.Sprint(err), c.wants[0]) {
			t.Errorf("%s: %v; expected %s", name, err, c.wants[0])
		}
		var got []string
		skipping := newPredictor(t, lengths{}, Config{Window: 2, Skip: func(err error) { got = append(got, err.Error()) }})
		done, err := skipping.Each(t.Context(), open(), func(Answer) error { return nil })
		if err != nil || done.Answers != c.good || len(got) != len(c.wants) || slices.IndexFunc(got, func(s string) bool {
			return !slices.ContainsFunc(c.wants, func(w string) bool { return strings.Contains(s, w) })
		}) >= 0 {
			t.Errorf("%s: %d answers, %v, refused %q; expected %d and %q", name, done.Answers, err, got, c.good, c.wants)
		}
	}
	if _, err := p.Answer(t.Context(), text.Pair{A: "a"}, text.Pair{A: "\t"}); fault.Of(err) != fault.Usage || !strings.Contains(fmt.Sprint(err), "text 2: the text is empty") {
		t.Errorf("%v", err)
	}
	// The rows that are written are those that have an answer.
	in := rows(Columns{Text: "t"})("n\tt\n1\t\n2\ta\n3\n4\ta\n")
	var out strings.Builder
	write, _, err := Writer(&out, in, TSV, skipped(p).Renderer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := skipped(p).Each(t.Context(), in, write); err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(out.String(), "\n"); len(got) != 4 || !strings.HasPrefix(got[1], "2\ta\t") || !strings.HasPrefix(got[2], "4\ta\t") {
		t.Errorf("%q", got)
	}
}

// skipped returns a predictor that leaves out what it cannot answer.
func skipped(p *Predictor) *Predictor {
	other := *p
	other.Skip = func(error) {}
	return &other
}
