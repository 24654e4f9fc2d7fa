package vfstest

import (
	"io/fs"
	"os"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Unread is a file system in which operations that read fail: as many as Times, from the one of number
// From on, which counts from 1. It is safe for concurrent use.
type Unread struct {
	vfs.WorkFS
	From, Times int
	Err         error

	mu    sync.Mutex
	count int
}

// Count returns the number of operations so far.
func (u *Unread) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count
}

func (u *Unread) next(op, path string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count++; u.count >= u.From && u.count-u.From < u.Times {
		return &fs.PathError{Op: op, Path: path, Err: u.Err}
	}
	return nil
}

// Open implements vfs.ReadFS.
func (u *Unread) Open(name string) (vfs.File, error) {
	if err := u.next("open", name); err != nil {
		return nil, err
	}
	file, err := u.WorkFS.Open(name)
	return &unreadFile{file, u}, err
}

// OpenFile implements vfs.WorkFS.
func (u *Unread) OpenFile(name string, flag int, perm fs.FileMode) (vfs.WorkFile, error) {
	if flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		if err := u.next("open", name); err != nil {
			return nil, err
		}
	}
	return u.WorkFS.OpenFile(name, flag, perm)
}

// Stat implements vfs.ReadFS.
func (u *Unread) Stat(name string) (fs.FileInfo, error) {
	if err := u.next("stat", name); err != nil {
		return nil, err
	}
	return u.WorkFS.Stat(name)
}

// ReadDir implements vfs.ReadFS.
func (u *Unread) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := u.next("open", name); err != nil {
		return nil, err
	}
	return u.WorkFS.ReadDir(name)
}

type unreadFile struct {
	vfs.File
	u *Unread
}

func (f *unreadFile) Read(p []byte) (int, error) {
	if err := f.u.next("read", f.Name()); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *unreadFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.u.next("read", f.Name()); err != nil {
		n, _ := f.File.ReadAt(p[:len(p)/2], off) // a part may have been read
		return n, err
	}
	return f.File.ReadAt(p, off)
}
