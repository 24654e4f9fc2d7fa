package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// publish has make write the folder out. If that is in a bucket, make writes a local folder, and
// its files are uploaded, the file last after all others: readers look for that one first. If out
// has it already, the error is fs.ErrExist unless overwrite is set. A folder of another kind is refused.
func publish(ctx context.Context, out, last string, kind made.Kind, overwrite bool, log *slog.Logger, make func(local string) error) error {
	remote, err := vfs.RemoteOf(out)
	if err != nil {
		return usagef("--out: %w", err)
	}
	if remote == nil {
		return make(out)
	}
	if err := made.Room(out, kind, overwrite); err != nil {
		return err
	}
	there := vfs.Join(out, last)
	switch _, err := remote.Stat(there); { // before the work, not after it
	case err == nil && !overwrite:
		return &fs.PathError{Op: "write", Path: there, Err: fs.ErrExist}
	case err != nil && (!errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNoBucket)):
		return err
	}
	staged, err := remote.Stage()
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged)
	local := filepath.Join(staged, path.Base(out))
	if err := make(local); err != nil {
		return err
	}
	if err := remote.Publish(ctx, local, out, last, overwrite, log); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return nil
}

// localFile refuses the path of a file in a bucket, where it is not read.
func localFile(path string) error {
	if vfs.Scheme(path) != "" {
		return usagef("%s is not on this machine, where it must be; copy it first, as with gcloud storage cp %s .", path, path)
	}
	return nil
}

// localFolder refuses the path of a folder in a bucket. instead is what to do instead.
func localFolder(path, instead string) error {
	if vfs.Scheme(path) != "" {
		return usagef("%s is in a bucket; expected a folder of this machine; %s", path, instead)
	}
	return nil
}
