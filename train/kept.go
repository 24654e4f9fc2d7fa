package train

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// keptFiles are those that a training writes at its start, for commands that read the run later. Each save
// looks for them, so that one that somebody removed meanwhile is not found missing when it is needed.
type keptFiles struct {
	log *slog.Logger
	// contents are those of the files by path; nil for an event file, which is not made anew.
	contents map[string][]byte
}

// keepFiles remembers the files of a run that begins now. Events are the paths of its event files.
func keepFiles(folder string, events []string, log *slog.Logger) (keptFiles, error) {
	k := keptFiles{log, make(map[string][]byte)}
	for _, name := range []string{runfolder.Params, runfolder.Data, runfolder.Vocab, runfolder.Tokenizer, runfolder.SentencePiece} {
		path := filepath.Join(folder, name)
		content, err := vfs.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return k, err
		}
		k.contents[path] = content
	}
	for _, path := range events {
		k.contents[path] = nil
	}
	return k, nil
}

// tellEvents says that the event files of the steps before are gone, if they are.
func tellEvents(folder string, step int64, log *slog.Logger) {
	files, err := vfs.ReadDir(filepath.Join(folder, runfolder.TrainEvents))
	if err == nil && step > 0 && len(files) == 1 { // the one that has just been begun
		log.Info("there are no event files of the steps before; TensorBoard lacks their points, which are in metrics.jsonl", "step", step)
	}
}

// Sync implements synced: it makes files anew that are gone, and says so.
func (k *keptFiles) Sync() error {
	for _, path := range slices.Sorted(maps.Keys(k.contents)) {
		if _, err := vfs.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		content := k.contents[path]
		if content == nil {
			delete(k.contents, path) // it is said once
			k.log.Warn("an event file was removed while the run trained; TensorBoard lacks its points, which are in metrics.jsonl, until the run is continued", "file", path)
			continue
		}
		if err := vfs.ReplaceFile(path, content); err != nil {
			return fmt.Errorf("%s was removed while the run trained, and cannot be made anew: %w", path, err)
		}
		k.log.Warn("a file of the run was removed while the run trained; it is made anew", "file", path)
	}
	return nil
}

// mendNames writes the description of the data again if that in the run has other names than the run was
// trained with.
func (t *training) mendNames() error {
	is, err := runfolder.ReadManifest(t.folder)
	if err != nil {
		return err
	}
	want, err := t.names()
	if err != nil || want == prepare.NamesOf(is, t.Params.Data.Features, t.Export.Contract) {
		return err
	}
	return copyDescription(t.folder, t.Data)
}
