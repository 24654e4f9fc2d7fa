package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/params"
)

// overwrite removes the run that is in the folder (Env.Overwrite), so that a new one begins there. What does
// not belong to a run stays, as do the run's copy of the graph, which the new one may need or replaces,
// and what was set aside.
//
// Checkpoints go first. A process that is killed among them leaves a run with fewer checkpoints, which
// can be continued; one that is killed later leaves what a new run replaces.
func (t *training) overwrite(ctx context.Context) error {
	checkpoints, err := t.manager.All()
	if err != nil {
		return err
	}
	if !prepare.Exists(filepath.Join(t.folder, runfolder.Params)) {
		if len(checkpoints) > 0 {
			return &params.Error{Err: fmt.Errorf("--overwrite: folder %s has checkpoints and no %s; expected a run; give another folder with --run", t.name(), runfolder.Params)}
		}
		return nil // nothing to overwrite
	}
	if err := t.canBegin(ctx); err != nil {
		return err
	}
	fmt.Fprintf(t.env.Out, "removing the run in %s, with %d checkpoints\n", t.folder, len(checkpoints))
	if err := t.manager.DiscardAfter(-1); err != nil {
		return err
	}
	if err := t.manager.Protect(); err != nil {
		return err
	}
	remove := func(name string) error {
		if err := vfs.Remove(filepath.Join(t.folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	for _, name := range []string{runfolder.History, runfolder.Metrics, runfolder.Init, runfolder.Data, runfolder.Vocab, runfolder.Tokenizer, runfolder.SentencePiece, runfolder.Trainer, runfolder.Journal} {
		if err := remove(name); err != nil {
			return err
		}
	}
	for _, name := range []string{runfolder.ProfileFolder, filepath.Join(runfolder.TrainEvents, runfolder.PluginsFolder, "profile")} {
		if err := vfs.RemoveAll(filepath.Join(t.folder, name)); err != nil {
			return err
		}
	}
	all, err := vfs.ReadDir(t.folder)
	if err != nil {
		return err
	}
	for _, dir := range all {
		if !dir.IsDir() && runfolder.IsEvents(dir.Name()) { // of the params
			if err := remove(dir.Name()); err != nil {
				return err
			}
		}
		events := dir.Name() == runfolder.TrainEvents || strings.HasPrefix(dir.Name(), runfolder.EvalEvents)
		if !dir.IsDir() || !events && dir.Name() != evaluation.Folder {
			continue
		}
		inner, err := vfs.ReadDir(filepath.Join(t.folder, dir.Name()))
		if err != nil {
			return err
		}
		for _, f := range inner {
			name := filepath.Join(dir.Name(), f.Name())
			if events && !runfolder.IsEvents(f.Name()) || !events && !isEvaluation(filepath.Join(t.folder, name)) {
				continue
			}
			if err := remove(name); err != nil {
				return err
			}
		}
		// A new run would not replace them.
		if err := vfs.SyncDir(filepath.Join(t.folder, dir.Name())); err != nil {
			return err
		}
	}
	// Last, since without it there is no run to remove.
	if err := remove(runfolder.Params); err != nil {
		return err
	}
	return vfs.SyncDir(t.folder)
}

// isEvaluation reports whether a file is the result of an evaluation.
func isEvaluation(path string) bool {
	_, err := evaluation.Read(path)
	return err == nil
}

// canBegin returns an error if a run cannot begin because what it needs is in the run that is to be
// removed.
func (t *training) canBegin(ctx context.Context) error {
	folder, err := filepath.EvalSymlinks(t.folder)
	if err != nil {
		return err
	}
	for name, path := range map[string]string{"init": t.Params.Init, "data.dir": t.Params.Data.Dir} {
		inside := t.env.remote != "" && (path == t.env.remote || strings.HasPrefix(path, t.env.remote+"/"))
		if real, err := filepath.EvalSymlinks(path); path != "" && err == nil { // it is on this machine
			rel, err := filepath.Rel(folder, real)
			inside = err == nil && filepath.IsLocal(rel)
		}
		if inside {
			return &params.Error{Err: fmt.Errorf("--overwrite: %s is %s, which is in the run that would be removed; expected another folder; give another one with --run", name, path)}
		}
	}
	// A run's own copy of its graph may lack them.
	bundle, err := checkpoint.OpenBundle(filepath.Join(t.Export.Path, runfolder.ValuesFolder, "variables"))
	if err == nil {
		err = bundle.Verify(ctx)
	}
	if err != nil {
		return fmt.Errorf("--overwrite: initial variables of graph %s: %w", t.Export.Path, err)
	}
	return nil
}
