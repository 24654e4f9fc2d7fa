package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestInstalledTreeStandsAlone installs the programs into a root directory that has nothing else
// but the C and C++ libraries: no checkout, no Python, no shell. There it trains, evaluates, exports
// and predicts, and removes what was installed.
func TestInstalledTreeStandsAlone(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	root := t.TempDir()
	for _, dir := range []string{"dev", "proc", "tmp", "work"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := testkit.Command(t, "unshare", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc="+filepath.Join(root, "proc"), "true").CombinedOutput(); err != nil {
		t.Skipf("this system lets nobody make a namespace (unshare): %v %s", err, out)
	}
	out, err := u.command(testkit.Python(t), filepath.Join(testkit.Root(), "tools", "dist.py"), "install",
		filepath.Join(root, "opt"), "--programs", u.bin, "--link").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	library := filepath.Join(root, "opt/lib/gorbit/tensorflow/libtensorflow_cc.so.2")
	for _, file := range []string{filepath.Join(root, "opt/bin/gorbit"), library} {
		copySystemLibraries(t, file, root)
	}
	if err := os.CopyFS(filepath.Join(root, "work/graph"), os.DirFS(exportSmall(t))); err != nil {
		t.Fatal(err)
	}
	work := &user{t: t, dir: filepath.Join(root, "work"), bin: u.bin}
	n := work.write(40)
	vocab, err := os.OpenFile(filepath.Join(work.dir, "vocab.txt"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := n; i < 40; i++ { // as many as the graph has
		fmt.Fprintf(vocab, "[unused%d]\n", i)
	}
	if err := vocab.Close(); err != nil {
		t.Fatal(err)
	}

	script := []string{
		"doctor --json",
		"convert --vocab vocab.txt --train reviews.tsv --text-column text --label-column label --labels bad,good --split-by-hash id --max-length 24 --out data",
		"train --graph graph --data data --run run --steps 2 --batch-size 8 --learning-rate 1e-3 --eval-interval 2 --set eval.steps=1",
		"predict --run run --text the_film_was_good",
		"export --run run --out served",
	}
	for _, line := range script {
		inside(t, root, "/opt/bin/gorbit", strings.Fields(line)...)
	}
	answer := inside(t, root, "/opt/bin/gorbit-predict", "--model", "served", "--text", "good")
	if !regexp.MustCompile(`^(good|bad) \(\d`).MatchString(answer) {
		t.Errorf("gorbit-predict answers %q", answer)
	}
	for _, name := range []string{"share/doc/gorbit/LICENSE", "share/doc/gorbit/tensorflow/THIRD_PARTY_NOTICES.txt",
		"share/doc/gorbit/deploy/with-tf-config.sh", "share/bash-completion/completions/gorbit"} {
		if _, err := os.Stat(filepath.Join(root, "opt", name)); err != nil {
			t.Error(err)
		}
	}
	// What the programs look for lies next to them: no other place could give them a library.
	paths, err := testkit.Command(t, "readelf", "-d", filepath.Join(root, "opt/bin/gorbit")).Output()
	if err == nil && !regexp.MustCompile(`runpath: \[\$ORIGIN/\.\./lib/gorbit/tensorflow\]`).Match(paths) {
		t.Errorf("the installed program looks for libraries elsewhere:\n%s", paths)
	}

	withoutLibrary(t, root, library)

	out, err = u.command(testkit.Python(t), filepath.Join(testkit.Root(), "tools", "dist.py"), "uninstall", filepath.Join(root, "opt")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left := filesBelow(t, filepath.Join(root, "opt")); len(left) > 0 {
		t.Errorf("uninstall left %q", left)
	}
	if out, err = u.command(testkit.Python(t), filepath.Join(testkit.Root(), "tools", "dist.py"), "uninstall", filepath.Join(root, "opt")).CombinedOutput(); err == nil || !strings.Contains(string(out), "gorbit is not installed below") {
		t.Errorf("a second uninstall: %v\n%s", err, out)
	}
}

// withoutLibrary takes TensorFlow's library away for a while. Programs say so when they need it, and
// what needs none works.
func withoutLibrary(t *testing.T, root, library string) {
	t.Helper()
	if err := os.Rename(library, library+".away"); err != nil {
		t.Fatal(err)
	}
	inside(t, root, "/opt/bin/gorbit", "--help")
	cmd := enterRoot(t, root, "/opt/bin/gorbit", "version")
	out, err := cmd.CombinedOutput()
	want := "^gorbit: TensorFlow's library cannot be loaded: libtensorflow_cc.so.2: .*; install the program with its library, or run .*\n$"
	if cmd.ProcessState.ExitCode() != 1 || !regexp.MustCompile(want).Match(out) {
		t.Errorf("without TensorFlow's library: %v\n%s", err, out)
	}
	if err := os.Rename(library+".away", library); err != nil {
		t.Fatal(err)
	}
}

// enter makes a folder the root directory of a program, with the system's devices and processes, as
// in a container.
const enter = `mount --rbind /dev "$1/dev" && exec unshare --root="$1" --wd=/work "${@:2}"`

// enterRoot returns a command that runs a program with a folder as its root directory.
func enterRoot(t *testing.T, root, program string, args ...string) *exec.Cmd {
	cmd := testkit.Command(t, "unshare", append([]string{"--map-root-user", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc=" + filepath.Join(root, "proc"), "bash", "-c", enter, "bash", root, program}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/work", "CUDA_VISIBLE_DEVICES=-1"}
	return cmd
}

// inside runs a program with a folder as its root directory and returns what it wrote to standard
// output.
func inside(t *testing.T, root, program string, args ...string) string {
	t.Helper()
	cmd := enterRoot(t, root, program, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// copySystemLibraries copies what the dynamic linker takes from the system for a program or a library:
// the C and C++ libraries and itself.
func copySystemLibraries(t *testing.T, file, root string) {
	t.Helper()
	out, err := testkit.Command(t, "ldd", file).CombinedOutput()
	if err != nil {
		t.Fatalf("ldd: %v\n%s", err, out)
	}
	for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
		if strings.HasPrefix(m[1], root) || strings.Contains(m[1], "/lib/gorbit/") {
			continue
		}
		if strings.Contains(m[1], "tensorflow") {
			t.Fatalf("the installed program takes %s", m[1])
		}
		content, err := os.ReadFile(m[1])
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(root, m[1])
		if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func filesBelow(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(fmt.Errorf("list %s: %w", dir, err))
	}
	return found
}
