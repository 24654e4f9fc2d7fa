package train

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Labels of one number and another order are told apart wherever a run and data meet.
func TestLabelsMeet(t *testing.T) {
	p := testParams(t)
	p.Data.Dir, p.Data.RowLength = describedData(t, whole), 0
	p.Train.Steps, p.Train.EvalInterval = 2, params.NoEval
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	kept := read(t, run, runfolder.Data)
	turned := describedData(t, func(m *convert.Manifest) { m.Labels = []string{"with", "without"} })
	refused := func(what string, err error) {
		t.Helper()
		for _, want := range []string{`label 0 is "without" there and "with" here`, "convert the data with --labels without,with"} {
			if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fault.Usage) {
				t.Errorf("%s: got %v, want a usage error with %q", what, err, want)
			}
		}
	}

	on := p
	on.Data.Dir, on.Train.Steps = turned, 4
	_, err := Train(t.Context(), on, run, quiet())
	refused("train on", err)
	if read(t, run, runfolder.Data) != kept {
		t.Error("the run has other names than it was trained with")
	}
	from := quiet()
	from.ResumeFrom = filepath.Join(run, runfolder.Checkpoints, "ckpt-2")
	_, err = Train(t.Context(), on, filepath.Join(t.TempDir(), "new"), from)
	refused("train on from its checkpoint", err)
	_, err = DrawBatch(t.Context(), run, 1, []string{"data.dir=" + turned}, quiet())
	refused("draw a batch", err)
	on.Init = run
	_, err = Train(t.Context(), on, filepath.Join(t.TempDir(), "new"), quiet())
	refused("init", err)
	on.InitPartial = true
	mustTrain(t, on, filepath.Join(t.TempDir(), "new"))

	r, err := OpenRun(t.Context(), run, []string{"data.dir=" + turned}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Load(t.Context(), "latest"); err != nil {
		t.Fatal(err)
	}
	_, err = r.Evaluate(t.Context(), "")
	refused("evaluate", err)
	refused("predict a split", r.PredictSplit(t.Context(), "dev", func(predict.Answer) error { return nil }))
}

// A run that does not say what its labels are called takes the names of the data, and says so.
func TestLabelsOfOlderRun(t *testing.T) {
	p := testParams(t)
	p.Data.RowLength = 0
	run := filepath.Join(t.TempDir(), "run")
	p.Data.Dir = describedData(t, whole)
	log, err := preflightParams(t, p, run, &past{params: p})
	if err != nil || !strings.Contains(log, `names="labels without, with"`) {
		t.Errorf("got %v and the log %s", err, log)
	}
}

// What numbers mean differs in names, columns and the tokenizer; other things may.
func TestDifferences(t *testing.T) {
	contract := &graphs.Contract{Input: graphs.InputDense, Features: []graphs.Feature{
		{Name: "colour", Role: graphs.RoleInput}, {Name: "sizes", Role: graphs.RoleInput}, {Name: "words", Role: graphs.RoleInput}, {Name: "sort", Role: graphs.RoleLabel}}}
	zero, one := "0", "1"
	made := func() *convert.Manifest {
		return &convert.Manifest{Labels: []string{"a", "b"}, Vocab: convert.Vocab{File: "vocab.txt", Size: 9, SHA256: "aa", Lowercase: true},
			Features: []convert.Feature{
				{Name: "colour", Kind: convert.KindCategory, Categories: []string{"red", "blue"}, Columns: []string{"c"}},
				{Name: "sizes", Kind: convert.KindNumber, Columns: []string{"x", "y"}, Missing: &zero},
				{Name: "words", Kind: convert.KindText, Columns: []string{"w"}},
				{Name: "sort", Kind: convert.KindCategory, Role: convert.RoleLabel, Categories: []string{"a", "b"}},
				{Name: "unread", Kind: convert.KindCategory, Categories: []string{"p", "q"}}}}
	}
	for _, test := range []struct {
		change func(*convert.Manifest)
		want   string
	}{
		{func(*convert.Manifest) {}, ""},
		{func(m *convert.Manifest) { m.Features[0].Columns, m.Features[4].Categories = []string{"d"}, nil }, ""},
		{func(m *convert.Manifest) { m.Features[0].Categories = []string{"blue", "red"} },
			`feature colour: category 0 is "red" there and "blue" here; convert the data with these categories in the schema: red,blue`},
		{func(m *convert.Manifest) { m.Features[0].Categories = []string{"red"} },
			"feature colour: category has 2 names there and 1 here; convert data with the names red, blue"},
		{func(m *convert.Manifest) { m.Features[0].Unknown = true },
			"feature colour has a category of all others either there or here; convert the data with the run's schema"},
		{func(m *convert.Manifest) { m.Labels[0], m.Features[3].Categories = "c", []string{"c", "b"} },
			`feature sort: category 0 is "a" there and "c" here; convert data with the names a, b`},
		{func(m *convert.Manifest) { m.Features[1].Columns = []string{"y", "x"} },
			"feature sizes has the columns x, y there and y, x here; convert the data with the run's schema"},
		{func(m *convert.Manifest) { m.Features[1].Missing = &one },
			"an empty cell of feature sizes is 0 there and 1 here; convert the data with the run's schema"},
		{func(m *convert.Manifest) { m.Features[1].Kind = convert.KindCategory },
			"feature sizes is of kind number there and category here; convert the data with the run's schema"},
		{func(m *convert.Manifest) { m.Vocab.Lowercase, m.Vocab.StripAccents = false, true },
			"the tokenizer's lowercase is true there and false here; convert the data without --cased"},
		{func(m *convert.Manifest) { m.Vocab.LiteralSpecials = true },
			"the tokenizer's literal_specials is false there and true here; convert the data without --literal-specials"},
	} {
		here := made()
		test.change(here)
		var got []string
		for _, d := range prepare.Differences(prepare.Meaning{Manifest: made()}, prepare.Meaning{Manifest: here}, contract) {
			got = append(got, fmt.Sprintf("%s; %s", d.What, d.Mend))
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
