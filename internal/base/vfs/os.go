package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"syscall"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
)

// OS is the file system of the operating system.
type OS struct{}

var _ WorkFS = OS{}

// Open implements ReadFS. The file is an *os.File. For a pipe, a device or a socket, which might never
// end or block, the error is a *stream.FileError of class fault.Usage.
func (OS) Open(name string) (File, error) {
	f, err := openNow(name)
	if errors.Is(err, syscall.ENXIO) {
		return nil, &stream.FileError{Path: name, Reason: "is a socket or a device that is not there; expected a regular file", Class: fault.Usage}
	}
	if err != nil {
		return nil, err // not a File that holds a nil pointer
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = stream.Check(name, info, math.MaxInt64, fault.Usage)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenFile implements WorkFS. The file is an *os.File. A file that may be made or emptied is not opened
// through a symbolic link, which somebody may have laid to a file of another place.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (WorkFile, error) {
	written := flag&(os.O_CREATE|os.O_TRUNC) != 0
	if written {
		flag |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(name, flag, perm)
	if info, statErr := os.Lstat(name); written && errors.Is(err, syscall.ELOOP) && statErr == nil && info.Mode()&fs.ModeSymlink != 0 {
		err = &fs.PathError{Op: "write", Path: name, Err: errors.New("is a symbolic link, through which nothing is written; expected a file, or nothing: remove the link")}
	}
	if err != nil {
		return nil, err // not a WorkFile that holds a nil pointer
	}
	return f, nil
}

// Rename implements WorkFS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Exchange implements WorkFS.
func (OS) Exchange(a, b string) error { return exchange(a, b) }

// Link implements WorkFS.
func (OS) Link(from, to string) error { return os.Link(from, to) }

// Remove implements WorkFS.
func (OS) Remove(name string) error { return os.Remove(name) }

// Mkdir implements WorkFS.
func (OS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

// ReadDir implements ReadFS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat implements ReadFS.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SyncDir implements WorkFS. Some file systems report a full disk only now.
func (OS) SyncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("flush %s: %w", name, err)
	}
	return nil
}
