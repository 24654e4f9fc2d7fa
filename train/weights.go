package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Weights are a graph and weights for it that no run has trained, such as those of a release.
type Weights struct {
	// Graph is the export, and Init are the weights, as for a run; "" are the values of the export.
	Graph, Init string
	// Data is the folder of the data, with the tokenizer and the labels; "" for none.
	Data string
	// Untrained accepts weights that lack variables of the graph, such as its head. These have the export's
	// first values, which are random.
	Untrained bool
}

// Stage makes a run of the weights in an empty folder, with a checkpoint of step 0. OpenRun opens it as any
// other. It takes the settings of OpenRun.
func (w Weights) Stage(ctx context.Context, folder string, settings []string, env Env) error {
	env = env.withDefaults()
	p := params.Defaults()
	if err := p.Load(nil, settings); err != nil {
		return err
	}
	p.Graph, p.Init, p.Data.Dir = w.Graph, w.Init, cmp.Or(w.Data, folder)
	if err := p.Absolute(); err != nil {
		return err
	}
	s, err := prepare.Of(ctx, p, p.Graph, env.prepare())
	if err != nil {
		return err
	}
	s.Data = new(prepare.Data)
	if w.Data != "" {
		if err := s.OpenData(); err != nil {
			return err
		}
	}
	if err := prepare.PreflightWeights(ctx, s); err != nil {
		return err
	}
	held := new(heldVariables)
	report, err := loop.Initialize(ctx, held, s.Export, loop.InitialOf(p))
	if err == nil {
		err = w.complete(report, s.Export.Contract, env)
	}
	if err != nil {
		return err
	}
	if err := held.save(ctx, s, folder, 0, nil); err != nil {
		return err
	}
	content, err := p.YAML()
	if err != nil {
		return err
	}
	return errors.Join(vfs.ReplaceFile(filepath.Join(folder, runfolder.Params), content), copyDescription(folder, s.Data))
}

// complete returns an error if variables are not trained, unless that is accepted. It says where the values are
// from.
func (w Weights) complete(report *checkpoint.LoadReport, c *graphs.Contract, env Env) error {
	if report == nil {
		if c.Model.Weights != nil && !w.Untrained {
			return fault.Usagef("the values in graph %s are random, and no weights are given; expected --init WEIGHTS, or --allow-untrained", w.Graph)
		}
		env.Log.Info("the values are those of the export", "graph", w.Graph)
		return nil
	}
	fmt.Fprintf(env.Out, "weights from %s\n", report.Summary())
	loop.TellUntaken(report, env.Out)
	err := report.Strict()
	if err != nil && !w.Untrained {
		return fault.Usagef("init: %w; train the model, or give --allow-untrained to use it with the random values of the export there", err)
	}
	if err != nil {
		env.Log.Warn("the model is not trained where the weights have no values for it", "init", w.Init, "reason", err)
	}
	return nil
}

// heldVariables are values of variables without a strategy.
type heldVariables struct{ values map[string]*tf.Tensor }

// Variables implements loop.Variables. There are none before values are assigned.
func (h *heldVariables) Variables() (all []strategy.VariableSpec) { return nil }

// Read implements loop.Variables.
func (h *heldVariables) Read(_ context.Context, names ...string) (values []*tf.Tensor, _ error) {
	for _, name := range names {
		values = append(values, h.values[name])
	}
	return values, nil
}

// Assign implements loop.Variables.
func (h *heldVariables) Assign(_ context.Context, values map[string]*tf.Tensor) error {
	h.values = values
	return nil
}

// save writes the values as the only checkpoint of a run. of are the checkpoints that it is the mean of;
// nil for none.
func (h *heldVariables) save(ctx context.Context, s *prepare.Setup, folder string, step int64, of loop.AveragedFrom) error {
	manager, err := s.OpenManager(folder, false)
	if err != nil {
		return err
	}
	c := s.Export.Contract
	persist := map[string]runner.Persistent{loop.GraphState: loop.GraphIdentity(c.Model)}
	if names := prepare.NamesOf(s.Data.Manifest, s.Params.Data.Features, c); names != "" {
		persist[loop.NamesState] = names
	}
	if of != nil {
		persist[loop.AveragedState] = of
	}
	state := runner.NewRunState()
	state.Step = step
	for name, p := range persist {
		if state.Persistent[name], err = p.State(); err != nil {
			return errors.Join(err, manager.Close())
		}
	}
	raw, err := json.Marshal(state)
	if err != nil {
		return errors.Join(err, manager.Close())
	}
	var tensors []checkpoint.NamedTensor
	for name, value := range h.values {
		tensors = append(tensors, checkpoint.NamedTensor{Name: name, Value: value})
	}
	err = manager.Save(ctx, step, tensors, raw)
	if err == nil {
		err = manager.Wait(ctx)
	}
	return errors.Join(err, manager.Close())
}
