package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// Average is the mean of checkpoints, of one run or of several of the same export.
type Average struct {
	// Runs are the folders of the runs.
	Runs []string
	// Last is the number of the newest checkpoints of each run that are taken. Steps are those of the
	// checkpoints of each run that are taken instead.
	Last  int
	Steps []int64
}

// averaged is a run with the checkpoints that are taken.
type averaged struct {
	folder  string
	setup   *prepare.Setup
	graph   string
	manager *checkpoint.Manager
	taken   []checkpoint.Checkpoint
}

// Write makes a run of the mean in a new folder, out: what OpenRun opens and --init takes, with one
// checkpoint, of the last step that was taken. It has no slots of the optimizer, so training cannot
// continue there. It returns the paths of the checkpoints that were taken and that step.
//
// Variables and states of float32 are the mean in float64, rounded once; those of other types are the
// last checkpoint's. Of checkpoints with moving averages of the variables, it takes these.
func (a Average) Write(ctx context.Context, out string, env Env) (taken []string, step int64, err error) {
	env = env.withDefaults()
	if _, err := vfs.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fault.Usagef("folder %s already exists; expected a new one for the average", out)
		}
		return nil, 0, err
	}
	var runs []averaged
	for _, folder := range a.Runs {
		r, err := a.open(ctx, folder, env)
		if err != nil {
			return nil, 0, err
		}
		defer r.manager.Close()
		for _, other := range runs {
			if runfolder.SameFile(r.folder, other.folder) {
				return nil, 0, fault.Usagef("run %s is given twice, as %s; expected each run once, so that its checkpoints have no more weight than others", folder, other.folder)
			}
		}
		runs = append(runs, r)
	}
	var bundles []*checkpoint.Bundle
	first := runs[0]
	for _, r := range runs {
		for _, c := range r.taken {
			if err := first.check(r, c); err != nil {
				return nil, 0, err
			}
			b, err := checkpoint.OpenBundle(c.Prefix)
			if err != nil {
				return nil, 0, err
			}
			bundles, taken, step = append(bundles, b), append(taken, c.Prefix), max(step, c.Step)
		}
	}
	if len(bundles) < 2 {
		return nil, 0, fault.Usagef("one checkpoint is to be averaged, %s; expected two or more: see --last, --checkpoints and checkpoint.max_to_keep", taken[0])
	}
	held := new(heldVariables)
	of := 0
	if held.values, of, err = checkpoint.Mean(ctx, bundles, entriesOf(first.setup.Export.Contract), graphs.AveragePrefix); err != nil {
		return nil, 0, fmt.Errorf("average: %w", err)
	}
	if of > 0 {
		env.Log.Info("averaging the moving averages of the variables (optimizer.ema or optimizer.swa)", "variables", of)
	}
	return taken, step, first.write(ctx, held, out, step, taken)
}

// open opens a run and chooses its checkpoints.
func (a Average) open(ctx context.Context, folder string, env Env) (averaged, error) {
	local, err := runfolder.LocalRun(ctx, folder, "")
	if err != nil {
		return averaged{}, err
	}
	p, err := runfolder.ReadParams(local)
	if err != nil {
		return averaged{}, err
	}
	r := averaged{folder: local}
	if r.graph, err = runfolder.GraphToRead(p, local, nil, env.Log); err != nil {
		return averaged{}, err
	}
	if r.setup, err = prepare.Of(ctx, p, r.graph, env.prepare()); err != nil {
		return averaged{}, err
	}
	r.setup.Data = new(prepare.Data)
	if r.setup.Data.Manifest, err = runfolder.ReadManifest(local); err != nil {
		return averaged{}, err
	}
	if r.manager, err = r.setup.OpenManager(local, true); err != nil {
		return averaged{}, err
	}
	r.taken, err = a.choose(folder, r.manager)
	return r, err
}

// choose returns the checkpoints of a run that are taken, oldest first.
func (a Average) choose(folder string, manager *checkpoint.Manager) ([]checkpoint.Checkpoint, error) {
	all, err := manager.All()
	if err != nil {
		return nil, err
	}
	if a.Steps == nil {
		if len(all) < a.Last {
			return nil, fmt.Errorf("run %s has %d checkpoints to average; %d are wanted: %s; checkpoint.max_to_keep says how many a training keeps", folder, len(all), a.Last, expectedSteps(manager))
		}
		return all[len(all)-a.Last:], nil
	}
	var out []checkpoint.Checkpoint
	for _, step := range slices.Sorted(slices.Values(a.Steps)) {
		i := slices.IndexFunc(all, func(c checkpoint.Checkpoint) bool { return c.Step == step })
		if i < 0 {
			return nil, fmt.Errorf("run %s has no checkpoint %d; %s", folder, step, expectedSteps(manager))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// check returns an error if the checkpoint of another run is not of the graph and the data of r.
func (r averaged) check(other averaged, c checkpoint.Checkpoint) error {
	contract := r.setup.Export.Contract
	state, err := other.manager.State(c)
	if err != nil {
		return err
	}
	if err := loop.GraphIdentity(contract.Model).Check(state); err != nil {
		return fault.Usagef("%s cannot be averaged with checkpoints of run %s: %w", c.Prefix, r.folder, err)
	}
	names := func(of averaged) loop.Names {
		return prepare.NamesOf(of.setup.Data.Manifest, of.setup.Params.Data.Features, contract)
	}
	if names(r) != names(other) {
		return fault.Usagef("%s cannot be averaged with checkpoints of run %s: their data have other labels, categories or settings of the tokenizer", c.Prefix, r.folder)
	}
	if err := names(other).Check(state); err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.Prefix, err)
	}
	return nil
}

// entriesOf lists the variables and states of a model.
func entriesOf(c *graphs.Contract) (out []checkpoint.Entry) {
	for _, v := range c.Variables {
		out = append(out, checkpoint.Entry{Name: v.Name, DType: tf.Float, Shape: v.Shape})
	}
	for _, s := range c.States {
		out = append(out, checkpoint.Entry{Name: s.Name, DType: tf.DataType(dtype.Of(s.DType)), Shape: s.Shape})
	}
	return out
}

// write makes the folder under another name, so that it is there whole or not at all.
func (r averaged) write(ctx context.Context, held *heldVariables, out string, step int64, of []string) (err error) {
	parent := filepath.Dir(filepath.Clean(out))
	part := filepath.Join(parent, "."+filepath.Base(filepath.Clean(out))+".averaging")
	if err := vfs.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	unlock, other, err := vfs.Lock(part + ".lock")
	if err != nil {
		return fmt.Errorf("average: %w", err)
	}
	if other != nil {
		return fault.Usagef("%s writes an average to %s; wait for it, or choose another folder", other, out)
	}
	defer func() { err = errors.Join(err, vfs.Remove(part+".lock"), unlock()) }()
	if err := vfs.RemoveAll(part); err != nil { // what a killed command left
		return err
	}
	if err := vfs.MkdirAll(part, 0o777); err != nil {
		return err
	}
	err = r.fill(ctx, held, part, step, of)
	if err == nil {
		err = vfs.Rename(part, out)
	}
	if err == nil {
		return vfs.SyncDir(parent)
	}
	return errors.Join(err, vfs.RemoveAll(part))
}

// fill writes what a run has that was not trained.
func (r averaged) fill(ctx context.Context, held *heldVariables, folder string, step int64, of []string) error {
	if err := held.save(ctx, r.setup, folder, step, loop.AveragedFrom(of)); err != nil {
		return err
	}
	content, err := r.setup.Params.YAML()
	if err != nil {
		return err
	}
	if err := runfolder.KeepGraph(folder, r.graph, r.setup.Params.Graph); err != nil {
		return err
	}
	described := []string{runfolder.Data}
	if m := r.setup.Data.Manifest; m != nil && m.HasVocab() {
		described = append(described, m.Vocab.Kept())
	}
	for _, name := range described {
		if err := vfs.CopyFile(filepath.Join(r.folder, name), filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(vfs.ReplaceFile(filepath.Join(folder, runfolder.Params), content), vfs.SyncDir(folder))
}
