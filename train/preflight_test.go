package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/train/params"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// describedData writes a data folder with a manifest that describes records of the fixture.
func describedData(t *testing.T, change func(*convert.Manifest)) string {
	t.Helper()
	dir := t.TempDir()
	records.Write(t, filepath.Join(dir, "train.tfrecord"), 1, 32)
	records.Write(t, filepath.Join(dir, "dev.tfrecord"), 2, 16)
	writeVocab(t, filepath.Join(dir, runfolder.Vocab), 0)
	sum, err := prepare.VocabSum(filepath.Join(dir, runfolder.Vocab))
	if err != nil {
		t.Fatal(err)
	}
	split := func(name string, n int64) *convert.Split {
		return &convert.Split{Files: []convert.File{{Name: name + ".tfrecord", Records: n}}, Records: n,
			Lengths: convert.Lengths{Min: 4, Max: 15}, LabelCounts: []int64{n / 2, n / 2}}
	}
	m := &convert.Manifest{Format: convert.ManifestFormat, Version: convert.ManifestVersion, Task: "text", Labels: []string{"without", "with"},
		Vocab: convert.Vocab{File: runfolder.Vocab, Size: vocabSize, SHA256: sum}, MaxLength: 16,
		Splits:  map[string]*convert.Split{"train": split("train", 32), "dev": split("dev", 16)},
		Sources: []convert.Source{{Split: "train", Name: "train.tsv", SHA256: "aa"}, {Split: "dev", Name: "dev.tsv", SHA256: "bb"}}}
	change(m)
	content, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, convert.ManifestName), content)
	return dir
}

// writeVocab writes the vocabulary of the fixture with its words moved on by some places.
func writeVocab(t *testing.T, path string, moved int) {
	t.Helper()
	lines := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
	words := vocabSize - len(lines)
	for i := range words {
		lines = append(lines, fmt.Sprintf("w%d", (i+moved)%words))
	}
	writeFile(t, path, strings.Join(lines, "\n")+"\n")
}

func whole(*convert.Manifest) {}

func TestPreflight(t *testing.T) {
	for _, test := range []struct {
		name     string
		manifest func(*convert.Manifest)
		params   func(*params.Params)
		want     []string // in the error, one a finding
		warns    string   // in the log
		damaged  bool
	}{
		{name: "nothing wrong"},
		{name: "row length beyond the positions", params: func(p *params.Params) { p.Data.RowLength = 128 },
			want: []string{"data.row_length is 128; expected at most 24, the positions of the graph; use --set data.row_length=24, or leave it out"}},
		{name: "examples beyond the row length", params: func(p *params.Params) { p.Data.RowLength = 8 },
			want: []string{"split train has examples of up to 15 tokens; expected at most 8, the data.row_length; use --set data.row_length=15, or shorten them with --set data.truncate=true",
				"split dev has examples of up to 15 tokens"}},
		{name: "examples beyond the row length, truncated", params: func(p *params.Params) { p.Data.RowLength, p.Data.Truncate = 8, true }},
		{name: "examples beyond the positions", manifest: func(m *convert.Manifest) { m.Splits["dev"].Lengths.Max = 30 },
			want: []string{"split dev has examples of up to 30 tokens; expected at most 24, the positions of the graph; convert with --max-length 24"}},
		{name: "long examples of a split that is not read", manifest: func(m *convert.Manifest) { m.Splits["dev"].Lengths.Max = 30 },
			params: func(p *params.Params) { p.Train.EvalInterval = params.NoEval }},
		{name: "unlabelled dev", manifest: func(m *convert.Manifest) { m.Splits["dev"].LabelCounts = []int64{4, 4} },
			want: []string{"8 of the 16 examples of split dev have no label; convert with --label-column, choose a split with labels with --set data.eval=NAME, or train without evaluations with --eval-interval -2"}},
		{name: "unlabelled train", manifest: func(m *convert.Manifest) { m.Splits["train"].LabelCounts = nil },
			want: []string{"32 of the 32 examples of split train have no label; convert with --label-column"}},
		{name: "no such splits", params: func(p *params.Params) { p.Data.Train, p.Data.Eval = "training", params.Splits{"validation"} },
			want: []string{`has no split "training"; expected one of dev, train; choose one with --set data.train=NAME`,
				`has no split "validation"; expected one of dev, train; choose one with --set data.eval=NAME, or train without evaluations with --eval-interval -2`}},
		{name: "one label to learn", manifest: func(m *convert.Manifest) { m.Splits["train"].LabelCounts = []int64{0, 32} },
			want: []string{`all examples of split train have the label "with"; expected examples with at least 2 labels`}},
		{name: "one label to evaluate", manifest: func(m *convert.Manifest) { m.Splits["dev"].LabelCounts = []int64{16, 0} },
			warns: "all examples of the evaluated split have the same label"},
		{name: "dev is train", params: func(p *params.Params) { p.Data.Eval = params.Splits{"train"} }, warns: "the run is evaluated on examples that it trains on"},
		{name: "dev made from the file of train", manifest: func(m *convert.Manifest) { m.Sources[1].SHA256 = "aa" },
			warns: "the run is evaluated on examples that it trains on"},
		{name: "other vocabulary than the records'", manifest: func(m *convert.Manifest) { m.Vocab.SHA256 = "cc" }, damaged: true,
			want: []string{"vocab.txt is not the vocabulary that the records were made with (its checksum differs)"}},
		{name: "manifest without a checksum", manifest: func(m *convert.Manifest) { m.Vocab.SHA256 = "" }},
		{name: "no such metric", params: func(p *params.Params) { p.Checkpoint.Best = "bleu" },
			want: []string{`checkpoint.best is "bleu"; expected one of accuracy, auc, f1, loss, mcc, precision, recall, the metrics of this graph`}},
		{name: "several", manifest: func(m *convert.Manifest) { m.Vocab.Size, m.Labels = 61, []string{"a", "b", "c"} },
			params: func(p *params.Params) { p.Data.RowLength, p.Data.Eval = 128, params.Splits{"validation"} },
			want:   []string{"data.row_length is 128", "a vocabulary of 61 tokens; expected 60, as in the graph", "has 3 labels; expected 2, as in the graph", `no split "validation"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			manifest := test.manifest
			if manifest == nil {
				manifest = whole
			}
			p := testParams(t)
			p.Data.Dir, p.Data.RowLength = describedData(t, manifest), 0
			if test.params != nil {
				test.params(&p)
			}
			log, err := preflightParams(t, p, "", nil)
			var found *params.PreflightError
			switch {
			case len(test.want) == 0 && err != nil:
				t.Fatal(err)
			case len(test.want) > 0 && !errors.As(err, &found):
				t.Fatalf("got %v, want findings", err)
			case found != nil && (len(found.Findings) != len(test.want) || errors.Is(err, fault.Damaged) != test.damaged || errors.Is(err, fault.Usage) == test.damaged):
				t.Fatalf("got %d findings, want %d; class %v: %v", len(found.Findings), len(test.want), fault.Of(err), err)
			}
			for i, want := range test.want {
				if !strings.Contains(found.Findings[i], want) {
					t.Errorf("finding %d is %q, want %q in it", i, found.Findings[i], want)
				}
			}
			if test.warns == "" && log != "" || !strings.Contains(log, test.warns) {
				t.Errorf("the log is %q, want %q in it", log, test.warns)
			}
		})
	}
}

// preflightParams looks at a run before training and returns what is warned of.
func preflightParams(t *testing.T, p params.Params, folder string, before *past) (log string, err error) {
	t.Helper()
	var b bytes.Buffer
	s, err := prepare.New(t.Context(), p, prepare.Env{Log: slog.New(slog.NewTextHandler(&b, nil))})
	if err == nil {
		err = s.OpenData()
	}
	if err != nil {
		t.Fatal(err)
	}
	var began *params.Params
	if before != nil {
		began = &before.params
	}
	err = prepare.PreflightTraining(t.Context(), s, folder, began)
	return b.String(), err
}

// A run keeps the row length that it began with, also one that no run begins with today.
func TestRunKeepsRowLength(t *testing.T) {
	p := testParams(t)
	p.Data.RowLength, p.Train.Steps, p.Train.EvalInterval = 0, 3, params.NoEval
	run := filepath.Join(t.TempDir(), "run")
	stopAt(t, p, run, 1)
	began, err := params.Read(filepath.Join(run, runfolder.Params))
	if err != nil || began.Data.RowLength != rowLength {
		t.Fatalf("the run began with rows of %d, %v", began.Data.RowLength, err)
	}
	old := p
	old.Data.RowLength = 128
	before := &past{params: old}
	if _, err := preflightParams(t, old, run, before); err != nil {
		t.Errorf("a run that began with rows of 128 is refused: %v", err)
	}
	p.Keep(filepath.Join(run, runfolder.Params))
	if p.Data.RowLength != rowLength {
		t.Errorf("the continued run has rows of %d", p.Data.RowLength)
	}
}

func TestPreflightOfFolderTooHigh(t *testing.T) {
	dir := describedData(t, whole)
	p := testParams(t)
	p.Data.Dir = filepath.Dir(dir)
	_, err := preflightParams(t, p, "", nil)
	if want := "has no records, but folders in it do; use one of these, such as --data " + dir; err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fault.Usage) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// An evaluation split without a manifest is looked at before training, too.
func TestUnlabelledSplitWithoutManifest(t *testing.T) {
	p := testParams(t)
	p.Data.Dir = t.TempDir()
	records.Write(t, filepath.Join(p.Data.Dir, "train.tfrecord"), 1, 32)
	writeExamples(t, filepath.Join(p.Data.Dir, "dev.tfrecord"), 1, func(int) []tfrecord.Feature {
		return []tfrecord.Feature{tfrecord.Int64Feature("input_ids", 11, 12), tfrecord.Int64Feature("segment_ids", 0, 0)}
	})
	run := filepath.Join(t.TempDir(), "run")
	_, err := Train(context.Background(), p, run, quiet())
	if err == nil || !strings.Contains(err.Error(), "split dev") || !strings.Contains(err.Error(), "label") {
		t.Errorf("got %v", err)
	}
	if prepare.Exists(run) {
		t.Error("the run was begun")
	}
}

// Weights of a model of another size fit in a bias or two: that is no beginning.
func TestInitOfAnotherSize(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval = 2, params.NoEval
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	export, err := prepare.OpenExport(t.Context(), p.Graph, quiet().prepare())
	if err != nil {
		t.Fatal(err)
	}
	wider := *export.Contract
	wider.Variables = nil
	for _, v := range export.Contract.Variables {
		if !strings.HasSuffix(v.Name, "classifier/bias") {
			v.Shape = append([]int64{2}, v.Shape...)
		}
		wider.Variables = append(wider.Variables, v)
	}
	p.Init = run
	check := func(c *graphs.Contract, p params.Params) ([]string, error) {
		s := &prepare.Setup{Params: p, Export: &graphs.Export{Contract: c}, Env: quiet().prepare()}
		if err := s.OpenData(); err != nil {
			return nil, err
		}
		f := prepare.PreflightOf(s)
		err := f.Init(t.Context())
		return f.Found.Findings, err
	}
	found, err := check(&wider, p)
	if err != nil || len(found) != 2 || !strings.Contains(found[0], "position/table") || !strings.Contains(found[1], "fills 0 of the ") ||
		!strings.Contains(found[0], "--set init_partial=true") || !strings.Contains(found[1], "--set init_partial=true") {
		t.Errorf("got %q, %v", found, err)
	}
	if found, err := check(export.Contract, p); err != nil || found != nil {
		t.Errorf("weights of the graph's own size: %q, %v", found, err)
	}
	nameless := *export.Contract // a model without an encoder
	nameless.Variables = nil
	for i, v := range export.Contract.Variables {
		v.Name, v.Foreign = fmt.Sprintf("model/layer_%d/kernel", i), nil
		nameless.Variables = append(nameless.Variables, v)
	}
	if found, err := check(&nameless, p); err != nil || len(found) != 1 || !strings.Contains(found[0], "numbers of the model; expected") {
		t.Errorf("another model: %q, %v", found, err)
	}
	keras := p
	keras.Init = filepath.Join("..", "checkpoint", "testdata", "keras", "ckpt-1")
	if found, err := check(&nameless, keras); err != nil || len(found) != 1 || !strings.Contains(found[0], "export the model with --weights") {
		t.Errorf("a checkpoint of Keras: %q, %v", found, err)
	}
	p.InitPartial = true
	if found, err := check(&wider, p); err != nil || found != nil {
		t.Errorf("allowed: %q, %v", found, err)
	}
}
