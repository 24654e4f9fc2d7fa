// Package vfs provides the file systems that Gorbit writes to.
//
// [OS] is that of the operating system. [Memory] is a file system in memory that records
// what was synced, so that it can simulate a power failure. [Failing] makes one operation
// of another file system fail, or all operations from one on, as if the process had been
// killed. [Recorder] records the operations on a folder, and returns what would be on disk
// if the process had ended at any point.
//
// The path determines the file system, as with an operating system's mounts: [At] returns
// the file system of a path, which is OS unless [Mount] has mounted another one. So no
// signature of a public package names a file system. A path with a scheme, such as
// gs://bucket/data, lies on a [Remote] file system.
//
// The order of operations determines what survives a crash:
//
//   - Bytes of a file are durable once [File.Sync] has returned.
//   - A name in a folder (created, renamed or removed) is durable once [FS.SyncDir] of
//     that folder has returned.
//   - A rename replaces its target atomically. Of two names of one file, neither is removed.
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

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
)

// FS is a file system. Names are paths as in package os. Errors are *fs.PathError or
// *os.LinkError, and match the errors of package fs, such as fs.ErrNotExist.
type FS interface {
	// OpenFile opens a file like os.OpenFile. The flags may be os.O_RDONLY, os.O_WRONLY,
	// os.O_RDWR, os.O_CREATE, os.O_EXCL, os.O_TRUNC and os.O_APPEND.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Rename renames a file or folder, and replaces an existing target.
	Rename(from, to string) error
	// Exchange exchanges two names atomically. If that is not supported, the error is
	// errors.ErrUnsupported and nothing has changed.
	Exchange(a, b string) error
	// Link gives a file a second name, which must not exist. If that is not possible, as between two
	// devices, into a bucket or for a file of somebody else, there is an error (see CannotLink) and
	// nothing has changed.
	Link(from, to string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	Mkdir(name string, perm fs.FileMode) error
	// ReadDir lists a folder, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a folder durable.
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
	// Sync makes the file's bytes durable.
	Sync() error
}

// mounts are the mounted file systems. They belong to the process, as those of an operating
// system belong to the machine.
var mounts struct {
	sync.RWMutex
	list []mount
}

type mount struct {
	dir string // absolute
	fs  FS
}

// Mount mounts a file system at a folder until unmount is called. Files that are already
// open are not affected.
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

// At returns the file system of a path. That of a scheme without a file system refuses
// everything.
func At(path string) FS {
	mounts.RLock()
	defer mounts.RUnlock()
	var otherwise FS = OS{}
	if f := ofScheme(path); f != nil {
		otherwise = f
	}
	if len(mounts.list) == 0 {
		return otherwise
	}
	path = absolute(path)
	var best mount
	for _, m := range mounts.list {
		if within(path, m.dir) && len(m.dir) >= len(best.dir) {
			best = m
		}
	}
	if best.fs == nil {
		return otherwise
	}
	return best.fs
}

// within reports whether an absolute path is dir or is below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == filepath.Separator || strings.HasSuffix(dir, string(filepath.Separator)))
}

func absolute(path string) string {
	if Scheme(path) != "" {
		return Clean(path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// Open opens a file for reading.
func Open(f FS, name string) (File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

// Create creates a file, or truncates an existing one, and opens it for writing.
func Create(f FS, name string) (File, error) {
	return f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// maxSmallFile is the size in bytes of the largest file that ReadFile reads.
const maxSmallFile = 64 << 20

// ReadFile returns the content of a small file that Gorbit wrote, such as a list. For what is no
// regular file, or has more than 64 MiB, the error is a *stream.FileError of class fault.Damaged.
func ReadFile(f FS, name string) ([]byte, error) {
	return readSmall(f, name, maxSmallFile, fault.Damaged)
}

// readSmall returns the content of a regular file of at most limit bytes. For anything else, the
// error is a *stream.FileError of the class.
func readSmall(f FS, name string, limit int64, class fault.Class) ([]byte, error) {
	info, err := f.Stat(name)
	if err != nil {
		return nil, err
	}
	if err := stream.Check(name, info, limit, class); err != nil {
		return nil, err
	}
	file, err := Open(f, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return stream.ReadAll(file, name, info.Size(), limit, class)
}

// WriteFile creates a file with the given content and makes the content durable. Its name is
// durable once the folder is synced.
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

// ReplaceFile writes a file under another name in its folder and renames it, so that the
// file always has either its old or its new content. The leftovers of a killed call are
// overwritten by the next one. The file is durable when ReplaceFile returns.
func ReplaceFile(f FS, name, temp string, data []byte) error {
	err := WriteFile(f, temp, data)
	if err == nil {
		err = f.Rename(temp, name)
	}
	if err != nil {
		_ = f.Remove(temp) // the first error is the one to report
		return err
	}
	return f.SyncDir(filepath.Dir(name))
}

// SyncFile makes the bytes of a file that others have written durable.
func SyncFile(f FS, name string) error {
	file, err := Open(f, name)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// MkdirAll creates a folder and its parents, and makes their names durable.
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

// RemoveAll removes a file, or a folder with everything in it. It is not an error if the
// path does not exist.
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

// CannotLink reports whether an error of Link says that the file has to be copied instead.
func CannotLink(err error) bool {
	return slices.ContainsFunc([]error{errors.ErrUnsupported, syscall.EXDEV, syscall.EPERM, syscall.EACCES, syscall.EMLINK},
		func(why error) bool { return errors.Is(err, why) })
}

// CopyFile writes the content of a file to a new file, or in place of another one's, and makes it
// durable. The name is durable once the folder is synced.
func CopyFile(from, to string) error {
	in, err := Open(At(from), from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := Create(At(to), to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
