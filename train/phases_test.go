package train

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// phasedExample exports the file that is its argument, by the command that users give.
const phasedExample = `
import pathlib, sys
from gorbit_export.__main__ import main
path = pathlib.Path(sys.argv[1], "model.py")
path.write_text(sys.argv[2])
sys.exit(main(["keras", str(path), "--set", "width=16", "--out", sys.argv[1] + "/graph"]))
`

// phasedParams writes records for examples/gan and returns the params of a run.
func phasedParams(t *testing.T) params.Params {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "examples/gan/model.py"))
	if err != nil {
		t.Fatal(err)
	}
	p := params.Defaults()
	p.Graph, p.Data.Dir = filepath.Join(testkit.Made(t, phasedExample, string(text)), "graph"), t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	for name, n := range map[string]int{"train-00000-of-00001": 120, "dev-00000-of-00001": 30} {
		writeExamples(t, filepath.Join(p.Data.Dir, name+".tfrecord"), n, func(int) []tfrecord.Feature {
			image, noise := make([]float32, 64), make([]float32, 8)
			row := r.IntN(8)
			for i := range image {
				image[i] = 0.2 * r.Float32()
				if i/8 == row {
					image[i] += 0.8
				}
			}
			for i := range noise {
				noise[i] = float32(r.NormFloat64())
			}
			return []tfrecord.Feature{tfrecord.FloatFeature("image", image...), tfrecord.FloatFeature("noise", noise...)}
		})
	}
	p.Train.BatchSize, p.Train.Steps, p.Train.StepsPerLoop, p.Train.EvalInterval, p.Eval.BatchSize = 16, 30, 4, 12, 16
	p.Checkpoint.Interval, p.Optimizer.LearningRate, p.Optimizer.Schedule = 8, 2e-3, "constant"
	return p
}

// TestPhases trains the example of a GAN, whose log has the losses of its phases by name, evaluates it, and
// makes images.
func TestPhases(t *testing.T) {
	p, run := phasedParams(t), filepath.Join(t.TempDir(), "run")
	out, err := Train(t.Context(), p, run, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := out["loss"]; !ok || len(out) != 1 {
		t.Errorf("the evaluation is %v; expected a loss", out)
	}
	log := read(t, run, runfolder.Metrics)
	for _, name := range []string{"critic/loss", "critic/distance", "generator/loss", "gradient_norm", `"learning_rate":0.002`} {
		if !strings.Contains(log, name) {
			t.Errorf("%s lacks %s:\n%s", runfolder.Metrics, name, log)
		}
	}
	r := loaded(t, run, quiet())
	if again, err := r.Evaluate(t.Context(), ""); err != nil || fmt.Sprint(again) != fmt.Sprint(out) {
		t.Errorf("evaluated again %v, %v, expected %v", again, err, out)
	}
	n := 0
	err = r.PredictSplit(t.Context(), "dev", func(a predict.Answer) error {
		n++
		return nil
	})
	if err != nil || n != 30 {
		t.Errorf("%d images, %v", n, err)
	}
}

// TestPhasesStopped stops and continues a run in which a phase is due in every third step. It ends as
// another, bit for bit.
func TestPhasesStopped(t *testing.T) {
	long(t)
	stoppedEndsAsAnother(t, phasedParams(t), 7, 20)
}

// TestPhasesKilled kills runs, which end as another one, bit for bit.
func TestPhasesKilled(t *testing.T) {
	long(t)
	p := phasedParams(t)
	p.Train.Steps, p.Checkpoint.Interval, p.Train.EvalInterval = 240, 16, 80
	newKiller(t, p).endsAsAnother(t, func(files []string, kills int) bool { return len(files) > 2*kills })
}

// TestPhasesCost wants no figure of what phases compute, of which the model of the contract says nothing.
func TestPhasesCost(t *testing.T) {
	c := &graphs.Contract{Model: graphs.Model{FLOPs: graphs.FLOPs{PerExample: 10}}}
	of := &training{Setup: &prepare.Setup{Export: &graphs.Export{Contract: c}}}
	if got := of.flops(); got.PerExample != 10 {
		t.Errorf("a step costs %+v", got)
	}
	c.Phases = []graphs.Phase{{Name: "first", Every: 1}}
	if got := of.flops(); got != (graphs.FLOPs{}) {
		t.Errorf("phases cost %+v", got)
	}
}

// TestPhasesNotThere wants a sentence for each param that training in phases does not have.
func TestPhasesNotThere(t *testing.T) {
	for _, c := range []struct {
		change func(*params.Params)
		want   string
	}{
		{func(p *params.Params) { p.Train.StepsPerCall = 4 }, "train.steps_per_call is 4, and a step of the graph has 2 phases, each of which is a call; expected 1"},
		{func(p *params.Params) { p.Optimizer.EMA = 0.9 }, "optimizer.ema is 0.9, and a step of the graph has 2 phases, for which no averages are kept; expected 0"},
		{func(p *params.Params) { p.Train.DebugNumerics = true }, "train.debug_numerics is true, and a step of the graph has 2 phases, each with gradients of its own; leave it out"},
		{func(p *params.Params) { p.Summary.HistogramInterval = 4 }, "summary.histogram_interval is 4, and a step of the graph has 2 phases, each with gradients of its own; leave it out"},
		{func(p *params.Params) { p.Optimizer.SWA = 5 }, "optimizer.swa is 5, and a step of the graph has 2 phases, for which no averages are kept; expected 0"},
		{func(p *params.Params) {
			p.Optimizer.Groups = []params.Group{{Match: ".*generator.*", Frozen: true, LearningRateScale: 1, WeightDecayScale: 1}}
			p.Data.Dir = "nowhere" // which is read later
		}, "optimizer.groups: they freeze all of the phase generator ("},
		{func(p *params.Params) { p.Strategy.Workers, p.Strategy.Input = "127.0.0.1:1", params.InputLocal }, "strategy.input is local, and a step of the graph has 2 phases, each of which reads the batch; leave it out"},
		{func(p *params.Params) { p.Strategy.TPU = "127.0.0.1:1" }, "strategy.tpu is 127.0.0.1:1, and a step of the graph has 2 phases, which a TPU cannot make; expected a CPU or GPU; leave out --tpu"},
	} {
		p := phasedParams(t)
		c.change(&p)
		_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, fault.Usage) {
			t.Errorf("got %v; expected %s", err, c.want)
		}
	}
}
