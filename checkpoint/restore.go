package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	tf "github.com/wamuir/graft/tensorflow"
)

// Restore reads the newest whole checkpoint of the folder: the wanted variables,
// or all of them where want is nil. Only names, types and shapes of want are looked at.
//
// Every checksum is verified first. A damaged checkpoint is passed over for the
// one before, with a warning in the log and in Skipped; once a later save is
// durable it is deleted. A whole checkpoint that lacks a wanted variable is a
// [MismatchError] and not passed over. [ErrNoCheckpoint] and [AllDamagedError]
// tell an empty folder from a lost one.
func (m *Manager) Restore(ctx context.Context, want []Entry) (*Restored, error) {
	// A reader may lose a race with the writer's pruning; each time it does, there
	// is a newer checkpoint.
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
		if _, gone := os.Stat(IndexPath(c.Prefix)); errors.Is(gone, fs.ErrNotExist) {
			return nil, true, err
		}
		m.log.Warn("checkpoint is damaged, use the one before", "checkpoint", c.Prefix, "reason", err)
		skipped = append(skipped, Skipped{c, err})
	}
	return nil, false, &AllDamagedError{Dir: m.cfg.Dir, Skipped: skipped}
}

// isDamage tells a checkpoint whose bytes are lost from a system that cannot
// read it now, where falling back would throw steps away.
func isDamage(err error) bool {
	var corrupt *CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO)
}

// RestoreFrom reads a given checkpoint, with every checksum verified and no
// falling back.
func (m *Manager) RestoreFrom(ctx context.Context, c Checkpoint, want []Entry) (*Restored, error) {
	r, err := m.read(ctx, c, want)
	if err != nil {
		return nil, err
	}
	m.restored(r)
	return r, nil
}

// restored takes over what saving goes on from.
func (m *Manager) restored(r *Restored) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counter, m.last = r.SaveCounter, r.Step
	m.folder.Lock()
	defer m.folder.Unlock()
	for _, s := range r.Skipped {
		m.damaged[s.Step] = true
	}
	m.tracked = slices.DeleteFunc(m.tracked, func(c Checkpoint) bool { return m.damaged[c.Step] })
}

func (m *Manager) read(ctx context.Context, c Checkpoint, want []Entry) (*Restored, error) {
	b, err := OpenBundle(c.Prefix, WithIntraOpThreads(m.cfg.IntraOpThreads))
	if err != nil {
		return nil, err
	}
	if err := b.Verify(ctx); err != nil {
		return nil, err
	}
	if _, err := b.ObjectGraph(); err != nil {
		return nil, err
	}
	r := &Restored{Checkpoint: c}
	if _, ok := b.Resolve(StateVariable); ok {
		s, err := b.Strings(StateVariable)
		if err != nil {
			return nil, err
		}
		if len(s) == 1 {
			r.State = []byte(s[0])
		}
	}
	names, err := b.wanted(want)
	if err != nil {
		return nil, err
	}
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
	return r, nil
}

// wanted checks the wanted variables against the index, and returns their names.
// With a nil want these are all variables but those of the Manager itself.
func (b *Bundle) wanted(want []Entry) ([]string, error) {
	var names []string
	if want == nil {
		g, err := b.ObjectGraph()
		if err != nil {
			return nil, err
		}
		if g == nil {
			for _, e := range b.entries {
				if e.DType != variant {
					names = append(names, e.Name)
				}
			}
			return names, nil
		}
		for _, v := range g.Variables() {
			if e, ok := b.Entry(v.Key); ok && e.DType != variant && v.Name != StateVariable && v.Name != CounterVariable {
				names = append(names, v.Name)
			}
		}
		return names, nil
	}
	mismatch := &MismatchError{Path: b.prefix}
	for _, w := range want {
		names = append(names, w.Name)
		key, ok := b.Resolve(w.Name)
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
