package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

const (
	// StateVariable is the default of ManagerConfig.State, and the name that Gorbit's exporter
	// gives the state in the contract of an export.
	StateVariable = "runner_state"
	// CounterVariable is the int64 that counts saves, as in tf.train.Checkpoint.
	CounterVariable = "save_counter"

	tempPrefix    = ".saving-"
	firstData     = ".data-00000-of-" // begins the ending of a checkpoint's first data file
	protectedName = "protected.json"
)

// ManagerConfig says where checkpoints are and how many are kept.
type ManagerConfig struct {
	Dir  string // created by OpenManager unless ReadOnly
	Name string // checkpoints are called Name-<step>; "" means ckpt
	// State is the name of the scalar string variable that [Manager.Save] writes in addition
	// to the caller's variables: the one that the contract of the graph declares. "" means
	// StateVariable.
	State string

	// MaxToKeep is the maximum number of checkpoints; 0 keeps all. When there are more,
	// the oldest is deleted once a newer one is on disk.
	MaxToKeep int
	// KeepEvery keeps one checkpoint per period for good, of those that would be deleted.
	KeepEvery time.Duration

	// Averages stands before the names of variables in those of their averages. Where a checkpoint
	// has the average of a variable, the value restored is that; "" restores variables themselves.
	Averages string

	// ReadOnly opens the folder only for reading, while another process may write to it.
	ReadOnly bool

	IntraOpThreads int          // see [WithIntraOpThreads]
	Logger         *slog.Logger // nil logs nothing
}

var managerName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// Validate returns an error for the first invalid setting.
func (c ManagerConfig) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("checkpoints: no folder is given")
	case c.Name != "" && !managerName.MatchString(c.Name):
		return fmt.Errorf("checkpoints: name is %q; expected a file name without a slash", c.Name)
	case c.MaxToKeep < 0:
		return fmt.Errorf("checkpoints: number to keep is %d; expected 0 (all) or more", c.MaxToKeep)
	case c.KeepEvery < 0:
		return fmt.Errorf("checkpoints: period to keep one for is %v; expected 0 (off) or more", c.KeepEvery)
	case c.IntraOpThreads < 0:
		return fmt.Errorf("checkpoints: number of threads is %d; expected 0 (TensorFlow's choice) or more", c.IntraOpThreads)
	}
	return nil
}

// Checkpoint is one checkpoint of a folder.
type Checkpoint struct {
	Step   int64
	Prefix string    // path without endings
	Time   time.Time // when it was saved
}

// Skipped is a checkpoint that could not be used, and the reason.
type Skipped struct {
	Checkpoint
	Err error
}

// Restored is the content of a checkpoint.
type Restored struct {
	Checkpoint
	Tensors     map[string]*tf.Tensor
	State       []byte // nil if the checkpoint has none
	SaveCounter int64
	// Averaged is the number of variables whose average was restored, see ManagerConfig.Averages.
	Averaged int
	// Skipped lists newer checkpoints that are damaged, newest first.
	Skipped []Skipped

	frozen *frozenFile
	bundle *Bundle
	later  map[string]string // names in the bundle, by those of the entries that are left for Read
}

// Manager keeps the checkpoints of one folder. One process at a time may write
// (see [Lock]); any number may read. Its methods are safe for concurrent use.
type Manager struct {
	cfg ManagerConfig
	log *slog.Logger
	// bundle writes a checkpoint. It is a field so that tests can stop it halfway.
	bundle func(ctx context.Context, prefix string, tensors []NamedTensor, opts ...Option) error
	now    func() time.Time

	mu       sync.Mutex // never held during disk operations
	counter  int64
	inflight chan struct{}
	failed   error // error of a background save, not yet reported
	closed   bool

	folder    sync.Mutex   // guards the fields below; taken after mu
	tracked   []Checkpoint // kept by number, oldest first
	protected []int64
	unlisted  bool      // whether the file that lists them is damaged
	preserved time.Time // when a checkpoint was last kept for good
	damaged   map[int64]bool
	undeleted []Checkpoint // no longer kept, but not deleted yet
	settled   bool         // whether the state file matches tracked
	frozen    *frozenFile  // that of the last checkpoint restored or saved, if it has one
	unlinked  sync.Once    // says that the file system has no links
}

// OpenManager opens a folder of checkpoints. Unless it is read-only, the leftovers of a
// killed save are finished or removed.
func OpenManager(cfg ManagerConfig) (*Manager, error) {
	return openManager(&Manager{cfg: cfg, bundle: WriteBundle, now: time.Now})
}

// openManager opens a manager whose configuration and dependencies are set.
func openManager(m *Manager) (*Manager, error) {
	if err := m.cfg.Validate(); err != nil {
		return nil, err
	}
	if m.cfg.Name == "" {
		m.cfg.Name = "ckpt"
	}
	m.cfg.State = cmp.Or(m.cfg.State, StateVariable)
	if m.log = m.cfg.Logger; m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.damaged, m.preserved = map[int64]bool{}, m.now()
	cfg := m.cfg
	if cfg.ReadOnly {
		return m, nil
	}
	if err := vfs.MkdirAll(cfg.Dir, 0o755); err != nil {
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

// stepOf returns the step in the name of a checkpoint without its endings.
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

// splitFile splits a file name into the name of its checkpoint and its ending.
func splitFile(name string) (base, ending string) {
	for _, mark := range []string{".index", ".data-"} {
		if i := strings.LastIndex(name, mark); i >= 0 {
			return name[:i], name[i:]
		}
	}
	return name, ""
}

// recover finishes or removes the leftovers of a killed save. A save renames the first data file
// after the second and before the index, so if there is an index under its temporary name and the
// first data file has been renamed, only that rename is missing. The save is then finished if all
// checksums are right.
func (m *Manager) recover() error {
	vfs.RemoveLeftovers(m.cfg.Dir)
	list, err := vfs.ReadDir(m.cfg.Dir)
	if err != nil {
		return err
	}
	has := make(map[string]bool, len(list))
	unmoved := map[string]bool{} // the checkpoints whose first data file has its temporary name
	var names []string
	for _, f := range list {
		has[f.Name()] = true
		names = append(names, f.Name())
		if base, ending := splitFile(f.Name()); strings.HasPrefix(ending, firstData) {
			unmoved[base] = true
		}
	}
	changed := false
	remove := func(name string) error {
		changed = true
		err := vfs.Remove(filepath.Join(m.cfg.Dir, name))
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
		case !ours || f.IsDir():
		case temp && ending == ".index" && !unmoved[tempPrefix+base]:
			path := filepath.Join(m.cfg.Dir, f.Name())
			b, failure := openBundle(path, final)
			if failure == nil {
				failure = b.Verify(context.Background())
			}
			if unread(failure) {
				return failure // it may be whole
			}
			if failure != nil {
				err = remove(f.Name())
				break
			}
			m.log.Info("finishing the checkpoint of a killed save", "checkpoint", final)
			changed = true
			has[base+".index"] = true
			err = vfs.Rename(path, IndexPath(final))
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
	strays, err := m.removeStrays(names)
	if err != nil || !changed && !strays {
		return err
	}
	return vfs.SyncDir(m.cfg.Dir)
}

// load reads the state file and the protected steps. The state file lists the
// checkpoints kept by number. Others are newer, saved just before the process was
// killed, or older and kept for good.
func (m *Manager) load() error {
	onDisk, err := m.scan()
	if err != nil {
		return err
	}
	m.tracked = onDisk
	if data, err := vfs.ReadFile(filepath.Join(m.cfg.Dir, StateName)); err == nil {
		state, err := parseState(data)
		if err != nil {
			m.log.Warn("the checkpoint state file is damaged; using the checkpoints in the folder", "dir", m.cfg.Dir, "error", err)
		} else {
			m.track(state)
			m.settled = slices.EqualFunc(m.tracked, state.all, func(c Checkpoint, path string) bool {
				return filepath.Base(c.Prefix) == filepath.Base(path)
			})
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.loadProtected(); err != nil {
		return err
	}
	return m.prune()
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
	files, err := vfs.ReadDir(m.cfg.Dir)
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

// whole returns an error unless a checkpoint looks complete: its index is valid and its
// data files are long enough.
func whole(c Checkpoint) error {
	b, err := OpenBundle(c.Prefix)
	if err != nil {
		return err
	}
	return b.CheckSizes()
}

// All lists the complete checkpoints of the folder, oldest first. It does not verify the
// checksums of the data.
func (m *Manager) All() ([]Checkpoint, error) {
	list, err := m.scan()
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	var out []Checkpoint
	for _, c := range list {
		switch err := whole(c); {
		case err == nil:
			out = append(out, c)
		case unread(err):
			return nil, fmt.Errorf("checkpoints: %w", err)
		}
	}
	return out, nil
}

// unread reports whether a checkpoint may be complete, but the system cannot read it now.
func unread(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && !isDamage(err)
}

// Latest returns the newest complete checkpoint, or [ErrNoCheckpoint].
func (m *Manager) Latest() (Checkpoint, error) {
	c, _, err := m.LatestOf()
	return c, err
}

// LatestOf returns what Latest does, and the newer checkpoints that are not complete, newest first.
func (m *Manager) LatestOf() (latest Checkpoint, skipped []Skipped, err error) {
	list, err := m.scan()
	if err != nil {
		return Checkpoint{}, nil, fmt.Errorf("checkpoints: %w", err)
	}
	for _, c := range slices.Backward(list) {
		switch err := whole(c); {
		case err == nil:
			return c, skipped, nil
		case unread(err):
			return Checkpoint{}, skipped, fmt.Errorf("checkpoints: %w", err)
		default:
			skipped = append(skipped, Skipped{c, err})
		}
	}
	return Checkpoint{}, skipped, fmt.Errorf("%s: %w", m.cfg.Dir, ErrNoCheckpoint)
}

// Find returns the checkpoint of a step, intact or damaged. If there is none, the error is
// fs.ErrNotExist.
func (m *Manager) Find(step int64) (Checkpoint, error) {
	c := Checkpoint{Step: step, Prefix: m.prefix(step)}
	info, err := vfs.Stat(IndexPath(c.Prefix))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: %w", c.Prefix, err)
	}
	c.Time = info.ModTime()
	return c, nil
}

// Newest returns the newest checkpoint, intact or damaged, or [ErrNoCheckpoint].
func (m *Manager) Newest() (Checkpoint, error) {
	list, err := m.scan()
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoints: %w", err)
	}
	if len(list) == 0 {
		return Checkpoint{}, fmt.Errorf("%s: %w", m.cfg.Dir, ErrNoCheckpoint)
	}
	return list[len(list)-1], nil
}
