package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// resumed is the checkpoint from which Env.ResumeFrom wants a run to continue.
type resumed struct {
	step int64
	// name is its path in another run, or "" if it is one of the run's own, and prefix is where it is on
	// this machine.
	name, prefix string
}

// parseResumed returns the checkpoint that is meant, or nil for the newest. best is the step of the
// best one.
func parseResumed(folder, from string, best func() (int64, error)) (*resumed, error) {
	bad := func(expected string) error {
		return &params.Error{Err: fmt.Errorf("--resume-from is %q; expected %s", from, expected)}
	}
	const forms = "a step of the run, best, or the path of a checkpoint, such as runs/a/checkpoints/ckpt-40"
	switch from {
	case params.Latest:
		return nil, nil
	case params.Best:
		step, err := best()
		if errors.Is(err, loop.ErrNoBest) {
			return nil, bad("a step, because the run has no best checkpoint")
		}
		return &resumed{step: step}, err
	}
	base := filepath.Base(from)
	step, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSuffix(base, ".index"), "ckpt-"), 10, 64)
	if err != nil || step < 0 {
		return nil, bad(forms)
	}
	dir := vfs.Dir(from)
	switch {
	case base == from && strings.HasPrefix(base, "ckpt-") && prepare.Exists(checkpoint.IndexPath(base)):
	case base == from, sameFolder(dir, vfs.Join(folder, runfolder.Checkpoints)):
		return &resumed{step: step}, nil
	case !strings.HasPrefix(base, "ckpt-"):
		return nil, bad(forms)
	}
	prefix := vfs.Join(dir, fmt.Sprintf("ckpt-%d", step))
	if !prepare.Exists(checkpoint.IndexPath(prefix)) {
		return nil, fmt.Errorf("--resume-from %s: there is no such checkpoint; expected %s", from, forms)
	}
	return &resumed{step, prefix, prefix}, nil
}

// sameFolder reports whether two paths are those of one folder.
func sameFolder(a, b string) bool {
	if vfs.Scheme(a) != "" || vfs.Scheme(b) != "" {
		return vfs.Clean(a) == vfs.Clean(b)
	}
	return runfolder.SameFile(a, b)
}

// localize copies the checkpoint to this machine if it is in a bucket.
func (r *resumed) localize(ctx context.Context) error {
	if vfs.Scheme(r.name) == "" {
		return nil
	}
	run, err := runfolder.LocalRun(ctx, vfs.Dir(vfs.Dir(r.name)), strconv.FormatInt(r.step, 10))
	r.prefix = filepath.Join(run, runfolder.Checkpoints, filepath.Base(r.name))
	return err
}

// Origin returns the run folder whose settings a run keeps: its own, or, if it begins with the
// checkpoint of another run (Env.ResumeFrom), that one's.
func Origin(folder, resumeFrom string) string {
	if resumeFrom == "" || prepare.Exists(vfs.Join(folder, runfolder.Params)) {
		return folder
	}
	r, err := parseResumed(folder, resumeFrom, func() (int64, error) { return 0, loop.ErrNoBest })
	if err != nil || r == nil || r.name == "" {
		return folder // Train reports it
	}
	return vfs.Dir(vfs.Dir(r.name))
}

// backFile is in the folder of a run that went back, and has the Env.ResumeFrom of it, until the process
// that went back has ended as it should.
const backFile = ".went-back"

// wentBack reports whether an earlier process went back to Env.ResumeFrom and was killed, or failed, in
// the training after it, which then continues. A file that an earlier process left for another
// Env.ResumeFrom is removed.
func (t *training) wentBack() (bool, error) {
	path := filepath.Join(t.folder, backFile)
	before, err := vfs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || t.env.ResumeFrom != "" && string(before) == t.env.ResumeFrom {
		return err == nil, err
	}
	return false, t.endBack()
}

// endBack forgets that the run went back: the same Env.ResumeFrom goes back again.
func (t *training) endBack() error {
	path := filepath.Join(t.folder, backFile)
	if err := vfs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// atStart makes the run what Env wants it to start from: as it is, empty, or at Env.ResumeFrom.
func (t *training) atStart(ctx context.Context) error {
	went, err := t.wentBack()
	if err != nil {
		return err
	}
	from := t.env.ResumeFrom
	newest, err := t.manager.Newest()
	switch {
	case t.env.Overwrite:
		return t.overwrite(ctx)
	case from == "" || from == params.Latest:
		return nil
	case went && err == nil:
		fmt.Fprintf(t.env.Out, "the same command went back to %s before and did not end; continuing from step %d\n", from, newest.Step)
		return nil
	}
	if err := t.goBack(ctx); err != nil {
		return err
	}
	return vfs.ReplaceFile(filepath.Join(t.folder, backFile), []byte(from))
}

// goBack makes the checkpoint of Env.ResumeFrom the newest one of the run. What the run has of later
// steps is set aside; a checkpoint of another run is copied. Nothing is changed if the checkpoint
// cannot be continued.
func (t *training) goBack(ctx context.Context) error {
	to, err := parseResumed(t.name(), t.env.ResumeFrom, func() (int64, error) { return loop.BestStep(t.manager) })
	if err != nil || to == nil {
		return err
	}
	if err := to.localize(ctx); err != nil {
		return fmt.Errorf("--resume-from %s: %w", t.env.ResumeFrom, err)
	}
	newest, err := t.manager.Newest()
	if err != nil && !errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return err
	}
	empty := err != nil
	own := checkpoint.Checkpoint{Prefix: to.prefix}
	switch {
	case to.prefix == "":
		if own, err = t.manager.Find(to.step); errors.Is(err, fs.ErrNotExist) {
			return &params.Error{Err: fmt.Errorf("--resume-from %s: run %s has no such checkpoint; %s", t.env.ResumeFrom, t.name(), expectedSteps(t.manager))}
		}
		if err != nil {
			return err
		}
	case !empty && newest.Step != to.step:
		return &params.Error{Err: fmt.Errorf("--resume-from %s is of another run, and run %s has checkpoints of its own; expected a new folder with --run; leave --resume-from out to continue the run", t.env.ResumeFrom, t.name())}
	}
	if err := t.continuable(ctx, own, to.step); err != nil {
		return err
	}
	if to.prefix != "" {
		f := prepare.PreflightOf(t.Setup)
		f.RunMeaning(vfs.Dir(vfs.Dir(to.prefix)))
		if err := f.Err(); err != nil {
			return err
		}
	}
	switch {
	case to.prefix != "" && empty:
		return t.branch(to)
	case to.prefix != "" || newest.Step == to.step:
		return nil
	}
	aside, err := t.setAside(newest.Step)
	if err != nil {
		return fmt.Errorf("set aside what run %s has of steps after %d: %w", t.name(), to.step, err)
	}
	if err := t.manager.DiscardAfter(to.step); err != nil {
		return err
	}
	fmt.Fprintf(t.env.Out, "going back from step %d to step %d; the run as it was is in %s\n", newest.Step, to.step, aside)
	return nil
}

// expectedSteps says which checkpoints there are where another one was asked for.
func expectedSteps(m *checkpoint.Manager) string {
	all, err := m.All()
	if err != nil || len(all) == 0 {
		return "it has none at all: train it first"
	}
	var out []string
	for _, c := range all {
		out = append(out, strconv.FormatInt(c.Step, 10))
	}
	return "expected one of " + strings.Join(out, ", ")
}

// continuable returns an error if a run cannot continue from a checkpoint: it is damaged, of another
// model or of other data, or nothing would be left to train.
func (t *training) continuable(ctx context.Context, c checkpoint.Checkpoint, step int64) error {
	bundle, err := checkpoint.OpenBundle(c.Prefix, checkpoint.WithIntraOpThreads(t.Params.Runtime.IntraOpThreads))
	if err == nil {
		err = bundle.Verify(ctx)
	}
	if err != nil {
		return fmt.Errorf("--resume-from %s: %w", t.env.ResumeFrom, err)
	}
	if step >= t.steps {
		return &params.Error{Err: fmt.Errorf("--resume-from %s: the run has %d steps; expected more, as with --steps %d", t.env.ResumeFrom, t.steps, 2*max(step, 1))}
	}
	content, err := t.manager.State(c)
	if err != nil {
		return err
	}
	if content == nil {
		return &params.Error{Err: fmt.Errorf("--resume-from %s: the checkpoint has no state of a run; expected one that gorbit train wrote; use its weights with --init %[1]s", t.env.ResumeFrom)}
	}
	state, err := runner.ParseRunState(content)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.Prefix, err)
	}
	if err := t.sameModelAndData(&past{prefix: c.Prefix, state: state}); err != nil {
		return err
	}
	frozen, err := loop.FrozenIn(content)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.Prefix, err)
	}
	if err := bundle.Check(saved(t.Export.Contract, frozen)); err != nil {
		return &params.Error{Err: fmt.Errorf("--resume-from %s: %w; expected one that was trained with this graph", t.env.ResumeFrom, err)}
	}
	return nil
}

// saved returns what each checkpoint of a model has: its variables, its states, and the slots of the
// variables that are not frozen.
func saved(c *graphs.Contract, frozen loop.FrozenVariables) []checkpoint.Entry {
	var out []checkpoint.Entry
	for _, v := range c.Variables {
		out = append(out, checkpoint.Entry{Name: v.Name, DType: tf.DataType(dtype.Of(v.DType)), Shape: v.Shape})
		if slices.Contains(frozen, v.Name) {
			continue
		}
		for _, s := range c.SlotsOf(v) {
			out = append(out, checkpoint.Entry{Name: graphs.SlotName(s.Name, v.Name), DType: tf.DataType(dtype.Of(v.DType)), Shape: s.Shape})
		}
	}
	for _, s := range c.States {
		out = append(out, checkpoint.Entry{Name: s.Name, DType: tf.DataType(dtype.Of(s.DType)), Shape: s.Shape})
	}
	return out
}

// branch begins the run with the checkpoint of another one, its params and its metrics so far. The
// index of the checkpoint comes last: without it there is none.
func (t *training) branch(from *resumed) error {
	checkpoints := filepath.Join(t.folder, runfolder.Checkpoints)
	origin := filepath.Dir(filepath.Dir(from.prefix))
	for _, name := range []string{runfolder.Params, runfolder.History, runfolder.Metrics, runfolder.Data, runfolder.Vocab, runfolder.Tokenizer, runfolder.SentencePiece} {
		err := vfs.CopyFile(filepath.Join(origin, name), filepath.Join(t.folder, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	data, err := filepath.Glob(from.prefix + ".data-*")
	if err != nil {
		return err
	}
	for _, file := range data {
		if err := vfs.CopyFile(file, filepath.Join(checkpoints, filepath.Base(file))); err != nil {
			return err
		}
	}
	index := checkpoint.IndexPath(from.prefix)
	content, err := vfs.ReadFile(index)
	if err != nil {
		return err
	}
	for _, dir := range []string{t.folder, checkpoints} {
		if err := vfs.SyncDir(dir); err != nil {
			return err
		}
	}
	if err := vfs.ReplaceFile(filepath.Join(checkpoints, filepath.Base(index)), content); err != nil {
		return err
	}
	fmt.Fprintf(t.env.Out, "run %s begins with %s of another run, at step %d\n", t.folder, from.name, from.step)
	return nil
}

// isIn reports whether a folder that was set aside has all of the run as it is, because an earlier
// process was killed on its way back. An index has the checksums of its checkpoint.
func (t *training) isIn(aside string) (bool, error) {
	names := []string{runfolder.Params, runfolder.History, runfolder.Metrics}
	list, err := vfs.ReadDir(filepath.Join(t.folder, runfolder.Checkpoints))
	if err != nil {
		return false, err
	}
	for _, f := range list {
		if strings.HasSuffix(f.Name(), ".index") {
			names = append(names, filepath.Join(runfolder.Checkpoints, f.Name()))
		}
	}
	for _, name := range names {
		var content [2][]byte
		var missing [2]bool
		for i, folder := range []string{t.folder, aside} {
			path := filepath.Join(folder, name)
			content[i], err = vfs.ReadFile(path)
			missing[i] = errors.Is(err, fs.ErrNotExist)
			switch {
			case errors.Is(err, fault.Damaged):
				return false, nil // too large to compare
			case err != nil && !missing[i]:
				return false, err
			}
		}
		if missing[0] != missing[1] || !bytes.Equal(content[0], content[1]) {
			return false, nil
		}
	}
	return true, nil
}

// SetAside makes a run folder of the run as it is, and returns it. Files that never change are linked
// where the file system can. The folder appears whole or not at all; in a bucket, which cannot rename
// folders, its params come last, and a folder without them is not one of a run.
func (t *training) setAside(step int64) (string, error) {
	all := filepath.Join(t.folder, runfolder.SetAside)
	aside := filepath.Join(all, fmt.Sprintf("step-%d", step))
	for n := 2; ; n++ {
		if _, err := vfs.Stat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return "", err
		}
		if t.env.remote != "" && !prepare.Exists(filepath.Join(aside, runfolder.Params)) {
			break // a part
		}
		if has, err := t.isIn(aside); has || err != nil {
			return aside, err
		}
		aside = filepath.Join(all, fmt.Sprintf("step-%d-%d", step, n))
	}
	part := filepath.Join(all, ".part")
	if t.env.remote != "" {
		part = aside
	}
	if err := errors.Join(vfs.RemoveAll(part), vfs.MkdirAll(part, 0o777)); err != nil {
		return "", err
	}
	names := slices.Sorted(maps.Keys(ownFiles))
	names = append(slices.DeleteFunc(names, func(name string) bool { return name == runfolder.Params }), runfolder.Params)
	for _, name := range names {
		from := filepath.Join(t.folder, name)
		info, err := vfs.Stat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = copyInto(from, filepath.Join(part, name), info.IsDir(), ownFiles[name])
		}
		if err != nil {
			return "", err
		}
	}
	if err := vfs.SyncDir(part); err != nil {
		return "", err
	}
	if part != aside {
		if err := vfs.Rename(part, aside); err != nil {
			return "", err
		}
	}
	return aside, vfs.SyncDir(all)
}

// ownFiles are the files and folders of a run, and whether their files never change once they have
// their name.
var ownFiles = map[string]bool{
	runfolder.Params: true, runfolder.Data: true, runfolder.Vocab: true, runfolder.Tokenizer: true, runfolder.SentencePiece: true, runfolder.Init: true, runfolder.History: true, // replaced, not changed
	runfolder.Metrics: false, runfolder.Trainer: false, runfolder.Journal: false, runfolder.TrainEvents: false, runfolder.EvalEvents: false,
	runfolder.Checkpoints: true, evaluation.Folder: true, runfolder.ProfileFolder: true, runfolder.GraphFolder: true,
}

// copyTree gives the files of a folder to another one, which exists: as links, or as copies if link is
// not set or the file system has none.
func copyTree(from, to string, link bool) error {
	list, err := vfs.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range list {
		if err := copyInto(filepath.Join(from, f.Name()), filepath.Join(to, f.Name()), f.IsDir(), link); err != nil {
			return err
		}
	}
	return vfs.SyncDir(to)
}

// copyInto is copyTree for a file or folder.
func copyInto(from, to string, folder, link bool) error {
	if !folder {
		_, err := runfolder.LinkOrCopy(from, to, link, false)
		return err
	}
	if err := vfs.Mkdir(to, 0o777); err != nil {
		return err
	}
	return copyTree(from, to, link)
}
