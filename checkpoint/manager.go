package checkpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
)

const (
	// StateVariable is the scalar string that [Manager.Save] writes beside the
	// caller's variables.
	StateVariable = "runner_state"
	// CounterVariable is the int64 that counts saves, as tf.train.Checkpoint has it.
	CounterVariable = "save_counter"

	tempPrefix    = ".saving-"
	protectedName = "protected.json"
)

// ManagerConfig says where checkpoints lie and how many are kept.
type ManagerConfig struct {
	Dir  string // made by OpenManager unless ReadOnly
	Name string // checkpoints are called Name-<step>; "" is ckpt

	// MaxToKeep bounds the checkpoints that are kept; 0 keeps all. Beyond it the
	// oldest is deleted once a newer one is on the disk.
	MaxToKeep int
	// KeepEvery keeps for good, of those that would be deleted, one per period.
	KeepEvery time.Duration
	// Interval is the number of steps between checkpoints that [Manager.Due] counts.
	Interval int64

	// ReadOnly opens the folder beside a process that writes to it.
	ReadOnly bool

	IntraOpThreads int          // see [WithIntraOpThreads]
	Logger         *slog.Logger // nil is silent
}

var managerName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// Validate reports a configuration that makes no sense.
func (c ManagerConfig) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("checkpoints: no folder given")
	case c.Name != "" && !managerName.MatchString(c.Name):
		return fmt.Errorf("checkpoints: bad name %q", c.Name)
	case c.MaxToKeep < 0:
		return fmt.Errorf("checkpoints: cannot keep %d", c.MaxToKeep)
	case c.KeepEvery < 0:
		return fmt.Errorf("checkpoints: cannot keep one every %v", c.KeepEvery)
	case c.Interval < 0:
		return fmt.Errorf("checkpoints: bad interval of %d steps", c.Interval)
	case c.IntraOpThreads < 0:
		return fmt.Errorf("checkpoints: bad number of threads %d", c.IntraOpThreads)
	}
	return nil
}

// Checkpoint is one checkpoint of a folder.
type Checkpoint struct {
	Step   int64
	Prefix string    // path without endings
	Time   time.Time // when it was saved
}

// Skipped is a checkpoint that could not be used, and why.
type Skipped struct {
	Checkpoint
	Err error
}

// Restored is what a checkpoint held.
type Restored struct {
	Checkpoint
	Tensors     map[string]*tf.Tensor
	State       []byte // nil where the checkpoint has none
	SaveCounter int64
	// Skipped lists newer checkpoints that are damaged, newest first.
	Skipped []Skipped
}

// Manager keeps the checkpoints of one folder. One process at a time may write
// (see [Lock]); any number may read. Its methods are safe for concurrent use.
type Manager struct {
	cfg   ManagerConfig
	log   *slog.Logger
	files files
	// bundle writes a checkpoint; a field so that tests can stop it halfway.
	bundle func(ctx context.Context, prefix string, tensors []NamedTensor, opts ...Option) error
	now    func() time.Time

	mu        sync.Mutex
	tracked   []Checkpoint // kept by number, oldest first
	protected []int64
	preserved time.Time // when a checkpoint was last kept for good
	damaged   map[int64]bool
	counter   int64
	last      int64 // step of the newest save that was begun, or restored
	inflight  chan struct{}
	failed    error // of a background save, not yet reported
	closed    bool
}

// OpenManager opens a folder of checkpoints. Unless it is opened for reading
// only, whatever a killed save left behind is finished or removed.
func OpenManager(cfg ManagerConfig) (*Manager, error) {
	return openManager(&Manager{cfg: cfg, files: osFiles{}, bundle: WriteBundle, now: time.Now})
}

// openManager opens a manager whose configuration and means are set.
func openManager(m *Manager) (*Manager, error) {
	if err := m.cfg.Validate(); err != nil {
		return nil, err
	}
	if m.cfg.Name == "" {
		m.cfg.Name = "ckpt"
	}
	if m.log = m.cfg.Logger; m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.damaged, m.preserved = map[int64]bool{}, m.now()
	cfg := m.cfg
	if cfg.ReadOnly {
		return m, nil
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	if err := m.recover(); err != nil {
		return nil, fmt.Errorf("checkpoints: clean up %s: %w", cfg.Dir, err)
	}
	if err := m.load(); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	return m, nil
}

// Dir returns the folder.
func (m *Manager) Dir() string { return m.cfg.Dir }

func (m *Manager) prefix(step int64) string {
	return filepath.Join(m.cfg.Dir, fmt.Sprintf("%s-%d", m.cfg.Name, step))
}

func (m *Manager) tempPrefix(step int64) string {
	return filepath.Join(m.cfg.Dir, fmt.Sprintf("%s%s-%d", tempPrefix, m.cfg.Name, step))
}

// stepOf reads the step from the name of a checkpoint, without its endings.
func (m *Manager) stepOf(base string) (int64, bool) {
	digits, ok := strings.CutPrefix(base, m.cfg.Name+"-")
	if !ok {
		return 0, false
	}
	step, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || step < 0 || strconv.FormatInt(step, 10) != digits {
		return 0, false
	}
	return step, true
}

// splitFile cuts a file name into the name of its checkpoint and its ending.
func splitFile(name string) (base, ending string) {
	for _, mark := range []string{".index", ".data-"} {
		if i := strings.LastIndex(name, mark); i >= 0 {
			return name[:i], name[i:]
		}
	}
	return name, ""
}

// recover finishes or removes what a killed save left. The index of a save moves
// last, so an index under its temporary name whose data has moved already
// is a save that needs only that one rename: it is finished if every checksum fits.
func (m *Manager) recover() error {
	list, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return err
	}
	has := make(map[string]bool, len(list))
	for _, f := range list {
		has[f.Name()] = true
	}
	changed := false
	remove := func(name string) error {
		changed = true
		err := m.files.remove(filepath.Join(m.cfg.Dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, f := range list {
		rest, temp := strings.CutPrefix(f.Name(), tempPrefix)
		base, ending := splitFile(rest)
		step, ours := m.stepOf(base)
		final := m.prefix(step)
		switch {
		case temp && (rest == StateName || rest == protectedName):
			err = remove(f.Name())
		case !ours || f.IsDir():
		case temp && ending == ".index" && !has[filepath.Base(DataPath(tempPrefix+base, 0, 1))]:
			path := filepath.Join(m.cfg.Dir, f.Name())
			b, failure := openBundle(path, final)
			if failure == nil {
				failure = b.Verify(context.Background())
			}
			if failure != nil {
				err = remove(f.Name())
				break
			}
			m.log.Info("finish the checkpoint that a killed save left", "checkpoint", final)
			changed = true
			has[base+".index"] = true
			err = m.files.rename(path, IndexPath(final))
		case temp:
			m.log.Info("remove what a killed save left", "file", f.Name())
			err = remove(f.Name())
		}
		if err != nil {
			return err
		}
	}
	for _, f := range list {
		base, ending := splitFile(f.Name())
		if _, ours := m.stepOf(base); ours && !f.IsDir() && strings.HasPrefix(ending, ".data-") && !has[base+".index"] {
			m.log.Info("remove what a killed save left", "file", f.Name())
			if err := remove(f.Name()); err != nil {
				return err
			}
		}
	}
	if !changed {
		return nil
	}
	return m.files.syncDir(m.cfg.Dir)
}

// load reads the state file and the protected steps. The state file tells which
// checkpoints are kept by number; those beyond it are newer, saved just before a
// kill, or older and kept for good.
func (m *Manager) load() error {
	onDisk, err := m.scan()
	if err != nil {
		return err
	}
	m.tracked = onDisk
	if data, err := os.ReadFile(filepath.Join(m.cfg.Dir, StateName)); err == nil {
		state, err := parseState(data)
		if err != nil {
			m.log.Warn("the checkpoint state file is damaged, the folder tells what there is", "dir", m.cfg.Dir, "error", err)
		} else {
			m.track(state)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if data, err := os.ReadFile(filepath.Join(m.cfg.Dir, protectedName)); err == nil {
		if err := json.Unmarshal(data, &m.protected); err != nil {
			m.log.Warn("the list of protected checkpoints is damaged", "dir", m.cfg.Dir, "error", err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (m *Manager) track(state folderState) {
	newest := int64(-1)
	saved := map[int64]time.Time{}
	for i, path := range append(state.all, state.latest) {
		step, ok := m.stepOf(filepath.Base(path))
		if !ok {
			continue
		}
		newest = max(newest, step)
		var at time.Time
		if i < len(state.times) && len(state.times) == len(state.all) {
			at = state.times[i]
		}
		if _, twice := saved[step]; !twice {
			saved[step] = at
		}
	}
	now := m.now()
	if !state.preserved.IsZero() && state.preserved.Before(now) {
		m.preserved = state.preserved
	}
	m.tracked = slices.DeleteFunc(m.tracked, func(c Checkpoint) bool {
		_, ok := saved[c.Step]
		return !ok && c.Step <= newest
	})
	for i, c := range m.tracked {
		if at := saved[c.Step]; !at.IsZero() && at.Before(now) {
			m.tracked[i].Time = at
		}
	}
}

// scan lists the checkpoints whose index is in the folder, oldest first.
func (m *Manager) scan() ([]Checkpoint, error) {
	files, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var list []Checkpoint
	for _, f := range files {
		base, ok := strings.CutSuffix(f.Name(), ".index")
		if !ok || f.IsDir() {
			continue
		}
		step, ok := m.stepOf(base)
		if !ok {
			continue
		}
		c := Checkpoint{Step: step, Prefix: m.prefix(step)}
		if info, err := f.Info(); err == nil {
			c.Time = info.ModTime()
		}
		list = append(list, c)
	}
	sortBySteps(list)
	return list, nil
}

func sortBySteps(list []Checkpoint) {
	slices.SortFunc(list, func(a, b Checkpoint) int { return cmp.Compare(a.Step, b.Step) })
}

// whole reports whether a checkpoint looks complete: its index is sound and its
// data files are long enough.
func whole(c Checkpoint) error {
	b, err := OpenBundle(c.Prefix)
	if err != nil {
		return err
	}
	return b.CheckSizes()
}

// All lists the complete checkpoints of the folder, oldest first. Checksums of
// the data are not read.
func (m *Manager) All() ([]Checkpoint, error) {
	list, err := m.scan()
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	return slices.DeleteFunc(list, func(c Checkpoint) bool { return whole(c) != nil }), nil
}

// Latest returns the newest complete checkpoint, or [ErrNoCheckpoint].
func (m *Manager) Latest() (Checkpoint, error) {
	c, err := m.after(-1)
	if err == nil && c == nil {
		err = fmt.Errorf("%s: %w", m.cfg.Dir, ErrNoCheckpoint)
	}
	if err != nil {
		return Checkpoint{}, err
	}
	return *c, nil
}

// after returns the newest complete checkpoint of a step beyond the given one,
// or nil.
func (m *Manager) after(step int64) (*Checkpoint, error) {
	list, err := m.scan()
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	for _, c := range slices.Backward(list) {
		if c.Step > step && whole(c) == nil {
			return &c, nil
		}
	}
	return nil, nil
}

// WaitForNew waits for a complete checkpoint of a step beyond after, and returns
// the newest. It looks at the folder every poll (a second where that is 0) until
// the context ends. The folder need not exist yet.
func (m *Manager) WaitForNew(ctx context.Context, after int64, poll time.Duration) (Checkpoint, error) {
	if poll <= 0 {
		poll = time.Second
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		c, err := m.after(after)
		if err != nil {
			return Checkpoint{}, err
		}
		if c != nil {
			return *c, nil
		}
		select {
		case <-ctx.Done():
			return Checkpoint{}, fmt.Errorf("wait for a checkpoint after step %d in %s: %w", after, m.cfg.Dir, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

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

// Due reports whether Interval steps have passed since the last save or restore.
func (m *Manager) Due(step int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cfg.Interval > 0 && step >= m.last+m.cfg.Interval
}

// Save begins to write a checkpoint of variables under their paths, with a state
// of the caller's that comes back from Restore, and returns while it is written.
// The tensors must be copies that nobody writes to, such as those that a session
// returned; they are let go, and their memory is collected, when they are written.
//
// At most one save is in flight: Save waits for the one before, and returns its
// error, a [SaveError], if it failed. The new save has begun in that case, too.
// The context bounds the waiting; a save that has begun is finished.
//
// A save of a step that was saved before replaces that checkpoint. One of an
// earlier step than the newest checkpoint is refused, for restoring takes the
// newest: [Manager.DiscardAfter] removes what a run that goes back leaves.
func (m *Manager) Save(ctx context.Context, step int64, tensors []NamedTensor, state []byte) error {
	if m.cfg.ReadOnly {
		return &SaveError{step, m.prefix(step), errors.New("the folder was opened for reading only")}
	}
	if step < 0 {
		return &SaveError{step, m.prefix(step), errors.New("negative step")}
	}
	for {
		m.mu.Lock()
		flight := m.inflight
		if flight == nil {
			break
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return &SaveError{step, m.prefix(step), fmt.Errorf("wait for the save before: %w", context.Cause(ctx))}
		case <-flight:
		}
	}
	defer m.mu.Unlock()
	refuse := func(err error) error {
		return errors.Join(m.takeFailure(), &SaveError{step, m.prefix(step), err})
	}
	if m.closed {
		return refuse(errors.New("the manager is closed"))
	}
	if n := len(m.tracked); n > 0 && m.tracked[n-1].Step > step {
		return refuse(fmt.Errorf("%s is newer", m.tracked[n-1].Prefix))
	}
	all, err := m.withState(tensors, state)
	if err != nil {
		return refuse(err)
	}
	done := make(chan struct{})
	m.inflight, m.last = done, step
	go func() {
		err := m.write(context.WithoutCancel(ctx), step, all)
		// The binding frees tensors by finalizers only, and the collector does not
		// know how large they are.
		clear(all)
		runtime.GC()
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			err = &SaveError{step, m.prefix(step), err}
			m.log.Error("checkpoint was not saved", "error", err)
			m.failed = errors.Join(m.failed, err)
		}
		m.inflight = nil
		close(done)
	}()
	return m.takeFailure()
}

// takeFailure returns the error of a background save, once.
func (m *Manager) takeFailure() error {
	err := m.failed
	m.failed = nil
	return err
}

// withState turns variables into bundle entries: their keys, the object graph,
// the state and the counter. It counts the save.
func (m *Manager) withState(tensors []NamedTensor, state []byte) ([]NamedTensor, error) {
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
	all = append(all, NamedTensor{StateVariable, stateTensor}, NamedTensor{CounterVariable, counter})
	names := make([]string, len(all))
	for i, t := range all {
		if t.Value == nil {
			return nil, fmt.Errorf("variable %q has no value", t.Name)
		}
		names[i] = t.Name
		all[i].Name = VariableKey(t.Name)
	}
	graph, err := BuildObjectGraph(names)
	if err != nil {
		return nil, err
	}
	graphTensor, err := tf.NewTensor(string(graph))
	if err != nil {
		return nil, err
	}
	m.counter++
	return append(all, NamedTensor{ObjectGraphKey, graphTensor}), nil
}

// write makes a checkpoint durable, then records it, then prunes.
func (m *Manager) write(ctx context.Context, step int64, tensors []NamedTensor) error {
	temp, final := m.tempPrefix(step), m.prefix(step)
	discard := func() {
		for _, name := range m.filesOf(temp) {
			m.files.remove(name)
		}
	}
	discard()
	err := m.bundle(ctx, temp, tensors, WithIntraOpThreads(m.cfg.IntraOpThreads))
	if err == nil {
		err = whole(Checkpoint{Prefix: temp})
	}
	if err != nil {
		discard()
		return err
	}
	if err := m.files.rename(DataPath(temp, 0, 1), DataPath(final, 0, 1)); err != nil {
		discard()
		return err
	}
	// From here on the data is in place and recover can finish the save from the
	// index, so an error must leave that where it is.
	if err := m.files.syncDir(m.cfg.Dir); err != nil {
		return err
	}
	if err := m.files.rename(IndexPath(temp), IndexPath(final)); err != nil {
		return err
	}
	if err := m.files.syncDir(m.cfg.Dir); err != nil {
		return err
	}
	for _, name := range m.filesOf(final) {
		// A checkpoint that this one replaced may have had more data files.
		if name != DataPath(final, 0, 1) && name != IndexPath(final) {
			m.files.remove(name)
		}
	}
	return m.record(Checkpoint{Step: step, Prefix: final, Time: m.now()})
}

// record notes a durable checkpoint in the state file and deletes those that are
// no longer kept. The state file is written before anything is deleted, so that
// it never names a checkpoint that is gone.
func (m *Manager) record(c Checkpoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.damaged, c.Step)
	m.tracked = append(slices.DeleteFunc(m.tracked, func(t Checkpoint) bool { return t.Step == c.Step }), c)
	if err := m.sweep(); err != nil {
		return err
	}
	// Damaged checkpoints are worth less than what was saved since, and would be
	// tried first at every restore.
	for step := range m.damaged {
		if err := m.delete(Checkpoint{Step: step, Prefix: m.prefix(step)}); err == nil {
			delete(m.damaged, step)
		}
	}
	return nil
}

func (m *Manager) sweep() error {
	var kept, gone []Checkpoint
	preserved := m.preserved
	for i, c := range m.tracked {
		switch {
		case m.cfg.MaxToKeep == 0 || i >= len(m.tracked)-m.cfg.MaxToKeep || slices.Contains(m.protected, c.Step):
			kept = append(kept, c)
		case m.cfg.KeepEvery > 0 && !c.Time.Before(preserved.Add(m.cfg.KeepEvery)):
			// Kept for good, and out of the state file, which would grow for ever.
			preserved = c.Time
		default:
			gone = append(gone, c)
		}
	}
	m.tracked, m.preserved = kept, preserved
	err := m.saveState()
	if err != nil {
		// Nothing is deleted while the state file may still name it.
		m.tracked = append(gone, m.tracked...)
		sortBySteps(m.tracked)
		return fmt.Errorf("the checkpoint is saved, the state file is not: %w", err)
	}
	for _, c := range gone {
		if err := m.delete(c); err != nil {
			m.log.Warn("an old checkpoint could not be deleted", "checkpoint", c.Prefix, "error", err)
		}
	}
	return nil
}

// delete removes a checkpoint, its index first: without that nobody opens it.
func (m *Manager) delete(c Checkpoint) error {
	if err := m.files.remove(IndexPath(c.Prefix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	for _, name := range m.filesOf(c.Prefix) {
		if e := m.files.remove(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	return err
}

// filesOf lists what lies in the folder under a prefix, whether whole or not.
func (m *Manager) filesOf(prefix string) []string {
	list, _ := os.ReadDir(m.cfg.Dir)
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
		err := m.files.remove(filepath.Join(m.cfg.Dir, StateName))
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

// replaceFile writes a file of the folder in one instant.
func (m *Manager) replaceFile(name string, data []byte) error {
	temp, final := filepath.Join(m.cfg.Dir, tempPrefix+name), filepath.Join(m.cfg.Dir, name)
	err := m.files.write(temp, data)
	if err == nil {
		err = m.files.rename(temp, final)
	}
	if err != nil {
		m.files.remove(temp)
		return err
	}
	return m.files.syncDir(m.cfg.Dir)
}

// Protect keeps the checkpoints of the given steps whatever their number, such as
// the best so far, and gives up those protected before. The list outlives the process.
func (m *Manager) Protect(steps ...int64) error {
	if m.cfg.ReadOnly {
		return fmt.Errorf("protect checkpoints of %s: the folder was opened for reading only", m.cfg.Dir)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	steps = slices.Clone(steps)
	slices.Sort(steps)
	steps = slices.Compact(steps)
	if slices.Equal(steps, m.protected) {
		return nil
	}
	if steps == nil {
		steps = []int64{}
	}
	data, err := json.Marshal(steps)
	if err == nil {
		err = m.replaceFile(protectedName, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("protect checkpoints of %s: %w", m.cfg.Dir, err)
	}
	m.protected = steps
	return nil
}

// Protected lists the protected steps.
func (m *Manager) Protected() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.protected)
}

// DiscardAfter deletes the checkpoints of steps beyond the given one, for a run
// that goes on from there.
func (m *Manager) DiscardAfter(step int64) error {
	if m.cfg.ReadOnly {
		return fmt.Errorf("discard checkpoints of %s: the folder was opened for reading only", m.cfg.Dir)
	}
	if err := m.Wait(context.Background()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
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
	m.last = min(m.last, step)
	return nil
}

// Wait waits for the save in flight and returns its error, or that of one before
// which nobody has seen.
func (m *Manager) Wait(ctx context.Context) error {
	for {
		m.mu.Lock()
		flight := m.inflight
		if flight == nil {
			defer m.mu.Unlock()
			return m.takeFailure()
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a checkpoint to be saved: %w", context.Cause(ctx))
		case <-flight:
		}
	}
}

// Busy reports whether a save is in flight.
func (m *Manager) Busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inflight != nil
}

// Close waits for the save in flight, refuses further ones, and returns an error
// that nobody has seen.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	return m.Wait(context.Background())
}
