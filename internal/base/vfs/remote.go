package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
)

// Remote is the file system of a scheme, such as gs://, whose files other libraries, such as
// TensorFlow's, cannot open. Names are gs://BUCKET/PATH. It is written to only by Work, Publish and Put,
// because storage of objects knows no rename and no append.
type Remote interface {
	ReadFS
	// Copy copies files below a folder, or the files whose names begin with a prefix, to this
	// machine and returns the local path of name. choose returns the paths to copy of those
	// that exist; paths are relative to the folder, or to that of the prefix. Nil means all.
	// Copies are kept, and verified each time.
	Copy(ctx context.Context, name string, choose func(paths []string) []string) (local string, err error)
	// Work makes a folder one to work in, for this process alone: see Working.
	Work(ctx context.Context, name string, log *slog.Logger) (Working, error)
	// Publish uploads the files of a local folder to a new folder, and the file last after all
	// others. Readers look for that file first, so they see all of the folder or nothing. If
	// the folder has that file already, the error is fs.ErrExist, unless overwrite is set: then
	// it is removed first.
	Publish(ctx context.Context, local, name, last string, overwrite bool, log *slog.Logger) error
	// Release takes a folder back from a process that was killed after it had published it. If another
	// process works there, the error says which.
	Release(ctx context.Context, name string, log *slog.Logger) error
	// Put uploads a local file as one file. An existing one is replaced only if overwrite is set;
	// otherwise the error is fs.ErrExist. Readers see the old content, or all of the new.
	Put(ctx context.Context, local, name string, overwrite bool) error
	// Stage returns a new local folder in which to make what is uploaded.
	Stage() (string, error)
}

// ErrNoBucket says why nothing exists below a name: what is to hold it does not exist itself. It comes
// together with fs.ErrNotExist.
var ErrNoBucket = errors.New("there is no such bucket")

// Working is a folder of a Remote that is worked on in a local folder. What is synced there,
// as [WorkFS] describes it, is in the remote folder when the call of Sync or SyncDir returns.
type Working interface {
	// Dir is the local folder.
	Dir() string
	// Context is done when the folder was lost to another process, with that as its cause.
	Context() context.Context
	// Close uploads what was not synced, releases the folder and unmounts it.
	Close() error
}

// RemoteFile is an open file of a Remote.
type RemoteFile interface {
	File
	// Keep copies the file to this machine if there is room, for a reader that will read all
	// of it, or parts of it again and again. It returns the copy, or nil if there is no room.
	Keep(ctx context.Context) (*os.File, error)
	// Derived returns the local path of a file that is derived from the content of this one,
	// such as an index. Another version of the file has another path.
	Derived(ending string) (string, error)
	// Bind ends waiting calls, and later ones, when the context is done.
	Bind(ctx context.Context)
}

// CacheVariable is the environment variable of the folder for copies of files from elsewhere.
const CacheVariable = "GORBIT_CACHE"

// CacheFolder returns the folder for copies of files from elsewhere: $GORBIT_CACHE, or gorbit in the
// user's cache folder.
func CacheFolder() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for copies of files from buckets and hubs: %w; set %s", err, CacheVariable)
	}
	return filepath.Join(dir, "gorbit"), nil
}

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://`)

// hubPrefix begins paths of a model hub, whose names have no //.
const hubPrefix = "hub:"

// split divides a path into what says its scheme, such as gs:// or hub:, and the rest. The first is ""
// for a path of the operating system.
func split(path string) (scheme, rest string) {
	if scheme = schemeForm.FindString(path); scheme == "" && strings.HasPrefix(path, hubPrefix) {
		scheme = hubPrefix
	}
	return scheme, path[len(scheme):]
}

// Scheme returns the scheme of a path, such as gs, or "" for a path of the operating system.
func Scheme(path string) string {
	scheme, _ := split(path)
	return strings.TrimRight(scheme, ":/")
}

// Join joins path elements like filepath.Join, and keeps the scheme of the first.
func Join(elem ...string) string {
	if len(elem) > 0 {
		if scheme, rest := split(elem[0]); scheme != "" {
			return scheme + path.Join(append([]string{rest}, elem[1:]...)...)
		}
	}
	return filepath.Join(elem...)
}

// Clean is filepath.Clean for paths with and without a scheme.
func Clean(path string) string {
	if Scheme(path) != "" {
		return Join(path)
	}
	return filepath.Clean(path)
}

// Dir is filepath.Dir for paths with and without a scheme.
func Dir(name string) string {
	if scheme, rest := split(name); scheme != "" {
		return scheme + path.Dir(rest)
	}
	return filepath.Dir(name)
}

// IsAbs is filepath.IsAbs; a path with a scheme is absolute.
func IsAbs(path string) bool { return Scheme(path) != "" || filepath.IsAbs(path) }

// Abs is filepath.Abs; a path with a scheme is absolute. A path that lost a slash, such as
// gs:/bucket, is an error, so that it is not taken for a folder.
func Abs(path string) (string, error) {
	if Scheme(path) != "" {
		return Join(path), nil
	}
	if err := mangled("open", path); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// mangled returns an error for a path that was meant to have a scheme.
func mangled(op, path string) error {
	if rest, ok := strings.CutPrefix(path, "gs:"); ok {
		return &fs.PathError{Op: op, Path: path, Err: fmt.Errorf("is neither a path nor a bucket; expected gs://%s", strings.TrimLeft(rest, "/"))}
	}
	return nil
}

// RemoteOf returns the Remote of a path with a scheme, or nil for a path of the operating
// system. For a scheme that is not known, and for a path that lost a slash, it returns an error
// that says what is expected.
func RemoteOf(path string) (Remote, error) {
	f, err := on("open", path)
	remote, _ := f.(Remote)
	return remote, err
}

// schemes are the openers of file systems by scheme, as database/sql has drivers.
var schemes struct {
	sync.Mutex
	open   map[string]func() ReadFS
	opened map[string]ReadFS
}

// OpenStream opens a file of any file system to read it once, from its beginning to its end. When the
// context is done, opening and reading end with its cause. The error for a folder is of class
// fault.Usage.
func OpenStream(ctx context.Context, path string) (io.ReadCloser, error) {
	remote, err := RemoteOf(path)
	if err != nil {
		return nil, err
	}
	if remote == nil {
		if info, err := Stat(path); err != nil || !info.Mode().IsRegular() {
			return stream.Open(ctx, path)
		}
	}
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fault.Usagef("%s is a folder; expected a file", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if r, ok := file.(RemoteFile); ok {
		r.Bind(ctx)
		return file, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{stream.WithContext(ctx, file), file}, nil
}

// Register sets the function that opens the file system of a scheme when it is first used after that.
// Package internal/base/vfs/gcs registers gs, and internal/base/vfs/hubfs registers hub.
func Register(scheme string, open func() ReadFS) {
	schemes.Lock()
	defer schemes.Unlock()
	if schemes.open == nil {
		schemes.open, schemes.opened = map[string]func() ReadFS{}, map[string]ReadFS{}
	}
	schemes.open[scheme] = open
	delete(schemes.opened, scheme)
}

// unmounted returns the file system of a path on which nothing is mounted. The operation is named in
// the error if there is none.
func unmounted(op, path string) (ReadFS, error) {
	scheme := Scheme(path)
	if scheme == "" {
		if err := mangled(op, path); err != nil {
			return nil, err
		}
		return OS{}, nil
	}
	schemes.Lock()
	defer schemes.Unlock()
	if f := schemes.opened[scheme]; f != nil {
		return f, nil
	}
	open := schemes.open[scheme]
	if open == nil {
		prefix, _ := split(path)
		return nil, &fs.PathError{Op: op, Path: path, Err: fmt.Errorf("%w: %s is not supported; expected a local path, or gs://BUCKET/PATH", errors.ErrUnsupported, prefix)}
	}
	f := open()
	schemes.opened[scheme] = f
	return f, nil
}

// Localize returns a path of this machine that has the files of path: path itself, or a verified
// copy of what is in a [Remote]. For choose, see Remote.Copy.
func Localize(ctx context.Context, path string, choose func(paths []string) []string) (string, error) {
	remote, err := RemoteOf(path)
	if err != nil || remote == nil {
		return path, err
	}
	return remote.Copy(ctx, path, choose)
}
