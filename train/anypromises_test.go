package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
)

// The promises that hold for classifiers of texts hold for any model.

func anyModelNamed(name string) anyModel {
	return anyModels[slices.IndexFunc(anyModels, func(m anyModel) bool { return m.name == name })]
}

// TestAnyModelStopped stops and continues runs, which end as others, bit for bit.
func TestAnyModelStopped(t *testing.T) {
	long(t)
	for _, m := range anyModels {
		t.Run(m.name, func(t *testing.T) {
			p := m.params(t)
			p.Train.Steps = 30
			stoppedEndsAsAnother(t, p, 7, 20) // 20 ends a loop, whose metrics are still due
		})
	}
}

// TestAnyModelKilled kills runs of a model of padded sequences, and of one of Keras with states.
func TestAnyModelKilled(t *testing.T) {
	long(t)
	for _, name := range []string{"words", "plants"} {
		t.Run(name, func(t *testing.T) {
			p := anyModelNamed(name).params(t)
			p.Train.Steps, p.Checkpoint.Interval, p.Train.EvalInterval = 240, 16, 80
			newKiller(t, p).endsAsAnother(t, func(files []string, kills int) bool { return len(files) > 2*kills })
		})
	}
}

// withoutDropout turns random numbers off, which differ between replicas.
func withoutDropout(p *params.Params) {
	if strings.HasSuffix(p.Graph, "flowers") {
		p.Optimizer.Hyperparameters["dropout"] = 0
	}
}

// TestAnyModelDivided trains on several devices and workers, which read or are fed, as on one.
func TestAnyModelDivided(t *testing.T) {
	long(t)
	workers := startWorkers(t, "cpu:1", "", "")
	for _, m := range []string{"flowers", "words"} {
		p := anyModelNamed(m).params(t)
		p.Train.Steps, p.Train.EvalInterval, p.Summary.Enabled, p.Optimizer.LearningRate = 12, params.NoEval, false, 0.01
		p.Checkpoint.Best = ""
		withoutDropout(&p)
		if m == "flowers" {
			p.Data.ClassWeights = params.ByClass{Of: map[string]float64{"0": 3, "2": 0.25}}
			p.Data.Sampling = params.ByClass{Rule: params.ClassesBalanced}
		}
		one := filepath.Join(t.TempDir(), "one")
		p.Runtime.Lanes = 1
		mustTrain(t, p, one)
		for name, change := range map[string]func(*params.Params){
			"2 lanes":               func(p *params.Params) { p.Runtime.Lanes = 2 },
			"2 devices":             func(p *params.Params) { p.Strategy.Devices = "cpu:2" },
			"3 devices, accumulate": func(p *params.Params) { p.Strategy.Devices, p.Strategy.Accumulate = "cpu:3", 2 },
			"2 devices, sharded":    func(p *params.Params) { p.Strategy.Devices, p.Strategy.ShardOptimizer = "cpu:2", true },
			"2 workers, fed":        func(p *params.Params) { p.Strategy.Workers = workers },
			"2 workers that read":   func(p *params.Params) { p.Strategy.Workers, p.Strategy.Input = workers, params.InputLocal },
		} {
			t.Run(m+", "+name, func(t *testing.T) {
				p, run := p, filepath.Join(t.TempDir(), "run")
				change(&p)
				mustTrain(t, p, run)
				alike(t, run, one)
			})
		}
	}
}

// TestNotAdditive says what a division changes, and refuses to change it during a run.
func TestNotAdditive(t *testing.T) {
	p := anyModelNamed("weather").params(t)
	p.Train.Steps, p.Train.EvalInterval = 2, params.NoEval
	const warns = "the graph's results depend on how a batch is divided"
	if log := trainedLog(t, p, t.TempDir()); strings.Contains(log, warns) {
		t.Errorf("on one device: %s", log)
	}
	p.Strategy.Devices = "cpu:2"
	if log := trainedLog(t, p, t.TempDir()); !strings.Contains(log, warns) || !strings.Contains(log, "micro_batches=2 examples_per_micro_batch=8") {
		t.Errorf("on two devices: %s", log)
	}
	p.Strategy.Devices, p.Strategy.Workers, p.Strategy.Elastic = "", "127.0.0.1:1", true
	_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
	if err == nil || !strings.HasPrefix(err.Error(), "strategy.elastic is true, and the graph's results depend on how a batch is divided") || !errors.Is(err, fault.Usage) {
		t.Errorf("elastic: %v", err)
	}
}

// TestAnyModelErrors trains with wrong params and records. Each is refused in a sentence, the first
// records before the graph is composed.
func TestAnyModelErrors(t *testing.T) {
	flowers := anyModelNamed("flowers")
	instead := func(f tfrecord.Feature) func(p *params.Params) {
		return func(p *params.Params) {
			r := rand.New(rand.NewPCG(3, 4))
			writeExamples(t, filepath.Join(p.Data.Dir, "train-00001-of-00002.tfrecord"), 5, func(int) []tfrecord.Feature {
				all := slices.DeleteFunc(flowers.record(r), func(g tfrecord.Feature) bool { return g.Name == f.Name })
				if f.Kind == tfrecord.KindNone {
					return all
				}
				return append(all, f)
			})
		}
	}
	for _, test := range []struct {
		name   string
		change func(p *params.Params)
		want   string
		class  fault.Class
	}{
		{"missing", instead(tfrecord.Feature{Name: "kind"}), `split train: `, fault.Damaged},
		{"of another kind", instead(tfrecord.FloatFeature("kind", 1)), `feature "kind" has float values; expected int64`, fault.Damaged},
		{"of another size", instead(tfrecord.FloatFeature("sizes", 1, 2, 3)), `feature "sizes" has 3 values; expected 4`, fault.Damaged},
		{"beyond the classes", instead(tfrecord.Int64Feature("kind", 3)), `feature "kind" has 3`, fault.Damaged},
		{"another name", func(p *params.Params) { delete(p.Data.Features, "measures") }, `feature "measures" is missing; the record has "kind", "note", "sizes"; choose one of them with --set data.features.measures=NAME`, fault.Damaged},
		{"another split", func(p *params.Params) {
			for _, shard := range []string{"0", "1"} { // as TensorFlow's own examples name them
				name := filepath.Join(p.Data.Dir, "train-0000"+shard+"-of-00002")
				if err := os.Rename(name+".tfrecord", name); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Remove(filepath.Join(p.Data.Dir, "dev-00000-of-00001.tfrecord")); err != nil {
				t.Fatal(err)
			}
		}, `has no split "dev"; expected one of train; choose one with --set data.eval=NAME`, fault.Usage},
		{"a feature that the graph lacks", func(p *params.Params) { p.Data.Features["pixels"] = "sizes" },
			"data.features.pixels: the graph reads no such feature from records; expected one of measures, kind, example_weights", fault.Usage},
		{"rows", func(p *params.Params) { p.Data.Rows = 4 }, "data.rows is 4, and the graph takes no rows of tokens; leave it out", fault.Usage},
		{"images", func(p *params.Params) { p.Data.Resize = "bilinear" }, "data.resize is bilinear, and the graph takes no images of one size; leave it out", fault.Usage},
		{"crop", func(p *params.Params) { p.Data.CropToAspectRatio = true }, "data.crop_to_aspect_ratio is true and data.resize is not set", fault.Usage},
		{"a metric that is not there", func(p *params.Params) { p.Checkpoint.Best = "accuracy" },
			`checkpoint.best is "accuracy"; expected one of found, loss, margin, the metrics of this graph`, fault.Usage},
		{"a metric without a direction", func(p *params.Params) { p.Checkpoint.Best = "margin" }, `checkpoint.best is "margin", whose direction is unknown`, fault.Usage},
		{"against a metric's direction", func(p *params.Params) { p.Checkpoint.BestMode = "min" }, "checkpoint.best_mode is min; for found expected max", fault.Usage},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := flowers.params(t)
			test.change(&p)
			run := filepath.Join(t.TempDir(), "run")
			_, err := Train(t.Context(), p, run, quiet())
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, test.class) {
				t.Errorf("got %v (%v), want %s (%v)", err, fault.Of(err), test.want, test.class)
			}
			if _, err := os.Stat(filepath.Join(run, runfolder.Params)); err == nil {
				t.Error("the run began all the same")
			}
		})
	}
}

// TestAnyModelPreflight trains with data whose manifest shows that the graph cannot take them.
func TestAnyModelPreflight(t *testing.T) {
	one := 1.0
	for _, test := range []struct {
		name   string
		change func(sizes, kind *convert.Feature, m *convert.Manifest)
		want   []string
	}{
		{"nothing wrong", func(*convert.Feature, *convert.Feature, *convert.Manifest) {}, nil},
		{"without a feature", func(sizes, _ *convert.Feature, _ *convert.Manifest) { sizes.Name = "lengths" },
			[]string{"has no feature sizes, which the graph takes; expected one of lengths, kind; name it with --set data.features.measures=NAME"}},
		{"another shape", func(sizes, _ *convert.Feature, _ *convert.Manifest) { sizes.Shape = convert.Shape{3} }, []string{"has shape [3]; expected [4], as in the graph"}},
		{"an open shape", func(sizes, _ *convert.Feature, _ *convert.Manifest) { sizes.Shape = convert.Shape{-1} }, []string{"has shape [null]; expected [4], as in the graph"}},
		{"the same size", func(sizes, _ *convert.Feature, _ *convert.Manifest) { sizes.Shape = convert.Shape{2, 2} }, nil},
		{"bytes", func(sizes, _ *convert.Feature, _ *convert.Manifest) { sizes.DType = "string" }, []string{"has bytes; expected values of float32, as in the graph"}},
		{"labels that are no integers", func(_, kind *convert.Feature, _ *convert.Manifest) { kind.DType = "float32" },
			[]string{"has values of float32; expected int32, as in the graph; convert it with another dtype"}},
		{"other categories", func(_, kind *convert.Feature, _ *convert.Manifest) { kind.Categories = []string{"a", "b"} },
			[]string{"has 2 categories; expected 3, as in the graph; export the graph for 2, or list the categories in the schema"}},
		{"values out of bounds", func(_, kind *convert.Feature, m *convert.Manifest) {
			kind.Categories, kind.Kind = nil, convert.KindNumber
			low, high := -1.0, 3.0
			m.Splits["dev"].Features["kind"].Min, m.Splits["dev"].Features["kind"].Max = &low, &high
		}, []string{"split dev has -1 in feature kind; expected 0 or more, as in the graph", "split dev has 3 in feature kind; expected less than 3, as in the graph"}},
		{"without labels", func(_, _ *convert.Feature, m *convert.Manifest) { m.Splits["train"].Features["kind"].Records = 100 },
			[]string{"21 of the 121 examples of split train have no kind; expected one in each"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := anyModelNamed("flowers").params(t)
			split := func(n int64, files ...convert.File) *convert.Split {
				return &convert.Split{Files: files, Records: n, Features: map[string]*convert.Statistics{
					"sizes": {Records: n, Values: 4 * n, Min: &one, Max: &one}, "kind": {Records: n, Values: n, Min: &one, Max: &one}}}
			}
			m := &convert.Manifest{Format: convert.ManifestFormat, Version: convert.ManifestVersion, Task: convert.SchemaTask,
				Features: []convert.Feature{{Name: "sizes", Kind: convert.KindNumber, DType: "float32", Shape: convert.Shape{4}, Role: convert.RoleInput},
					{Name: "kind", Kind: convert.KindCategory, DType: "int64", Shape: convert.Shape{}, Role: convert.RoleLabel, Categories: []string{"a", "b", "c"}}},
				Splits: map[string]*convert.Split{
					"train": split(121, convert.File{Name: "train-00000-of-00002.tfrecord", Records: 61}, convert.File{Name: "train-00001-of-00002.tfrecord", Records: 60}),
					"dev":   split(50, convert.File{Name: "dev-00000-of-00001.tfrecord", Records: 50})}}
			test.change(&m.Features[0], &m.Features[1], m)
			content, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(p.Data.Dir, convert.ManifestName), content)
			_, err = preflightParams(t, p, "", nil)
			if len(test.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			found := (*params.PreflightError)(nil)
			if !errors.As(err, &found) || len(found.Findings) != len(test.want) {
				t.Fatalf("got %v, want %d findings", err, len(test.want))
			}
			for i, want := range test.want {
				if !strings.Contains(found.Findings[i], want) {
					t.Errorf("got %s, want %s", found.Findings[i], want)
				}
			}
		})
	}
}

// TestAnyModelDamaged names a damaged record in the middle, or leaves it out.
func TestAnyModelDamaged(t *testing.T) {
	p := anyModelNamed("words").params(t)
	p.Train.Steps = 20
	path := filepath.Join(p.Data.Dir, "train-00000-of-00002.tfrecord")
	flip(t, path)
	_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
	if err == nil || !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), filepath.Base(path)) || !strings.Contains(err.Error(), "record") {
		t.Errorf("got %v", err)
	}
	p.Data.OnCorrupt = "skip"
	mustTrain(t, p, filepath.Join(t.TempDir(), "run"))
}

// TestAnyModelNotFinite names the records of a step whose loss is not finite, or leaves it out.
func TestAnyModelNotFinite(t *testing.T) {
	p := anyModelNamed("weather").params(t)
	r := rand.New(rand.NewPCG(5, 6))
	writeExamples(t, filepath.Join(p.Data.Dir, "train-00001-of-00002.tfrecord"), 20, func(i int) []tfrecord.Feature {
		f := anyModelNamed("weather").record(r)
		if i == 10 {
			f[2] = tfrecord.FloatFeature("degrees", float32(math.NaN()))
		}
		return f
	})
	p.Train.BatchSize = 4
	_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
	if nonFinite := (*runner.NonFiniteError)(nil); !errors.As(err, &nonFinite) || !strings.Contains(err.Error(), "train-00001-of-00002.tfrecord:10") {
		t.Errorf("got %v, want an error that names the record", err)
	}
	p.Train.OnNonFinite, p.Train.Steps = "skip", 12
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	values, _ := final(t, run)
	for name, raw := range values {
		if strings.Contains(fmt.Sprintf("%x", raw), "0000c07f") {
			t.Errorf("%s is not finite", name)
		}
	}
}

// TestAnyModelStopsEarly keeps the checkpoint of the graph's own best metric, and stops when it gets no
// better.
func TestAnyModelStopsEarly(t *testing.T) {
	long(t)
	p := anyModelNamed("weather").params(t)
	p.Train.Steps, p.Train.EvalInterval, p.Train.Patience = 400, 4, 3
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	best, at, last := math.Inf(1), int64(0), int64(0)
	for _, e := range evaluations(t, run) {
		if last = e.Step; e.Outputs["warmth_error"] < best {
			best, at = e.Outputs["warmth_error"], e.Step
		}
	}
	if last == 400 || last != at+3*4 {
		t.Errorf("stopped at step %d; the best was at step %d", last, at)
	}
	r, err := OpenRun(context.Background(), run, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if step, err := r.Load(t.Context(), params.Best); err != nil || step != at {
		t.Errorf("the best checkpoint is of step %d, %v; expected %d", step, err, at)
	}
}

// TestLogFirstStep wants a line for the first step, and nothing else to change but the loop after it.
func TestLogFirstStep(t *testing.T) {
	p := anyModelNamed("flowers").params(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Best, p.Summary.Interval = 6, params.NoEval, "", 4
	var runs, steps []string
	for _, first := range []bool{false, true} {
		p.Train.LogFirstStep = first
		run := filepath.Join(t.TempDir(), "run")
		mustTrain(t, p, run)
		var at []int64
		for line := range strings.Lines(read(t, run, runfolder.Metrics)) {
			var l metricsLine
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			at = append(at, l.Step)
		}
		runs, steps = append(runs, run), append(steps, fmt.Sprint(at))
	}
	if steps[0] != "[4 6]" || steps[1] != "[1 4 6]" {
		t.Errorf("the lines are of steps %v", steps)
	}
	alike(t, runs[1], runs[0])
}

// TestEvalAtStart wants an evaluation before the first step, as that of the values which the run begins with, and
// nothing else to change.
func TestEvalAtStart(t *testing.T) {
	p := anyModelNamed("weather").params(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Interval = 6, 4, 3
	runs := []string{filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "run")}
	mustTrain(t, p, runs[0])
	p.Eval.AtStart = true
	mustTrain(t, p, runs[1])
	without, with := evaluations(t, runs[0]), evaluations(t, runs[1])
	if len(without) != 2 || len(with) != 3 || with[0].Step != 0 || fmt.Sprint(with[1:]) != fmt.Sprint(without) {
		t.Fatalf("the evaluations are %v, and %v from the start", without, with)
	}
	if trainer := read(t, runs[1], runfolder.Trainer); !strings.Contains(trainer, `"eval_warmth_error"`) || !strings.Contains(trainer, `"step": 0`) {
		t.Errorf("%s lacks the evaluation at the start:\n%s", runfolder.Trainer, trainer)
	}
	staged := t.TempDir()
	if err := (Weights{Graph: p.Graph, Data: p.Data.Dir}).Stage(t.Context(), staged, nil, quiet()); err != nil {
		t.Fatal(err)
	}
	r := loaded(t, staged, quiet())
	defer r.Close()
	if _, err := r.Load(t.Context(), params.Latest); err != nil {
		t.Fatal(err)
	}
	out, err := r.Evaluate(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range with[0].Outputs {
		if math.Abs(value-out[name]) > 1e-6*math.Abs(value) || len(out) != len(with[0].Outputs) {
			t.Errorf("before the first step %s is %v, and of the values of the export %v", name, value, out[name])
		}
	}
	// No later one is better, so that its checkpoint is kept.
	p.Train.EvalInterval, p.Optimizer.LearningRate, p.Checkpoint.MaxToKeep = 3, 1e6, 1
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	if step, err := loaded(t, run, quiet()).Load(t.Context(), params.Best); err != nil || step != 0 {
		t.Errorf("the best checkpoint is of step %d, %v", step, err)
	}
}

// TestMinDelta stops though evaluations get better, by too little, and still keeps the best checkpoint.
func TestMinDelta(t *testing.T) {
	p := anyModelNamed("weather").params(t)
	p.Train.Steps, p.Train.EvalInterval, p.Train.Patience, p.Train.MinDelta = 400, 4, 2, 1000
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	all := evaluations(t, run)
	if len(all) != 3 || all[2].Step != 12 || all[2].Outputs["warmth_error"] >= all[0].Outputs["warmth_error"] {
		t.Fatalf("the evaluations are %v; expected three, each better", all)
	}
	if step, err := loaded(t, run, quiet()).Load(t.Context(), params.Best); err != nil || step == 4 {
		t.Errorf("the best checkpoint is of step %d, %v", step, err)
	}
}

// TestAnyModelInit begins with the variables and states of another run.
func TestAnyModelInit(t *testing.T) {
	p := anyModelNamed("weather").params(t)
	p.Train.Steps, p.Train.EvalInterval = 5, params.NoEval
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	mustTrain(t, p, first)
	p.Init, p.Optimizer.LearningRate, p.Train.Steps = first, 1e-30, 1
	mustTrain(t, p, second)
	was, _ := final(t, first)
	is, _ := final(t, second)
	if string(was["model/kernel"]) != string(is["model/kernel"]) {
		t.Error("the kernel was not taken")
	}
	if report := read(t, second, runfolder.Init); !strings.Contains(report, "matched     model/mean") || !strings.Contains(report, " 0 missing") {
		t.Errorf("init.txt says %s", report)
	}
}
