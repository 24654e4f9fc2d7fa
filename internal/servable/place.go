package servable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/vfs"
)

// oldSuffix marks a served model that is being replaced where two names cannot be
// exchanged in one instant.
const oldSuffix = ".old"

// removeLeftover removes a folder that a killed export left. A model that it had moved
// away and not replaced yet gets its name back.
func removeLeftover(files vfs.FS, path, out string) error {
	_, err := files.Stat(out)
	if strings.HasSuffix(path, oldSuffix) && errors.Is(err, fs.ErrNotExist) {
		if err := files.Rename(path, out); err != nil {
			return err
		}
	} else if err := vfs.RemoveAll(files, path); err != nil {
		return err
	}
	return files.SyncDir(filepath.Dir(out))
}

// exchange puts the new folder in the old one's place, and removes the old one: in one
// instant where the file system can do that.
func exchange(files vfs.FS, part, out string) error {
	err := files.Exchange(part, out)
	if err == nil {
		// The old model, which has the new one's name now, goes once it is out of place
		// for good.
		if err := files.SyncDir(filepath.Dir(out)); err != nil {
			return err
		}
		return vfs.RemoveAll(files, part)
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	old := part + oldSuffix
	if err := files.Rename(out, old); err != nil {
		return err
	}
	if err := files.Rename(part, out); err != nil {
		return errors.Join(err, files.Rename(old, out))
	}
	if err := files.SyncDir(filepath.Dir(out)); err != nil {
		return err
	}
	return vfs.RemoveAll(files, old)
}
