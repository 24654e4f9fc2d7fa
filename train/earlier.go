package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// past is the state that an earlier process left in a run folder.
type past struct {
	params params.Params
	// prefix is that of the newest checkpoint, and state is the run's state in it.
	prefix string
	state  runner.RunState
}

// readPast reads what a run folder tells of its run, whose graph has the given contract. It
// returns nil if nothing was saved yet, or if the params or the checkpoint cannot be read;
// restoring reports that.
func readPast(folder string, contract *graphs.Contract) *past {
	before := new(past)
	var err error
	if before.params, err = params.Read(filepath.Join(folder, runfolder.Params)); err != nil {
		return nil
	}
	if before.prefix, before.state, err = runfolder.Newest(folder, contract.State); err != nil || before.prefix == "" {
		return nil
	}
	return before
}

// anotherFolder says what to do with changes of params that a run cannot apply after its first step.
const anotherFolder = "to train with these from the start, choose another folder with --run"

// relevant returns the changes that a finished run cannot apply. Steps and epochs both set the
// number of steps, so a change of these does not count if the number of steps is the same.
func relevant(changes []runfolder.Change, sameSteps bool) []runfolder.Change {
	return slices.DeleteFunc(slices.Clone(changes), func(c runfolder.Change) bool {
		if sameSteps && (c.Param == "train.steps" || c.Param == "train.epochs") {
			return true
		}
		of, _ := params.Lookup(c.Param)
		return !of.Change.Affects()
	})
}

// complete reports whether nothing is left to train, and prints that. Changed params that a
// finished run cannot apply are a usage error.
func (t *training) complete(ctx context.Context) (bool, error) {
	before := t.before
	if before == nil {
		return false, nil
	}
	step := before.state.Step
	if step <= t.steps && !before.state.Complete(t.steps, t.evaluations != nil) {
		return false, nil
	}
	// If the newest checkpoint is damaged, training continues from the one before it.
	bundle, err := checkpoint.OpenBundle(before.prefix, checkpoint.WithIntraOpThreads(t.Params.Runtime.IntraOpThreads))
	if err != nil || bundle.Verify(ctx) != nil {
		return false, ctx.Err()
	}
	changed, err := runfolder.Differences(loop.KnownTask(t.Export.Contract), before.params, t.given, step)
	if err != nil {
		return false, err
	}
	total := before.schedule().TotalSteps
	if differ := relevant(changed, total == t.steps); len(differ) > 0 {
		what := fmt.Sprintf("run %s is complete", t.folder)
		if !before.state.Complete(total, t.evaluations != nil) {
			what = fmt.Sprintf("run %s is already at step %d", t.folder, step)
		}
		remedy := fmt.Sprintf("to continue with other params, train more than %d steps, as with --steps %d, or choose another folder with --run", step, 2*step)
		if slices.ContainsFunc(differ, func(c runfolder.Change) bool {
			of, _ := params.Lookup(c.Param)
			return of.Change.Fixed()
		}) {
			remedy = anotherFolder
		}
		return false, &params.Error{Err: fmt.Errorf("%s, and these changed params would have no effect: %s; expected those of %s; %s",
			what, runfolder.ListChanges(differ), filepath.Join(t.folder, runfolder.Params), remedy)}
	}
	if err := t.sameModelAndData(before); err != nil {
		return false, err
	}
	if len(changed) > 0 {
		t.env.Log.Info("nothing left to train; these changed params were not used", "changed", runfolder.ListChanges(changed))
	}
	if !t.readOnly {
		if err := t.mendComplete(before, total == t.steps); err != nil {
			return false, err
		}
	}
	t.tellComplete(before)
	return true, nil
}

// ofState are params that what a checkpoint has depends on: its position in the data, and its averages.
var ofState = []string{"data.train_examples", "optimizer.swa", "optimizer.swa_every"}

// keepsParams returns a usage error if a run is to continue with other params of ofState.
func (t *training) keepsParams() error {
	if t.before == nil {
		return nil
	}
	step := t.before.state.Step
	changed, err := runfolder.Differences(loop.KnownTask(t.Export.Contract), t.before.params, t.given, step)
	if err != nil {
		return err
	}
	changed = slices.DeleteFunc(changed, func(c runfolder.Change) bool {
		unused := c.Param == "optimizer.swa_every" && t.Params.Optimizer.SWA == 0 && t.before.params.Optimizer.SWA == 0
		return unused || !slices.Contains(ofState, c.Param)
	})
	if step == 0 || len(changed) == 0 {
		return nil
	}
	return &params.Error{Err: fmt.Errorf("run %s is at step %d, and cannot change these params after its first step: %s; expected those of %s; %s",
		t.folder, step, runfolder.ListChanges(changed), filepath.Join(t.folder, runfolder.Params), anotherFolder)}
}

// mendComplete completes the files of a complete run, whose process may have been killed at its end.
func (t *training) mendComplete(before *past, sameSteps bool) error {
	if err := t.protectBest(before); err != nil {
		return err
	}
	if sameSteps {
		t.tellTrainerState(before.state)
	}
	return t.mendNames()
}

// schedule returns the learning rate schedule with which the checkpoint was saved.
func (b *past) schedule() runner.ScheduleConfig {
	var state runner.TrainerState
	if err := json.Unmarshal(b.state.Trainer, &state); err != nil {
		return runner.ScheduleConfig{}
	}
	return state.Schedule
}

// outputs returns the outputs of the last evaluation, or nil if there was none.
func (b *past) outputs() runner.Outputs {
	if b == nil || b.state.Evaluated == nil {
		return nil
	}
	return b.state.Evaluated.Outputs
}

// sameModelAndData returns an error if the graph or the data are no longer those of the checkpoint,
// although their paths are the same.
func (t *training) sameModelAndData(before *past) error {
	state, err := json.Marshal(before.state)
	if err == nil {
		err = loop.GraphIdentity(t.Export.Contract.Model).Check(state)
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", before.prefix, err)
	}
	var trainer runner.TrainerState
	var position dataset.State
	if json.Unmarshal(before.state.Trainer, &trainer) != nil || json.Unmarshal(trainer.Position, &position) != nil {
		return nil // the checkpoint says nothing about the data
	}
	if err := t.examples.Restore(position); err != nil {
		return fmt.Errorf("checkpoint %s: data position: %w", before.prefix, err)
	}
	return nil
}

// best returns the best evaluation that the state of a task's run records.
func (b *past) best(of task.Task) (value float64, step int64, ok bool) {
	order, err := b.params.BestOrder(of)
	if err != nil {
		return 0, 0, false
	}
	best := runner.NewBest(b.params.Checkpoint.Best, order)
	if best.Restore(b.state.Persistent[loop.BestState]) != nil {
		return 0, 0, false
	}
	return best.Best()
}

// ProtectBest protects the best checkpoint, in case the process was killed between saving the last
// checkpoint and protecting it.
func (t *training) protectBest(before *past) error {
	if _, step, ok := before.best(loop.KnownTask(t.Export.Contract)); ok {
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

// tellEnd prints how a training ended, if it ended as it should: what it reached, or where it was
// stopped. ended is the error of the training, or nil.
func (t *training) tellEnd(ended error) {
	stopped := errors.Is(ended, runner.ErrStopped)
	if ended != nil && !stopped {
		return // the program prints the error
	}
	now := readPast(t.folder, t.Export.Contract)
	switch {
	case !stopped && now != nil:
		t.tellComplete(now)
	case stopped && now == nil:
		fmt.Fprintf(t.env.Out, "stopped before the first step of %d; %s starts again\n", t.steps, t.again())
	case stopped:
		fmt.Fprintf(t.env.Out, "stopped at step %d of %d, which is in %s; %s continues\n", now.state.Step, t.steps, now.prefix, t.again())
	}
}

// again is what to call the command that continues with the run.
func (t *training) again() string {
	switch {
	case t.env.Overwrite:
		return "the same command without --overwrite"
	case t.env.ResumeFrom != "":
		return "the same command without --resume-from"
	}
	return "the same command"
}

// tellComplete prints the result of a complete run and what to type next.
func (t *training) tellComplete(before *past) {
	step := before.state.Step
	line := fmt.Sprintf("run %s is complete: %d of %d steps", t.folder, step, t.steps)
	if early := before.state.StoppedEarly; early != nil {
		line += fmt.Sprintf(" (stopped early: %s)", whyEarly(early.Reason))
	}
	which, at := params.Latest, step
	if value, best, ok := before.best(loop.KnownTask(t.Export.Contract)); ok {
		line += fmt.Sprintf("; best %s %.6g at step %d", t.Params.Checkpoint.Best, value, best)
		which, at = params.Best, best
	}
	if saved, err := t.manager.Find(at); err == nil {
		line += fmt.Sprintf(", in %s", saved.Prefix)
	}
	run := launch.Quote(t.folder)
	fmt.Fprintf(t.env.Out, "%s\nnext: gorbit evaluate --run %s --checkpoint %s\n", line, run, which)
	fmt.Fprintf(t.env.Out, "      gorbit predict --run %s %s\n", run, toAsk(t.Export.Contract, t.manifest()))
	fmt.Fprintf(t.env.Out, "      gorbit export --run %s --out %s\n", run, launch.Quote("served/"+filepath.Base(t.folder)))
	fmt.Fprintf(t.env.Out, "      %s with --steps %d, to train on\n", t.again(), 2*max(step, t.steps))
}

// whyEarly returns the reason of an action that ended a training, without the words that all have.
func whyEarly(reason string) string {
	return strings.TrimPrefix(reason, runner.ErrStopTraining.Error()+": ")
}

// manifest returns that of the data, or nil.
func (t *training) manifest() *convert.Manifest {
	if t.Data == nil {
		return nil
	}
	return t.Data.Manifest
}

// names returns what the numbers of the run's records stand for, which the data say or else the run.
func (t *training) names() (loop.Names, error) {
	m := t.manifest()
	if m == nil {
		var err error
		if m, err = runfolder.ReadManifest(t.folder); err != nil {
			return "", err
		}
	}
	return prepare.NamesOf(m, t.Params.Data.Features, t.Export.Contract), nil
}

// toAsk returns the flags with which to ask a model.
func toAsk(c *graphs.Contract, m *convert.Manifest) string {
	switch {
	case !prepare.TakesTokens(c):
		return "--file FILE"
	case c.Task == task.MaskedLM:
		mask := text.Mask
		if m != nil {
			mask = cmp.Or(m.Vocab.Mask, mask)
		}
		return fmt.Sprintf(`--text "... %s ..."`, mask)
	case c.Task == task.Choices:
		return `--text "..." --text-pair '["...", "..."]'`
	case c.Task == task.QuestionAnswering, m != nil && m.Pairs():
		return `--text "..." --text-pair "..."`
	case m != nil && m.Columns.Chat != "":
		return `--chat --text "..."`
	}
	return `--text "..."`
}

// record writes the params to the folder, for a new run or for one that continues from a restored
// checkpoint of the given step. Changes are added to the history.
func (t *training) record(step int64, restored string) error {
	given, err := t.remember(step, restored == "")
	if err != nil {
		return err
	}
	content, err := given.YAML()
	if err != nil {
		return err
	}
	if err := runfolder.KeepGraph(t.folder, t.Export.Path, given.Graph); err != nil {
		return err
	}
	if err := updateFile(filepath.Join(t.folder, runfolder.Params), content); err != nil {
		return err
	}
	if t.before != nil && restored == t.before.prefix {
		t.tellSchedule(t.before.schedule(), step)
		t.before = nil // print it only once
	}
	return copyDescription(t.folder, t.Data)
}

// remember adds the changes after a step to the history and returns the params to write. The
// initial weights can no longer change.
func (t *training) remember(step int64, fresh bool) (params.Params, error) {
	given := t.given
	if fresh {
		// An existing history belongs to a run whose checkpoints are gone.
		path := filepath.Join(t.folder, runfolder.History)
		err := vfs.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return given, err
	}
	before, err := params.Read(filepath.Join(t.folder, runfolder.Params))
	if err != nil {
		t.env.Log.Warn("cannot read the params that the run began with; changes are not recorded", "error", err)
		return given, nil
	}
	if before.Init != given.Init || before.Strict != given.Strict {
		t.env.Log.Warn("the run keeps its init because its weights come from the checkpoint", "init", before.Init, "not", given.Init)
		given.Init, given.Strict = before.Init, before.Strict
	}
	given.InitValues = before.InitValues
	of := loop.KnownTask(t.Export.Contract)
	was, err := runfolder.ValuesOf(before, of)
	if err != nil {
		return given, err
	}
	is, err := runfolder.ValuesOf(given, of)
	if err != nil {
		return given, err
	}
	past, err := runfolder.ReadChanges(t.folder)
	if err != nil {
		return given, err
	}
	settled := past.Settled(was)
	changed := settled.At(step, was).Changes(is, step)
	if len(changed) > 0 {
		t.env.Log.Warn("params changed in the middle of the run", "step", step, "changed", runfolder.ListChanges(changed), "history", runfolder.History)
	}
	if len(changed) == 0 && len(settled) == len(past) {
		return given, nil
	}
	return given, slices.Concat(settled, changed).Write(t.folder)
}

// tellSchedule prints how a changed number of steps affects the learning rate.
func (t *training) tellSchedule(before runner.ScheduleConfig, step int64) {
	now := t.Params.ScheduleConfig(t.steps)
	if before.TotalSteps == 0 || before.TotalSteps == t.steps {
		return
	}
	was, is := before.At(step), now.At(step)
	if was == is && now.Name == runner.OnPlateau {
		return // evaluations decide it, not the number of steps
	}
	line := fmt.Sprintf("the run has %d steps instead of %d: ", t.steps, before.TotalSteps)
	if was == is {
		line += fmt.Sprintf("the learning rate of the next step stays %.6g", is)
	} else {
		line += fmt.Sprintf("the schedule is stretched to fit, and the learning rate of the next step is %.6g instead of %.6g", is, was)
	}
	fmt.Fprintln(t.env.Out, line)
}

// updateFile writes a file unless it already has the content.
func updateFile(path string, content []byte) error {
	if before, err := vfs.ReadFile(path); err == nil && string(before) == string(content) {
		return nil
	}
	return vfs.ReplaceFile(path, content)
}

// copyDescription copies the data's manifest and vocabulary to the run folder.
func copyDescription(folder string, records *prepare.Data) error {
	if records.Manifest == nil {
		return nil
	}
	for from, to := range map[string]string{convert.ManifestName: runfolder.Data, records.Manifest.Vocab.File: records.Manifest.Vocab.Kept()} {
		if from == "" {
			continue // data that are not texts have no vocabulary
		}
		content, err := vfs.ReadBounded(vfs.Join(records.Dir, from), tokenizers.MaxBytes)
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
