package gcs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// lockName is the name of files that lock a folder of this machine. They are not uploaded.
const lockName = ".lock"

// working is a folder of a bucket that is worked on in a local one. The bucket has the last
// word: at the beginning the local folder becomes what the bucket has, whatever an earlier
// process left there.
//
// The local folder is mounted as the file system of package vfs, which uploads a file when it is
// synced:
//
//   - File.Sync uploads a file whose name is in the bucket.
//   - SyncDir uploads the new names of the folder, and those that were renamed or removed, in
//     the order of these operations: a kill may come between any two. A file that was renamed
//     after it was uploaded, or that is a link to one that was, is copied within the bucket.
//
// So what is synced is in the bucket when the call returns, and what is not synced is lost when
// the process is killed, as in a power failure of a disk. An object is replaced at once as a
// whole, and only the generation that this process knows.
type working struct {
	s       *Store
	at      location
	dir     string
	lease   *lease
	unlock  func() error
	unmount func()
	log     *slog.Logger

	mu      sync.Mutex
	remote  map[string]object // what the bucket has, by path
	touched []string          // paths that were made, renamed or removed, not yet uploaded, in order
}

// Work implements vfs.Remote.
func (s *Store) Work(ctx context.Context, name string, log *slog.Logger) (_ vfs.Working, err error) {
	at, err := s.at("open", name)
	if err != nil {
		return nil, err
	}
	if at.object == "" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is a whole bucket; expected a folder in it, gs://BUCKET/FOLDER")}
	}
	w := &working{s: s, at: at, log: log, remote: map[string]object{}}
	var release func() error
	if w.dir, w.lease, release, err = s.claim(ctx, at, log); err != nil {
		return nil, err
	}
	w.unlock = release
	if err := w.fetch(ctx); err != nil {
		return nil, errors.Join(err, release())
	}
	w.unmount = vfs.Mount(w.dir, &workFS{w: w})
	return w, nil
}

// claim locks the local folder for a folder of a bucket, and takes the lease on that.
func (s *Store) claim(ctx context.Context, at location, log *slog.Logger) (dir string, l *lease, release func() error, err error) {
	sum := sha256.Sum256([]byte(at.String()))
	top := filepath.Join(s.cfg.Cache, "folders", hex.EncodeToString(sum[:8]))
	dir = filepath.Join(top, path.Base(at.object))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", nil, nil, err
	}
	unlock, other, err := vfs.Lock(filepath.Join(top, lockName))
	if err != nil {
		return "", nil, nil, fmt.Errorf("lock %s: %w", top, err)
	}
	if other != nil {
		now, _, err := s.leaseOf(ctx, at)
		if err != nil {
			return "", nil, nil, err
		}
		return "", nil, nil, &LeasedError{at.String(), now.PID, now.Host, now.Since}
	}
	place, err := placeOf(top)
	if err == nil {
		l, err = s.acquire(ctx, at, place, log)
	}
	if err != nil {
		return "", nil, nil, errors.Join(err, unlock())
	}
	return dir, l, func() error { return errors.Join(l.release(), unlock()) }, nil
}

// fetch makes the local folder what the bucket has.
func (w *working) fetch(ctx context.Context) error {
	all, err := w.s.list(ctx, w.at, true)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e entry) bool { return e.path == leaseName })
	if all, err = chosen(w.at, all, nil); err != nil {
		return err
	}
	for _, e := range all {
		w.remote[e.path] = e.object
	}
	local, err := w.files()
	if err != nil {
		return err
	}
	for _, p := range local {
		if _, ok := w.remote[p]; !ok {
			if err := os.Remove(w.local(p)); err != nil {
				return err
			}
		}
	}
	return w.s.fill(ctx, w.at, all, w.dir)
}

// local returns the local path of a file.
func (w *working) local(rel string) string { return filepath.Join(w.dir, filepath.FromSlash(rel)) }

// rel returns the path of a local name in the folder.
func (w *working) rel(name string) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(w.dir, abs)
	return filepath.ToSlash(rel), err
}

// files returns the paths of all local files, sorted, but for locks.
func (w *working) files() ([]string, error) {
	var out []string
	err := filepath.WalkDir(w.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == lockName {
			return err
		}
		rel, err := w.rel(name)
		out = append(out, rel)
		return err
	})
	return out, err
}

// Dir implements vfs.Working.
func (w *working) Dir() string { return w.dir }

// Context implements vfs.Working.
func (w *working) Context() context.Context { return w.lease.ctx }

// Close implements vfs.Working.
func (w *working) Close() error {
	w.unmount()
	err := w.settleAll()
	return errors.Join(err, w.unlock())
}

// settleAll uploads everything that the bucket does not have yet.
func (w *working) settleAll() error {
	if _, err := w.lease.check(); err != nil {
		return err
	}
	local, err := w.files()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	names := slices.Concat(w.touched, local, slices.Sorted(maps.Keys(w.remote)))
	for _, rel := range names {
		if err := w.settle(rel); err != nil {
			return err
		}
	}
	w.touched = nil
	return nil
}

// touch notes that a name was made, renamed or removed.
func (w *working) touch(names ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		rel, err := w.rel(name)
		if err != nil {
			return err
		}
		w.touched = append(slices.DeleteFunc(w.touched, func(t string) bool { return t == rel }), rel)
	}
	return nil
}

// syncDir uploads the names of a folder.
func (w *working) syncDir(name string) error {
	dir, err := w.rel(name)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, e := range entries { // those that others, such as TensorFlow, have made
		rel := path.Join(dir, e.Name())
		if _, known := w.remote[rel]; !known && e.Type().IsRegular() && e.Name() != lockName && !slices.Contains(w.touched, rel) {
			names = append(names, rel)
		}
	}
	for _, rel := range w.touched {
		if path.Dir(rel) == dir {
			names = append(names, rel)
		}
	}
	for _, rel := range names {
		if err := w.settle(rel); err != nil {
			return err // what is not uploaded stays touched
		}
		w.touched = slices.DeleteFunc(w.touched, func(t string) bool { return t == rel })
	}
	return nil
}

// syncFile uploads a file whose name is in the bucket.
func (w *working) syncFile(name string) error {
	rel, err := w.rel(name)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.remote[rel]; !known {
		return nil // its bytes come with its name
	}
	return w.settle(rel)
}

// settle makes an object what the local file is. The caller holds mu.
func (w *working) settle(rel string) error {
	ctx, err := w.lease.check()
	if err != nil {
		return err
	}
	local, at, was := w.local(rel), w.at.within(rel), w.remote[rel]
	st, err := os.Lstat(local)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if was.generation == 0 {
			return nil
		}
		if err := w.s.remove(ctx, at, was.generation); err != nil {
			return err
		}
		delete(w.remote, rel)
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular() || path.Base(rel) == lockName:
		return nil
	}
	now, err := w.duplicateOf(ctx, rel, st, was)
	if err == nil && now.generation == 0 {
		now, err = w.s.putFile(ctx, at, local, was)
	}
	if err != nil {
		return err
	}
	w.remote[rel] = now
	return nil
}

// duplicateOf stores a file by copying the object that it was renamed from or is a link to. It
// returns the zero value if there is no such object.
func (w *working) duplicateOf(ctx context.Context, rel string, st fs.FileInfo, was object) (object, error) {
	size := st.Size()
	for other, o := range w.remote {
		if other == rel || o.size != size || size == 0 {
			continue
		}
		before, err := os.Lstat(w.local(other))
		renamed := errors.Is(err, fs.ErrNotExist) && slices.Contains(w.touched, other)
		if !renamed && (err != nil || !os.SameFile(before, st)) {
			continue
		}
		sum, err := checksum(ctx, w.local(rel), size)
		if err != nil || was.has(size, sum) {
			return object{}, err
		}
		if sum != o.crc {
			continue
		}
		return w.s.duplicate(ctx, w.at.within(other), o, w.at.within(rel), was.generation)
	}
	return object{}, nil
}

// workFS is the file system of a working's local folder.
type workFS struct {
	vfs.OS
	w *working
}

// OpenFile implements vfs.WorkFS.
func (f *workFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.WorkFile, error) {
	_, missing := os.Lstat(name)
	file, err := f.OS.OpenFile(name, flag, perm)
	if err == nil && missing != nil {
		err = f.w.touch(name)
	}
	if err != nil {
		return nil, err
	}
	return &workFile{file, f.w}, nil
}

// Rename implements vfs.WorkFS. Folders cannot be renamed.
func (f *workFS) Rename(from, to string) error {
	if st, err := os.Lstat(from); err == nil && st.IsDir() {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fmt.Errorf("%w: a bucket has no folders to rename", errors.ErrUnsupported)}
	}
	if err := f.OS.Rename(from, to); err != nil {
		return err
	}
	return f.w.touch(to, from)
}

// Link implements vfs.WorkFS. A file of another folder cannot be linked.
func (f *workFS) Link(from, to string) error {
	if rel, err := f.w.rel(from); err != nil || !filepath.IsLocal(filepath.FromSlash(rel)) {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: errors.ErrUnsupported}
	}
	if err := f.OS.Link(from, to); err != nil {
		return err
	}
	return f.w.touch(to)
}

// Exchange implements vfs.WorkFS: it is not supported.
func (f *workFS) Exchange(a, b string) error {
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: errors.ErrUnsupported}
}

// Remove implements vfs.WorkFS.
func (f *workFS) Remove(name string) error {
	if err := f.OS.Remove(name); err != nil {
		return err
	}
	return f.w.touch(name)
}

// SyncDir implements vfs.WorkFS.
func (f *workFS) SyncDir(name string) error { return f.w.syncDir(name) }

// workFile is an open file of a workFS.
type workFile struct {
	vfs.WorkFile
	w *working
}

// Sync implements vfs.WorkFile.
func (f *workFile) Sync() error { return f.w.syncFile(f.Name()) }

// Stage implements vfs.Remote.
func (s *Store) Stage() (string, error) {
	if err := s.connect(); err != nil {
		return "", err
	}
	dir := filepath.Join(s.cfg.Cache, "staged")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	removeUnused(dir)
	return os.MkdirTemp(dir, "new-")
}

// Put implements vfs.Remote.
func (s *Store) Put(ctx context.Context, local, name string, overwrite bool) error {
	at, err := s.at("write", name)
	if err != nil {
		return err
	}
	was, err := s.attrs(ctx, at)
	switch {
	case err == nil && !overwrite:
		return &fs.PathError{Op: "write", Path: name, Err: fs.ErrExist}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	_, err = s.putFile(ctx, at, local, was)
	return err
}

// Release implements vfs.Remote.
func (s *Store) Release(ctx context.Context, name string, log *slog.Logger) error {
	at, err := s.at("open", name)
	if err != nil {
		return err
	}
	if _, o, err := s.leaseOf(ctx, at); err != nil || o.generation == 0 {
		return err
	}
	_, _, release, err := s.claim(ctx, at, log)
	if err != nil {
		return err
	}
	return release()
}

// Publish implements vfs.Remote.
func (s *Store) Publish(ctx context.Context, local, name, last string, overwrite bool, log *slog.Logger) (err error) {
	at, err := s.at("open", name)
	if err != nil {
		return err
	}
	_, l, release, err := s.claim(ctx, at, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	source := &working{s: s, at: at, dir: local, lease: l, remote: map[string]object{}}
	files, err := source.files()
	if err != nil {
		return err
	}
	there, err := s.list(ctx, at, true)
	if err != nil {
		return err
	}
	for _, e := range there {
		switch {
		case e.path == leaseName:
		case e.path == last && !overwrite:
			return &fs.PathError{Op: "write", Path: at.within(last).String(), Err: fs.ErrExist}
		case !slices.Contains(files, e.path):
			return &fs.PathError{Op: "write", Path: name, Err: fmt.Errorf("has a file that does not belong to what is written now, %s; choose another folder, or remove this one with gcloud storage rm -r %s", e.path, strings.TrimSuffix(name, "/"))}
		default:
			source.remote[e.path] = e.object
		}
	}
	if was, ok := source.remote[last]; ok {
		if err := s.remove(ctx, at.within(last), was.generation); err != nil {
			return err
		}
		delete(source.remote, last)
	}
	for _, rel := range append(slices.DeleteFunc(files, func(f string) bool { return f == last }), last) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		source.mu.Lock()
		err := source.settle(rel)
		source.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
