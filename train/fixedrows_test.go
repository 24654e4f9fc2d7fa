package train

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// examplesOf returns the examples of a batch, by their places in its rows.
func examplesOf(b *dataset.Batch) []packed.Example {
	ids, types, sequences := b.Feature(packed.InputIDs).Int32, b.Feature(packed.TypeIDs).Int32, b.Feature(packed.SequenceIDs).Int32
	labels := b.Feature(packed.LabelIDs).Int32
	out := make([]packed.Example, b.Examples)
	for i, at := range b.Feature(packed.ClsPositions).Int32[:b.Examples] {
		end := at
		for int(end) < len(ids) && end/int32(b.RowLength) == at/int32(b.RowLength) && sequences[end] == sequences[at] {
			end++
		}
		out[i] = packed.Example{IDs: ids[at:end], TypeIDs: types[at:end], Label: labels[i], Labeled: true}
	}
	return out
}

// TestFixedRowsAreExact computes steps and evaluations of fixed rows, of which many are nothing but
// padding, and of micro-batches without an example, with and without the package's kernels, in all
// precisions. They must give the sums and the gradient of the same examples in rows of their own.
func TestFixedRowsAreExact(t *testing.T) {
	long(t)
	ctx := context.Background()
	for _, c := range []struct {
		precision, kernels, pooling string
		near                        float64
	}{
		{graphs.Float32, "on", "mean", 1e-5}, {graphs.Float32, "off", "mean", 1e-5}, {graphs.Float32, "on", "first", 1e-5},
		{graphs.BF16, "on", "mean", 0.05}, {graphs.BF16, "off", "mean", 0.05},
	} {
		t.Run(c.precision+" kernels "+c.kernels+" "+c.pooling, func(t *testing.T) {
			p := testParams(t)
			if c.precision != graphs.Float32 {
				p = narrow(t, c.precision)
			}
			if c.pooling == "first" {
				p.Graph = testkit.Export(t, bertConfig, "--pooling", "first")
			}
			p.Runtime.Kernels, p.Runtime.Lanes = c.kernels, 2
			p.Data.Rows, p.Data.RowExamples = 6, 4
			export, set := opened(t, p)
			s, err := prepare.OpenLocal(ctx, p, export, strategy.FunctionsTrain)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := loop.Initialize(ctx, s, export, loop.Init{}); err != nil {
				t.Fatal(err)
			}
			set.Divide(2, 0)
			batch, err := set.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			examples := examplesOf(batch)
			one := 0
			step := func(parts ...*dataset.Batch) strategy.Result {
				t.Helper()
				input := strategy.StepInput{Seed: [2]int64{1, 0}, Scalars: strategy.Scalars{"learning_rate": 0, "weight_decay": 0, "hidden_dropout": 0, "attention_dropout": 0, "classifier_dropout": 0}}
				for _, b := range parts {
					input.Batches = append(input.Batches, b.Features)
				}
				r, err := s.Steps(ctx, []strategy.StepInput{input})
				if err != nil {
					t.Fatal(err)
				}
				if !r[0].Applied {
					t.Fatalf("step %d was not applied: %+v", one, r[0])
				}
				one++
				return r[0]
			}
			laid := func(rows int, examples []packed.Example) *dataset.Batch {
				t.Helper()
				layout := p.Packed()
				if layout.Rows = rows; rows == 0 {
					layout.RowExamples = 0
				}
				b, err := packed.FromExamples(layout, examples)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			half := len(examples) / 2
			want := step(laid(0, examples[:half]), laid(0, examples[half:]))
			parts, err := packed.Config{RowLength: rowLength, Rows: 12, RowExamples: 4}.Divide(laid(12, examples), 12, 0)
			if err != nil {
				t.Fatal(err)
			}
			empty := parts[len(parts)-1]
			if empty.Examples > 0 {
				t.Fatalf("the last of 12 rows has %d examples; expected an empty one", empty.Examples)
			}
			for name, got := range map[string]strategy.Result{
				"fixed rows":             step(batch.Parts...),
				"one without an example": step(laid(12, examples), empty),
			} {
				nearSums(t, name, got.Sums, want.Sums, c.near)
				if !(math.Abs(got.GradientNorm-want.GradientNorm) <= c.near*want.GradientNorm) {
					t.Errorf("%s: the gradient's norm is %v, expected %v", name, got.GradientNorm, want.GradientNorm)
				}
			}
			evaluationsAreExact(t, s, batch, laid(0, examples), laid(40, examples), empty, c.near)
		})
	}
}

// evaluationsAreExact evaluates batches of fixed rows with the same examples as a plain one, and one
// without an example.
func evaluationsAreExact(t *testing.T, s strategy.Strategy, fixed, plain, padded, empty *dataset.Batch, near float64) {
	t.Helper()
	ctx := context.Background()
	sums, err := s.Evaluate(ctx, plain.Features)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*dataset.Batch{"fixed rows": fixed, "padded": padded} {
		got, err := s.Evaluate(ctx, b.Features)
		if err != nil {
			t.Fatal(err)
		}
		nearSums(t, "evaluation of "+name, ranked(t, got), ranked(t, sums), near)
	}
	nothing, err := s.Evaluate(ctx, empty.Features)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range ranked(t, nothing) {
		if slices.ContainsFunc(values, func(v float64) bool { return v != 0 }) {
			t.Errorf("evaluation without an example: %s is %v", name, values)
		}
	}
}

// ranked returns sums with the area under the curve in the place of the values of every example, which
// may be in another order and have those of weight 0 among them.
func ranked(t *testing.T, sums map[string][]float64) map[string][]float64 {
	t.Helper()
	all, err := task.Rankings(sums)
	if err != nil {
		t.Fatal(err)
	}
	out := maps.Clone(sums)
	maps.DeleteFunc(out, func(name string, _ []float64) bool { return strings.HasPrefix(name, runner.EachPrefix) })
	for _, r := range all {
		if auc := r.AUC(); !math.IsNaN(auc) {
			out["auc"] = []float64{auc}
		}
	}
	return out
}

// nearSums compares sums, the absolute error of small ones.
func nearSums(t *testing.T, what string, got, want map[string][]float64, near float64) {
	t.Helper()
	for name, values := range want {
		for i, v := range values {
			if len(got[name]) != len(values) || !(math.Abs(got[name][i]-v) <= near*max(1, math.Abs(v))) {
				t.Errorf("%s: %s is %v, expected %v", what, name, got[name], values)
				break
			}
		}
	}
}

// fixedParams is a run of fixed rows of which some step is the padded end of an epoch.
func fixedParams(t *testing.T, workers string) params.Params {
	_, data := fixture(t)
	p := localParams(t, data, params.InputChief, workers)
	p.Data.Rows, p.Data.RowExamples, p.Data.Buckets, p.Runtime.Lanes = 14, 5, "14", 1
	return p
}

// TestFixedRowsOnEveryStrategy wants the steps of one device on every other, the same records in
// each, and to continue with other replicas where it stopped.
func TestFixedRowsOnEveryStrategy(t *testing.T) {
	long(t)
	workers := startWorkers(t, "cpu:1", "", "")
	whole := filepath.Join(t.TempDir(), "whole")
	want := mustTrain(t, fixedParams(t, ""), whole)
	first := filepath.Join(t.TempDir(), "first")
	p := fixedParams(t, "")
	p.Train.Steps = 4
	mustTrain(t, p, first)
	for name, change := range map[string]func(*params.Params){
		"2 lanes":        func(p *params.Params) { p.Runtime.Lanes = 2 },
		"3 lanes":        func(p *params.Params) { p.Runtime.Lanes = 3 }, // the rows cannot be shared evenly
		"4 devices":      func(p *params.Params) { p.Strategy.Devices = "cpu:4" },
		"accumulated":    func(p *params.Params) { p.Strategy.Accumulate = 7 },
		"2 workers":      func(p *params.Params) { p.Strategy.Workers = workers },
		"3 steps a call": func(p *params.Params) { p.Train.StepsPerCall = 3 },
		"sharded, accum.": func(p *params.Params) {
			p.Strategy.Devices, p.Strategy.Accumulate, p.Strategy.ShardOptimizer = "cpu:2", 2, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := fixedParams(t, "")
			change(&p)
			run := filepath.Join(t.TempDir(), "run")
			if got := mustTrain(t, p, run); !slices.Equal(got, want) {
				t.Errorf("steps are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			alike(t, run, whole)
			if p.Strategy.Devices == "" && p.Strategy.Workers == "" {
				return
			}
			on := filepath.Join(t.TempDir(), "on")
			copyFolder(t, on, first)
			if got := mustTrain(t, p, on); !slices.Equal(got, want[4:]) {
				t.Errorf("it went on with\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want[4:], "\n"))
			}
			alike(t, on, whole)
		})
	}
}

// TestFixedRowsResume stops and kills a run of fixed rows. It must end as one that was never
// stopped, to the last bit, and evaluate as after the training.
func TestFixedRowsResume(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Data.Rows, p.Data.RowExamples, p.Data.Buckets = 7, 5, "8,16"
	k, stopped := newKiller(t, p), filepath.Join(t.TempDir(), "stopped")
	whole := k.whole
	for _, at := range []int64{1, 8, 24} {
		stopAt(t, p, stopped, at)
	}
	again := p
	again.Data.Rows, again.Data.RowExamples, again.Data.Buckets = 0, 0, "" // the run keeps them
	mustTrain(t, again, stopped)
	sameRuns(t, stopped, whole)

	k.endsAsAnother(t, betweenSaves)

	r := loaded(t, whole, quiet())
	evaluated, err := r.Evaluate(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	all := evaluations(t, whole)
	for name, v := range all[len(all)-1].Outputs {
		if evaluated[name] != v {
			t.Errorf("evaluating the saved run gives %s %v, training said %v", name, evaluated[name], v)
		}
	}
	other := p
	other.Data.Rows = 8
	if _, err := Train(context.Background(), other, whole, quiet()); err == nil || !strings.Contains(err.Error(), "data.rows was 7 and is 8") {
		t.Errorf("other rows: %v", err)
	}
	half := filepath.Join(t.TempDir(), "half")
	p.Train.Steps = 6
	mustTrain(t, p, half)
	other.Train.Steps = 9
	if _, err := Train(context.Background(), other, half, quiet()); err == nil || !strings.Contains(err.Error(), "7 and is 8") {
		t.Errorf("other rows in the middle of a run: %v", err)
	}
}

// TestFixedRowsHalve runs out of memory and continues with the same examples in smaller
// micro-batches of one shape.
func TestFixedRowsHalve(t *testing.T) {
	ctx := context.Background()
	p := testParams(t)
	p.Data.Rows, p.Data.RowExamples, p.Runtime.Lanes = 7, 5, 1
	small, data, m := inSmallMemory(t, p)
	for try := range 2 {
		b, err := data.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b.Payload.From = nil // kept for the second step
		whole, err := m.Step(ctx, b.Payload, runner.Hyper{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		small.fits = 2 * rowLength
		parts, err := m.Step(ctx, b.Payload, runner.Hyper{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		nearSums(t, fmt.Sprint("try ", try), parts.Sums, whole.Sums, 1e-5)
		next, err := data.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range next.Payload.Micro {
			if cells(f) != 2*rowLength {
				t.Errorf("a micro-batch has %d positions, expected %d", cells(f), 2*rowLength)
			}
		}
		small.fits = math.MaxInt
	}
}

func TestBucketsNeedRows(t *testing.T) {
	buckets := testParams(t)
	buckets.Data.Buckets = "8"
	const want = "data.buckets is 8 and data.rows is 0; expected the rows of a batch"
	if _, err := preflightParams(t, buckets, "", nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("buckets without rows: %v, expected %q", err, want)
	}
}

// Rows that are chosen hold train.batch_size examples, however badly these fill them.
func TestChosenRowsAreEnough(t *testing.T) {
	for _, c := range []struct{ rows, batch, want int }{
		{4, 16, 8}, {8, 16, 8}, {8, 100, 48}, {1, 3, 3},
		{8, 200, 88}, // one batch of an epoch of 173
	} {
		p := testParams(t)
		p.Data.Rows, p.Data.RowExamples, p.Train.BatchSize = c.rows, 12, c.batch
		export, _ := opened(t, p)
		s := &prepare.Setup{Params: p, Export: export, Env: quiet().prepare(), Chosen: true}
		if err := s.OpenData(); err != nil {
			t.Fatal(err)
		}
		set, err := s.OpenTraining(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		set.Close()
		if s.Params.Data.Rows != c.want || prepare.FewExamples(set, c.batch) {
			t.Errorf("%d rows for batches of %d became %d, expected %d; %d steps of an epoch of %d", c.rows, c.batch, s.Params.Data.Rows, c.want, set.BatchesPerEpoch(), set.NumExamples())
		}
		s.Chosen, s.Params.Data.Rows = false, c.rows
		if set, err = s.OpenTraining(t.Context()); err != nil {
			t.Fatal(err)
		}
		if set.Close(); s.Params.Data.Rows != c.rows {
			t.Errorf("given rows became %d", s.Params.Data.Rows)
		}
	}
}

// TestFixedRowsAreAnnounced wants a line of how full the rows are, and warnings of rows that do not
// suit the batch size.
func TestFixedRowsAreAnnounced(t *testing.T) {
	long(t)
	for _, c := range []struct {
		rows, batch int
		want, warn  string
	}{
		{6, 16, "rows=6 row_length=24 examples=30", ""},
		{3, 16, "rows=3 row_length=24", "steps have fewer examples than train.batch_size, because of data.rows"},
		{16, 16, "rows=16 row_length=24", "data.rows has more rows than train.batch_size fills"},
		{48, 100, "rows=48 row_length=24", ""}, // an epoch of 173 has two batches of 87
	} {
		p := testParams(t)
		p.Data.Rows, p.Data.RowExamples, p.Train.BatchSize, p.Train.Steps, p.Train.EvalInterval, p.Runtime.Lanes = c.rows, 5, c.batch, 1, params.NoEval, 1
		p.Checkpoint.Best = ""
		log := trainedLog(t, p, t.TempDir())
		if !strings.Contains(log, c.want) || !strings.Contains(log, "padding_percent=") || !strings.Contains(log, c.warn) || strings.Contains(log, "level=WARN") != (c.warn != "") {
			t.Errorf("%d rows: log is\n%s\nexpected %q and %q", c.rows, log, c.want, c.warn)
		}
	}
}
