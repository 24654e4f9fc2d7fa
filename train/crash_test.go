package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	eventpb "github.com/wamuir/graft/tensorflow/core/util/event_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/crashtest"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/params"
)

// frozenState is a variable of a counter that does not change.
const frozenState = "model/classifier/bias"

// counter is a strategy that computes no model: its variables are sums over the records
// that it was fed, and one that is frozen.
type counter struct {
	strategy.Strategy
	sum   []float32
	steps int64
}

// freeze makes frozenState a state of the contract.
func freeze(c *graphs.Contract) {
	c.States = append(c.States, graphs.State{Name: frozenState, Shape: []int64{2}, DType: "float32"})
}

func (c *counter) Variables() []strategy.VariableSpec {
	return []strategy.VariableSpec{
		{Name: frozenState, DType: tf.Float, Shape: []int64{2}},
		{Name: "model/sum", DType: tf.Float, Shape: []int64{int64(len(c.sum))}},
		{Name: "optimizer/iterations", DType: tf.Int64, Shape: []int64{}, Slot: true},
	}
}

func (c *counter) Read(_ context.Context, names ...string) ([]*tf.Tensor, error) {
	var out []*tf.Tensor
	for _, name := range names {
		var value any = c.steps
		switch name {
		case "model/sum":
			value = c.sum
		case frozenState:
			value = []float32{1, 2}
		}
		t, err := tf.NewTensor(value)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func (c *counter) Assign(_ context.Context, values map[string]*tf.Tensor) error {
	if v, ok := values["model/sum"]; ok {
		c.sum = v.Value().([]float32)
	}
	if v, ok := values["optimizer/iterations"]; ok {
		c.steps = v.Value().(int64)
	}
	return nil
}

// digest is a number between 0 and 1 that depends on all features of a batch.
func digest(features []strategy.Feature) float32 {
	sum := crc32.NewIEEE()
	for _, f := range features {
		fmt.Fprint(sum, f.Name)
		_ = binary.Write(sum, binary.LittleEndian, f.Int32)
	}
	return float32(sum.Sum32()) / (1 << 32)
}

func (c *counter) Steps(_ context.Context, steps []strategy.StepInput) ([]strategy.Result, error) {
	var out []strategy.Result
	for _, s := range steps {
		var loss float64
		for _, features := range s.Batches {
			v := digest(features)
			c.sum[c.steps%int64(len(c.sum))] += v * float32(s.Scalars["learning_rate"])
			loss += float64(v)
		}
		c.steps++
		out = append(out, strategy.Result{Sums: c.sums(loss), GradientNorm: loss, Applied: true, Iterations: c.steps})
	}
	return out, nil
}

func (c *counter) Evaluate(_ context.Context, features []strategy.Feature) (map[string][]float64, error) {
	return c.sums(float64(digest(features) * c.sum[0])), nil
}

func (c *counter) sums(loss float64) map[string][]float64 {
	return map[string][]float64{runner.LossSum: {loss}, runner.WeightSum: {1}}
}

func (c *counter) Runtime() strategy.Runtime {
	return strategy.Runtime{Devices: []string{"none"}, MicroBatches: 1, StepsPerCall: 1, InFlight: 1, OptimizerBytes: []int64{0}}
}
func (c *counter) Times() []strategy.Times   { return nil }
func (c *counter) GraphDef() ([]byte, error) { return []byte("graph"), nil }
func (c *counter) Close() error              { return nil }

// freeRun prepares a run of which all is real but the model, whose steps cost nothing, and the graph,
// which has a few bytes.
func freeRun(t *testing.T, p params.Params) *prepare.Setup {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	s, err := prepare.New(t.Context(), p, quiet().prepare())
	if err != nil {
		t.Fatal(err)
	}
	small := *s.Export
	small.Path = smallGraph(t, t.TempDir(), s.Export.Path) // the initial values stay the real ones
	s.Export = &small
	freeze(small.Contract)
	return s
}

// trainFree trains what freeRun prepared.
func trainFree(ctx context.Context, s prepare.Setup, folder string, env Env) error {
	tr, err := newTraining(ctx, &s, folder, env)
	if err != nil {
		return err
	}
	defer tr.examples.Close()
	tr.place = func(context.Context) (prepare.Placed, error) {
		return prepare.Placed{Strategy: &counter{sum: make([]float32, 4)}}, nil
	}
	_, err = tr.inFolder(ctx)
	return err
}

// crashParams is a run of four steps, which saves, evaluates and keeps the best checkpoint.
func crashParams(t *testing.T) params.Params {
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs, p.Train.StepsPerLoop, p.Train.EvalInterval = 4, 0, 2, 3
	p.Checkpoint.Interval, p.Checkpoint.MaxToKeep, p.Checkpoint.Best, p.Checkpoint.BestMode = 2, 1, "loss", ""
	return p
}

// TestCrashOfRunAnywhere crashes a run at every file operation.
func TestCrashOfRunAnywhere(t *testing.T) {
	t.Parallel()
	long(t)
	shared := freeRun(t, crashParams(t))
	run := func(dir string) error {
		return trainFree(context.Background(), *shared, filepath.Join(dir, "run"), quiet())
	}
	crashtest.Survives(t, crashtest.Program{Run: run, Same: sameRunFile, Phase: func(operation string) string {
		switch {
		case operation == "":
			return "after the end"
		case strings.Contains(operation, "/"+runfolder.GraphFolder+"/"):
			return "graph kept"
		case strings.Contains(operation, "protected.json"):
			return "best checkpoint kept"
		case strings.Contains(operation, runfolder.Checkpoints):
			return "checkpoints"
		case strings.Contains(operation, runfolder.Metrics):
			return "metrics"
		case strings.Contains(operation, evaluation.Folder):
			return "evaluations"
		case strings.Contains(operation, "tfevents"), strings.HasSuffix(operation, "/train/"), strings.HasSuffix(operation, "/eval/"):
			return "events"
		}
		return "run folder"
	}})
}

// sameRunFile is the form in which the files of two runs are compared: times are left
// out, and the event files of a folder are taken together.
func sameRunFile(path string, data []byte) (name, content string) {
	switch base := filepath.Base(path); {
	case base == runfolder.Journal:
		return "", "" // times, and a line per process
	case base == runfolder.Trainer:
		return path, withoutTimes(data)
	case base == ".lock":
		return "", "" // the system's; it stays, and names the last process
	case base == "checkpoint":
		var b strings.Builder
		for line := range strings.Lines(string(data)) {
			if !strings.Contains(line, "timestamp") {
				b.WriteString(line)
			}
		}
		return path, b.String()
	case strings.Contains(base, "tfevents"):
		return filepath.Dir(path) + "/events", points(data)
	}
	return path, string(data)
}

// withoutTimes returns a trainer_state.json without times and memory.
func withoutTimes(data []byte) string {
	var state runfolder.TrainerState
	if err := json.Unmarshal(data, &state); err != nil {
		return err.Error()
	}
	for _, entry := range state.LogHistory {
		maps.DeleteFunc(entry, func(name string, _ any) bool {
			return strings.Contains(name, "_mem_") || strings.HasSuffix(name, "_runtime") || strings.HasSuffix(name, "_per_second") || strings.HasSuffix(name, "_mfu")
		})
	}
	out, err := json.Marshal(state)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// points lists what an event file shows, without times.
func points(data []byte) string {
	var b strings.Builder
	r, err := tfrecord.NewReader(strings.NewReader(string(data)), "events")
	if err != nil {
		return err.Error()
	}
	for {
		record, err := r.Next()
		if err == io.EOF {
			return b.String()
		}
		if err != nil {
			return err.Error()
		}
		var e eventpb.Event
		if err := proto.Unmarshal(record, &e); err != nil {
			return err.Error()
		}
		for _, v := range e.GetSummary().GetValue() {
			if strings.Contains(v.GetTag(), "per_second") || strings.Contains(v.GetTag(), "overhead") || strings.Contains(v.GetTag(), "memory") {
				fmt.Fprintf(&b, "%d %s\n", e.Step, v.GetTag()) // a time, or the process's
				continue
			}
			fmt.Fprintf(&b, "%d %s %x %q\n", e.Step, v.GetTag(), v.GetTensor().GetTensorContent(), v.GetTensor().GetStringVal())
		}
		if g := e.GetGraphDef(); g != nil {
			fmt.Fprintf(&b, "graph %q\n", g)
		}
	}
}
