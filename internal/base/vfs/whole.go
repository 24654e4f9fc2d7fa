package vfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Whole is a new file of any file system that appears under its name with all of its content, or not
// at all. It is written next to its place, as .NAME.part; that of a [Remote] is written on this
// machine, and End uploads it.
type Whole struct {
	WorkFile   // to write to
	path, temp string
	overwrite  bool
	remote     Remote // nil for a file of this machine
	staged     string // the folder of temp if remote is set
}

// CreateWhole begins a new file. An existing one is replaced only if overwrite is set; otherwise, and
// for what is no file, the error is of class fault.Usage. The caller calls End at the end, and Discard
// after that or instead.
func CreateWhole(name string, overwrite bool) (*Whole, error) {
	remote, err := RemoteOf(name)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	info, err := Stat(name)
	switch {
	case strings.HasSuffix(name, "/"):
		return nil, fault.Usagef("%s is the name of a folder; expected that of a file", name)
	case err == nil && !info.Mode().IsRegular():
		return nil, fault.Usagef("%s is not a regular file; expected the name of a file", name)
	case err == nil && !overwrite:
		return nil, fault.Usagef("%s already exists; choose another name, or add --overwrite to replace it", name)
	case err != nil && (!errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNoBucket)):
		return nil, err
	}
	w := &Whole{path: name, overwrite: overwrite, remote: remote}
	if remote != nil {
		if w.staged, err = remote.Stage(); err != nil {
			return nil, err
		}
		w.temp = filepath.Join(w.staged, path.Base(Clean(name)))
	} else {
		w.temp = filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".part")
	}
	if w.WorkFile, err = Create(w.temp); err != nil {
		_ = os.RemoveAll(w.staged) // the first error is the one to report
		if folder := filepath.Dir(name); remote == nil && errors.Is(err, fs.ErrNotExist) {
			err = fault.Usagef("%s: there is no folder %s; create it with mkdir -p %[2]s", name, folder)
		}
		return nil, err
	}
	return w, nil
}

// End makes the file durable under its name. If an upload fails, the file stays on this machine, where
// the error says.
func (w *Whole) End(ctx context.Context) error {
	err := errors.Join(w.Sync(), w.Close())
	if err != nil {
		return err
	}
	if w.remote == nil {
		if err := Rename(w.temp, w.path); err != nil {
			return err
		}
		w.WorkFile = nil
		return SyncDir(filepath.Dir(w.path))
	}
	if err := w.remote.Put(ctx, w.temp, w.path, w.overwrite); err != nil {
		w.WorkFile = nil
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s was made by another program meanwhile", w.path)
		}
		return fmt.Errorf("%w; the file is kept on this machine: upload it with gcloud storage cp %s %s", err, w.temp, w.path)
	}
	w.WorkFile = nil
	return os.RemoveAll(w.staged)
}

// Discard removes a file that End has not given its name.
func (w *Whole) Discard() {
	if w.WorkFile == nil {
		return
	}
	w.Close()
	w.WorkFile = nil
	if w.remote != nil {
		_ = os.RemoveAll(w.staged) // removed later, as what is not used
		return
	}
	_ = Remove(w.temp) // the next call overwrites it
}
