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
// at all. It is written next to its place under a name of its own; that of a [Remote] is written on
// this machine, and End uploads it. Of programs that write the same file at once, each writes its own.
type Whole struct {
	WorkFile  // to write to; nil once it has its name or is removed
	path      string
	overwrite bool
	part      *part  // nil for a file of a Remote
	remote    Remote // nil for a file of this machine
	staged    string // the folder of the file until it is uploaded
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
		if err := w.stage(); err != nil {
			return nil, err
		}
		return w, nil
	}
	if _, err := os.Lstat(name); err == nil && info == nil && !overwrite {
		return nil, fault.Usagef("%s is a symbolic link that leads nowhere; choose another name, or add --overwrite to replace it", name)
	}
	if w.part, err = newPart(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fault.Usagef("%s: there is no folder %s; create it with mkdir -p %[2]s", name, filepath.Dir(name))
		}
		return nil, err
	}
	w.WorkFile = w.part
	return w, nil
}

// stage begins the file in a folder of this machine from which it is uploaded.
func (w *Whole) stage() (err error) {
	if w.staged, err = w.remote.Stage(); err != nil {
		return err
	}
	if w.WorkFile, err = Create(filepath.Join(w.staged, path.Base(Clean(w.path)))); err != nil {
		_ = os.RemoveAll(w.staged) // the first error is the one to report
	}
	return err
}

// End makes the file durable under its name. If an upload fails, the file stays on this machine, where
// the error says.
func (w *Whole) End(ctx context.Context) error {
	if w.part != nil {
		err := w.part.end(w.overwrite)
		if err == nil {
			w.WorkFile = nil
		}
		return err
	}
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		return err
	}
	local := w.Name()
	w.WorkFile = nil
	if err := w.remote.Put(ctx, local, w.path, w.overwrite); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s was made by another program meanwhile", w.path)
		}
		return fmt.Errorf("%w; the file is kept on this machine: upload it with gcloud storage cp %s %s", err, local, w.path)
	}
	return os.RemoveAll(w.staged)
}

// Discard removes a file that End has not given its name.
func (w *Whole) Discard() {
	if w.WorkFile == nil {
		return
	}
	if w.part != nil {
		w.part.discard()
	} else {
		w.Close()
		_ = os.RemoveAll(w.staged) // removed later, as what is not used
	}
	w.WorkFile = nil
}
