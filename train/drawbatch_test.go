package train

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
)

// observer is a counter that keeps the batches of its steps.
type observer struct {
	*counter
	batches map[int64][]strategy.Feature
}

func (o *observer) Steps(ctx context.Context, steps []strategy.StepInput) ([]strategy.Result, error) {
	for i, s := range steps {
		// The training gives the batch's memory back.
		kept := slices.Clone(s.Batches[0])
		for j := range kept {
			f := &kept[j]
			f.Shape, f.Int32, f.Float32 = slices.Clone(f.Shape), slices.Clone(f.Int32), slices.Clone(f.Float32)
			f.Int64, f.Uint8, f.Bool = slices.Clone(f.Int64), slices.Clone(f.Uint8), slices.Clone(f.Bool)
		}
		o.batches[o.steps+int64(i)+1] = kept
	}
	return o.counter.Steps(ctx, steps)
}

// TestDrawBatch compares the batches that are shown with those that a training used: before and after
// its checkpoints, in several epochs, and with rows of a fixed number.
func TestDrawBatch(t *testing.T) {
	for name, change := range map[string]func(*params.Params){
		"rows as needed":               func(*params.Params) {},
		"fixed rows":                   func(p *params.Params) { p.Data.Rows, p.Data.RowExamples = 6, 4 },
		"non-finite steps are skipped": func(p *params.Params) { p.Train.OnNonFinite = "skip" },
	} {
		t.Run(name, func(t *testing.T) {
			p := testParams(t)
			p.Train.Steps, p.Train.Epochs, p.Train.EvalInterval, p.Checkpoint.Best = 24, 0, params.NoEval, ""
			p.Checkpoint.Interval, p.Checkpoint.MaxToKeep = 10, 0
			change(&p)
			folder := filepath.Join(t.TempDir(), "run")
			s, err := prepare.New(t.Context(), p, quiet().prepare())
			if err != nil {
				t.Fatal(err)
			}
			tr, err := newTraining(t.Context(), s, folder, quiet())
			if err != nil {
				t.Fatal(err)
			}
			defer tr.examples.Close()
			seen := &observer{&counter{sum: make([]float32, 4)}, map[int64][]strategy.Feature{}}
			tr.place = func(context.Context) (prepare.Placed, error) { return prepare.Placed{Strategy: seen}, nil }
			if _, err := tr.inFolder(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(seen.batches) != 24 {
				t.Fatalf("%d steps were made; expected 24", len(seen.batches))
			}
			for _, step := range []int64{1, 9, 10, 11, 12, 17, 24} {
				drawn, err := DrawBatch(t.Context(), folder, step, nil, quiet())
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(drawn.Features, seen.batches[step]) {
					t.Errorf("the batch of step %d is not that of the training", step)
				}
				tokens := 0
				for i, sequence := range drawn.Sequences() {
					if tokens += sequence.Tokens; sequence.Example != i || !strings.HasPrefix(sequence.Record, "train-0000") {
						t.Errorf("sequence %d is %+v", i, sequence)
					}
				}
				if tokens != drawn.Tokens {
					t.Errorf("the sequences have %d tokens; expected %d", tokens, drawn.Tokens)
				}
			}
			if drawn, err := DrawBatch(t.Context(), folder, 30, nil, quiet()); err != nil || drawn.Examples == 0 {
				t.Errorf("a step that is still to come: %v", err)
			}
		})
	}
}

func TestNoRunToDraw(t *testing.T) {
	if _, err := DrawBatch(t.Context(), t.TempDir(), 1, nil, quiet()); err == nil || !strings.Contains(err.Error(), "is not a run folder: it has no params.yaml") {
		t.Errorf("a folder without a run: %v", err)
	}
}

func TestDescribeRun(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs = 12, 0
	run := filepath.Join(t.TempDir(), "run")
	out, err := Train(t.Context(), p, run, quiet())
	if err != nil {
		t.Fatal(err)
	}
	r, err := DescribeRun(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if r.Step != 12 || r.Total != 12 || !r.OwnGraph || r.EvaluatedStep != 12 || !reflect.DeepEqual(r.Evaluated, runner.Outputs(out)) {
		t.Errorf("the report is %+v", r)
	}
	if r.Best == nil || r.Best.Metric != "accuracy" || len(r.Checkpoints) == 0 {
		t.Fatalf("the best is %+v of %+v", r.Best, r.Checkpoints)
	}
	for _, c := range r.Checkpoints {
		if c.Best != (c.Step == r.Best.Step) || c.Bytes < 1000 {
			t.Errorf("checkpoint %+v; the best step is %d", c, r.Best.Step)
		}
	}
	if r.Params["train.steps"] != int64(12) || r.Params["seed"] != nil {
		t.Errorf("the params are %v", r.Params)
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "best        accuracy ") && !strings.Contains(text.String(), "accuracy") {
		t.Errorf("%v: %s", err, &text)
	}
	if content, err := json.Marshal(r); err != nil || !strings.Contains(string(content), `"total":12`) {
		t.Errorf("%v: %s", err, content)
	}
}
