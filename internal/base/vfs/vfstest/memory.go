// Package vfstest has file systems for tests. Only tests import it.
//
// [Memory] is a file system in memory that records what was synced, so that it can simulate a
// power failure. [Failing] makes one operation of another file system fail, or all operations from
// one on, as if the process had been killed. [Recorder] records the operations on a folder, and
// returns what would be on disk if the process had ended at any point. [Unread] makes operations that
// read fail.
package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

var _ vfs.WorkFS = (*Memory)(nil)

// Memory is a file system in memory that records what was synced. It is safe for
// concurrent use. All paths are relative to its root.
type Memory struct {
	mu   sync.Mutex
	root *node
}

// NewMemory returns an empty file system.
func NewMemory() *Memory { return &Memory{root: newFolder()} }

// node is a file or a folder, as programs see it and as it is on disk.
type node struct {
	dir   bool
	perm  fs.FileMode
	time  time.Time
	data  []byte           // of a file
	names map[string]*node // of a folder

	syncedData  []byte
	syncedNames map[string]*node
}

func newFolder() *node {
	return &node{dir: true, perm: 0o777, names: map[string]*node{}, syncedNames: map[string]*node{}}
}

// Loss is what a crash destroys.
type Loss int

const (
	// NoLoss is a crash of only the process: everything it wrote is there.
	NoLoss Loss = iota
	// UnsyncedData is a crash of the machine in which the names reached the disk, but
	// unsynced bytes did not, as with a journal of names only.
	UnsyncedData
	// Unsynced is a crash of the machine that destroys everything unsynced: bytes, and
	// names that were created, renamed or removed.
	Unsynced
)

// String names the loss.
func (l Loss) String() string {
	return [...]string{"process killed", "unsynced bytes lost", "all unsynced lost"}[l]
}

// AfterCrash returns the file system after a crash; m does not change.
func (m *Memory) AfterCrash(loss Loss) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{root: m.root.after(loss)}
}

func (n *node) after(loss Loss) *node {
	out := &node{dir: n.dir, perm: n.perm, time: n.time}
	if !n.dir {
		out.data = n.data
		if loss != NoLoss {
			out.data = n.syncedData
		}
		out.data = slices.Clone(out.data)
		out.syncedData = slices.Clone(out.data)
		return out
	}
	names := n.names
	if loss == Unsynced {
		names = n.syncedNames
	}
	out.names = map[string]*node{}
	for name, child := range names {
		out.names[name] = child.after(loss)
	}
	out.syncedNames = maps.Clone(out.names)
	return out
}

// Files returns the content of all files by path from the root. The paths of folders end in
// a slash and have no content.
func (m *Memory) Files() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]byte{}
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		for name, child := range n.names {
			if child.dir {
				out[path+name+"/"] = nil
				walk(path+name+"/", child)
			} else {
				out[path+name] = child.data
			}
		}
	}
	walk("", m.root)
	return out
}

// WriteTo writes all files and folders to an existing folder of the operating system.
func (m *Memory) WriteTo(dir string) error {
	files := m.Files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.Mkdir(path, 0o777)
		} else {
			err = os.WriteFile(path, files[name], 0o666)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func split(path string) []string {
	return strings.FieldsFunc(filepath.ToSlash(filepath.Clean("/"+path)), func(r rune) bool { return r == '/' })
}

// find returns the node of a path.
func (m *Memory) find(path string) (*node, error) {
	n := m.root
	for _, name := range split(path) {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		next, ok := n.names[name]
		if !ok {
			return nil, syscall.ENOENT
		}
		n = next
	}
	return n, nil
}

// parent returns the folder of a path, and its name there.
func (m *Memory) parent(path string) (*node, string, error) {
	parts := split(path)
	if len(parts) == 0 {
		return nil, "", syscall.EINVAL
	}
	dir, err := m.find(strings.Join(parts[:len(parts)-1], "/"))
	if err == nil && !dir.dir {
		err = syscall.ENOTDIR
	}
	return dir, parts[len(parts)-1], err
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Open implements vfs.ReadFS.
func (m *Memory) Open(name string) (vfs.File, error) { return m.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile implements vfs.WorkFS.
func (m *Memory) OpenFile(name string, flag int, perm fs.FileMode) (vfs.WorkFile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
		dir, base, err := m.parent(name)
		if err != nil {
			return nil, pathError("open", name, err)
		}
		n = &node{perm: perm, time: time.Now()}
		dir.names[base] = n
	case err != nil:
		return nil, pathError("open", name, err)
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, pathError("open", name, syscall.EEXIST)
	case n.dir && flag&(os.O_WRONLY|os.O_RDWR) != 0:
		return nil, pathError("open", name, syscall.EISDIR)
	}
	if flag&os.O_TRUNC != 0 && !n.dir {
		n.data, n.time = nil, time.Now()
	}
	return &memoryFile{m: m, n: n, name: name, flag: flag}, nil
}

// Rename implements vfs.WorkFS.
func (m *Memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, target, err := m.parents(from, to)
	if err == nil {
		switch n, there := old.node(), target.node(); {
		case there == nil:
		case there.dir: // as package os has it
			err = syscall.EEXIST
		case n.dir:
			err = syscall.ENOTDIR
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	n := old.node()
	if n == target.node() && old != target {
		return nil // two names of one file stay, as POSIX has it
	}
	delete(old.folder.names, old.name) // before, because both may be the same name
	target.set(n)
	return nil
}

// place is a name in a folder, which need not exist.
type place struct {
	folder *node
	name   string
}

func (p place) node() *node { return p.folder.names[p.name] }
func (p place) set(n *node) { p.folder.names[p.name] = n }

// parents returns the places of two names. The first must exist.
func (m *Memory) parents(a, b string) (inA, inB place, err error) {
	if inA.folder, inA.name, err = m.parent(a); err != nil {
		return inA, inB, err
	}
	if inB.folder, inB.name, err = m.parent(b); err != nil {
		return inA, inB, err
	}
	if inA.node() == nil {
		return inA, inB, syscall.ENOENT
	}
	return inA, inB, nil
}

// Link implements vfs.WorkFS.
func (m *Memory) Link(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(from)
	var target place
	if err == nil {
		target.folder, target.name, err = m.parent(to)
	}
	switch {
	case err != nil:
	case target.node() != nil:
		err = syscall.EEXIST
	case n.dir:
		err = syscall.EPERM
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: err}
	}
	target.set(n)
	return nil
}

// Exchange implements vfs.WorkFS.
func (m *Memory) Exchange(a, b string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	inA, inB, err := m.parents(a, b)
	if err == nil && inB.node() == nil {
		err = syscall.ENOENT
	}
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	x, y := inA.node(), inB.node()
	inA.set(y)
	inB.set(x)
	return nil
}

// Remove implements vfs.WorkFS.
func (m *Memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	switch n, ok := dir.names[base]; {
	case !ok:
		return pathError("remove", name, syscall.ENOENT)
	case len(n.names) > 0:
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	delete(dir.names, base)
	return nil
}

// Mkdir implements vfs.WorkFS.
func (m *Memory) Mkdir(name string, perm fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil {
		return pathError("mkdir", name, err)
	}
	if dir.names[base] != nil {
		return pathError("mkdir", name, syscall.EEXIST)
	}
	n := newFolder()
	n.perm, n.time = perm, time.Now()
	dir.names[base] = n
	return nil
}

// ReadDir implements vfs.ReadFS.
func (m *Memory) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	var out []fs.DirEntry
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		out = append(out, fs.FileInfoToDirEntry(n.names[base].info(base)))
	}
	return out, nil
}

// Stat implements vfs.ReadFS.
func (m *Memory) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return n.info(filepath.Base(name)), nil
}

// SyncDir implements vfs.WorkFS.
func (m *Memory) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError("sync", name, err)
	}
	n.syncedNames = maps.Clone(n.names)
	return nil
}

type info struct {
	name string
	size int64
	mode fs.FileMode
	time time.Time
}

func (n *node) info(name string) info {
	mode := n.perm
	if n.dir {
		mode |= fs.ModeDir
	}
	return info{name, int64(len(n.data)), mode, n.time}
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.time }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

// memoryFile is an open file of a Memory. A file that is renamed or removed stays open.
type memoryFile struct {
	m      *Memory
	n      *node
	name   string
	flag   int
	at     int64
	closed bool
}

func (f *memoryFile) lock(op string, writes bool) (unlock func(), err error) {
	f.m.mu.Lock()
	switch {
	case f.closed:
		err = fs.ErrClosed
	case f.n.dir && op != "sync":
		err = syscall.EISDIR
	case writes && f.flag&(os.O_WRONLY|os.O_RDWR) == 0:
		err = syscall.EBADF
	}
	if err != nil {
		f.m.mu.Unlock()
		return nil, pathError(op, f.name, err)
	}
	return f.m.mu.Unlock, nil
}

func (f *memoryFile) Name() string { return f.name }

func (f *memoryFile) Read(p []byte) (int, error) {
	unlock, err := f.lock("read", false)
	if err != nil {
		return 0, err
	}
	defer unlock()
	n, err := f.read(p, f.at)
	f.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	unlock, err := f.lock("read", false)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	return f.read(p, off)
}

func (f *memoryFile) read(p []byte, off int64) (n int, err error) {
	if off < int64(len(f.n.data)) {
		n = copy(p, f.n.data[off:])
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (f *memoryFile) Write(p []byte) (int, error) {
	unlock, err := f.lock("write", true)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if f.flag&os.O_APPEND != 0 {
		f.at = int64(len(f.n.data))
	}
	f.write(p, f.at)
	f.at += int64(len(p))
	return len(p), nil
}

func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	unlock, err := f.lock("write", true)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if off < 0 || f.flag&os.O_APPEND != 0 { // as package os has it
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	f.write(p, off)
	return len(p), nil
}

func (f *memoryFile) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	if end := off + int64(len(p)); end > int64(len(f.n.data)) {
		f.n.resize(end)
	}
	copy(f.n.data[off:], p)
	f.n.time = time.Now()
}

func (n *node) resize(size int64) {
	if size <= int64(len(n.data)) {
		n.data = n.data[:size:size]
		return
	}
	n.data = append(n.data, make([]byte, size-int64(len(n.data)))...)
}

func (f *memoryFile) Truncate(size int64) error {
	unlock, err := f.lock("truncate", true)
	if err != nil {
		return err
	}
	defer unlock()
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	f.n.resize(size)
	f.n.time = time.Now()
	return nil
}

func (f *memoryFile) Stat() (fs.FileInfo, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.n.info(filepath.Base(f.name)), nil
}

func (f *memoryFile) Sync() error {
	unlock, err := f.lock("sync", false)
	if err != nil {
		return err
	}
	defer unlock()
	f.n.syncedData = slices.Clone(f.n.data)
	return nil
}

func (f *memoryFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}
