// Package vfs provides the file systems that Gorbit reads from and writes to.
//
// The path determines the file system, as with an operating system's mounts: functions such as
// [Open], [Stat] and [Rename] take paths, as those of package os do. A path lies on the file system
// of the operating system, [OS], unless [Mount] has mounted another one there. So no signature of a
// public package names a file system. A path with a scheme, such as gs://bucket/data, lies on a
// [Remote] file system, which is a [ReadFS] only; the others are a [WorkFS].
//
// Package vfstest has file systems for tests.
//
// The order of operations determines what survives a crash:
//
//   - Bytes of a file are durable once [WorkFile.Sync] has returned.
//   - A name in a folder (created, renamed or removed) is durable once [SyncDir] of
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

// ReadFS is a file system to read from. Names are paths as in package os. Errors are *fs.PathError
// or *os.LinkError, and match the errors of package fs, such as fs.ErrNotExist.
type ReadFS interface {
	// Open opens a file for reading.
	Open(name string) (File, error)
	// ReadDir lists a folder, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
}

// WorkFS is a file system to work in.
type WorkFS interface {
	ReadFS
	// OpenFile opens a file like os.OpenFile. The flags may be os.O_RDONLY, os.O_WRONLY,
	// os.O_RDWR, os.O_CREATE, os.O_EXCL, os.O_TRUNC and os.O_APPEND.
	OpenFile(name string, flag int, perm fs.FileMode) (WorkFile, error)
	// Rename renames a file or folder, and replaces an existing target.
	Rename(from, to string) error
	// Exchange exchanges two names atomically. If that is not supported, the error is
	// errors.ErrUnsupported and nothing has changed.
	Exchange(a, b string) error
	// Link gives a file a second name, which must not exist. If that is not possible, as between two
	// devices or for a file of somebody else, there is an error (see CannotLink) and nothing has
	// changed.
	Link(from, to string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	Mkdir(name string, perm fs.FileMode) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
}

// File is an open file to read.
type File interface {
	io.Reader
	io.ReaderAt
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
}

// WorkFile is an open file of a WorkFS.
type WorkFile interface {
	File
	io.Writer
	io.WriterAt
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
	fs  ReadFS
}

// Mount mounts a file system at a folder until unmount is called. Files that are already
// open are not affected.
func Mount(dir string, f ReadFS) (unmount func()) {
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

// on returns the file system of a path. The operation is named in the error if there is none.
func on(op, path string) (ReadFS, error) {
	mounts.RLock()
	defer mounts.RUnlock()
	if len(mounts.list) == 0 {
		return unmounted(op, path)
	}
	at := absolute(path)
	var best mount
	for _, m := range mounts.list {
		if within(at, m.dir) && len(m.dir) >= len(best.dir) {
			best = m
		}
	}
	if best.fs == nil {
		return unmounted(op, path)
	}
	return best.fs, nil
}

// workOn returns the file system of a path that is to be changed.
func workOn(op, path string) (WorkFS, error) {
	f, err := on(op, path)
	if err != nil {
		return nil, err
	}
	work, ok := f.(WorkFS)
	if !ok {
		return nil, &fs.PathError{Op: op, Path: path, Err: inPlace{}}
	}
	return work, nil
}

// inPlace is the error of a file system that cannot be worked in.
type inPlace struct{}

func (inPlace) Error() string {
	return "cannot be written in place, because a bucket has only whole objects; give this path to --run or --out"
}

// Is implements errors.Is.
func (inPlace) Is(target error) bool { return target == errors.ErrUnsupported }

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

// Open opens a regular file for reading; see OpenStream for one that need not be regular. Reads that fail
// are tried again; see Again.
func Open(path string) (File, error) {
	f, err := on("open", path)
	if err != nil {
		return nil, err
	}
	file, err := Again(func() (File, error) { return f.Open(path) })
	if _, remote := file.(RemoteFile); err != nil || remote { // it tries again by itself
		return file, err
	}
	return &patient{file}, nil
}

// Local returns the file of the operating system that an open file is, or nil.
func Local(file File) *os.File {
	if p, ok := file.(*patient); ok {
		file = p.File
	}
	local, _ := file.(*os.File)
	return local
}

// Stat describes a file or folder.
func Stat(path string) (fs.FileInfo, error) {
	f, err := on("stat", path)
	if err != nil {
		return nil, err
	}
	return Again(func() (fs.FileInfo, error) { return f.Stat(path) })
}

// ReadDir lists a folder, sorted by name.
func ReadDir(path string) ([]fs.DirEntry, error) {
	f, err := on("open", path)
	if err != nil {
		return nil, err
	}
	return Again(func() ([]fs.DirEntry, error) { return f.ReadDir(path) })
}

// OpenFile opens a file to work with, see WorkFS.
func OpenFile(path string, flag int, perm fs.FileMode) (WorkFile, error) {
	f, err := workOn("open", path)
	if err != nil {
		return nil, err
	}
	return f.OpenFile(path, flag, perm)
}

// Create creates a file, or truncates an existing one, and opens it for writing.
func Create(path string) (WorkFile, error) {
	return OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// Rename renames a file or folder within a file system, and replaces an existing target.
func Rename(from, to string) error {
	f, err := workOn("rename", to)
	if err != nil {
		return err
	}
	return f.Rename(from, to)
}

// Exchange exchanges two names of a file system atomically, see WorkFS.
func Exchange(a, b string) error {
	f, err := workOn("exchange", b)
	if err != nil {
		return err
	}
	return f.Exchange(a, b)
}

// Link gives a file a second name, see WorkFS.
func Link(from, to string) error {
	f, err := workOn("link", to)
	if err != nil {
		return err
	}
	return f.Link(from, to)
}

// Remove removes a file or an empty folder.
func Remove(path string) error {
	f, err := workOn("remove", path)
	if err != nil {
		return err
	}
	return f.Remove(path)
}

// Mkdir makes a folder in an existing one.
func Mkdir(path string, perm fs.FileMode) error {
	f, err := workOn("mkdir", path)
	if err != nil {
		return err
	}
	return f.Mkdir(path, perm)
}

// SyncDir makes the names in a folder durable.
func SyncDir(path string) error {
	f, err := workOn("sync", path)
	if err != nil {
		return err
	}
	return f.SyncDir(path)
}

// maxSmallFile is the size in bytes of the largest file that ReadFile reads.
const maxSmallFile = 64 << 20

// ReadFile returns the content of a small file that Gorbit wrote, such as a list. For what is no
// regular file, or has more than 64 MiB, the error is a *stream.FileError of class fault.Damaged.
func ReadFile(name string) ([]byte, error) {
	return readSmall(name, maxSmallFile, fault.Damaged)
}

// ReadBounded returns the content of a file that a user chose and that should be small. For what is no
// regular file, or has more than limit bytes, it reads nothing and returns a *stream.FileError of class
// fault.Usage. Other errors are those of the file system.
func ReadBounded(name string, limit int64) ([]byte, error) {
	return readSmall(name, limit, fault.Usage)
}

// readSmall returns the content of a regular file of at most limit bytes. For anything else, the
// error is a *stream.FileError of the class.
func readSmall(name string, limit int64, class fault.Class) ([]byte, error) {
	file, err := Open(name)
	if wrong := (*stream.FileError)(nil); errors.As(err, &wrong) {
		wrong.Class = class
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if err := stream.Check(name, info, limit, class); err != nil {
		return nil, err
	}
	return stream.ReadAll(file, name, info.Size(), limit, class)
}

// WriteFile creates a file with the given content and makes the content durable. Its name is
// durable once the folder is synced.
func WriteFile(name string, data []byte) error {
	file, err := Create(name)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// ReplaceFile writes a file under a name of its own in its folder and renames it, so that the file
// always has either its old or its new content, also if other processes replace it at the same time.
// The file is durable when ReplaceFile returns.
func ReplaceFile(name string, data []byte) error {
	p, err := newPart(name)
	if err != nil {
		return err
	}
	if _, err = p.Write(data); err == nil {
		err = p.end(true)
	}
	if err != nil {
		p.discard() // does nothing to a file that has its name
	}
	return err
}

// SyncFile makes the bytes of a file that others have written durable.
func SyncFile(name string) error {
	file, err := OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// MkdirAll creates a folder and its parents, and makes their names durable.
func MkdirAll(dir string, perm fs.FileMode) error {
	info, err := Stat(dir)
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
	if err := Mkdir(dir, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(above)
}

// RemoveAll removes a file, or a folder with everything in it. It is not an error if the
// path does not exist.
func RemoveAll(name string) error {
	err := Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, listErr := ReadDir(name)
	if listErr != nil {
		return err
	}
	for _, e := range entries {
		if err := RemoveAll(filepath.Join(name, e.Name())); err != nil {
			return err
		}
	}
	if err := Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	in, err := Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
