package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// A checkpoint with frozen variables has two data files: the first with what changes, and the
// second with what does not. The second file of all checkpoints of a run is one file with several
// names (hard links), so each checkpoint is complete for TensorFlow, and the file is gone with the
// last of them.
const (
	frozenShard = 1
	twoShards   = 2
)

// frozenFile is the data file of frozen variables in a checkpoint.
type frozenFile struct {
	prefix  string  // of the checkpoint
	entries []Entry // of its index, sorted by key
}

func (f *frozenFile) path() string { return DataPath(f.prefix, frozenShard, twoShards) }

// has reports whether the file has the variables with these keys, which are sorted, and no others.
func (f *frozenFile) has(keys []string) bool {
	return f != nil && slices.EqualFunc(f.entries, keys, func(e Entry, key string) bool { return e.Name == key })
}

// frozenFileOf returns the data file of frozen variables of a checkpoint, or nil if it has none.
func frozenFileOf(b *Bundle) *frozenFile {
	if b.shards != twoShards || len(b.slices) > 0 {
		return nil
	}
	f := &frozenFile{prefix: b.prefix}
	for _, e := range b.entries {
		if e.Shard == frozenShard {
			f.entries = append(f.entries, e)
		}
	}
	if len(f.entries) == 0 {
		return nil
	}
	return f
}

// Frozen names variables whose values stay the same from their first save on. All checkpoints of
// the folder share one file with these values. Those that [Manager.Stored] reports need not be among
// the tensors of the save.
func Frozen(names ...string) SaveOption {
	return func(o *saveOptions) { o.frozen = names }
}

// keysOf returns the sorted keys of variables.
func keysOf(names []string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = VariableKey(name)
	}
	slices.Sort(keys)
	return keys
}

// Stored reports whether the folder has the values of exactly these frozen variables, in the last
// checkpoint that this manager restored or saved.
func (m *Manager) Stored(names ...string) bool {
	return m.storedFile(keysOf(names)) != nil
}

// storedFile returns the file that has exactly the variables with these keys, or nil.
func (m *Manager) storedFile(keys []string) *frozenFile {
	m.folder.Lock()
	defer m.folder.Unlock()
	if !m.frozen.has(keys) {
		return nil
	}
	if _, err := vfs.Stat(m.frozen.path()); err != nil {
		return nil
	}
	return m.frozen
}

// divide returns the tensors that are saved in the first data file and in the second, and the
// file that has the second already, if there is one. The caller holds mu.
func (m *Manager) divide(tensors []NamedTensor, names []string) (changing, constant []NamedTensor, from *frozenFile, err error) {
	if len(names) == 0 {
		return tensors, nil, nil, nil
	}
	frozen := keysOf(names)
	from = m.storedFile(frozen)
	given := make(map[string]NamedTensor, len(tensors))
	for _, t := range tensors {
		if _, is := slices.BinarySearch(frozen, t.Name); is {
			given[t.Name] = t
		} else {
			changing = append(changing, t)
		}
	}
	if from != nil {
		return changing, nil, from, nil
	}
	for _, key := range frozen {
		t, ok := given[key]
		if !ok {
			return nil, nil, nil, fmt.Errorf("frozen variable %s has no value; expected one, as no checkpoint of %s has it yet", quote(key), m.cfg.Dir)
		}
		constant = append(constant, t)
	}
	return changing, constant, nil, nil
}

// addFrozen adds the data file of frozen variables to the checkpoint at prefix, which has one data
// file and which nobody sees yet. The file is that of an earlier checkpoint, or made of tensors.
func (m *Manager) addFrozen(prefix string, tensors []NamedTensor, from *frozenFile) (*frozenFile, error) {
	b, err := OpenBundle(prefix)
	if err != nil {
		return nil, err
	}
	to := &frozenFile{prefix: prefix}
	if from != nil {
		to.entries = from.entries
		err = m.link(from.path(), to.path())
	} else {
		to.entries, err = m.writeFrozen(to.path(), tensors)
	}
	if err != nil {
		return nil, err
	}
	index, err := encodeIndex(slices.Concat(b.entries, to.entries), twoShards)
	if err != nil {
		return nil, err
	}
	// Without an index, what a killed save leaves here is removed.
	if err := vfs.Remove(IndexPath(prefix)); err != nil {
		return nil, err
	}
	if err := vfs.Rename(DataPath(prefix, 0, 1), DataPath(prefix, 0, twoShards)); err != nil {
		return nil, err
	}
	return to, vfs.WriteFile(IndexPath(prefix), index)
}

// writeFrozen writes a data file, as SaveV2 does, and returns the entries of its tensors.
func (m *Manager) writeFrozen(path string, tensors []NamedTensor) (entries []Entry, err error) {
	// The name must be new: it could be another name of a file in use.
	file, err := vfs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	at := int64(0)
	for _, t := range tensors {
		kind := t.Value.DataType()
		if dtype.DType(kind).Size() == 0 {
			return nil, fmt.Errorf("frozen variable %s is of type %s; expected numbers", quote(t.Name), DTypeName(kind))
		}
		sum := crc32.New(crc32c.Table)
		n, err := t.Value.WriteContentsTo(io.MultiWriter(file, sum))
		if err != nil {
			return nil, err
		}
		entries = append(entries, Entry{Name: t.Name, DType: kind, Shape: t.Value.Shape(), Shard: frozenShard, Offset: at, Size: n, CRC32C: sum.Sum32()})
		at += n
	}
	return entries, file.Sync()
}

// link gives a file a second name, or copies it where the file system cannot do that.
func (m *Manager) link(from, to string) error {
	err := vfs.Link(from, to)
	if !vfs.CannotLink(err) {
		return err
	}
	m.unlinked.Do(func() {
		m.log.Warn("the file system has no links, so every checkpoint has a copy of the frozen variables", "dir", m.cfg.Dir, "error", err)
	})
	return vfs.CopyFile(from, to)
}

// removeStrays removes data files of checkpoints that have another number of data files: a killed
// save may have left them that was to replace a checkpoint.
func (m *Manager) removeStrays(files []string) (removed bool, err error) {
	counts := map[string]map[string]bool{}
	for _, name := range files {
		if base, ending := splitFile(name); len(ending) > len(".index") {
			if counts[base] == nil {
				counts[base] = map[string]bool{}
			}
			counts[base][filepath.Ext(name)[len(".data-00000"):]] = true
		}
	}
	for base, of := range counts {
		if len(of) == 1 {
			continue
		}
		b, err := OpenBundle(filepath.Join(m.cfg.Dir, base))
		if err != nil {
			continue // restoring reports it
		}
		for _, name := range m.filesOf(b.prefix) {
			if !b.owns(name) {
				removed = true
				if err := vfs.Remove(name); err != nil {
					return removed, err
				}
			}
		}
	}
	return removed, nil
}

// owns reports whether a path is one of the checkpoint's files.
func (b *Bundle) owns(path string) bool {
	if path == b.index {
		return true
	}
	for i := range b.shards {
		if path == b.dataPath(i) {
			return true
		}
	}
	return false
}
