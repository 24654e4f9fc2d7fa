package evaluation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestWriteTable(t *testing.T) {
	shown := func(e *Evaluation, columns int) string {
		t.Helper()
		var b strings.Builder
		if err := e.WriteTable(&b, columns); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	e := &Evaluation{}
	if got := shown(e, 0); got != "" {
		t.Errorf("an evaluation without tables prints %q", got)
	}
	e.Classes = &Classes{Of: OfLabel, Each: []Class{{"無", 0.5, 1, 2. / 3, 1, 2, 1}, {"yes", 1, 0.75, 0.85714, 4, 3, 3}}, Averages: []Class{{"micro avg", 0.8, 0.8, 0.8, 5.25, 5.25, 4}}}
	e.Confusion = NewConfusion([]float64{1, 0, 1, 3}, 2, []string{"無", "yes"})
	e.Errors = &Errors{Mean: 0.1, Quantiles: []Quantile{{0, -1.5}, {0.5, 0.25}}, AbsoluteQuantiles: []Quantile{{0, 0}, {0.5, 12345678}}}
	e.Worst = []Row{
		{Record: "dev:3", File: "dev.tsv", Line: 5, Text: "A fine\nfilm of many words", TextPair: "B", Label: "yes", Prediction: "無", Probabilities: map[string]float64{"無": 0.9}, Loss: 2.302},
		{Record: "dev:4", Label: 1.5, Prediction: []any{"a", "b"}, Loss: 1},
	}
	const want = `
label      precision  recall      f1  support
無            0.5000  1.0000  0.6667        1
yes           1.0000  0.7500  0.8571        4
micro avg     0.8000  0.8000  0.8000     5.25

label \ predicted  無  yes
無                  1    0
yes                 1    3

quantile                 0        0.5
prediction - label    -1.5       0.25
|prediction - label|     0  1.235e+07
mean of prediction - label: 0.1

loss    label  predicted  source     text
2.3020  yes    無 0.90    dev.tsv:5  A fine film of many words | B
1.0000  1.5    a b        dev:4
`
	if got := shown(e, 0); got != want {
		t.Errorf("%s\nexpected%s", got, want)
	}
	// What is wide.
	got := shown(e, 44)
	if !strings.Contains(got, "\n2.3020  yes    無 0.90    dev.tsv:5  A fi...\n") {
		t.Error(got)
	}
	if got = shown(e, 20); !strings.Contains(got, "most often confused: label  predicted  count\nyes                         無             1\n") {
		t.Error(got)
	}
	// Many classes.
	const n = mostRows + 1
	e = &Evaluation{Detail: Detail{Classes: &Classes{Of: OfLabel, Averages: []Class{{Name: Macro}}}, Confusion: NewConfusion(slices.Repeat([]float64{0}, n*n), n, nil)}}
	for i := range n {
		e.Classes.Each = append(e.Classes.Each, Class{Name: fmt.Sprint("c", i), F1: 1 - float64(i)/100})
	}
	got = shown(e, 0)
	if strings.Count(got, "\n") != 1+1+leastRows+1+1 || !strings.Contains(got, "support\nc50 ") || !strings.Contains(got, "\n... and 31 more of a higher f1\nmacro avg ") {
		t.Error(got)
	}
}

// board lists what it is shown.
type board []string

func (b *board) Scalar(tag string, step int64, v float64) {
	*b = append(*b, fmt.Sprint(tag, " ", step, " ", v))
}
func (b *board) Text(tag string, step int64, text string) {
	*b = append(*b, fmt.Sprint(tag, " ", step, " ", text))
}
func (b *board) Flush() error { return nil }

func TestShow(t *testing.T) {
	e := &Evaluation{Step: 40}
	e.Classes = &Classes{Each: []Class{{Name: "a|b", Precision: 1, Recall: 2, F1: 3}}}
	e.Confusion = NewConfusion([]float64{1, 0, 1, 3}, 2, []string{"a|b", "c"})
	for range 2 {
		var b board
		if err := e.Show(&b, ""); err != nil {
			t.Fatal(err)
		}
		want := []string{"eval_class/a|b/precision 40 1", "eval_class/a|b/recall 40 2", "eval_class/a|b/f1 40 3",
			"eval_class/confusion 40 | label \\ predicted | a\\|b | c |\n| --- | --- | --- |\n| a\\|b | 1 | 0 |\n| c | 1 | 3 |\n"}
		if !slices.Equal(b, want) {
			t.Errorf("%q\nexpected %q", b, want)
		}
	}
	const n = leastRows + 1
	m := NewConfusion(slices.Repeat([]float64{2}, n*n), n, nil).Markdown()
	if !strings.HasPrefix(m, "| label | predicted | count |\n| --- | --- | --- |\n| 0 | 1 | 2 |\n") || strings.Count(m, "\n") != 2+leastRows {
		t.Error(m)
	}
}
