package vfstest

import (
	"io/fs"
	"os"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Failing is a file system in which one operation that would change something fails, or
// all operations from one on, as if the process had died. It is safe for concurrent use.
type Failing struct {
	vfs.WorkFS
	At   int   // the number of the operation that fails, from 1; 0 for none
	Kill bool  // whether all later operations fail, too
	Err  error // the error

	mu    sync.Mutex
	count int
}

// Count returns the number of operations so far.
func (f *Failing) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// next counts an operation, and returns its error if it is to fail.
func (f *Failing) next(op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if f.At > 0 && (f.count == f.At || f.Kill && f.count > f.At) {
		return &fs.PathError{Op: op, Path: path, Err: f.Err}
	}
	return nil
}

// OpenFile implements vfs.WorkFS.
func (f *Failing) OpenFile(name string, flag int, perm fs.FileMode) (vfs.WorkFile, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := f.next("open", name); err != nil {
			return nil, err
		}
	}
	file, err := f.WorkFS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &failingFile{file, f}, nil
}

// Rename implements vfs.WorkFS.
func (f *Failing) Rename(from, to string) error {
	if err := f.next("rename", to); err != nil {
		return err
	}
	return f.WorkFS.Rename(from, to)
}

// Exchange implements vfs.WorkFS.
func (f *Failing) Exchange(a, b string) error {
	if err := f.next("exchange", b); err != nil {
		return err
	}
	return f.WorkFS.Exchange(a, b)
}

// Link implements vfs.WorkFS.
func (f *Failing) Link(from, to string) error {
	if err := f.next("link", to); err != nil {
		return err
	}
	return f.WorkFS.Link(from, to)
}

// Remove implements vfs.WorkFS.
func (f *Failing) Remove(name string) error {
	if err := f.next("remove", name); err != nil {
		return err
	}
	return f.WorkFS.Remove(name)
}

// Mkdir implements vfs.WorkFS.
func (f *Failing) Mkdir(name string, perm fs.FileMode) error {
	if err := f.next("mkdir", name); err != nil {
		return err
	}
	return f.WorkFS.Mkdir(name, perm)
}

// SyncDir implements vfs.WorkFS.
func (f *Failing) SyncDir(name string) error {
	if err := f.next("sync", name); err != nil {
		return err
	}
	return f.WorkFS.SyncDir(name)
}

type failingFile struct {
	vfs.WorkFile
	f *Failing
}

func (x *failingFile) Write(p []byte) (int, error) {
	if err := x.f.next("write", x.Name()); err != nil {
		n, _ := x.WorkFile.Write(p[:len(p)/2]) // a full disk writes a part
		return n, err
	}
	return x.WorkFile.Write(p)
}

func (x *failingFile) WriteAt(p []byte, off int64) (int, error) {
	if err := x.f.next("write", x.Name()); err != nil {
		n, _ := x.WorkFile.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return x.WorkFile.WriteAt(p, off)
}

func (x *failingFile) Truncate(size int64) error {
	if err := x.f.next("truncate", x.Name()); err != nil {
		return err
	}
	return x.WorkFile.Truncate(size)
}

func (x *failingFile) Sync() error {
	if err := x.f.next("sync", x.Name()); err != nil {
		return err
	}
	return x.WorkFile.Sync()
}
