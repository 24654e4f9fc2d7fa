package convert

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// movingName is the file in the temporary folder that lists the files being moved into
// place. If a conversion is killed during that, it distinguishes its files from those of a
// dataset.
const movingName = "moving.json"

// moving is the content of that file.
type moving struct {
	Old []string `json:"old"` // removed before
	New []string `json:"new"`
}

// move removes old files of the folder and moves the new ones into place, the manifest
// last. So a folder with a manifest has a complete dataset, even after a kill or a power
// failure.
func (o *output) move(old, names []string) error {
	list, err := json.Marshal(moving{old, names})
	if err != nil {
		return err
	}
	if err := vfs.WriteFile(filepath.Join(o.aside, movingName), list); err != nil {
		return err
	}
	for _, dir := range []string{o.aside, o.dir} {
		if err := vfs.SyncDir(dir); err != nil {
			return err
		}
	}
	// The manifest is the first of the old files.
	for i, name := range old {
		if err := vfs.Remove(filepath.Join(o.dir, name)); err != nil {
			return err
		}
		if i == 0 {
			if err := vfs.SyncDir(o.dir); err != nil {
				return err
			}
		}
	}
	for _, some := range [][]string{names, {ManifestName}} {
		for _, name := range some {
			if err := vfs.Rename(filepath.Join(o.aside, name), filepath.Join(o.dir, name)); err != nil {
				return err
			}
		}
		if err := vfs.SyncDir(o.dir); err != nil {
			return err
		}
	}
	return nil
}

// takeBack undoes the moves of a conversion that failed or was killed before there was a
// manifest: it removes the files that were moved into place, and old ones not yet removed.
func (o *output) takeBack() error {
	data, err := vfs.ReadFile(filepath.Join(o.aside, movingName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if there, err := o.has(o.dir, ManifestName); err != nil || there {
		return err // everything was moved, or nothing yet
	}
	var m moving
	if err := json.Unmarshal(data, &m); err != nil {
		return nil // the conversion was killed before it moved anything
	}
	for _, name := range slices.Concat(m.Old, m.New) {
		// Keep the vocabulary: if it was there before, it is the same.
		if _, _, _, ok := tfrecord.ParseShardName(strings.TrimSuffix(name, indexAlias)); !ok || !localName(name) {
			continue
		}
		if err := vfs.Remove(filepath.Join(o.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return vfs.SyncDir(o.dir)
}

// has reports whether a folder has a file.
func (o *output) has(dir, name string) (bool, error) {
	entries, err := vfs.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name }), err
}
