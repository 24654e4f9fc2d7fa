package train

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/vfs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// Files of a run folder.
const (
	paramsFile = "params.yaml"
	dataFile   = "data.json"
	vocabFile  = "vocab.txt"
	initFile   = "init.txt"
)

// Env is what a job needs of the program around it.
type Env struct {
	// Out takes the lines that tell of progress, one Write each.
	Out io.Writer
	// Log takes everything else.
	Log *slog.Logger
	// Version of the program, for workers of other versions.
	Version string
	// Observer watches the steps, for a progress bar; nil for none.
	Observer runner.Observer
	// AllowOps names operations that reach beyond the graph and are let run all
	// the same, see graphs.Export.RefuseUnsafe.
	AllowOps []string
}

// Train trains what the params say in a run folder, and evaluates. A folder that
// holds a checkpoint is continued from it; the same params then end in the same
// variables, bit for bit, as if the run had not been stopped. It returns the last
// evaluation's outputs, nil where there was none.
//
// The error is a runner.ErrStopped where the context was cancelled: the run was
// saved within a step.
func Train(ctx context.Context, p Params, folder string, env Env) (runner.Outputs, error) {
	if err := p.Absolute(); err != nil {
		return nil, err
	}
	warnKept(p.Keep(folder), env.Log)
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s, err := newSetup(p, env)
	if err != nil {
		return nil, err
	}
	t, err := newTraining(ctx, s, folder)
	if err != nil {
		return nil, err
	}
	defer t.examples.Close()

	if err := vfs.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	unlock, err := checkpoint.Lock(folder)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if t.manager, err = s.openManager(folder, false); err != nil {
		return nil, err
	}
	defer t.manager.Close()
	t.before = readPast(folder)
	if done, err := t.complete(ctx); done || err != nil {
		return t.before.outputs(), err
	}
	return t.run(ctx)
}

// training is a run with all that outlasts the loss of a worker.
type training struct {
	*setup
	given       Params // what the user wrote, before intervals were worked out
	folder      string
	scalars     strategy.Scalars
	examples    *dataset.Dataset // to train on
	start       dataset.State    // of the examples
	steps       int64
	evaluations func(context.Context) (runner.BatchReader[*Batch], error) // nil for none
	evalBatches int64
	manager     *checkpoint.Manager
	before      *past // of the run; nil for a new one
}

// newTraining opens what is trained on, and works out the params that are counted in
// epochs.
func newTraining(ctx context.Context, s *setup, folder string) (*training, error) {
	t := &training{setup: s, folder: folder}
	var err error
	if t.scalars, err = scalarsOf(s.params, s.export.Contract); err != nil {
		return nil, err
	}
	if err := checkBest(s.params, s.export); err != nil {
		return nil, err
	}
	if err := s.openData(); err != nil {
		return nil, err
	}
	if t.examples, err = s.open(ctx, s.params.Data.Train, toTrain); err != nil {
		return nil, err
	}
	t.start = t.examples.State()
	if s.params.Runtime.Lanes == 0 {
		s.params.Runtime.Lanes = s.params.Runtime.lanes(s.export.Contract.XLA)
	}
	t.given = s.params
	if t.steps, err = intervals(&s.params, t.examples.BatchesPerEpoch()); err == nil && s.params.Train.EvalInterval != noEval {
		t.evaluations, t.evalBatches, err = s.evaluations(ctx, s.params.Data.Eval)
	}
	if err != nil {
		t.examples.Close()
		return nil, err
	}
	return t, nil
}

// run trains, and goes on from the last checkpoint where a worker was lost.
func (t *training) run(ctx context.Context) (runner.Outputs, error) {
	for restarts := 0; ; {
		// An attempt that finds no checkpoint begins with the first batch.
		if err := t.examples.Restore(t.start); err != nil {
			return nil, err
		}
		out, err := t.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		if left, some := t.params.Strategy.without(err); t.params.Strategy.Elastic && restarts > 0 && some && !lostWorker(err) {
			t.env.Log.Warn("going on without workers that did not come back", "error", err, "left", left.Workers)
			t.params.Strategy = left
			continue
		}
		if !lostWorker(err) || restarts >= t.params.Strategy.MaxRestarts {
			if restarts > 0 {
				err = fmt.Errorf("%w; restarts so far: %d of at most %d (strategy.max_restarts)", err, restarts, t.params.Strategy.MaxRestarts)
			}
			return nil, err
		}
		restarts++
		t.env.Log.Warn("a worker was lost: the run goes on from its last checkpoint", "error", lostCause(err),
			"restart", restarts, "max_restarts", t.params.Strategy.MaxRestarts)
	}
}

// Flat returns the params by their names, section.name; texts are quoted.
func (p Params) Flat() map[string]any {
	out := make(map[string]any)
	var add func(path string, v reflect.Value)
	add = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for f, field := range v.Fields() {
				add(strings.TrimPrefix(path+"."+f.Tag.Get("yaml"), "."), field)
			}
		case reflect.Map:
			for key, value := range v.Seq2() {
				add(path+"."+key.String(), value)
			}
		case reflect.String:
			out[path] = strconv.Quote(v.String())
		default:
			out[path] = v.Interface()
		}
	}
	add("", reflect.ValueOf(p))
	return out
}

// replaceFile writes a file that is there whole or not at all.
func replaceFile(path string, content []byte) error {
	return vfs.ReplaceFile(vfs.At(path), path, path+".part", content)
}
