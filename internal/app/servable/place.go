package servable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// oldSuffix marks a served model that is being replaced if the file system cannot exchange
// two names atomically.
const oldSuffix = ".old"

// removeLeftover removes a folder left by a killed export. A model that the export had
// moved away but not yet replaced gets its name back.
func removeLeftover(path, out string) error {
	_, err := vfs.Stat(out)
	if strings.HasSuffix(path, oldSuffix) && errors.Is(err, fs.ErrNotExist) {
		if err := vfs.Rename(path, out); err != nil {
			return err
		}
	} else if err := vfs.RemoveAll(path); err != nil {
		return err
	}
	return vfs.SyncDir(filepath.Dir(out))
}

// exchange replaces the old folder by the new one, and removes the old one. The exchange
// is atomic if the file system supports it.
func exchange(part, out string) error {
	err := vfs.Exchange(part, out)
	if err == nil {
		// Remove the old model, which now has the new one's name, once the exchange is
		// durable.
		if err := vfs.SyncDir(filepath.Dir(out)); err != nil {
			return err
		}
		return vfs.RemoveAll(part)
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	old := part + oldSuffix
	if err := vfs.Rename(out, old); err != nil {
		return err
	}
	if err := vfs.Rename(part, out); err != nil {
		return errors.Join(err, vfs.Rename(old, out))
	}
	if err := vfs.SyncDir(filepath.Dir(out)); err != nil {
		return err
	}
	return vfs.RemoveAll(old)
}
