package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/bounded"
	"github.com/gorbit-ml/gorbit/internal/vfs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text"
)

// past is what a run folder tells of a run that was started before.
type past struct {
	params Params
	// prefix is that of the newest checkpoint, and state what it says of the run.
	prefix string
	state  runner.RunState
}

// readPast reads what a run folder tells of its run: nil where nothing was saved yet, or
// where params or checkpoint cannot be read, which restoring then says.
func readPast(folder string) *past {
	before := new(past)
	var err error
	if before.params, err = ReadParams(filepath.Join(folder, paramsFile)); err != nil {
		return nil
	}
	manager, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: filepath.Join(folder, checkpointFolder), ReadOnly: true})
	if err != nil {
		return nil
	}
	defer manager.Close()
	newest, err := manager.Latest()
	if err != nil {
		return nil
	}
	saved, err := manager.State(newest)
	if err != nil || saved == nil {
		return nil
	}
	before.prefix = newest.Prefix
	if before.state, err = runner.ParseRunState(saved); err != nil {
		return nil
	}
	return before
}

// Keep gives the params what a run in the folder keeps from its beginning: whatever decides
// how sums are rounded (runtime.onednn, runtime.kernels and runtime.lanes), and the row
// length where the params leave it to the data. It returns what was asked for otherwise.
//
// Train does it, too. A program calls it first, since TensorFlow reads the setting of
// oneDNN only once.
func (p *Params) Keep(folder string) []string {
	before, err := ReadParams(filepath.Join(folder, paramsFile))
	if err != nil {
		return nil
	}
	var kept []string
	keep := func(name string, asked bool, was, is any) {
		if asked && was != is {
			kept = append(kept, fmt.Sprintf("%s is %v, not %v", name, was, is))
		}
	}
	was, is := before.Runtime, &p.Runtime
	keep("runtime.onednn", true, was.OneDNN, is.OneDNN)
	keep("runtime.kernels", true, was.Kernels, is.Kernels)
	is.OneDNN, is.Kernels = was.OneDNN, was.Kernels
	if was.Lanes > 0 {
		keep("runtime.lanes", is.Lanes > 0, was.Lanes, is.Lanes)
		is.Lanes = was.Lanes
	}
	p.Data.RowLength = cmp.Or(p.Data.RowLength, before.Data.RowLength)
	return kept
}

// irrelevant are the params, or the beginnings of their names, that neither the variables
// nor the evaluations of a run depend on: where it runs, and what it logs and keeps. What
// decides the rounding is kept from the beginning anyway.
var irrelevant = []string{"strategy.", "runtime.", "summary.", "data.readers", "train.steps_per_loop",
	"checkpoint.max_to_keep", "checkpoint.keep_every_hours"}

// relevant returns the changes that a finished run cannot take up. Steps and epochs are
// two ways to say how many steps a run has: as many as before are no change.
func relevant(changes []change, sameSteps bool) []change {
	return slices.DeleteFunc(slices.Clone(changes), func(c change) bool {
		if sameSteps && (c.Param == "train.steps" || c.Param == "train.epochs") {
			return true
		}
		return slices.ContainsFunc(irrelevant, func(name string) bool { return strings.HasPrefix(c.Param, name) })
	})
}

// complete reports whether nothing is left to train, and says so. Params that a run
// without steps to train cannot take up are a usage error.
func (t *training) complete(ctx context.Context) (bool, error) {
	before := t.before
	if before == nil {
		return false, nil
	}
	step := before.state.Step
	if step <= t.steps && !before.state.Complete(t.steps, t.evaluations != nil) {
		return false, nil
	}
	// A checkpoint that is damaged is passed over for the one before it, and training goes on.
	bundle, err := checkpoint.OpenBundle(before.prefix, checkpoint.WithIntraOpThreads(t.params.Runtime.IntraOpThreads))
	if err != nil || bundle.Verify(ctx) != nil {
		return false, ctx.Err()
	}
	changed, err := changes(before.params, t.given, step)
	if err != nil {
		return false, err
	}
	total := before.schedule().TotalSteps
	if differ := relevant(changed, total == t.steps); len(differ) > 0 {
		what := fmt.Sprintf("run %s is complete", t.folder)
		if !before.state.Complete(total, t.evaluations != nil) {
			what = fmt.Sprintf("run %s is at step %d already", t.folder, step)
		}
		return false, &ParamsError{fmt.Errorf("%s, and these params would change nothing of it: %s; "+
			"expected those of %s: give more than %d steps to go on with others, as with --steps %d, or another folder with --run",
			what, list(differ), filepath.Join(t.folder, paramsFile), step, 2*step)}
	}
	if err := t.sameModelAndData(before); err != nil {
		return false, err
	}
	if err := t.protectBest(before); err != nil {
		return false, err
	}
	if len(changed) > 0 {
		t.env.Log.Info("nothing is left to train: these params were not used", "changed", list(changed))
	}
	t.tellComplete(before)
	return true, nil
}

// schedule is that of the learning rate when the checkpoint was saved.
func (b *past) schedule() runner.ScheduleConfig {
	var state runner.TrainerState
	if err := json.Unmarshal(b.state.Trainer, &state); err != nil {
		return runner.ScheduleConfig{}
	}
	return state.Schedule
}

// outputs are those of the last evaluation, nil where there was none.
func (b *past) outputs() runner.Outputs {
	if b == nil || b.state.Evaluated == nil {
		return nil
	}
	return b.state.Evaluated.Outputs
}

// sameModelAndData returns an error where the graph or the data are no longer those of the
// checkpoint, though their paths are.
func (t *training) sameModelAndData(before *past) error {
	state, err := json.Marshal(before.state)
	if err == nil {
		err = graphIdentity(t.export.Contract.Model).check(state)
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", before.prefix, err)
	}
	var trainer runner.TrainerState
	var position dataset.State
	if json.Unmarshal(before.state.Trainer, &trainer) != nil || json.Unmarshal(trainer.Position, &position) != nil {
		return nil // nothing is known of the data
	}
	if err := t.examples.Restore(position); err != nil {
		return fmt.Errorf("checkpoint %s: data position: %w", before.prefix, err)
	}
	return nil
}

// best returns the best evaluation that a run knows of.
func (b *past) best() (value float64, step int64, ok bool) {
	order, err := b.params.Checkpoint.order(taskOfParams())
	if err != nil {
		return 0, 0, false
	}
	best := runner.NewBest(b.params.Checkpoint.Best, order)
	if best.Restore(b.state.Persistent[bestState]) != nil {
		return 0, 0, false
	}
	return best.Best()
}

// protectBest keeps the best checkpoint for good, where a kill came between saving the
// last one and that.
func (t *training) protectBest(before *past) error {
	if _, step, ok := before.best(); ok {
		_, err := t.manager.Find(step)
		if err == nil {
			err = t.manager.Protect(step)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return t.manager.Settle()
}

// tellComplete says what a complete run has reached and what to type next.
func (t *training) tellComplete(before *past) {
	step := before.state.Step
	line := fmt.Sprintf("run %s is complete: %d of %d steps", t.folder, step, t.steps)
	if early := before.state.StoppedEarly; early != nil {
		line += fmt.Sprintf(" (%s)", early.Reason)
	}
	which := "latest"
	if value, at, ok := before.best(); ok {
		line += fmt.Sprintf("; best %s %.6g at step %d", t.params.Checkpoint.Best, value, at)
		which = "best"
	}
	fmt.Fprintf(t.env.Out, "%s\nnext: gorbit evaluate --run %s --checkpoint %s, or the same command with --steps %d to train on\n",
		line, t.folder, which, 2*max(step, t.steps))
}

// record writes to the folder what the run begins with, or goes on with from a restored
// checkpoint of the given step. What differs from before is kept in the history.
func (t *training) record(step int64, restored string) error {
	given, err := t.remember(step, restored == "")
	if err != nil {
		return err
	}
	content, err := given.YAML()
	if err != nil {
		return err
	}
	if err := updateFile(filepath.Join(t.folder, paramsFile), content); err != nil {
		return err
	}
	if t.before != nil && restored == t.before.prefix {
		t.tellSchedule(t.before.schedule(), step)
		t.before = nil // once is enough
	}
	return copyDescription(t.folder, t.data)
}

// remember adds to the history what is changed behind a step, and returns the params to
// write. What the weights began with cannot change any more.
func (t *training) remember(step int64, fresh bool) (Params, error) {
	given := t.given
	if fresh {
		// Whatever was recorded is of a run whose checkpoints are gone.
		path := filepath.Join(t.folder, historyFile)
		err := vfs.At(path).Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return given, err
	}
	before, err := ReadParams(filepath.Join(t.folder, paramsFile))
	if err != nil {
		t.env.Log.Warn("the params that the run began with cannot be read: what is changed now is not recorded", "error", err)
		return given, nil
	}
	if before.Init != given.Init || before.Strict != given.Strict {
		t.env.Log.Warn("the run keeps the init that it began with: its weights come from its checkpoint", "init", before.Init, "not", given.Init)
		given.Init, given.Strict = before.Init, before.Strict
	}
	was, err := before.values()
	if err != nil {
		return given, err
	}
	is, err := given.values()
	if err != nil {
		return given, err
	}
	past, err := readHistory(t.folder)
	if err != nil {
		return given, err
	}
	settled := past.settled(was)
	changed := settled.at(step, was).changes(is, step)
	if len(changed) > 0 {
		t.env.Log.Warn("params are changed in the middle of the run", "step", step, "changed", list(changed), "history", historyFile)
	}
	if len(changed) == 0 && len(settled) == len(past) {
		return given, nil
	}
	return given, slices.Concat(settled, changed).write(t.folder)
}

// tellSchedule says what another number of steps does to the learning rate.
func (t *training) tellSchedule(before runner.ScheduleConfig, step int64) {
	now := t.params.schedule(t.steps)
	if before.TotalSteps == 0 || before.TotalSteps == t.steps {
		return
	}
	was, is := before.At(step), now.At(step)
	line := fmt.Sprintf("the run has %d steps instead of %d: ", t.steps, before.TotalSteps)
	if was == is {
		line += fmt.Sprintf("the learning rate of the next step stays %.6g", is)
	} else {
		line += fmt.Sprintf("its schedule is laid out anew, and the learning rate of the next step is %.6g instead of %.6g", is, was)
	}
	fmt.Fprintln(t.env.Out, line)
}

// updateFile gives a file its content, and leaves one alone that has it.
func updateFile(path string, content []byte) error {
	if before, err := os.ReadFile(path); err == nil && string(before) == string(content) {
		return nil
	}
	return replaceFile(path, content)
}

// copyDescription copies what the run needs of its data's description to its folder.
func copyDescription(folder string, records *data) error {
	if records.manifest == nil {
		return nil
	}
	for from, to := range map[string]string{convert.ManifestName: dataFile, records.manifest.Vocab.File: vocabFile} {
		content, err := bounded.ReadFile(filepath.Join(records.dir, from), text.MaxVocabBytes)
		if err != nil {
			return err
		}
		if err := updateFile(filepath.Join(folder, to), content); err != nil {
			return err
		}
	}
	return nil
}

// warnKept logs the settings that a run keeps although the params ask for others.
func warnKept(kept []string, log *slog.Logger) {
	if len(kept) > 0 {
		log.Warn("settings that affect rounding stay as the run began with", "kept", strings.Join(kept, "; "))
	}
}
