package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
)

// checkpointFolder is the folder of a run's checkpoints, within the run folder.
const checkpointFolder = runfolder.Checkpoints

// Checkpoints saves and restores the variables of a model. It implements runner.Checkpointer.
type Checkpoints struct {
	manager   *checkpoint.Manager
	variables Variables
	frozen    []string // the states that training does not change
	graph     graphIdentity
	log       *slog.Logger
	// best is the best evaluation so far, whose checkpoint is kept; nil if none is tracked.
	best *runner.NewBestMetric
	// logs are files that must be on disk before each checkpoint.
	logs []synced
}

// NewCheckpoints returns the checkpoints in the folder of a manager, for the variables of a graph
// with the given contract. Restore refuses a checkpoint of another graph. log receives a warning
// if the best checkpoint is missing; nil discards it.
func NewCheckpoints(manager *checkpoint.Manager, variables Variables, contract *graphs.Contract, log *slog.Logger) *Checkpoints {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Checkpoints{manager: manager, variables: variables, graph: graphIdentity(contract.Model), log: log}
	for _, s := range contract.States {
		if !s.Updated {
			c.frozen = append(c.frozen, s.Name)
		}
	}
	return c
}

// entries lists the variables that a checkpoint must hold.
func (c *Checkpoints) entries() []checkpoint.Entry {
	var out []checkpoint.Entry
	for _, v := range c.variables.Variables() {
		out = append(out, checkpoint.Entry{Name: v.Name, DType: v.DType, Shape: v.Shape})
	}
	return out
}

// Save implements runner.Checkpointer. The values that it reads share memory with the variables.
// The next step changes a copy, so training continues while the checkpoint is written. Frozen states
// are read only if the folder does not have them yet.
func (c *Checkpoints) Save(ctx context.Context, step int64, state []byte) (<-chan runner.Saved, error) {
	stored := c.manager.Stored(c.frozen...)
	var names []string
	for _, v := range c.variables.Variables() {
		if !stored || !slices.Contains(c.frozen, v.Name) {
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
	options := append(c.saveOptions(step), checkpoint.Frozen(c.frozen...))
	if err := c.manager.Save(ctx, step, tensors, state, options...); err != nil {
		return nil, err
	}
	done := make(chan runner.Saved, 1)
	go func() { done <- runner.Saved{Path: c.prefix(step), Err: c.manager.Wait(ctx)} }()
	return done, nil
}

func (c *Checkpoints) prefix(step int64) string {
	return filepath.Join(c.manager.Dir(), fmt.Sprintf("ckpt-%d", step))
}

// Latest implements runner.Checkpointer.
func (c *Checkpoints) Latest(context.Context) (string, error) {
	at, err := c.manager.Latest()
	if errors.Is(err, checkpoint.ErrNoCheckpoint) || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return at.Prefix, err
}

// Restore implements runner.Checkpointer.
func (c *Checkpoints) Restore(ctx context.Context, path string) (runner.Restored, error) {
	var r *checkpoint.Restored
	var err error
	if path == "" {
		r, err = c.manager.Restore(ctx, c.entries())
		if errors.Is(err, checkpoint.ErrNoCheckpoint) {
			return runner.Restored{}, nil
		}
	} else {
		var at checkpoint.Checkpoint
		if at, err = c.find(path); err == nil {
			r, err = c.manager.RestoreFrom(ctx, at, c.entries())
		}
	}
	if err != nil {
		return runner.Restored{}, err
	}
	if err := c.graph.check(r.State); err != nil {
		return runner.Restored{}, fmt.Errorf("checkpoint %s: %w", r.Prefix, err)
	}
	if err := c.variables.Assign(ctx, r.Tensors); err != nil {
		return runner.Restored{}, fmt.Errorf("checkpoint %s: %w", r.Prefix, err)
	}
	return runner.Restored{Path: r.Prefix, Step: r.Step, State: r.State}, nil
}

// find returns the checkpoint with the given prefix, even if it is damaged.
func (c *Checkpoints) find(prefix string) (checkpoint.Checkpoint, error) {
	step, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(prefix), "ckpt-"), 10, 64)
	if err != nil || c.prefix(step) != prefix {
		return checkpoint.Checkpoint{}, fmt.Errorf("checkpoint %s: %w", prefix, fs.ErrNotExist)
	}
	return c.manager.Find(step)
}

// DiscardAfter implements runner.Checkpointer.
func (c *Checkpoints) DiscardAfter(_ context.Context, step int64) error {
	// The run went back, which may have changed the best evaluation.
	if err := c.protectBest(); err != nil {
		return err
	}
	return c.manager.DiscardAfter(step)
}
