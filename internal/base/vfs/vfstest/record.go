package vfstest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Recorder is the file system of the operating system in a folder. It records all
// operations that change something. It is safe for concurrent use: operations have a
// single order.
//
// Writes of other parts of the process that bypass the Recorder, such as TensorFlow's, are
// recorded when the file is synced or renamed, or its folder is synced.
type Recorder struct {
	dir string // absolute

	mu    sync.Mutex
	start *Memory // the initial content
	ops   []operation
	now   *replay // all operations so far
	files int
}

// operation is one change.
type operation struct {
	name  string
	apply func(*replay) error
}

// replay is a file system in memory on which operations are repeated.
type replay struct {
	*Memory
	open map[int]vfs.WorkFile
}

// NewRecorder returns a recorder of the operations on an existing folder and its content.
func NewRecorder(dir string) (*Recorder, error) {
	start := NewMemory()
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if d.IsDir() {
			return start.Mkdir(path, 0o777)
		}
		data, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		f, err := start.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", dir, err)
	}
	start = start.AfterCrash(NoLoss) // all of it is synced
	abs, err := filepath.Abs(dir)
	return &Recorder{dir: abs, start: start, now: newReplay(start)}, err
}

func newReplay(m *Memory) *replay { return &replay{m.AfterCrash(NoLoss), map[int]vfs.WorkFile{}} }

// Len returns the number of operations so far.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops)
}

// A Crash is a disk after a process ended.
type Crash struct {
	Point int    // number of operations that were done
	Next  string // the first operation that was not done, "" at the end
	Loss  Loss
	Disk  *Memory
}

// Crashes calls each with the disk after the process has ended before each of the
// operations and after the last one, with each kind of loss.
func (r *Recorder) Crashes(each func(Crash) error) error {
	r.mu.Lock()
	ops := r.ops
	r.mu.Unlock()
	again := newReplay(r.start)
	for point := 0; ; point++ {
		next := ""
		if point < len(ops) {
			next = ops[point].name
		}
		for _, loss := range []Loss{NoLoss, UnsyncedData, Unsynced} {
			if err := each(Crash{point, next, loss, again.AfterCrash(loss)}); err != nil {
				return err
			}
		}
		if point == len(ops) {
			return nil
		}
		if err := ops[point].apply(again); err != nil {
			return fmt.Errorf("operation %d, %s, done again: %w", point, next, err)
		}
	}
}

// rel returns a path relative to the recorder's folder.
func (r *Recorder) rel(path string) string {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.Rel(r.dir, abs)
	}
	if err != nil {
		return path
	}
	return filepath.ToSlash(abs)
}

// note records an operation that was done.
func (r *Recorder) note(what, path string, apply func(*replay) error) {
	r.ops = append(r.ops, operation{what + " " + path, apply})
	if err := apply(r.now); err != nil {
		panic(fmt.Sprintf("vfs: %s %s was done and cannot be done in memory: %v", what, path, err))
	}
}

// noteWrite records a write as two operations, because a crash may come in the middle of it.
func (r *Recorder) noteWrite(path string, data []byte, write func(*replay, []byte, int) error) {
	data = bytes.Clone(data)
	half := len(data) / 2
	if half > 0 {
		r.note("write", path, func(p *replay) error { return write(p, data[:half], 0) })
	}
	r.note("write", path, func(p *replay) error { return write(p, data[half:], half) })
}

// adopt records what others did to a file.
func (r *Recorder) adopt(name string) {
	path := r.rel(name)
	data, err := os.ReadFile(name)
	if err != nil {
		return
	}
	if known, err := r.now.find(path); err == nil && bytes.Equal(known.data, data) {
		return
	}
	r.files++
	id := r.files
	r.note("create", path, func(p *replay) (err error) {
		p.open[id], err = p.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
		return err
	})
	r.noteWrite(path, data, func(p *replay, part []byte, _ int) error {
		_, err := p.open[id].Write(part)
		return err
	})
}

// Open implements vfs.ReadFS.
func (r *Recorder) Open(name string) (vfs.File, error) { return r.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile implements vfs.WorkFS.
func (r *Recorder) OpenFile(name string, flag int, perm fs.FileMode) (vfs.WorkFile, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, statErr := os.Stat(name)
	f, err := vfs.OS{}.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	path := r.rel(name)
	r.files++
	file := &recordedFile{WorkFile: f, r: r, path: path, id: r.files}
	if statErr == nil {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && flag&os.O_TRUNC == 0 {
			r.adopt(name)
		}
	}
	open := func(p *replay) (err error) {
		p.open[file.id], err = p.OpenFile(path, flag&^os.O_EXCL, perm)
		return err
	}
	switch {
	case statErr != nil:
		r.note("create", path, open)
	case flag&os.O_TRUNC != 0:
		r.note("empty", path, open)
	default:
		// Nothing changes, so it is not an operation of its own, but the replay needs the file.
		file.pending = open
	}
	return file, nil
}

// Rename implements vfs.WorkFS.
func (r *Recorder) Rename(from, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adopt(from)
	if err := os.Rename(from, to); err != nil {
		return err
	}
	a, b := r.rel(from), r.rel(to)
	r.note("rename", b, func(p *replay) error { return p.Rename(a, b) })
	return nil
}

// Link implements vfs.WorkFS. A link to a file of another folder is recorded as a new file.
func (r *Recorder) Link(from, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	inside := filepath.IsLocal(r.rel(from))
	if inside {
		r.adopt(from)
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	if !inside {
		r.adopt(to)
		return nil
	}
	a, b := r.rel(from), r.rel(to)
	r.note("link", b, func(p *replay) error { return p.Link(a, b) })
	return nil
}

// Exchange implements vfs.WorkFS.
func (r *Recorder) Exchange(a, b string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := (vfs.OS{}).Exchange(a, b); err != nil {
		return err
	}
	x, y := r.rel(a), r.rel(b)
	r.note("exchange", y, func(p *replay) error { return p.Exchange(x, y) })
	return nil
}

// Remove implements vfs.WorkFS.
func (r *Recorder) Remove(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.Remove(name); err != nil {
		return err
	}
	path := r.rel(name)
	if _, err := r.now.Stat(path); err == nil { // others may have made it
		r.note("remove", path, func(p *replay) error { return p.Remove(path) })
	}
	return nil
}

// Mkdir implements vfs.WorkFS.
func (r *Recorder) Mkdir(name string, perm fs.FileMode) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.Mkdir(name, perm); err != nil {
		return err
	}
	path := r.rel(name)
	r.note("mkdir", path, func(p *replay) error { return p.Mkdir(path, perm) })
	return nil
}

// ReadDir implements vfs.ReadFS.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat implements vfs.ReadFS.
func (r *Recorder) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SyncDir implements vfs.WorkFS.
func (r *Recorder) SyncDir(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := (vfs.OS{}).SyncDir(name); err != nil {
		return err
	}
	path := r.rel(name)
	r.note("sync", path+"/", func(p *replay) error { return p.SyncDir(path) })
	return nil
}

// recordedFile is an open file of a Recorder.
type recordedFile struct {
	vfs.WorkFile
	r       *Recorder
	path    string
	id      int
	pending func(*replay) error // opens the file when it is first changed
}

// change does an operation and records it.
func (f *recordedFile) change(what string, do func() error, again func(vfs.WorkFile) error) error {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	f.r.note(what, f.path, f.with(again))
	return nil
}

// with opens the file, if necessary, as a part of the next operation.
func (f *recordedFile) with(again func(vfs.WorkFile) error) func(*replay) error {
	open := f.pending
	f.pending = nil
	return func(p *replay) error {
		if open != nil {
			if err := open(p); err != nil {
				return err
			}
		}
		return again(p.open[f.id])
	}
}

func (f *recordedFile) Write(data []byte) (n int, err error) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	n, err = f.WorkFile.Write(data)
	if n == 0 {
		return n, err
	}
	open := f.with(func(vfs.WorkFile) error { return nil })
	f.r.noteWrite(f.path, data[:n], func(p *replay, part []byte, at int) error {
		if at == 0 {
			if err := open(p); err != nil {
				return err
			}
		}
		_, err := p.open[f.id].Write(part)
		return err
	})
	return n, err
}

func (f *recordedFile) WriteAt(data []byte, off int64) (n int, err error) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	n, err = f.WorkFile.WriteAt(data, off)
	if n == 0 {
		return n, err
	}
	open := f.with(func(vfs.WorkFile) error { return nil })
	f.r.noteWrite(f.path, data[:n], func(p *replay, part []byte, at int) error {
		if at == 0 {
			if err := open(p); err != nil {
				return err
			}
		}
		_, err := p.open[f.id].WriteAt(part, off+int64(at))
		return err
	})
	return n, err
}

func (f *recordedFile) Truncate(size int64) error {
	return f.change("truncate", func() error { return f.WorkFile.Truncate(size) }, func(m vfs.WorkFile) error { return m.Truncate(size) })
}

func (f *recordedFile) Sync() error {
	return f.change("sync", f.WorkFile.Sync, vfs.WorkFile.Sync)
}
