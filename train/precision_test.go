package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"golang.org/x/sys/cpu"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster/clustertest"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/kernelops"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// narrow returns test params of an export that computes in bf16 or fp16. The test is skipped where a
// product would end the process.
func narrow(t testing.TB, precision string) params.Params {
	t.Helper()
	no := map[string]string{graphs.BF16: devices.NoBF16(), graphs.FP16: devices.NoFP16()}
	if why := no[precision]; why != "" {
		t.Skip(why)
	}
	p := testParams(t)
	p.Graph = testkit.Export(t, bertConfig, "--pooling", "mean", "--precision", precision)
	p.Runtime.AllowSlowPrecision = true
	return p
}

// loops returns the outputs of a run's training loops.
func loops(t *testing.T, run string) []map[string]float64 {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(run, runfolder.Metrics))
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]float64
	for line := range bytes.Lines(content) {
		var m struct {
			Phase   string
			Outputs map[string]float64
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		if m.Phase == "train" {
			out = append(out, m.Outputs)
		}
	}
	return out
}

// TestNarrowPrecisionLearns trains in bf16 and fp16, stops the run, and holds what
// it ends in against a run that was not stopped. The fp16 run begins with a scale
// that overflows.
func TestNarrowPrecisionLearns(t *testing.T) {
	long(t)
	for _, precision := range []string{graphs.BF16, graphs.FP16} {
		t.Run(precision, func(t *testing.T) {
			p := narrow(t, precision)
			p.Train.Epochs, p.Train.EvalInterval, p.Checkpoint.Interval = 12, -1, 50
			if precision == graphs.FP16 {
				p.Optimizer.Hyperparameters[graphs.LossScale] = runner.MaxLossScale
			}
			log := new(strings.Builder)
			env := Env{Out: log, Log: slog.New(slog.DiscardHandler)}
			whole := filepath.Join(t.TempDir(), "whole")
			out, err := Train(context.Background(), p, whole, env)
			if err != nil {
				t.Fatal(err)
			}
			if out["accuracy"] < 0.9 {
				t.Errorf("accuracy %v after 12 epochs of a task that can be learned", out["accuracy"])
			}
			lines := loops(t, whole)
			first, last := lines[0], lines[len(lines)-1]
			if !(last["loss"] < first["loss"]/2) {
				t.Errorf("the loss was %v and is %v", first["loss"], last["loss"])
			}
			if _, scaled := first["loss_scale"]; scaled != (precision == graphs.FP16) {
				t.Errorf("outputs are %v", first)
			}
			if precision == graphs.FP16 {
				skipped := int(first["skipped_steps"])
				if skipped < 1 || first["loss_scale"] >= runner.MaxLossScale {
					t.Errorf("nothing overflowed: %v", first)
				}
				if said := strings.Count(log.String(), "batch skipped, loss scale lowered"); said < skipped || said != int(last["skipped_steps"]) {
					t.Errorf("%d lines of %v skipped batches", said, last["skipped_steps"])
				}
			}

			// The steps of two epochs show whether a run that is stopped goes on with the same bits.
			p.Train.Epochs = 2
			stoppedEndsAsAnother(t, p, 1, 8)
		})
	}
}

// TestKernelsInBF16 runs a bf16 graph with and without the package's own kernels, and holds its
// gradients against those of float32 with the same rows: with kernels they are longer.
func TestKernelsInBF16(t *testing.T) {
	p := narrow(t, graphs.BF16)
	wide := p
	wide.Graph = testkit.Export(t, bertConfig, "--pooling", "mean")
	for _, standard := range []bool{false, true} {
		got, def := threeSteps(t, p, standard)
		want, _ := threeSteps(t, wide, standard)
		for i := range got {
			if d := got[i]/want[i] - 1; d < -0.01 || d > 0.01 {
				t.Errorf("standard operations %v: gradient norms are %v in bf16, %v in float32", standard, got, want)
				break
			}
		}
		saved, err := os.ReadFile(filepath.Join(p.Graph, "saved_model.pb"))
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range kernelops.Ops() {
			update := len(op.Outputs) == 0
			if update && op.Implements != "gorbit.adamw" {
				continue // of another optimizer
			}
			if !update && !bytes.Contains(saved, []byte(op.Implements)) {
				continue // of another kind of model
			}
			if strings.Contains(op.Implements, "attention") && op.Inputs[0].DType != dtpb.DataType_DT_BFLOAT16 {
				continue // of another precision
			}
			if used := bytes.Contains(def, []byte(op.Name)); used == standard {
				t.Errorf("standard operations %v: %s is in the graph: %v", standard, op.Name, used)
			}
		}
	}
}

// threeSteps returns the norms of the gradients of three steps, and the graph that made them.
func threeSteps(t *testing.T, p params.Params, standard bool) ([]float64, []byte) {
	t.Helper()
	ctx := context.Background()
	export, set := opened(t, p)
	config := p.StrategyConfig(strategy.FunctionsTrain)
	config.StandardOps = standard
	s, err := strategy.NewOneDevice(ctx, export, "", config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	def, err := s.GraphDef()
	if err != nil {
		t.Fatal(err)
	}
	m, data := loop.NewModel(s, nil, nil), loop.NewSource(set, s, 1)
	if _, err := loop.Initialize(ctx, s, export, loop.Init{}); err != nil {
		t.Fatal(err)
	}
	var norms []float64
	for i := range int64(3) {
		batch, err := data.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r, err := m.Step(ctx, batch.Payload, runner.Hyper{Step: i, LearningRate: 1e-3, Seed: 1})
		if err != nil || !r.Applied {
			t.Fatalf("step %d: %+v, %v", i, r, err)
		}
		norms = append(norms, r.GradientNorm)
	}
	return norms, def
}

// TestSlowPrecisionIsRefused trains in fp16, which every CPU emulates.
func TestSlowPrecisionIsRefused(t *testing.T) {
	p := narrow(t, graphs.FP16)
	p.Train.Steps = 2
	p.Runtime.AllowSlowPrecision = false
	run := filepath.Join(t.TempDir(), "run")
	_, err := Train(context.Background(), p, run, quiet())
	var usage *params.Error
	var slow *params.SlowPrecisionError
	if !errors.As(err, &usage) || !errors.As(err, &slow) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(run, runfolder.Params)); err == nil {
		t.Error("a run that was refused has params")
	}

	p.Runtime.AllowSlowPrecision = true
	log := new(bytes.Buffer)
	env := Env{Out: new(bytes.Buffer), Log: slog.New(slog.NewTextHandler(log, nil))}
	if _, err := Train(context.Background(), p, run, env); err != nil {
		t.Fatal(err)
	}
	const warning = "TensorFlow emulates the precision"
	if !strings.Contains(log.String(), warning) {
		t.Errorf("training says nothing of it: %s", log)
	}
	log.Reset()
	r, err := OpenRun(context.Background(), run, []string{"runtime.allow_slow_precision=false"}, env)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !strings.Contains(log.String(), warning) {
		t.Errorf("evaluation says nothing of it: %s", log)
	}
}

// TestLimitedBF16IsRefused trains in bf16 where the environment keeps oneDNN from the CPU's
// instructions for it. No product is made before the refusal: oneDNN reads the variable once.
func TestLimitedBF16IsRefused(t *testing.T) {
	t.Setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
	p := narrow(t, graphs.BF16)
	p.Runtime.AllowSlowPrecision = false
	_, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet())
	var slow *params.SlowPrecisionError
	if !errors.As(err, &slow) || !strings.Contains(err.Error(), slow.Why) || slow.Why == "" {
		t.Fatalf("got %v", err)
	}
	if devices.SlowBF16() != slow.Why {
		t.Errorf("the reason is %q", slow.Why)
	}
}

// TestImpossibleBF16IsRefused trains in bf16 where TensorFlow would end the process at the first
// product, here and on a worker, although slow precisions are allowed.
func TestImpossibleBF16IsRefused(t *testing.T) {
	const why = "ONEDNN_MAX_CPU_ISA=AVX2 leaves oneDNN no way to compute it"
	p := narrow(t, graphs.BF16)
	p.Train.Steps, p.Train.EvalInterval = 2, params.NoEval
	check := func(worker string) {
		t.Helper()
		_, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet())
		var no *params.NoPrecisionError
		if !errors.As(err, &no) || no.Worker != worker || !strings.Contains(err.Error(), why) || !errors.Is(err, fault.Usage) {
			t.Errorf("got %v, expected a refusal for worker %q", err, worker)
		}
	}
	first, second, _ := strings.Cut(startWorkers(t, "cpu:1", "", ""), ",")
	second = clustertest.Greet(t, second, func(hello map[string]any) { hello["no_bf16"] = why })
	p.Strategy.Workers = first + "," + second
	check(second)
	if !cpu.X86.HasAVX512F {
		t.Log("without AVX512F TensorFlow multiplies bfloat16 without oneDNN: the case of this process does not apply")
		return
	}
	p.Strategy.Workers = ""
	t.Setenv("TF_ENABLE_ONEDNN_OPTS", "1")
	t.Setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
	check("")

	// Evaluating and predicting multiply as well.
	run := t.TempDir()
	text, err := p.YAML()
	if err == nil {
		err = os.WriteFile(filepath.Join(run, runfolder.Params), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenRun(context.Background(), run, nil, quiet())
	var no *params.NoPrecisionError
	if !errors.As(err, &no) || no.Worker != "" || !strings.Contains(err.Error(), why) || !errors.Is(err, fault.Usage) {
		t.Errorf("got %v, expected a refusal", err)
	}
	if err == nil {
		r.Close()
	}
}

// greeter relays a worker's words to a chief, but has its greeting say whether its CPU
// multiplies bfloat16.
func greeter(t *testing.T, worker string, bf16 bool) string {
	return clustertest.Greet(t, worker, func(hello map[string]any) { hello["bf16"] = bf16 })
}

// TestSlowWorkerIsRefused trains in bf16 with two workers, of which the second says that
// its CPU has no instructions for it.
func TestSlowWorkerIsRefused(t *testing.T) {
	p := narrow(t, graphs.BF16)
	p.Train.Steps, p.Train.EvalInterval, p.Runtime.AllowSlowPrecision = 2, params.NoEval, false
	first, second, _ := strings.Cut(startWorkers(t, "cpu:1", "", ""), ",")
	fast, slow := greeter(t, first, true), greeter(t, second, false)
	p.Strategy.Workers = fast + "," + slow
	run := filepath.Join(t.TempDir(), "run")
	_, err := Train(context.Background(), p, run, quiet())
	var refused *params.SlowPrecisionError
	if !errors.As(err, &refused) || refused.Worker != slow || !strings.Contains(err.Error(), "bf16, but the CPU of worker "+slow+" has no instructions for it") {
		t.Fatalf("got %v, want one about %s", err, slow)
	}
	if _, err := os.Stat(filepath.Join(run, runfolder.Params)); err == nil {
		t.Error("a run that was refused has params")
	}

	p.Runtime.AllowSlowPrecision = true
	if said := trainedLog(t, p, run); strings.Count(said, "TensorFlow emulates the precision") != 1 || !strings.Contains(said, "worker="+slow) {
		t.Errorf("the log does not say that %s alone emulates it:\n%s", slow, said)
	}

	p.Strategy.Workers, p.Runtime.AllowSlowPrecision = fast+","+greeter(t, second, true), false
	if _, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet()); err != nil {
		t.Error(err)
	}
}

// TestNarrowPrecisionOnReplicas trains in bf16 and fp16 on two replicas. The fp16 run
// begins with a scale that overflows.
func TestNarrowPrecisionOnReplicas(t *testing.T) {
	long(t)
	for _, precision := range []string{graphs.BF16, graphs.FP16} {
		t.Run(precision, func(t *testing.T) {
			p := narrow(t, precision)
			p.Strategy.Devices = "cpu:2"
			p.Train.Epochs, p.Train.EvalInterval = 8, -1
			if precision == graphs.FP16 {
				p.Optimizer.Hyperparameters[graphs.LossScale] = runner.MaxLossScale
			}
			run := filepath.Join(t.TempDir(), "run")
			out, err := Train(context.Background(), p, run, quiet())
			if err != nil {
				t.Fatal(err)
			}
			lines := loops(t, run)
			first, last := lines[0], lines[len(lines)-1]
			if !(last["loss"] < first["loss"]/2) || out["accuracy"] < 0.9 {
				t.Errorf("the loss was %v and is %v, the accuracy %v", first["loss"], last["loss"], out["accuracy"])
			}
			if skipped := first["skipped_steps"] > 0; skipped != (precision == graphs.FP16) {
				t.Errorf("%v steps were skipped", first["skipped_steps"])
			}
		})
	}
}

func TestLossScaleParam(t *testing.T) {
	p := narrow(t, graphs.FP16)
	for value, want := range map[float64]string{0.5: "loss_scale is 0.5; expected 1 or more", 1 << 25: fmt.Sprint(float64(1 << 25))} {
		p.Optimizer.Hyperparameters = map[string]float64{graphs.LossScale: value}
		_, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet())
		var usage *params.Error
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v", value, err)
		}
	}
	export, err := graphs.Open(p.Graph)
	if err != nil {
		t.Fatal(err)
	}
	names := func(h graphs.Hyperparameter) bool { return h.Name == graphs.LossScale }
	if export.Contract.Precision != graphs.FP16 || !slices.ContainsFunc(export.Contract.Hyperparameters, names) {
		t.Errorf("contract %+v", export.Contract)
	}
}
