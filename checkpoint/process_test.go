package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

func init() {
	helpers["save"] = helperSave
	helpers["limited"] = helperLimited
	helpers["lock"] = helperLock
}

// helper starts this test binary as one of the helpers.
func helper(t testing.TB, name, dir string) (*exec.Cmd, io.ReadCloser) {
	t.Helper()
	cmd := testkit.Command(t, os.Args[0])
	cmd.Env = append(os.Environ(), "GORBIT_TEST_HELPER="+name, "GORBIT_TEST_DIR="+dir, "TF_CPP_MIN_LOG_LEVEL=3")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

func helperFatal(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// helperSave continues from the newest checkpoint, and saves every step until it is killed.
func helperSave() {
	m, err := OpenManager(ManagerConfig{Dir: os.Getenv("GORBIT_TEST_DIR"), MaxToKeep: 2})
	helperFatal(err)
	step := int64(0)
	if r, err := m.Restore(background, nil); err == nil {
		step = r.Step
	} else if !errors.Is(err, ErrNoCheckpoint) {
		helperFatal(err)
	}
	for step++; ; step++ {
		values, err := model(step)
		helperFatal(err)
		helperFatal(m.Save(background, step, values, fmt.Appendf(nil, "state of %d", step)))
		if step%3 != 0 {
			continue // two saves in a row, the second while the first is written
		}
		helperFatal(m.Wait(background))
		fmt.Println(step)
	}
}

// A process killed at any moment leaves a whole newest checkpoint, no older than
// what it knew to be durable.
func TestKilledWhileSaving(t *testing.T) {
	dir := t.TempDir()
	restored := int64(0)
	for round := range 5 {
		cmd, out := helper(t, "save", dir)
		lines := bufio.NewScanner(out)
		durable := restored
		if lines.Scan() {
			// Some time between the first durable save and a few saves later.
			go func() {
				time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond)
				cmd.Process.Kill()
			}()
			for ok := true; ok; ok = lines.Scan() {
				step, err := strconv.ParseInt(lines.Text(), 10, 64)
				if err != nil {
					t.Errorf("round %d: %s", round, lines.Text())
					break
				}
				durable = step
			}
		}
		err := cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
			t.Fatalf("round %d: the helper ended by itself: %v", round, err)
		}
		m := openTest(t, ManagerConfig{Dir: dir, MaxToKeep: 2})
		r, err := m.Restore(background, nil)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if r.Step < durable || r.Step <= restored || len(r.Skipped) > 0 {
			t.Errorf("round %d: restored %d, durable was %d, skipped %v", round, r.Step, durable, r.Skipped)
		}
		checkModel(t, r)
		for _, name := range fileNames(t, dir) {
			if strings.HasPrefix(name, tempPrefix) {
				t.Errorf("round %d: %s is left", round, name)
			}
		}
		restored = r.Step
	}
}

// large is more than fits where a disk is full.
func large(size int) ([]NamedTensor, error) {
	x, err := newFloats(size / 4)
	return []NamedTensor{{"model/large", x}}, err
}

// saveUntilFull saves a small checkpoint, then one that does not fit, then a
// small one again, and says what happened.
func saveUntilFull(dir string) error {
	m, err := OpenManager(ManagerConfig{Dir: dir})
	if err != nil {
		return err
	}
	small := func(step int64) error {
		values, err := model(step)
		if err != nil {
			return err
		}
		if err := m.Save(background, step, values, fmt.Appendf(nil, "state of %d", step)); err != nil {
			return err
		}
		return m.Wait(background)
	}
	if err := small(1); err != nil {
		return err
	}
	values, err := large(1 << 20)
	if err != nil {
		return err
	}
	if err := m.Save(background, 2, values, nil); err != nil {
		return err
	}
	err = m.Wait(background)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("a save that does not fit gave %v", err)
	}
	if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "ckpt-2") {
		return fmt.Errorf("not one clear sentence: %v", err)
	}
	if failed := new(SaveError); !errors.As(err, &failed) || failed.Step != 2 {
		return fmt.Errorf("not a SaveError of step 2: %v", err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Name())
	}
	if want := filesFor(1); !slices.Equal(names, want) {
		return fmt.Errorf("files %q, want %q", names, want)
	}
	return small(3)
}

func checkFull(t *testing.T, dir string) {
	t.Helper()
	m := openTest(t, ManagerConfig{Dir: dir})
	r, err := m.Restore(background, nil)
	if err != nil || r.Step != 3 {
		t.Fatalf("restored %+v, error %v", r, err)
	}
	checkModel(t, r)
	r, err = m.RestoreFrom(background, Checkpoint{1, m.prefix(1), time.Time{}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, r)
}

func helperLimited() {
	// The signal's default action would end the process; as on a full disk, the
	// write itself is to fail.
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 128 << 10, Max: 128 << 10}
	helperFatal(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	helperFatal(saveUntilFull(os.Getenv("GORBIT_TEST_DIR")))
	fmt.Println("done")
}

// A process that may not write large files.
func TestFileTooLarge(t *testing.T) {
	dir := t.TempDir()
	cmd, out := helper(t, "limited", dir)
	said, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil || string(said) != "done\n" {
		t.Fatalf("%v: %s", err, said)
	}
	checkFull(t, dir)
}

// A disk that is really full.
func TestDiskFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	if err := saveUntilFull(dir); err != nil {
		t.Fatal(err)
	}
	checkFull(t, dir)
}

func helperLock() {
	_, err := Lock(os.Getenv("GORBIT_TEST_DIR"))
	helperFatal(err)
	fmt.Println("locked")
	time.Sleep(time.Hour)
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	var locked *LockedError
	if _, err := Lock(dir); !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Host != host || locked.Since.IsZero() || locked.Dir != dir {
		t.Errorf("the second lock: %v", err)
	} else if s := err.Error(); !strings.Contains(s, dir) || !strings.Contains(s, fmt.Sprint(os.Getpid())) || !strings.Contains(s, host) {
		t.Errorf("the error names no holder: %v", err)
	}
	if h, err := Holder(dir); err != nil || h == nil || h.PID != os.Getpid() {
		t.Errorf("the holder of a locked folder is %v, %v; expected this process", h, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if h, err := Holder(dir); err != nil || h != nil {
		t.Errorf("the holder of a folder that was unlocked is %v, %v; expected none", h, err)
	}

	cmd, out := helper(t, "lock", dir)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("helper: %q, %v", line, err)
	}
	if _, err := Lock(dir); !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Errorf("locked by a process: %v", err)
	}
	// A holder that does not say who it is still holds.
	writeFile(t, filepath.Join(dir, LockName), nil)
	if _, err := Lock(dir); !errors.As(err, &locked) || locked.PID != 0 || !strings.Contains(err.Error(), "another process") {
		t.Errorf("locked by nobody known: %v", err)
	}
	if h, err := Holder(dir); err != nil || h == nil || h.PID != 0 {
		t.Errorf("the holder is %v, %v; expected one of no known number", h, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if h, err := Holder(dir); err != nil || h != nil {
		t.Errorf("the holder of a folder whose process ended is %v, %v; expected none", h, err)
	}
	unlock, err = Lock(dir)
	if err != nil {
		t.Fatalf("the lock outlived its process: %v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
	if _, err := Lock(filepath.Join(dir, "none")); err == nil || errors.As(err, new(*LockedError)) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
