package predict

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/internal/ctxio"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/vfs"
)

// Open opens a file of texts: a *Table if it has columns (Columns.HasColumns), and *Lines otherwise.
// The name - is standard input. The caller calls the function that comes with it at the end.
func Open(ctx context.Context, path string, stdin io.Reader, c Columns) (Source, func() error, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, fault.Usagef("%w", err)
	}
	if path == "-" {
		in, name := ctxio.NewReader(ctx, stdin), "standard input"
		if !c.HasColumns("") {
			return NewLines(in, name, ParseTSV), func() error { return nil }, nil
		}
		t, err := NewTable(in, name, c)
		if err != nil {
			return nil, nil, err
		}
		return t, t.Close, nil
	}
	if c.HasColumns(path) {
		t, err := OpenTable(ctx, path, c)
		if err != nil {
			return nil, nil, err
		}
		return t, t.Close, nil
	}
	in, err := ctxio.Open(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	return NewLines(in, path, ParserOf(path)), in.Close, nil
}

// Writer returns a function that writes answers to the texts of a source: with the columns of a
// *Table, and alone for other sources. format "" is the format of the table, or Text.
func Writer(out io.Writer, in Source, format Format, labels []string) (func(Answer) error, error) {
	if t, ok := in.(*Table); ok {
		w, err := NewTableWriter(out, t, format, labels)
		if err != nil {
			return nil, err
		}
		return w.Write, nil
	}
	if format == "" {
		format = Text
	}
	if err := format.Validate(); err != nil {
		return nil, fault.Usagef("%w", err)
	}
	return func(a Answer) error { return format.Write(out, a) }, nil
}

// Create creates a file for answers that appears under its name when commit is called, with all
// answers. Without commit, discard removes what was written. An existing file is replaced only if
// overwrite is set; otherwise the error is a usage error.
func Create(path string, overwrite bool) (out io.Writer, commit, discard func() error, err error) {
	f := vfs.At(path)
	info, err := f.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, nil, nil, fault.Usagef("%s is a folder; expected the name of a file for the answers", path)
	case err == nil && !overwrite:
		return nil, nil, nil, fault.Usagef("%s already exists; choose another name, or add --overwrite to replace it", path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, nil, nil, err
	}
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	file, err := vfs.Create(f, temp)
	if err != nil {
		return nil, nil, nil, err
	}
	discard = func() error { return errors.Join(file.Close(), f.Remove(temp)) }
	commit = func() error {
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			return errors.Join(err, f.Remove(temp))
		}
		if err := f.Rename(temp, path); err != nil {
			return errors.Join(err, f.Remove(temp))
		}
		return f.SyncDir(filepath.Dir(path))
	}
	return file, commit, discard, nil
}
