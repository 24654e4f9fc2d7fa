// Customloop trains an exported model with a training loop of its own. The packages provide the
// strategy, the data, the checkpoints and the initial weights; the loop decides when to use them.
// Nothing in it depends on the model: the contract of its export says what a batch is and which
// metrics there are. When it is started again, it continues from its last checkpoint.
//
//	go run ./examples/customloop --graph exports/mrpc --data data/mrpc --out runs/custom --steps 200
//
// The data comes from gorbit convert, the graph from python -m gorbit_export.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

const saveEvery = 20 // steps

func main() {
	var o options
	flag.StringVar(&o.graph, "graph", "", "folder of an export")
	flag.StringVar(&o.data, "data", "", "folder of the records, with a train and a dev split")
	flag.StringVar(&o.out, "out", "", "folder of the checkpoints")
	flag.StringVar(&o.init, "init", "", "initial weights: a safetensors file, a checkpoint or a run folder")
	flag.Int64Var(&o.steps, "steps", 100, "steps to train")
	flag.Parse()
	if err := o.run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "customloop:", err)
		os.Exit(1)
	}
}

// options holds the command line's flags.
type options struct {
	graph, data, out, init string
	steps                  int64
}

// split returns the configuration of a split of the data for a graph.
func (o options) split(name string, c *graphs.Contract) dataset.Config {
	return dataset.Config{Files: []string{filepath.Join(o.data, name)}, BatchSize: 32, Layout: train.Layout(params.Defaults(), c)}
}

// run opens everything the loop needs and runs it.
func (o options) run(ctx context.Context, out io.Writer) error {
	export, err := graphs.Open(o.graph)
	if err != nil {
		return err
	}
	if err := export.RefuseUnsafe(nil); err != nil {
		return err
	}
	device, err := strategy.NewOneDevice(ctx, export, "", strategy.Config{})
	if err != nil {
		return err
	}
	defer device.Close()
	examples, err := dataset.Open(ctx, o.split("train", export.Contract))
	if err != nil {
		return err
	}
	defer examples.Close()
	manager, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: o.out, State: export.Contract.State, MaxToKeep: 3})
	if err != nil {
		return err
	}
	defer manager.Close()
	l := training{
		model:       loop.NewModel(device, strategy.Scalars{"weight_decay": 0.01, "clip_norm": 1}, nil),
		data:        loop.NewSource(examples, device, 1),
		checkpoints: loop.NewCheckpoints(manager, device, export.Contract, nil),
		initialize: func(ctx context.Context) error {
			_, err := loop.Initialize(ctx, device, export, loop.Init{From: o.init})
			return err
		},
		out: out,
	}
	l.evaluator = runner.NewStandardEvaluator(l.model, loop.Evaluations(func(ctx context.Context) (*dataset.Dataset, error) {
		c := o.split("dev", export.Contract)
		c.Epochs, c.Shuffle = 1, dataset.ShuffleNone
		return dataset.Open(ctx, c)
	}), runner.EvaluatorConfig{Metrics: loop.NewTask(ctx, export.Contract, device).Measure, InFlight: device.Runtime().InFlight})
	return l.run(ctx, o.steps)
}

// training is a training loop.
type training struct {
	model       *loop.Model
	data        *loop.Source
	checkpoints *loop.Checkpoints
	evaluator   runner.Evaluator
	initialize  func(context.Context) error
	out         io.Writer
}

// run trains until the given step. Checkpoints hold the variables and the position in the data.
func (l *training) run(ctx context.Context, steps int64) error {
	at, err := l.checkpoints.Restore(ctx, "")
	if err == nil && at.Path == "" {
		err = l.initialize(ctx)
	}
	if err == nil {
		err = l.data.Seek(at.State)
	}
	for step := at.Step + 1; step <= steps && err == nil; step++ {
		batch, err := l.data.Next(ctx)
		if err != nil {
			return err
		}
		result, err := l.model.Step(ctx, batch.Payload, runner.Hyper{Step: step - 1, LearningRate: 1e-3, Seed: 1})
		if err != nil {
			return err
		}
		if !result.Applied {
			return fmt.Errorf("step %d: the loss or its gradient is not finite", step)
		}
		if step%saveEvery == 0 || step == steps {
			if err := l.evaluateAndSave(ctx, step, batch.Position); err != nil {
				return err
			}
		}
	}
	return err
}

// evaluateAndSave evaluates the model and saves it with the position in the data.
func (l *training) evaluateAndSave(ctx context.Context, step int64, position any) error {
	metrics, err := l.evaluator.Evaluate(ctx, runner.UntilEnd)
	if err != nil {
		return err
	}
	fmt.Fprintf(l.out, "step %d: %v\n", step, metrics)
	state, err := json.Marshal(position)
	if err != nil {
		return err
	}
	saving, err := l.checkpoints.Save(ctx, step, state)
	if err != nil {
		return err
	}
	return (<-saving).Err
}
