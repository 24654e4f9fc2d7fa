package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/tpu/emulator"

	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// tpuTopology is that of the tests' emulator: 4 cores.
var tpuTopology = sync.OnceValues(func() (string, error) {
	topology, err := emulator.ParseTopology("2x1x1x2", 1)
	if err != nil {
		return "", err
	}
	return emulator.StartBackend(topology)
})

// emulatedTPU starts an emulator of a TPU of 4 cores and returns its address. The server that computes
// ends with the test binary.
func emulatedTPU(t *testing.T) string {
	t.Helper()
	backend, err := tpuTopology()
	if err != nil {
		t.Fatal(err)
	}
	topology, err := emulator.ParseTopology("2x1x1x2", 1)
	if err != nil {
		t.Fatal(err)
	}
	e, err := emulator.New(emulator.Config{Topology: topology, Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "grpc://" + l.Addr().String()
}

// tpuParams is a run of a model, in the shapes that a TPU needs, on 4 CPU devices.
func tpuParams(t *testing.T, name string) params.Params {
	p := anyModelNamed(name).params(t)
	p.Train.Steps, p.Optimizer.LearningRate, p.Strategy.Devices, p.Checkpoint.Interval = 12, 0.01, "cpu:4", 4
	p.Runtime.Kernels = "off"
	switch name {
	case "words":
		p.Data.RowLength, p.Data.Buckets = 12, "4,8"
	case "weather":
		p.Data.DropRemainder = true
	}
	withoutDropout(&p)
	return p
}

// onTPU returns the params for the TPU.
func onTPU(p params.Params, at string) params.Params {
	p.Strategy.Devices, p.Strategy.TPU, p.Train.StepsPerCall = "", at, 4
	p.Runtime = params.Defaults().Runtime
	return p
}

// TestAnyModelOnTPU trains models of dense and padded features, and of states, on an emulated TPU. They
// must end as those on as many CPU devices, also if the run continues there, and to the last bit if it
// is stopped and continues.
func TestAnyModelOnTPU(t *testing.T) {
	at := emulatedTPU(t)
	for _, name := range []string{"flowers", "words", "weather"} {
		t.Run(name, func(t *testing.T) {
			p, dir := tpuParams(t, name), t.TempDir()
			cpus, whole, again := filepath.Join(dir, "cpus"), filepath.Join(dir, "whole"), filepath.Join(dir, "again")
			want, got := mustTrain(t, p, cpus), mustTrain(t, onTPU(p, at), whole)
			if !slices.Equal(got, want) {
				t.Errorf("steps are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			alike(t, whole, cpus)
			nearEvaluations(t, whole, cpus)
			switch name {
			case "flowers":
				stopAt(t, p, again, 7)
				mustTrain(t, onTPU(p, at), again)
				alike(t, again, cpus)
			case "words":
				stopAt(t, onTPU(p, at), again, 7)
				mustTrain(t, onTPU(p, at), again)
				sameRuns(t, again, whole)
			case "weather":
				stopAt(t, onTPU(p, at), again, 7)
				mustTrain(t, p, again)
				alike(t, again, cpus)
			}
			readOnTPU(t, cpus, at)
		})
	}
}

// nearEvaluations holds the evaluations of a run against those of another.
func nearEvaluations(t *testing.T, run, other string) {
	t.Helper()
	got, want := evaluations(t, run), evaluations(t, other)
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%d evaluations, expected %d", len(got), len(want))
	}
	for i, w := range want {
		nearOutputs(t, got[i].Outputs, w.Outputs)
	}
}

func nearOutputs(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if len(got) != len(want) || !(math.Abs(got[name]-v) <= 1e-5*max(1, math.Abs(v))) {
			t.Errorf("%s is %v, expected %v", name, got[name], v)
		}
	}
}

// readOnTPU evaluates a run on the TPU, and lets it answer there.
func readOnTPU(t *testing.T, run, at string) {
	t.Helper()
	read := func(settings ...string) (map[string]float64, []string) {
		t.Helper()
		r := loaded(t, run, quiet(), settings...)
		defer r.Close()
		out, err := r.Evaluate(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var answers []string
		err = r.PredictSplit(t.Context(), "dev", func(a predict.Answer) error {
			line, err := json.Marshal(predict.Object(a.Fields()))
			answers = append(answers, string(line))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out, answers
	}
	evaluated, answers := read()
	// 50 examples, 6 on each core.
	gotEvaluated, gotAnswers := read("strategy.tpu="+at, "eval.batch_size=23")
	nearOutputs(t, gotEvaluated, evaluated)
	if len(gotAnswers) != len(answers) || len(answers) != 50 {
		t.Fatalf("%d answers, expected %d", len(gotAnswers), len(answers))
	}
	for i, want := range answers {
		nearJSON(t, fmt.Sprintf("answer %d", i), gotAnswers[i], want)
	}
}

// nearJSON holds two JSON objects of numbers, and lists of them, against each other.
func nearJSON(t *testing.T, what, got, want string) {
	t.Helper()
	var g, w any
	if err := errors.Join(json.Unmarshal([]byte(got), &g), json.Unmarshal([]byte(want), &w)); err != nil {
		t.Fatal(err)
	}
	var near func(g, w any) bool
	near = func(g, w any) bool {
		switch w := w.(type) {
		case map[string]any:
			g, ok := g.(map[string]any)
			for name := range w {
				ok = ok && near(g[name], w[name])
			}
			return ok && len(g) == len(w)
		case []any:
			g, ok := g.([]any)
			for i := range w {
				ok = ok && len(g) == len(w) && near(g[i], w[i])
			}
			return ok
		case float64:
			g, ok := g.(float64)
			return ok && math.Abs(g-w) <= 1e-5
		}
		return g == w
	}
	if !near(g, w) {
		t.Errorf("%s is %s, expected %s", what, got, want)
	}
}

// The length of batches on a TPU is that of the longest example, if the data say it.
func TestTPULength(t *testing.T) {
	p := onTPU(tpuParams(t, "words"), "grpc://127.0.0.1:1")
	export, err := prepare.OpenExport(t.Context(), p.Graph, quiet().prepare())
	if err != nil {
		t.Fatal(err)
	}
	longest := int64(17)
	m := &convert.Manifest{Splits: map[string]*convert.Split{"train": {Features: map[string]*convert.Statistics{"words": {Longest: &longest}, "sum": {}}}, "dev": {}}}
	for _, c := range []struct{ set, want int }{{0, 24}, {12, 12}} {
		p.Data.RowLength = c.set
		if err := prepare.FixLength(&p, export.Contract, m); err != nil || p.Data.RowLength != c.want {
			t.Errorf("%d became %d, %v; expected %d", c.set, p.Data.RowLength, err, c.want)
		}
		axes := prepare.TpuAxes(p, export.Contract, 3)
		if last := axes[2]; len(axes) != 3 || axes[0][prepare.AxisLength] != 4 || last[prepare.AxisExamples] != 6 || last[prepare.AxisLength] != int64(c.want) || len(last) != 2 {
			t.Errorf("the axes are %v", axes)
		}
	}
}

// TestAnyModelRefusedOnTPU names what a TPU needs and the params or the data do not have.
func TestAnyModelRefusedOnTPU(t *testing.T) {
	at := emulatedTPU(t)
	for _, test := range []struct {
		name, model string
		change      func(p *params.Params)
		want        string
	}{
		{"no length", "words", func(p *params.Params) { p.Data.RowLength = 0 }, "expected the length of axis length of the graph, which is fixed on a TPU, as with --set data.row_length=64"},
		{"buckets", "flowers", func(p *params.Params) { p.Data.Buckets = "8" }, "data.buckets is 8, and the graph takes no sequences; leave it out"},
		{"rows", "flowers", func(p *params.Params) { p.Data.Rows = 8 }, "data.rows is 8, and the graph takes no rows of tokens; leave it out"},
		{"the last batch", "weather", func(p *params.Params) { p.Data.DropRemainder = false }, "the last batch of an epoch has 9 examples"},
		{"damaged records", "weather", func(p *params.Params) { p.Data.OnCorrupt = "skip" }, "data.on_corrupt is skip"},
		{"an uneven share", "weather", func(p *params.Params) { p.Train.BatchSize = 18 }, "train.batch_size is 18, and the TPU has 4 cores; expected a multiple"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := onTPU(tpuParams(t, test.model), at)
			test.change(&p)
			_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, fault.Usage) {
				t.Errorf("got %v (%v), want %s", err, fault.Of(err), test.want)
			}
		})
	}
}
