// Package vfs is the file system that Gorbit writes to.
//
// [OS] is that of the operating system. [Memory] is one in memory that knows what was
// synced, so that it can say what a power cut leaves. [Failing] makes an operation of
// another one fail, or all from one on, as a process that was killed leaves them.
// [Recorder] writes down what is done to a folder, and gives what the disk would hold
// if the process had ended at any point of it.
//
// What a path lies on is a matter of the path, as it is with an operating system's
// mounts: [At] gives the file system of a path, which is OS unless [Mount] put another
// one there. No signature of a public package names a file system, therefore. Storage
// that is reached by a scheme, such as gs://, is one more implementation.
//
// The order of operations decides what survives a crash:
//
//   - Bytes of a file last once [File.Sync] has returned.
//   - A name in a folder (made, renamed or removed) lasts once [FS.SyncDir] of that
//     folder has returned.
//   - A rename replaces its target in one instant.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// FS is a file system. Names are paths as package os takes them, errors are
// *fs.PathError or *os.LinkError and tell what package fs knows, such as
// fs.ErrNotExist.
type FS interface {
	// OpenFile opens a file as os.OpenFile does; the flags may be os.O_RDONLY,
	// os.O_WRONLY, os.O_RDWR, os.O_CREATE, os.O_EXCL, os.O_TRUNC and os.O_APPEND.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Rename gives a file or folder another name, and takes it from what had it.
	Rename(from, to string) error
	// Exchange exchanges two names in one instant. Where that cannot be done the error
	// is errors.ErrUnsupported and nothing has changed.
	Exchange(a, b string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	Mkdir(name string, perm fs.FileMode) error
	// ReadDir lists a folder, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a folder last.
	SyncDir(name string) error
}

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	// Sync makes the file's bytes last.
	Sync() error
}

// mounts are the file systems that were put in the place of folders. They belong to
// the process, as those of an operating system belong to the machine.
var mounts struct {
	sync.RWMutex
	list []mount
}

type mount struct {
	dir string // absolute
	fs  FS
}

// Mount puts a file system in the place of a folder until unmount is called. Files
// that are open stay what they are.
func Mount(dir string, f FS) (unmount func()) {
	m := mount{absolute(dir), f}
	mounts.Lock()
	defer mounts.Unlock()
	mounts.list = append(mounts.list, m)
	return func() {
		mounts.Lock()
		defer mounts.Unlock()
		if i := slices.Index(mounts.list, m); i >= 0 {
			mounts.list = slices.Delete(mounts.list, i, i+1)
		}
	}
}

// At returns the file system that a path lies on.
func At(path string) FS {
	mounts.RLock()
	defer mounts.RUnlock()
	if len(mounts.list) == 0 {
		return OS{}
	}
	path = absolute(path)
	var best mount
	for _, m := range mounts.list {
		if within(path, m.dir) && len(m.dir) >= len(best.dir) {
			best = m
		}
	}
	if best.fs == nil {
		return OS{}
	}
	return best.fs
}

// within reports whether an absolute path is a folder or lies below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == filepath.Separator || strings.HasSuffix(dir, string(filepath.Separator)))
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// Open opens a file for reading.
func Open(f FS, name string) (File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

// Create makes a file, or empties the one that is there, and opens it for writing.
func Create(f FS, name string) (File, error) {
	return f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// ReadFile returns the content of a file. Whoever reads a file of unknown size looks at
// it before.
func ReadFile(f FS, name string) ([]byte, error) {
	file, err := Open(f, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// WriteFile makes a file of the given content that lasts; its name does once the folder
// is synced.
func WriteFile(f FS, name string, data []byte) error {
	file, err := Create(f, name)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// ReplaceFile writes a file by way of another name in its folder: at any moment it is
// there as it was or as it is to be, and what is left of a call that was killed is
// overwritten by the next one. It lasts when ReplaceFile returns.
func ReplaceFile(f FS, name, temp string, data []byte) error {
	err := WriteFile(f, temp, data)
	if err == nil {
		err = f.Rename(temp, name)
	}
	if err != nil {
		_ = f.Remove(temp) // the first error is the one that tells
		return err
	}
	return f.SyncDir(filepath.Dir(name))
}

// SyncFile makes the bytes of a file last that others have written.
func SyncFile(f FS, name string) error {
	file, err := Open(f, name)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// MkdirAll makes a folder and those above it, and makes their names last.
func MkdirAll(dir string, perm fs.FileMode) error {
	f := At(dir)
	info, err := f.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	above := filepath.Dir(dir)
	if above != dir {
		if err := MkdirAll(above, perm); err != nil {
			return err
		}
	}
	if err := f.Mkdir(dir, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return At(above).SyncDir(above)
}

// RemoveAll removes a file, or a folder with all that is in it. It is no error if
// there is none.
func RemoveAll(f FS, name string) error {
	err := f.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, listErr := f.ReadDir(name)
	if listErr != nil {
		return err
	}
	for _, e := range entries {
		if err := RemoveAll(f, filepath.Join(name, e.Name())); err != nil {
			return err
		}
	}
	if err := f.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
