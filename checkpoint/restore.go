package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Restore reads the newest intact checkpoint of the folder: the variables in want, or all
// of them if want is nil. It uses only the names, types and shapes of want.
//
// It verifies all checksums first. If a checkpoint is damaged, Restore uses the previous
// one, logs a warning, and lists the damaged one in Skipped; it is deleted once a later
// save is durable. For an intact checkpoint without one of the variables the error is a
// [MismatchError]. It is [ErrNoCheckpoint] if the folder has no checkpoint, and
// [AllDamagedError] if all are damaged.
func (m *Manager) Restore(ctx context.Context, want []Entry) (*Restored, error) {
	// A reader may lose a race with the writer's pruning. Each time, there is a newer
	// checkpoint.
	const races = 10
	for race := 0; ; race++ {
		list, err := m.scan()
		if err != nil {
			return nil, fmt.Errorf("checkpoints: %w", err)
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("%s: %w", m.cfg.Dir, ErrNoCheckpoint)
		}
		r, vanished, err := m.newestWhole(ctx, list, want)
		if vanished && race < races {
			continue
		}
		if err != nil {
			return nil, err
		}
		m.restored(r)
		return r, nil
	}
}

func (m *Manager) newestWhole(ctx context.Context, list []Checkpoint, want []Entry) (r *Restored, vanished bool, err error) {
	var skipped []Skipped
	for _, c := range slices.Backward(list) {
		r, err := m.read(ctx, c, want)
		if err == nil {
			r.Skipped = skipped
			return r, false, nil
		}
		if !isDamage(err) {
			return nil, false, err
		}
		if !exists(IndexPath(c.Prefix)) {
			return nil, true, err
		}
		m.log.Warn("checkpoint is damaged; using the previous one", "checkpoint", c.Prefix, "reason", err)
		skipped = append(skipped, Skipped{c, err})
	}
	return nil, false, &AllDamagedError{Dir: m.cfg.Dir, Skipped: skipped}
}

// exists reports whether a file exists. If that is unknown, it returns true.
func exists(path string) bool {
	_, err := vfs.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// isDamage distinguishes a damaged checkpoint from one that the system cannot read now.
// In the latter case, falling back would lose steps.
func isDamage(err error) bool {
	var corrupt *CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, fs.ErrNotExist)
}

// RestoreFrom reads the given checkpoint, with all checksums verified and without falling
// back. The error is a [CorruptError] if it is damaged, and fs.ErrNotExist if it does not
// exist.
func (m *Manager) RestoreFrom(ctx context.Context, c Checkpoint, want []Entry) (*Restored, error) {
	r, err := m.read(ctx, c, want)
	if errors.Is(err, fs.ErrNotExist) && exists(IndexPath(c.Prefix)) {
		err = &CorruptError{Path: c.Prefix, Offset: -1, Reason: fmt.Sprintf("a data file is missing: %v", err)}
	}
	if err != nil {
		return nil, err
	}
	m.restored(r)
	return r, nil
}

// restored sets the state from which saving continues.
func (m *Manager) restored(r *Restored) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counter = r.SaveCounter
	m.folder.Lock()
	defer m.folder.Unlock()
	for _, s := range r.Skipped {
		m.damaged[s.Step] = true
	}
	m.tracked = slices.DeleteFunc(m.tracked, func(c Checkpoint) bool { return m.damaged[c.Step] })
	m.frozen = r.frozen
}

func (m *Manager) read(ctx context.Context, c Checkpoint, want []Entry) (*Restored, error) {
	b, err := OpenBundle(c.Prefix, WithIntraOpThreads(m.cfg.IntraOpThreads))
	if err != nil {
		return nil, err
	}
	if err := b.Verify(ctx); err != nil {
		return nil, err
	}
	r := &Restored{Checkpoint: c, frozen: frozenFileOf(b)}
	if r.State, err = b.state(m.cfg.State); err != nil {
		return nil, err
	}
	names, err := b.wanted(want, m.cfg.State, m.cfg.Averages)
	if err != nil {
		return nil, err
	}
	names, want = r.postpone(b, names, want)
	extra := false
	if key, ok := b.Resolve(CounterVariable); ok {
		e, _ := b.Entry(key)
		if extra = e.DType == tf.Int64 && len(e.Shape) == 0 && !slices.Contains(names, CounterVariable); extra {
			names = append(names, CounterVariable)
		}
	}
	r.Tensors = map[string]*tf.Tensor{}
	if len(names) > 0 {
		if r.Tensors, err = b.Read(ctx, names...); err != nil {
			return nil, err
		}
	}
	if t := r.Tensors[CounterVariable]; t != nil {
		r.SaveCounter, _ = t.Value().(int64)
		if extra {
			delete(r.Tensors, CounterVariable)
		}
	}
	for i, w := range want {
		if names[i] != w.Name {
			r.Tensors[w.Name] = r.Tensors[names[i]]
			delete(r.Tensors, names[i])
			r.Averaged++
		}
	}
	return r, nil
}

// postpone leaves the entries that are wanted later for Read, and returns the others with their names in the
// bundle.
func (r *Restored) postpone(b *Bundle, names []string, want []Entry) ([]string, []Entry) {
	r.bundle, r.later = b, make(map[string]string)
	if want == nil {
		return names, want
	}
	var now []string
	var left []Entry
	for i, w := range want {
		if w.Later {
			r.later[w.Name] = names[i]
			if names[i] != w.Name {
				r.Averaged++
			}
			continue
		}
		now, left = append(now, names[i]), append(left, w)
	}
	return now, left
}

// Read reads variables that were wanted with Entry.Later. Their checksums are verified again.
func (r *Restored) Read(ctx context.Context, names ...string) (map[string]*tf.Tensor, error) {
	stored := make([]string, len(names))
	for i, name := range names {
		var ok bool
		if stored[i], ok = r.later[name]; !ok {
			return nil, fmt.Errorf("checkpoint %s: variable %q was not left to be read later", r.Prefix, name)
		}
	}
	out := make(map[string]*tf.Tensor, len(names))
	if len(names) == 0 {
		return out, nil
	}
	read, err := r.bundle.Read(ctx, stored...)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		out[name] = read[stored[i]]
	}
	return out, nil
}

// State reads the state that was saved with a checkpoint, nil if it has none. It does not
// read the variables.
func (m *Manager) State(c Checkpoint) ([]byte, error) {
	b, err := OpenBundle(c.Prefix)
	if err != nil {
		return nil, err
	}
	return b.state(m.cfg.State)
}

// state returns the state that a Manager saved with the variables under a name, nil for none.
func (b *Bundle) state(name string) ([]byte, error) {
	if _, err := b.ObjectGraph(); err != nil {
		return nil, err
	}
	if _, ok := b.Resolve(name); !ok {
		return nil, nil
	}
	s, err := b.Strings(name)
	if err != nil || len(s) != 1 {
		return nil, err
	}
	return []byte(s[0]), nil
}

// Check returns a *MismatchError if the bundle lacks one of the entries, or has it with another type
// or shape. It reads no values.
func (b *Bundle) Check(want []Entry) error {
	_, err := b.wanted(want, "", "")
	return err
}

// wanted checks the variables in want against the index, and returns their names, or those of their
// averages, in the same order. If want is nil, these are all variables except those of the Manager
// itself: the state, by its name, and the counter.
func (b *Bundle) wanted(want []Entry, state, averages string) ([]string, error) {
	var names []string
	if want == nil {
		g, err := b.ObjectGraph()
		if err != nil {
			return nil, err
		}
		if g == nil {
			for _, e := range b.entries {
				if dtype.DType(e.DType) != dtype.Variant {
					names = append(names, e.Name)
				}
			}
			return names, nil
		}
		for _, v := range g.Variables() {
			if e, ok := b.Entry(v.Key); ok && dtype.DType(e.DType) != dtype.Variant && v.Name != state && v.Name != CounterVariable {
				names = append(names, v.Name)
			}
		}
		return names, nil
	}
	mismatch := &MismatchError{Path: b.prefix}
	for _, w := range want {
		name := w.Name
		if _, ok := b.Resolve(averages + name); ok && averages != "" {
			name = averages + name
		}
		names = append(names, name)
		key, ok := b.Resolve(name)
		if !ok {
			mismatch.Missing = append(mismatch.Missing, w.Name)
			continue
		}
		if e, _ := b.Entry(key); e.DType != w.DType || !slices.Equal(e.Shape, w.Shape) {
			mismatch.Wrong = append(mismatch.Wrong, WrongTensor{w.Name, w, e})
		}
	}
	if mismatch.Missing != nil || mismatch.Wrong != nil {
		return nil, mismatch
	}
	return names, nil
}
