package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestReplicasAreWatched wants the table at the end and TensorBoard to say what every
// replica did.
func TestReplicasAreWatched(t *testing.T) {
	p := testParams(t)
	p.Strategy.Devices, p.Strategy.Accumulate = "cpu:2", 2
	p.Train.EvalInterval = params.NoEval
	run := filepath.Join(t.TempDir(), "run")
	var out strings.Builder
	env := quiet()
	env.Out = &out
	if _, err := Train(context.Background(), p, run, env); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`(?m)^ +replica +examples/s +compute +reduce +update +input$`, `(?m)^ +/device:CPU:0 +[0-9.]+( +\d+%){4}$`, `(?m)^ +/device:CPU:1 +[0-9.]+( +\d+%){4}$`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("nothing like %s in\n%s", want, out.String())
		}
	}
	percent := make(map[string]float64) // of all parts, by replica and step
	rates := make(map[string]float64)   // of both replicas and of all, by step
	for _, e := range readEvents(t, filepath.Join(run, "train")) {
		for _, v := range e.GetSummary().GetValue() {
			content := v.GetTensor().GetTensorContent()
			if len(content) != 4 {
				continue // the params
			}
			value := float64(math.Float32frombits(binary.LittleEndian.Uint32(content)))
			replica, part, ok := strings.Cut(v.Tag, "/")
			switch {
			case v.Tag == "examples_per_second":
				rates[fmt.Sprint(e.Step, " all")] += value
			case !ok || !strings.HasPrefix(replica, "replica_"):
			case part == "examples_per_second":
				rates[fmt.Sprint(e.Step, " replicas")] += value
			default:
				percent[fmt.Sprint(replica, " ", e.Step)] += value
			}
		}
	}
	if len(percent) < 2*10 {
		t.Errorf("times at %v, expected both replicas at every loop's end", percent)
	}
	for at, sum := range percent {
		if math.Abs(sum-100) > 0.1 {
			t.Errorf("the parts of %s make %v %%", at, sum)
		}
	}
	for at, all := range rates {
		if step, whole := strings.CutSuffix(at, " all"); whole && math.Abs(rates[step+" replicas"]/all-1) > 1e-3 {
			t.Errorf("step %s: the replicas' rates make %v, all of it is %v", step, rates[step+" replicas"], all)
		}
	}
}

// cells counts the positions of a micro-batch, padding included.
func cells(features []strategy.Feature) (n int) {
	for _, f := range features {
		if f.Name == packed.InputIDs {
			n = len(f.Int32)
		}
	}
	return n
}

// TestMicroBatchesWithoutPadding divides batches as training does: into rows without
// padding where attention stays within sequences, else into those that were asked for.
func TestMicroBatchesWithoutPadding(t *testing.T) {
	ctx := context.Background()
	p := testParams(t)
	for _, c := range []struct {
		kernels string
		packing packed.Packing
		lanes   int
		tight   bool
	}{
		{"on", packed.PackBestFit, 1, true},
		{"on", packed.PackBestFit, 2, true},
		{"on", packed.PackBestFit, 3, true},
		{"on", packed.PackNone, 2, false},
		{"off", packed.PackBestFit, 2, false},
	} {
		t.Run(fmt.Sprint(c.kernels, c.packing, c.lanes), func(t *testing.T) {
			p := p
			p.Runtime.Kernels, p.Runtime.Lanes, p.Data.Packing = c.kernels, c.lanes, string(c.packing)
			export, set := opened(t, p)
			s, err := prepare.OpenLocal(ctx, p, export, strategy.FunctionsTrain)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			data, longer := loop.NewSource(set, s, 1), false
			for range 5 {
				batch, err := data.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				micro := batch.Payload.Micro
				fed := 0
				for _, f := range micro {
					fed += cells(f)
					longer = longer || f[0].Shape[1] > p.Data.RowLength
				}
				if len(micro) != c.lanes || fed < batch.Tokens || c.tight && fed > batch.Tokens {
					t.Fatalf("%d tokens came in %d positions of %d micro-batches", batch.Tokens, fed, len(micro))
				}
			}
			if longer != c.tight {
				t.Errorf("rows longer than %d tokens: %v, expected %v", p.Data.RowLength, longer, c.tight)
			}
		})
	}
}

// TestCheckpointsGoAnywhere saves with some replicas and continues with others. The
// variables and slots must be those of a run that one device made without a break. The
// first step after the break is of the one example that is left of an epoch.
func TestCheckpointsGoAnywhere(t *testing.T) {
	long(t)
	const saved, steps = 4, 6
	_, data := fixture(t)
	workers := startWorkers(t, "cpu:1", "", "")
	place := func(p *params.Params, name string) {
		name, p.Strategy.ShardOptimizer = strings.CutSuffix(name, ", sharded")
		if name == "2 workers" {
			p.Strategy.Workers = workers
		} else {
			p.Strategy.Devices = name
		}
	}
	whole := filepath.Join(t.TempDir(), "whole")
	p := localParams(t, data, params.InputChief, "")
	p.Train.Steps, p.Runtime.Lanes = steps, 1
	want := mustTrain(t, p, whole)[saved:]
	if !strings.Contains(want[0], ": 1 examples") {
		t.Fatalf("%s, expected 1 example", want[0])
	}
	for _, test := range []struct {
		from string
		to   []string
	}{
		{"cpu:3", []string{"cpu:1", "cpu:5", "2 workers, sharded"}},
		{"cpu:3, sharded", []string{"cpu:1", "cpu:5, sharded", "2 workers"}},
		{"2 workers, sharded", []string{"cpu:4"}},
	} {
		p := localParams(t, data, params.InputChief, "")
		place(&p, test.from)
		p.Train.Steps = saved
		first := filepath.Join(t.TempDir(), "first")
		mustTrain(t, p, first)
		for _, to := range test.to {
			t.Run(test.from+" to "+to, func(t *testing.T) {
				run := filepath.Join(t.TempDir(), "run")
				copyFolder(t, run, first)
				p := localParams(t, data, params.InputChief, "")
				place(&p, to)
				p.Train.Steps = steps
				if got := mustTrain(t, p, run); !slices.Equal(got, want) {
					t.Errorf("it went on with\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				alike(t, run, whole)
			})
		}
	}
}

// smallMemory is a strategy that runs out of memory in steps of too large micro-batches.
type smallMemory struct {
	loop.Strategy
	fits  int // cells
	tries int
}

func (s *smallMemory) Steps(ctx context.Context, steps []strategy.StepInput) ([]strategy.Result, error) {
	s.tries++
	for _, micro := range steps[0].Batches {
		if cells(micro) > s.fits {
			return nil, fmt.Errorf("step: %w", &strategy.OutOfMemoryError{Err: errors.New("OOM when allocating")})
		}
	}
	return s.Strategy.Steps(ctx, steps)
}

// inSmallMemory returns a strategy whose memory can be made small, with the data of the params and a
// model without dropout.
func inSmallMemory(t *testing.T, p params.Params) (*smallMemory, *loop.Source, *loop.Model) {
	t.Helper()
	export, set := opened(t, p)
	s, err := strategy.NewOneDevice(t.Context(), export, "", strategy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := loop.Initialize(t.Context(), s, export, loop.Init{}); err != nil {
		t.Fatal(err)
	}
	small := &smallMemory{Strategy: s, fits: math.MaxInt}
	return small, loop.NewSource(set, small, 1),
		loop.NewModel(small, strategy.Scalars{"hidden_dropout": 0, "attention_dropout": 0, "classifier_dropout": 0}, quiet().Log)
}

// TestOutOfMemoryHalves makes a step again and again, of smaller micro-batches, until
// it fits, and wants the result of the whole batch.
func TestOutOfMemoryHalves(t *testing.T) {
	ctx := context.Background()
	p := testParams(t)
	small, data, m := inSmallMemory(t, p)
	next := func() *loop.Batch {
		b, err := data.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b.Payload.From = nil // kept, as it is tried more than once
		return b.Payload
	}
	// It would be the sums of a step, too: the learning rate is 0.
	try := func(b *loop.Batch) (runner.StepResult, error) {
		small.tries = 0
		return m.Step(ctx, b, runner.Hyper{Seed: 1})
	}
	first := next()
	whole, err := try(first)
	if err != nil || small.tries != 1 || data.Into.Accumulate != 1 {
		t.Fatalf("%v in %d tries, accumulate %d", err, small.tries, data.Into.Accumulate)
	}
	small.fits = cells(first.Micro[0]) / 2
	parts, err := try(first)
	if err != nil || small.tries < 2 || data.Into.Accumulate != 1<<(small.tries-1) {
		t.Fatalf("%v in %d tries, accumulate %d", err, small.tries, data.Into.Accumulate)
	}
	for name, sums := range whole.Sums {
		for i, want := range sums {
			if got := parts.Sums[name][i]; math.Abs(got-want) > 1e-5*math.Abs(want) {
				t.Errorf("%s is %v in parts, %v as a whole", name, got, want)
			}
		}
	}
	if got := m.Examples[0]; got != int64(2*p.Train.BatchSize) {
		t.Errorf("%d examples were counted, expected those of both steps, %d", got, 2*p.Train.BatchSize)
	}
	// It continues with what fits, after the batch that did not, and gives up at one example each.
	small.fits = math.MaxInt
	second := next()
	if len(second.Micro) != data.Into.Accumulate || second.All() != p.Train.BatchSize {
		t.Errorf("the next batch has %d micro-batches of %v examples, expected %d", len(second.Micro), second.Examples, data.Into.Accumulate)
	}
	if state := data.Data.State(); state.Position != int64(2*p.Train.BatchSize) {
		t.Errorf("the data are at %v after two batches of %d", state, p.Train.BatchSize)
	}
	if _, err = try(second); err != nil || small.tries != 1 {
		t.Errorf("%v in %d tries the next time", err, small.tries)
	}
	oom := (*strategy.OutOfMemoryError)(nil)
	small.fits = 0
	if _, err = try(second); !errors.As(err, &oom) || data.Into.Accumulate < p.Train.BatchSize {
		t.Errorf("error %v at %d micro-batches of %d examples", err, data.Into.Accumulate, p.Train.BatchSize)
	}
}
