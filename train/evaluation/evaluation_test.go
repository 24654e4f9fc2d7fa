package evaluation

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
)

// full returns an evaluation with every field.
func full(split string, step int64) *Evaluation {
	e := &Evaluation{
		By: ByEvaluate, Task: "classification", Split: split, Step: step, Checkpoint: "ckpt-40", Examples: 4, Records: 5,
		Metrics: runner.Outputs{"loss": math.Inf(1), "accuracy": 0.75},
		Errors:  &Errors{Mean: 0.5, Quantiles: []Quantile{{0.5, 0.25}}, AbsoluteQuantiles: []Quantile{{1, 3}}},
		Worst: []Row{{Record: "dev:3", ID: "a7", File: "dev.tsv", Line: 5, Text: "A <b>.", TextPair: "B.", Decoded: true, Label: "no",
			Prediction: []any{"yes", "no"}, Probabilities: runner.Outputs{"no": 0.25}, Loss: runner.Number(math.Inf(1)), Weight: 2}},
	}
	e.Classes = &Classes{Of: OfLabel, Each: []Class{{"no", 0.5, 1, 2. / 3, 1, 2, 1}}, Averages: []Class{{Name: Micro}}}
	e.Confusion = NewConfusion([]float64{1, 0, 0.5, 3}, 2, []string{"no", "yes"})
	return e
}

func TestRoundTrip(t *testing.T) {
	run := t.TempDir()
	if all, err := List(run); all != nil || err != nil {
		t.Errorf("a run without evaluations has %v, %v", all, err)
	}
	for _, e := range []*Evaluation{full("dev", 100), full("dev", 40), full("a/b", 40), full("dev", 40)} {
		path, err := Write(run, e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%v, %v; expected %v", got, err, e)
		}
	}
	names := func() (names []string) {
		all, err := List(run)
		if err != nil {
			t.Error(err)
		}
		for _, e := range all {
			names = append(names, fmt.Sprint(e.Split, e.Step))
		}
		return names
	}
	if got := names(); !slices.Equal(got, []string{"a/b40", "dev40", "dev100"}) {
		t.Errorf("the run has %v", got)
	}
	if err := errors.Join(Remove(run, "dev", 40), Remove(run, "dev", 40)); err != nil {
		t.Error(err)
	}
	if got := names(); !slices.Equal(got, []string{"a/b40", "dev100"}) {
		t.Errorf("the run has %v", got)
	}
	entries, err := os.ReadDir(filepath.Join(run, Folder))
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

func TestOtherFiles(t *testing.T) {
	run := t.TempDir()
	if _, err := Write(run, full("dev", 40)); err != nil {
		t.Fatal(err)
	}
	head := `{"format":"gorbit-evaluation","version":1,"split":"dev",`
	for text, want := range map[string]string{
		`[`:  "is not one",
		`{}`: `has format "" and version 0; expected "gorbit-evaluation" and 1`,
		`{"format":"gorbit-evaluation","version":2,"metrics":7}`: "and version 2",
		head + `"metrics":7}`: "is not one",
		head + `"step":-1}`:   "step -1",
		head + `"confusion":{"labels":["a","b"],"counts":[[1],[2,3]]}}`: "is not square",
	} {
		path := Path(run, "test", 1)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		all, err := List(run)
		if len(all) != 1 || !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d evaluations, %v; expected 1, and an error with %s", text, len(all), err, want)
		}
	}
}

func TestNewConfusion(t *testing.T) {
	c := NewConfusion([]float64{5, 2, 0, 0, 5, 0.5, 7, 0, 5}, 3, []string{"a", "b"})
	if got := fmt.Sprint(*c); got != "{[a b 2] [[5 2 0] [0 5 0.5] [7 0 5]] [{2 a 7} {a b 2} {b 2 0.5}]}" {
		t.Error(got)
	}
	const n = MostInMatrix + 1
	flat := make([]float64, n*n)
	for i := range flat {
		flat[i] = float64(i)
	}
	c = NewConfusion(flat, n, nil)
	if c.Counts != nil || len(c.Confused) != MostConfused || c.Confused[0] != (Cell{"128", "127", n*n - 2}) {
		t.Errorf("%d rows, %d cells, first %v", len(c.Counts), len(c.Confused), c.Confused[0])
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format":"gorbit-evaluation","version":1,"split":"dev","confusion":{"labels":["a"],"counts":[[1]]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if e, reason := parse(data); (e == nil) == (reason == "") && reason == "" {
			t.Errorf("%q: neither an evaluation nor a reason", data)
		}
	})
}
