package main

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestWheel builds the wheel and installs it into an environment that has nothing else, but reaches the
// TensorFlow of the checkout's. There it runs the programs, the exporter and the package gorbit.
func TestWheel(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	wheel := buildWheel(t, u, "first")
	again, err := os.ReadFile(buildWheel(t, u, "second"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(wheel)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, again) {
		t.Error("two wheels of the same programs differ")
	}
	checkTag(t, wheel)

	e := newEnvironment(t, u, wheel)
	if out, _ := e.command("pip", "check").CombinedOutput(); regexp.MustCompile(`(?m)^gorbit `).Match(out) {
		t.Errorf("pip check says\n%s", out) // of others, too, as of packages that the checkout has without theirs
	}
	if out := e.run("gorbit", "version"); !strings.Contains(out, "TensorFlow 2.") {
		t.Errorf("gorbit version says %q", out)
	}
	n := u.write(40)
	e.run("gorbit", "convert", "--vocab", "vocab.txt", "--train", "reviews.tsv", "--text-column", "text", "--label-column", "label",
		"--labels", "bad,good", "--split-by-hash", "id", "--max-length", "24", "--out", "data")
	e.run("python", "-m", "gorbit_export", "bert-classifier", "--config", "tiny", "--vocab-size", fmt.Sprint(n), "--out", "graph")
	// The programs of a wheel that root installed need not write there.
	readOnly(t, filepath.Join(e.folder, "lib"))
	out := e.run("python", filepath.Join(testkit.Root(), "examples/python/train.py"), "graph", "data", "run")
	for _, want := range []string{
		`(?m)^step 5: accuracy [01]\.\d+$`, `'phase': 'train'`, `'share_of_good': [01]`, `'label': '(good|bad)'`,
		`(?m)^unknown flag: --bach-size; did you mean --batch-size\?.* 2$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the example of Python lacks %s:\n%s", want, out)
		}
	}
	for _, name := range []string{"ckpt-2.index", "ckpt-5.index"} {
		if _, err := os.Stat(filepath.Join(u.dir, "run/checkpoints", name)); err != nil {
			t.Error(err)
		}
	}
	e.run("gorbit", "export", "--run", "run", "--out", "served")
	if answer := e.run("gorbit-predict", "--model", "served", "--text", "good"); !regexp.MustCompile(`^(good|bad) \(\d`).MatchString(answer) {
		t.Errorf("gorbit-predict answers %q", answer)
	}
	e.signalled(t)
	e.beside(t)
	e.missing(t)
}

// buildWheel builds a wheel of the user's programs in a folder of a name, and returns its path.
func buildWheel(t *testing.T, u *user, name string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	cmd := u.command(testkit.Python(t), filepath.Join(testkit.Root(), "tools", "dist_wheel.py"), folder, "--programs", u.bin)
	cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH=1750000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wheels, err := filepath.Glob(filepath.Join(folder, "gorbit-*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("the wheels are %q: %v", wheels, err)
	}
	return wheels[0]
}

// checkTag compares the tag of a wheel with the newest glibc whose symbols its programs take.
func checkTag(t *testing.T, wheel string) {
	t.Helper()
	files, err := zip.OpenReader(wheel)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	newest, programs := 17, 0
	for _, f := range files.File {
		if !strings.HasPrefix(f.Name, "gorbit/bin/") {
			continue
		}
		programs++
		if f.Mode()&0o111 == 0 {
			t.Errorf("%s is no program: its mode is %v", f.Name, f.Mode())
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		program, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := program.ImportedSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			var minor int
			if _, err := fmt.Sscanf(s.Version, "GLIBC_2.%d", &minor); err == nil {
				newest = max(newest, minor)
			}
		}
		if paths, err := program.DynString(elf.DT_RUNPATH); err != nil || !slices.Equal(paths, []string{"$ORIGIN/../../tensorflow"}) {
			t.Errorf("%s looks for libraries in %q: %v", f.Name, paths, err)
		}
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if want := fmt.Sprintf("-py3-none-manylinux_2_%d_%s.whl", newest, machine); programs != 2 || !strings.HasSuffix(wheel, want) {
		t.Errorf("%s of %d programs; expected 2, and a name that ends with %s", filepath.Base(wheel), programs, want)
	}
}

// environment is a virtual environment of Python with gorbit.
type environment struct {
	u      *user
	t      *testing.T
	folder string
}

// newEnvironment installs a wheel into an environment of its own, which finds TensorFlow and what else the
// wheel needs in the checkout's.
func newEnvironment(t *testing.T, u *user, wheel string) *environment {
	t.Helper()
	e := &environment{u: u, t: t, folder: filepath.Join(t.TempDir(), "env")}
	if out, err := testkit.Command(t, testkit.Python(t), "-m", "venv", "--without-pip", e.folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.run("pip", "install", "--no-deps", "--no-index", "--no-compile", wheel)
	if err := os.WriteFile(filepath.Join(e.site(), "checkout.pth"), []byte(e.checkout()+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	return e
}

// site is the folder of the environment's packages.
func (e *environment) site() string {
	e.t.Helper()
	sites, err := filepath.Glob(filepath.Join(e.folder, "lib/python3.*/site-packages"))
	if err != nil || len(sites) != 1 {
		e.t.Fatalf("the environment's packages are in %q: %v", sites, err)
	}
	return sites[0]
}

// checkout is the folder of the packages of the checkout's environment.
func (e *environment) checkout() string {
	e.t.Helper()
	out, err := testkit.Command(e.t, testkit.Python(e.t), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").Output()
	if err != nil {
		e.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// command returns a command of the environment; pip is that of the checkout.
func (e *environment) command(program string, args ...string) *exec.Cmd {
	name := filepath.Join(e.folder, "bin", program)
	if program == "pip" {
		name = testkit.Python(e.t)
		args = append([]string{"-m", "pip", "--disable-pip-version-check", "--python", filepath.Join(e.folder, "bin/python")}, args...)
	}
	cmd := e.u.command(name, args...)
	// The checkout's own packages are not the wheel's.
	cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "PYTHONPATH=") })
	return cmd
}

// run runs a program of the environment to its end, and returns what it wrote to standard output.
func (e *environment) run(program string, args ...string) string {
	e.t.Helper()
	cmd := e.command(program, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		e.t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// signalled checks that a signal and its exit code are those of the program, and not of Python.
func (e *environment) signalled(t *testing.T) {
	t.Helper()
	cmd := e.command("gorbit", "train", "--graph", "graph", "--data", "data", "--run", "stopped", "--steps", "1000000",
		"--batch-size", "8", "--set", "checkpoint.interval=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for { // until the training runs
		if _, err := os.Stat(filepath.Join(e.u.dir, "stopped/checkpoints/ckpt-1.index")); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the training ended before it was stopped: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)); err != nil || !strings.HasSuffix(name, "gorbit/bin/gorbit") {
		t.Errorf("the process runs %q: %v", name, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; cmd.ProcessState.ExitCode() != 75 {
		t.Errorf("a training that was told to stop ends with %v", err)
	}
}

// beside gives the environment a TensorFlow of its own, which the programs find by their own place.
func (e *environment) beside(t *testing.T) {
	t.Helper()
	if err := os.Chmod(e.site(), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(e.site(), "checkout.pth")); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(e.site(), "tensorflow")
	if err := os.Symlink(filepath.Join(e.checkout(), "tensorflow"), own); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"gorbit", "version"}, {"python", "-m", "gorbit", "version"}} {
		if out := e.run(command[0], command[1:]...); !strings.Contains(out, "TensorFlow 2.") {
			t.Errorf("%v says %q", command, out)
		}
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
}

// missing checks what the commands say in an environment without TensorFlow.
func (e *environment) missing(t *testing.T) {
	t.Helper()
	cmd := e.command("gorbit", "version")
	out, err := cmd.CombinedOutput()
	want := `^gorbit: TensorFlow is not installed; expected 2\.18 to 2\.21: run \S+ -m pip install 'tensorflow-cpu==2\.\d+\.\*'\n$`
	if cmd.ProcessState.ExitCode() != 1 || !regexp.MustCompile(want).Match(out) {
		t.Errorf("without TensorFlow: %v\n%s", err, out)
	}
}

// readOnly takes the right to write away from all below a folder, until the test ends.
func readOnly(t *testing.T, folder string) {
	t.Helper()
	chmod := func(mode string) {
		if out, err := testkit.Command(t, "chmod", "-R", mode, folder).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	chmod("a-w")
	t.Cleanup(func() { chmod("u+w") })
}
