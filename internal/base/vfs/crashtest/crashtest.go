// Package crashtest checks that a program survives a crash at any of its file operations:
// when started again, it ends with the same files and no others. Only tests import it.
package crashtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/vfstest"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// Program is the program to crash.
type Program struct {
	// Prepare fills the initial folder; nil leaves it empty.
	Prepare func(dir string) error
	// Run is the program. It works only in the folder, and is always called with the
	// same path.
	Run func(dir string) error
	// Complete reports whether an error of Run means that there is nothing left to do. It
	// is nil if a complete program may run again.
	Complete func(error) bool
	// Same returns the name under which a file is compared, or "" if it is not compared,
	// and the content to compare. Files with the same name are joined in the order of
	// their paths. Nil compares all bytes.
	Same func(path string, data []byte) (name, content string)
	// Wrap restricts the file system that the program sees; nil does not.
	Wrap func(vfs.WorkFS) vfs.WorkFS
	// Phase names the part of the program to which an operation belongs.
	Phase func(operation string) string
}

// phase holds the counts of a part of a program.
type phase struct{ operations, points, disks, failures int }

// Survives crashes a program before each file operation and after the last one: with only
// the process killed, with unsynced bytes lost, and with everything unsynced lost. It also
// makes each operation fail once. It logs the number of each.
func Survives(t *testing.T, p Program) {
	t.Helper()
	dir := filepath.Join(testkit.MemoryDir(t), "work")
	h := &harness{Program: p, t: t, dir: dir, phases: map[string]*phase{}}
	h.reset(nil)
	if err := h.run(vfs.OS{}); err != nil {
		t.Fatalf("the program fails without a crash: %v", err)
	}
	h.want = h.snapshot()
	rec := h.record()
	h.crashes(rec)
	h.failures()
	h.report()
}

type harness struct {
	Program
	t      *testing.T
	dir    string
	want   map[string]string
	phases map[string]*phase
}

// run runs the program on a file system.
func (h *harness) run(f vfs.WorkFS) error {
	if h.Wrap != nil {
		f = h.Wrap(f)
	}
	defer vfs.Mount(h.dir, f)()
	return h.Run(h.dir)
}

// reset fills the folder with the content of a disk, or with that of Prepare.
func (h *harness) reset(disk *vfstest.Memory) {
	h.t.Helper()
	err := errors.Join(os.RemoveAll(h.dir), os.Mkdir(h.dir, 0o777))
	switch {
	case err != nil:
	case disk != nil:
		err = disk.WriteTo(h.dir)
	case h.Prepare != nil:
		err = h.Prepare(h.dir)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// record runs the program on a Recorder.
func (h *harness) record() *vfstest.Recorder {
	h.t.Helper()
	h.reset(nil)
	rec, err := vfstest.NewRecorder(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.run(rec); err != nil {
		h.t.Fatalf("the program fails while it is recorded: %v", err)
	}
	h.compare("recorded")
	return rec
}

// crashes starts the program again after each crash.
func (h *harness) crashes(rec *vfstest.Recorder) {
	h.t.Helper()
	seen := map[string]bool{}
	point := -1
	err := rec.Crashes(func(c vfstest.Crash) error {
		ph := h.phase(c.Next)
		if c.Point != point && c.Next != "" {
			ph.operations++
		}
		point = c.Point
		ph.points++
		key := digest(c.Disk)
		if seen[key] {
			return nil
		}
		seen[key] = true
		ph.disks++
		h.reset(c.Disk)
		h.again(fmt.Sprintf("crash %d before %q, %v", c.Point, c.Next, c.Loss))
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// failures makes each operation fail once, as on a full disk, and starts the program again.
func (h *harness) failures() {
	h.t.Helper()
	for at := 1; ; at++ {
		h.reset(nil)
		f := &vfstest.Failing{WorkFS: vfs.OS{}, At: at, Err: syscall.ENOSPC}
		err := h.run(f)
		if f.Count() < at {
			return
		}
		h.phase("failed operation").failures++
		name := fmt.Sprintf("operation %d fails", at)
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			h.t.Errorf("%s: the program's error does not report it: %v", name, err)
		}
		h.again(name)
	}
}

// again runs the program again and compares.
func (h *harness) again(name string) {
	h.t.Helper()
	if err := h.run(vfs.OS{}); err != nil && (h.Complete == nil || !h.Complete(err)) {
		h.t.Errorf("%s: started again: %v", name, err)
		return
	}
	h.compare(name)
}

func (h *harness) phase(operation string) *phase {
	name := "all"
	if h.Phase != nil && operation != "failed operation" {
		name = h.Phase(operation)
	}
	if operation == "failed operation" {
		name = operation
	}
	if h.phases[name] == nil {
		h.phases[name] = &phase{}
	}
	return h.phases[name]
}

// snapshot returns the files of the folder in the form in which they are compared.
func (h *harness) snapshot() map[string]string {
	h.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == h.dir {
			return err
		}
		rel, err := filepath.Rel(h.dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			out[filepath.ToSlash(rel)+"/"] = "folder"
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, content := filepath.ToSlash(rel), string(data)
		if h.Same != nil {
			name, content = h.Same(name, data)
		}
		if name != "" {
			out[name] += content
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// compare compares the folder with that of an undisturbed program.
func (h *harness) compare(name string) {
	h.t.Helper()
	got := h.snapshot()
	for _, path := range slices.Sorted(maps.Keys(h.want)) {
		text, ok := got[path]
		switch {
		case !ok:
			h.t.Errorf("%s: %s is missing", name, path)
		case text != h.want[path]:
			h.t.Errorf("%s: %s differs: %s; expected %s", name, path, clip(text), clip(h.want[path]))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if _, ok := h.want[path]; !ok {
			h.t.Errorf("%s: %s is left behind", name, path)
		}
	}
}

func clip(s string) string {
	if len(s) > 600 {
		s = s[:600] + "..."
	}
	return fmt.Sprintf("%q", s)
}

// digest returns a string that identifies the content of a disk.
func digest(m *vfstest.Memory) string {
	files := m.Files()
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%q %d ", name, len(files[name]))
		sum.Write(files[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// report logs the counts.
func (h *harness) report() {
	h.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "survived:\n| %-28s | operations | crash points | different disks | failed operations |\n", "phase")
	var all phase
	row := func(name string, p phase) {
		fmt.Fprintf(&b, "| %-28s | %10d | %12d | %15d | %17d |\n", name, p.operations, p.points, p.disks, p.failures)
	}
	for _, name := range slices.Sorted(maps.Keys(h.phases)) {
		p := h.phases[name]
		row(name, *p)
		all.operations += p.operations
		all.points += p.points
		all.disks += p.disks
		all.failures += p.failures
	}
	row("all", all)
	h.t.Log(b.String())
}
