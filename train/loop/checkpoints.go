package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
)

// Checkpoints saves and restores the variables of a model. It implements runner.Checkpointer.
type Checkpoints struct {
	// Manager has the folder of the checkpoints.
	Manager   *checkpoint.Manager
	variables Variables
	// Frozen names the variables and states that training does not change.
	Frozen []string
	// Graph identifies the graph that the checkpoints are of.
	Graph GraphIdentity
	// Names are those of the data that the checkpoints are of.
	Names    Names
	contract *graphs.Contract
	// Log gets what a user should know of a save or a restore.
	Log *slog.Logger
	// Best is the best evaluation so far, whose checkpoint is kept; nil if none is tracked.
	Best *runner.NewBestMetric
	// averages is the checkpoint whose moving averages were told of.
	averages string
	// Logs are files that must be on disk before each checkpoint.
	Logs []synced
	// Saving is called before each checkpoint with the state of the run; nil for none.
	Saving func(step int64, state []byte)
}

// NewCheckpoints returns the checkpoints in the folder of a manager, for the variables of a graph
// with the given contract. Restore refuses a checkpoint of another graph. log receives a warning
// if the best checkpoint is missing; nil discards it.
func NewCheckpoints(manager *checkpoint.Manager, variables Variables, contract *graphs.Contract, log *slog.Logger) *Checkpoints {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Checkpoints{Manager: manager, variables: variables, Graph: GraphIdentity(contract.Model), contract: contract, Log: log}
	for _, s := range contract.States {
		if !s.Updated {
			c.Frozen = append(c.Frozen, s.Name)
		}
	}
	return c
}

// entries lists the variables that a checkpoint must hold.
func (c *Checkpoints) entries() []checkpoint.Entry {
	var out []checkpoint.Entry
	for _, v := range c.variables.Variables() {
		out = append(out, checkpoint.Entry{Name: v.Name, DType: v.DType, Shape: v.Shape, Later: v.Offloaded})
	}
	return out
}

// Save implements runner.Checkpointer. The values that it reads share memory with the variables.
// The next step changes a copy, so training continues while the checkpoint is written; if variables are
// offloaded, which it does not copy, the checkpoint is waited for. Frozen variables are read only if the
// folder does not have them yet.
func (c *Checkpoints) Save(ctx context.Context, step int64, state []byte) (<-chan runner.Saved, error) {
	if c.Saving != nil {
		c.Saving(step, state)
	}
	stored := c.Manager.Stored(c.Frozen...)
	var names []string
	for _, v := range c.variables.Variables() {
		if !stored || !slices.Contains(c.Frozen, v.Name) {
			names = append(names, v.Name)
		}
	}
	values, err := c.variables.Read(ctx, names...)
	if err != nil {
		return nil, err
	}
	tensors := make([]checkpoint.NamedTensor, len(names))
	for i, name := range names {
		tensors[i] = checkpoint.NamedTensor{Name: name, Value: values[i]}
	}
	options := append(c.saveOptions(step), checkpoint.Frozen(c.Frozen...))
	if err := c.Manager.Save(ctx, step, tensors, state, options...); err != nil {
		return nil, err
	}
	done := make(chan runner.Saved, 1)
	if c.offloaded() {
		done <- runner.Saved{Path: c.Prefix(step), Err: c.waitOffloaded(ctx)}
		return done, nil
	}
	go func() { done <- runner.Saved{Path: c.Prefix(step), Err: c.Manager.Wait(ctx)} }()
	return done, nil
}

// Prefix returns the path of the checkpoint of a step, without the endings of its files.
func (c *Checkpoints) Prefix(step int64) string {
	return filepath.Join(c.Manager.Dir(), fmt.Sprintf("ckpt-%d", step))
}

// Latest implements runner.Checkpointer.
func (c *Checkpoints) Latest(context.Context) (string, error) {
	at, err := c.Manager.Latest()
	if errors.Is(err, checkpoint.ErrNoCheckpoint) || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return at.Prefix, err
}

// Restore implements runner.Checkpointer.
func (c *Checkpoints) Restore(ctx context.Context, path string) (runner.Restored, error) {
	r, err := c.read(ctx, path, nil)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) && path == "" {
		return runner.Restored{}, nil
	}
	var first map[string]*tf.Tensor // what the checkpoint lacks
	if err != nil {
		if first, err = c.missing(err); err == nil {
			r, err = c.read(ctx, path, first)
		}
	}
	if err != nil {
		return runner.Restored{}, err
	}
	if err := cmp.Or(c.Graph.Check(r.State), c.Names.Check(r.State)); err != nil {
		return runner.Restored{}, fmt.Errorf("checkpoint %s: %w", r.Prefix, err)
	}
	if err := c.variables.Assign(ctx, r.Tensors); err != nil {
		return runner.Restored{}, fmt.Errorf("checkpoint %s: %w", r.Prefix, err)
	}
	if err := c.restoreOffloaded(ctx, r, first); err != nil {
		return runner.Restored{}, fmt.Errorf("checkpoint %s: %w", r.Prefix, err)
	}
	if r.Averaged > 0 && c.averages != r.Prefix {
		c.averages = r.Prefix
		c.Log.Info("using the moving averages of the variables (optimizer.ema or optimizer.swa)", "variables", r.Averaged, "checkpoint", r.Prefix)
	}
	if len(first) > 0 {
		if err := c.begin(ctx, first, r); err != nil {
			return runner.Restored{}, fmt.Errorf("checkpoint %s: %w", r.Prefix, err)
		}
	}
	return runner.Restored{Path: r.Prefix, Step: r.Step, State: r.State}, nil
}

// begin sets what a checkpoint lacks: slots to the values given, and averages, which have none, to those
// of their variables.
func (c *Checkpoints) begin(ctx context.Context, first map[string]*tf.Tensor, r *checkpoint.Restored) error {
	averages, all := 0, len(first)
	for name, value := range first {
		if variable, ok := strings.CutPrefix(name, graphs.AveragePrefix); ok && value == nil {
			averages++
			if first[name] = r.Tensors[variable]; first[name] == nil { // the variable is offloaded
				delete(first, name)
			}
		}
	}
	if n := all - averages; n > 0 {
		c.Log.Warn("variables that were frozen are trained from here on; their slots of the optimizer begin as in a new run", "slots", n, "checkpoint", r.Prefix)
	}
	if averages > 0 {
		c.Log.Warn("the checkpoint lacks moving averages (optimizer.ema or optimizer.swa) of variables; they begin at the values of the variables", "variables", averages, "checkpoint", r.Prefix)
	}
	return c.variables.Assign(ctx, first)
}

// missing returns what a checkpoint lacks because the run has changed since: averages, without a value,
// and slots of variables that were frozen when it was saved, with their first values. It returns the
// error of reading the checkpoint if that has another reason.
func (c *Checkpoints) missing(err error) (map[string]*tf.Tensor, error) {
	mismatch := (*checkpoint.MismatchError)(nil)
	if !errors.As(err, &mismatch) || len(mismatch.Wrong) > 0 {
		return nil, err
	}
	at, notFound := c.find(mismatch.Path)
	if notFound != nil {
		return nil, err
	}
	state, unread := c.Manager.State(at)
	if unread != nil {
		return nil, err
	}
	if of := averagedIn(state); of != nil {
		return nil, fault.Usagef("checkpoint %s is the mean of %d checkpoints and has no slots of the optimizer, so training cannot continue there; begin a run of its own with --init %s", mismatch.Path, len(of), filepath.Dir(filepath.Dir(mismatch.Path)))
	}
	frozen, unread := FrozenIn(state)
	if unread != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", mismatch.Path, unread)
	}
	isAverage := func(name string) bool { return strings.HasPrefix(name, graphs.AveragePrefix) }
	out, failed := frozen.slotsOf(c.contract, slices.DeleteFunc(slices.Clone(mismatch.Missing), isAverage))
	if out == nil {
		return nil, cmp.Or(failed, err)
	}
	for _, name := range mismatch.Missing {
		if isAverage(name) {
			out[name] = nil
		}
	}
	return out, nil
}

// read reads the newest checkpoint, or that of a path: the entries that are not among those left out.
func (c *Checkpoints) read(ctx context.Context, path string, leaveOut map[string]*tf.Tensor) (*checkpoint.Restored, error) {
	want := slices.DeleteFunc(c.entries(), func(e checkpoint.Entry) bool {
		_, out := leaveOut[e.Name]
		return out
	})
	if path == "" {
		return c.Manager.Restore(ctx, want)
	}
	at, err := c.find(path)
	if err != nil {
		return nil, err
	}
	return c.Manager.RestoreFrom(ctx, at, want)
}

// find returns the checkpoint with the given prefix, even if it is damaged.
func (c *Checkpoints) find(prefix string) (checkpoint.Checkpoint, error) {
	step, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(prefix), "ckpt-"), 10, 64)
	if err != nil || c.Prefix(step) != prefix {
		return checkpoint.Checkpoint{}, fmt.Errorf("checkpoint %s: %w", prefix, fs.ErrNotExist)
	}
	return c.Manager.Find(step)
}

// DiscardAfter implements runner.Checkpointer.
func (c *Checkpoints) DiscardAfter(_ context.Context, step int64) error {
	// The run went back, which may have changed the best evaluation.
	if err := c.ProtectBest(); err != nil {
		return err
	}
	return c.Manager.DiscardAfter(step)
}
