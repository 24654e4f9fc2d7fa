package vfs

import (
	"io/fs"
	"os"
	"sync"
)

// Failing is a file system in which one operation that would change something fails, or
// all operations from one on, as if the process had died. It is safe for concurrent use.
type Failing struct {
	FS
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

// OpenFile implements FS.
func (f *Failing) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := f.next("open", name); err != nil {
			return nil, err
		}
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &failingFile{file, f}, nil
}

// Rename implements FS.
func (f *Failing) Rename(from, to string) error {
	if err := f.next("rename", to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// Exchange implements FS.
func (f *Failing) Exchange(a, b string) error {
	if err := f.next("exchange", b); err != nil {
		return err
	}
	return f.FS.Exchange(a, b)
}

// Link implements FS.
func (f *Failing) Link(from, to string) error {
	if err := f.next("link", to); err != nil {
		return err
	}
	return f.FS.Link(from, to)
}

// Remove implements FS.
func (f *Failing) Remove(name string) error {
	if err := f.next("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// Mkdir implements FS.
func (f *Failing) Mkdir(name string, perm fs.FileMode) error {
	if err := f.next("mkdir", name); err != nil {
		return err
	}
	return f.FS.Mkdir(name, perm)
}

// SyncDir implements FS.
func (f *Failing) SyncDir(name string) error {
	if err := f.next("sync", name); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

type failingFile struct {
	File
	f *Failing
}

func (x *failingFile) Write(p []byte) (int, error) {
	if err := x.f.next("write", x.Name()); err != nil {
		n, _ := x.File.Write(p[:len(p)/2]) // a full disk writes a part
		return n, err
	}
	return x.File.Write(p)
}

func (x *failingFile) WriteAt(p []byte, off int64) (int, error) {
	if err := x.f.next("write", x.Name()); err != nil {
		n, _ := x.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return x.File.WriteAt(p, off)
}

func (x *failingFile) Truncate(size int64) error {
	if err := x.f.next("truncate", x.Name()); err != nil {
		return err
	}
	return x.File.Truncate(size)
}

func (x *failingFile) Sync() error {
	if err := x.f.next("sync", x.Name()); err != nil {
		return err
	}
	return x.File.Sync()
}
