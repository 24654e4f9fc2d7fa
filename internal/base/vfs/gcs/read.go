package gcs

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// object is what a bucket says of an object.
type object struct {
	generation int64
	size       int64
	crc        uint32 // CRC-32C of the content
	updated    time.Time
}

func objectOf(a *storage.ObjectAttrs) object {
	return object{generation: a.Generation, size: a.Size, crc: a.CRC32C, updated: a.Updated}
}

// attrs returns the object at a location.
func (s *Store) attrs(ctx context.Context, at location) (object, error) {
	if at.object == "" {
		return object{}, fail(ctx, "stat", at.String(), storage.ErrObjectNotExist)
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	a, err := s.handle(at).Attrs(ctx)
	if err != nil {
		return object{}, fail(ctx, "stat", at.String(), err)
	}
	return objectOf(a), nil
}

// entry is an object or folder in a listing.
type entry struct {
	path string // relative to the folder that was listed
	dir  bool
	object
}

// list returns what is in a folder, sorted; with deep, the objects at any depth instead.
func (s *Store) list(ctx context.Context, folder location, deep bool) ([]entry, error) {
	return s.listPrefix(ctx, folder, folder.prefix(), deep, 0)
}

// listPrefix returns the objects and folders whose names begin with a prefix, at most limit (0:
// all). Paths are relative to the folder.
func (s *Store) listPrefix(ctx context.Context, folder location, prefix string, deep bool, limit int) ([]entry, error) {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	query := &storage.Query{Prefix: prefix}
	if !deep {
		query.Delimiter = "/"
	}
	if err := query.SetAttrSelection([]string{"Name", "Generation", "Size", "CRC32C", "Updated"}); err != nil {
		return nil, err
	}
	var out []entry
	for it := s.api.Bucket(folder.bucket).Objects(ctx, query); ; {
		a, err := it.Next()
		if err == iterator.Done {
			break
		}
		if err != nil {
			return nil, fail(ctx, "list", folder.String(), err)
		}
		name := strings.TrimPrefix(a.Name+a.Prefix, folder.prefix())
		if name == "" || a.Prefix == "" && strings.HasSuffix(name, "/") {
			continue // an object that stands for a folder
		}
		out = append(out, entry{path: strings.TrimSuffix(name, "/"), dir: a.Prefix != "", object: objectOf(a)})
		if limit > 0 && len(out) == limit {
			break
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// Stat implements vfs.ReadFS. A folder exists if it has an object.
func (s *Store) Stat(name string) (fs.FileInfo, error) { return s.stat(context.Background(), name) }

func (s *Store) stat(ctx context.Context, name string) (fs.FileInfo, error) {
	at, err := s.at("stat", name)
	if err != nil {
		return nil, err
	}
	o, err := s.attrs(ctx, at)
	if err == nil {
		return info{path.Base(at.object), false, o}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	below, listErr := s.listPrefix(ctx, at, at.prefix(), true, 1)
	if listErr != nil {
		return nil, listErr
	}
	if len(below) == 0 {
		return nil, err
	}
	return info{path.Base(name), true, object{}}, nil
}

// at connects and parses a path.
func (s *Store) at(op, name string) (location, error) {
	if err := s.connect(); err != nil {
		return location{}, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return parse(name)
}

// ReadDir implements vfs.ReadFS.
func (s *Store) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := s.at("list", name)
	if err != nil {
		return nil, err
	}
	entries, err := s.list(context.Background(), at, false)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, &fs.PathError{Op: "list", Path: name, Err: fs.ErrNotExist}
	}
	out := make([]fs.DirEntry, len(entries))
	for i, e := range entries {
		out[i] = fs.FileInfoToDirEntry(info{path.Base(e.path), e.dir, e.object})
	}
	return out, nil
}

// info describes an object or a folder.
type info struct {
	name string
	dir  bool
	object
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return i.updated }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o777
	}
	return 0o666
}

// Open implements vfs.ReadFS.
func (s *Store) Open(name string) (vfs.File, error) {
	at, err := s.at("open", name)
	if err != nil {
		return nil, err
	}
	i, err := s.stat(context.Background(), name)
	if err != nil {
		return nil, err
	}
	f := &file{s: s, at: at, name: name, info: i.(info)}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	return f, nil
}

// file is an open generation of an object, or a folder.
type file struct {
	s    *Store
	at   location
	name string
	info

	mu     sync.Mutex
	ctx    context.Context // ends waiting calls
	cancel context.CancelCauseFunc
	stop   func() bool // of Bind
	kept   *os.File    // the copy on this machine, or nil
	stream *stream
	pos    int64
	closed bool
}

// Name implements vfs.File.
func (f *file) Name() string { return f.name }

// Stat implements vfs.File.
func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// Bind implements vfs.RemoteFile.
func (f *file) Bind(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop != nil {
		f.stop()
	}
	cancel := f.cancel
	f.stop = context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
}

// Keep implements vfs.RemoteFile.
func (f *file) Keep(ctx context.Context) (*os.File, error) {
	f.mu.Lock()
	kept, closed := f.kept, f.closed
	f.mu.Unlock()
	if kept != nil || closed || f.dir {
		return kept, nil
	}
	kept, err := f.s.keep(ctx, f.at, f.object)
	if err != nil || kept == nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept != nil || f.closed {
		kept.Close()
		return f.kept, nil
	}
	f.kept = kept
	return kept, nil
}

// Derived implements vfs.RemoteFile.
func (f *file) Derived(ending string) (string, error) {
	return f.s.cache.path(f.at, f.generation) + ending, os.MkdirAll(f.s.cache.dir, 0o777)
}

// local returns the copy on this machine, or nil.
func (f *file) local(op string) (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	case f.dir:
		return nil, &fs.PathError{Op: op, Path: f.name, Err: syscall.EISDIR}
	}
	return f.kept, nil
}

// ReadAt implements io.ReaderAt, with one request for exactly these bytes.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	kept, err := f.local("read")
	switch {
	case err != nil:
		return 0, err
	case kept != nil:
		return kept.ReadAt(p, off)
	case off < 0:
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: syscall.EINVAL}
	case off >= f.size:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	want := min(int64(len(p)), f.size-off)
	ctx, cancel := f.s.limited(f.ctx)
	defer cancel()
	r, err := f.s.open(ctx, f.at, f.object, off, want)
	if err != nil {
		return 0, f.fail(ctx, err)
	}
	defer r.Close()
	n, err := io.ReadFull(r, p[:want])
	if err != nil {
		return n, f.fail(ctx, err)
	}
	if want < int64(len(p)) {
		return n, io.EOF
	}
	return n, nil
}

// fail returns an error of reading. An object whose generation is gone was replaced.
func (f *file) fail(ctx context.Context, err error) error {
	return fail(ctx, "read", f.name, gone(err))
}

// gone says that an object was replaced if its generation does not exist any more.
func gone(err error) error {
	if errors.Is(err, storage.ErrObjectNotExist) {
		return fmt.Errorf("%w while it was read; start again", ErrChanged)
	}
	return err
}

// open begins to read some bytes of a generation of an object.
func (s *Store) open(ctx context.Context, at location, o object, off, n int64) (*storage.Reader, error) {
	return s.handle(at).Generation(o.generation).ReadCompressed(true).NewRangeReader(ctx, off, n)
}

// Read implements io.Reader, with one request for the rest of the file.
func (f *file) Read(p []byte) (int, error) {
	kept, err := f.local("read")
	if err != nil {
		return 0, err
	}
	if kept != nil || f.pos >= f.size {
		n, err := f.ReadAt(p, f.pos)
		f.pos += int64(n)
		if n > 0 {
			err = nil
		}
		return n, err
	}
	if f.stream == nil {
		if f.stream, err = f.s.stream(f.ctx, f.at, f.object, f.pos); err != nil {
			return 0, err
		}
	}
	n, err := f.stream.Read(p)
	f.pos += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// stream is a transfer of the rest of an object. Each step must make progress within the
// deadline, however long the transfer takes.
type stream struct {
	ctx   context.Context
	stop  context.CancelCauseFunc
	at    location
	s     *Store
	left  int64
	inner *storage.Reader
}

// stream begins to read an object at an offset.
func (s *Store) stream(ctx context.Context, at location, o object, off int64) (*stream, error) {
	t := &stream{at: at, s: s, left: o.size - off}
	t.ctx, t.stop = context.WithCancelCause(ctx)
	err := t.step(func() (err error) {
		t.inner, err = s.open(t.ctx, at, o, off, -1)
		return err
	})
	if err != nil {
		t.stop(nil)
		return nil, err
	}
	return t, nil
}

// step does a part of the transfer.
func (t *stream) step(do func() error) error {
	watch := time.AfterFunc(t.s.cfg.Deadline, func() { t.stop(&silentError{t.s.cfg.Deadline}) })
	defer watch.Stop()
	err := do()
	if err == nil || err == io.EOF {
		return err
	}
	return fail(t.ctx, "read", t.at.String(), gone(err))
}

// Read implements io.Reader. It returns io.EOF only after as many bytes as the object has.
func (t *stream) Read(p []byte) (n int, err error) {
	err = t.step(func() (err error) {
		n, err = t.inner.Read(p)
		if t.left -= int64(n); err == io.EOF && t.left > 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if t.left < 0 {
		return n, fail(t.ctx, "read", t.at.String(), fmt.Errorf("has %d bytes more than the bucket states", -t.left))
	}
	return n, err
}

// Close ends the transfer.
func (t *stream) Close() error {
	t.stop(nil)
	return t.inner.Close()
}

// Close implements io.Closer. It ends calls that wait.
func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	if f.stop != nil {
		f.stop()
	}
	f.cancel(&fs.PathError{Op: "read", Path: f.name, Err: fs.ErrClosed})
	if f.stream != nil {
		_ = f.stream.Close() // nothing is lost
	}
	if f.kept != nil {
		return f.kept.Close()
	}
	return nil
}

// download writes a generation of an object to a new file of this machine and verifies its size
// and checksum. It leaves no file if it fails.
func (s *Store) download(ctx context.Context, at location, o object, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(to)
		}
	}()
	r, err := s.stream(ctx, at, o, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := crc32.New(crc32c.Table)
	size, err := io.CopyBuffer(io.MultiWriter(f, sum), r, make([]byte, 1<<20))
	if err != nil {
		return err
	}
	if size != o.size || sum.Sum32() != o.crc {
		return fail(ctx, "read", at.String(), fmt.Errorf("arrived with %d bytes and CRC-32C %08x; expected %d and %08x", size, sum.Sum32(), o.size, o.crc))
	}
	return nil
}
