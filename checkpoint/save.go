package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Save starts to write a checkpoint of variables under their paths, with a state of the
// caller that Restore returns, and returns while it is being written. The tensors must be
// copies that nobody writes to, such as those returned by a session. They are released
// and their memory is collected once they are written.
//
// At most one save is in flight: Save waits for the previous one, and returns its error,
// a [SaveError], if it failed. The new save has started in that case, too. The context
// applies only to the wait; a save that has started is finished.
//
// A save of a step that was saved before replaces that checkpoint. A save of an earlier
// step than that of the newest checkpoint is refused, because Restore reads the newest:
// a run that goes back must call [Manager.DiscardAfter] first.
func (m *Manager) Save(ctx context.Context, step int64, tensors []NamedTensor, state []byte, opts ...SaveOption) error {
	var how saveOptions
	for _, opt := range opts {
		opt(&how)
	}
	if m.cfg.ReadOnly {
		return &SaveError{step, m.prefix(step), errors.New("the folder was opened for reading only")}
	}
	if step < 0 {
		return &SaveError{step, m.prefix(step), errors.New("negative step")}
	}
	if err := m.lockIdle(ctx); err != nil {
		return &SaveError{step, m.prefix(step), err}
	}
	defer m.mu.Unlock()
	refuse := func(err error) error {
		return errors.Join(m.takeFailure(), &SaveError{step, m.prefix(step), err})
	}
	if m.closed {
		return refuse(errors.New("the manager is closed"))
	}
	if newest := m.newest(); newest.Step > step {
		return refuse(fmt.Errorf("checkpoint %s is newer", newest.Prefix))
	}
	all, err := m.withState(tensors, state, how.frozen)
	if err != nil {
		return refuse(err)
	}
	changing, frozen, from, err := m.divide(all, how.frozen)
	if err != nil {
		return refuse(err)
	}
	m.counter++
	done := make(chan struct{})
	m.inflight = done
	go func() {
		err := m.write(context.WithoutCancel(ctx), step, changing, frozen, from, how)
		// The binding frees tensors only in finalizers, and the garbage collector does
		// not know their size.
		large := numbers(all) >= collectNumbers
		for _, tensors := range [][]NamedTensor{all, changing, frozen} {
			clear(tensors)
		}
		if large {
			runtime.GC()
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			err = &SaveError{step, m.prefix(step), err}
			m.log.Error("cannot save the checkpoint", "error", err)
			m.failed = errors.Join(m.failed, err)
		}
		m.inflight = nil
		close(done)
	}()
	return m.takeFailure()
}

// collectNumbers is how many numbers the tensors of a checkpoint hold if a collection of garbage is
// worth its time, about 1 MiB of them.
const collectNumbers = 1 << 18

// numbers returns how many numbers tensors hold.
func numbers(tensors []NamedTensor) (sum int64) {
	for _, t := range tensors {
		n, _ := elements(t.Value.Shape())
		sum += n
	}
	return sum
}

// lockIdle waits until no save is in flight, and returns with mu held.
func (m *Manager) lockIdle(ctx context.Context) error {
	for {
		m.mu.Lock()
		flight := m.inflight
		if flight == nil {
			return nil
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the checkpoint in flight: %w", context.Cause(ctx))
		case <-flight:
		}
	}
}

// newest returns the newest checkpoint that is kept by number.
func (m *Manager) newest() Checkpoint {
	m.folder.Lock()
	defer m.folder.Unlock()
	if len(m.tracked) == 0 {
		return Checkpoint{Step: -1}
	}
	return m.tracked[len(m.tracked)-1]
}

// takeFailure returns the error of a background save, once.
func (m *Manager) takeFailure() error {
	err := m.failed
	m.failed = nil
	return err
}

// withState turns variables into bundle entries with their keys, and adds the object
// graph, the state and the counter. The object graph also has the frozen variables that are not
// among the tensors.
func (m *Manager) withState(tensors []NamedTensor, state []byte, frozen []string) ([]NamedTensor, error) {
	stateTensor, err := tf.NewTensor(string(state))
	if err != nil {
		return nil, err
	}
	counter, err := tf.NewTensor(m.counter + 1)
	if err != nil {
		return nil, err
	}
	all := make([]NamedTensor, 0, len(tensors)+3)
	all = append(all, tensors...)
	all = append(all, NamedTensor{m.cfg.State, stateTensor}, NamedTensor{CounterVariable, counter})
	names := make([]string, len(all))
	for i, t := range all {
		if t.Value == nil {
			return nil, fmt.Errorf("variable %q has no value", t.Name)
		}
		names[i] = t.Name
		all[i].Name = VariableKey(t.Name)
	}
	given := make(map[string]bool, len(names))
	for _, name := range names {
		given[name] = true
	}
	for _, name := range frozen {
		if !given[name] {
			names = append(names, name)
		}
	}
	graph, err := BuildObjectGraph(names)
	if err != nil {
		return nil, err
	}
	graphTensor, err := tf.NewTensor(string(graph))
	if err != nil {
		return nil, err
	}
	return append(all, NamedTensor{ObjectGraphKey, graphTensor}), nil
}

// write makes a checkpoint durable, then records it, then prunes. Everything that must
// hold once the checkpoint is visible is on disk before that.
func (m *Manager) write(ctx context.Context, step int64, tensors, frozen []NamedTensor, from *frozenFile, how saveOptions) error {
	temp, final := m.tempPrefix(step), m.prefix(step)
	discard := func() {
		for _, name := range m.filesOf(temp) {
			vfs.Remove(name)
		}
	}
	discard()
	shards, shared := 1, (*frozenFile)(nil)
	err := m.bundle(ctx, temp, tensors, WithIntraOpThreads(m.cfg.IntraOpThreads))
	if err == nil && len(how.frozen) > 0 {
		shards = twoShards
		shared, err = m.addFrozen(temp, frozen, from)
	}
	if err == nil {
		err = whole(Checkpoint{Prefix: temp})
	}
	if err == nil {
		err = m.prepare(step, how)
	}
	if err != nil {
		discard()
		return err
	}
	for shard := shards - 1; shard >= 0; shard-- { // see recover
		from := DataPath(temp, shard, shards)
		if err := vfs.Rename(from, DataPath(final, shard, shards)); err != nil {
			discard()
			return err
		}
		if shard > 0 {
			vfs.Remove(from) // is still there if both are names of one file
		}
	}
	// From here on the data is in place and recover can finish the save from the index,
	// so the index must stay if there is an error.
	if err := vfs.SyncDir(m.cfg.Dir); err != nil {
		return err
	}
	if err := vfs.Rename(IndexPath(temp), IndexPath(final)); err != nil {
		return err
	}
	if err := vfs.SyncDir(m.cfg.Dir); err != nil {
		return err
	}
	for _, name := range m.filesOf(final) {
		// A checkpoint that this one replaced may have had more data files.
		if !slices.Contains([]string{IndexPath(final), DataPath(final, 0, shards), DataPath(final, shards-1, shards)}, name) {
			vfs.Remove(name)
		}
	}
	if shared != nil {
		m.folder.Lock()
		m.frozen = &frozenFile{final, shared.entries}
		m.folder.Unlock()
	}
	if how.protect {
		if err := m.Protect(step); err != nil {
			return err
		}
	}
	return m.record(Checkpoint{Step: step, Prefix: final, Time: m.now()})
}

// record adds a durable checkpoint to the state file and deletes those that are no longer
// kept. It writes the state file before it deletes anything, so that the state file never
// names a deleted checkpoint.
func (m *Manager) record(c Checkpoint) error {
	m.folder.Lock()
	defer m.folder.Unlock()
	delete(m.damaged, c.Step)
	m.tracked = append(slices.DeleteFunc(m.tracked, func(t Checkpoint) bool { return t.Step == c.Step }), c)
	if err := m.sweep(); err != nil {
		return err
	}
	// Damaged checkpoints are worth less than later ones, and every restore would try
	// them first.
	for step := range m.damaged {
		if err := m.delete(Checkpoint{Step: step, Prefix: m.prefix(step)}); err == nil {
			delete(m.damaged, step)
		}
	}
	return nil
}

func (m *Manager) sweep() error {
	var kept []Checkpoint
	gone := m.undeleted
	preserved := m.preserved
	for i, c := range m.tracked {
		switch {
		case m.cfg.MaxToKeep == 0 || i >= len(m.tracked)-m.cfg.MaxToKeep || slices.Contains(m.protected, c.Step):
			kept = append(kept, c)
		case m.cfg.KeepEvery > 0 && !c.Time.Before(preserved.Add(m.cfg.KeepEvery)):
			// Kept for good, but not in the state file, which would grow forever.
			preserved = c.Time
		default:
			gone = append(gone, c)
		}
	}
	m.tracked, m.preserved = kept, preserved
	err := m.announce(gone)
	if err == nil {
		err = m.saveState()
	}
	if err != nil {
		// Nothing is deleted while the state file may still name it.
		m.tracked = slices.Concat(gone[len(m.undeleted):], m.tracked)
		sortBySteps(m.tracked)
		return fmt.Errorf("the checkpoint is saved, but not the state file: %w", err)
	}
	m.undeleted = nil
	for _, c := range gone {
		if err := m.delete(c); err != nil {
			m.log.Warn("cannot delete an old checkpoint; the next save or start deletes it", "checkpoint", c.Prefix, "error", err)
			m.undeleted = append(m.undeleted, c)
		}
	}
	if len(gone) > 0 && len(m.undeleted) == 0 {
		m.withdraw()
	}
	return nil
}

// delete removes a checkpoint, its index first: without an index nobody opens it.
func (m *Manager) delete(c Checkpoint) error {
	if m.frozen != nil && m.frozen.prefix == c.Prefix {
		m.frozen = nil
	}
	if err := vfs.Remove(IndexPath(c.Prefix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	for _, name := range m.filesOf(c.Prefix) {
		if e := vfs.Remove(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	return err
}

// filesOf lists the files in the folder with a prefix, complete or not.
func (m *Manager) filesOf(prefix string) []string {
	list, _ := vfs.ReadDir(m.cfg.Dir)
	var names []string
	for _, f := range list {
		if base, ending := splitFile(f.Name()); ending != "" && base == filepath.Base(prefix) {
			names = append(names, filepath.Join(m.cfg.Dir, f.Name()))
		}
	}
	return names
}

func (m *Manager) saveState() error {
	if len(m.tracked) == 0 {
		err := vfs.Remove(filepath.Join(m.cfg.Dir, StateName))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	state := folderState{preserved: m.preserved}
	for _, c := range m.tracked {
		state.latest = filepath.Base(c.Prefix)
		state.all = append(state.all, state.latest)
		state.times = append(state.times, c.Time)
	}
	return m.replaceFile(StateName, state.text())
}

// replaceFile writes a file of the folder atomically.
func (m *Manager) replaceFile(name string, data []byte) error {
	return vfs.ReplaceFile(filepath.Join(m.cfg.Dir, name), data)
}

// DiscardAfter deletes the checkpoints of later steps than the given one, for a run that
// continues from there.
func (m *Manager) DiscardAfter(step int64) error {
	if m.cfg.ReadOnly {
		return fmt.Errorf("discard checkpoints of %s: the folder was opened for reading only", m.cfg.Dir)
	}
	if err := m.lockIdle(context.Background()); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.folder.Lock()
	defer m.folder.Unlock()
	list, err := m.scan()
	if err != nil {
		return fmt.Errorf("checkpoints: %w", err)
	}
	m.tracked = slices.DeleteFunc(m.tracked, func(c Checkpoint) bool { return c.Step > step })
	if err := m.saveState(); err != nil {
		return fmt.Errorf("discard checkpoints of %s: %w", m.cfg.Dir, err)
	}
	for _, c := range list {
		if c.Step <= step {
			continue
		}
		if err := m.delete(c); err != nil {
			return fmt.Errorf("discard checkpoint %s: %w", c.Prefix, err)
		}
	}
	return nil
}

// Wait waits for the save in flight and returns its error, or an unreported error of an
// earlier save.
func (m *Manager) Wait(ctx context.Context) error {
	if err := m.lockIdle(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	return m.takeFailure()
}

// Close waits for the save in flight, refuses further ones, and returns any unreported
// error.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	return m.Wait(context.Background())
}
