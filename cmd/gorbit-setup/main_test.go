package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// elsewhere gives a test Go's settings of its own, without those of the environment.
func elsewhere(t *testing.T) {
	t.Helper()
	for _, name := range []string{"CGO_CFLAGS", "CGO_LDFLAGS", "CGO_ENABLED"} {
		t.Setenv(name, "")
	}
	t.Setenv("GOENV", filepath.Join(t.TempDir(), "env"))
}

// setUp runs gorbit-setup and returns what it printed.
func setUp(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("gorbit-setup %q: %v\n%s", args, err, &out)
	}
	return out.String()
}

// wrong runs gorbit-setup and wants an error.
func wrong(t *testing.T, class fault.Class, want string, args ...string) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), args, &out)
	if err == nil || fault.Of(err) != class || !regexp.MustCompile("^(?:"+want+")$").MatchString(err.Error()) {
		t.Errorf("gorbit-setup %q: %v, of class %v; expected %s, of class %v\n%s", args, err, fault.Of(err), want, class, &out)
	}
}

// madeUp is a wheel of a TensorFlow that has one function only.
type madeUp struct {
	version  string // that the library reports
	release  string // of the wheel's name
	needs    string // a version of the C library
	source   string // of further functions
	damaged  bool
	unlisted bool
}

// wheel makes the file.
func (m madeUp) wheel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	compile := func(name, source string, args ...string) []byte {
		t.Helper()
		file := filepath.Join(dir, name)
		cc := testkit.Command(t, cmp.Or(os.Getenv("CC"), "cc"), slices.Concat([]string{"-x", "c", "-shared", "-fPIC", "-o", file, "-Wl,-soname," + name, "-"}, args)...)
		cc.Stdin = strings.NewReader(source)
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	source, args := m.source, []string(nil)
	if m.needs != "" {
		versions := filepath.Join(dir, "versions")
		if err := os.WriteFile(versions, []byte(m.needs+" { later; };\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		// A C library of the future, to link with.
		compile("libc.so.6", "int later(void) { return 1; }", "-nostdlib", "-Wl,--version-script="+versions)
		source, args = source+"int later(void); int now(void) { return later(); }", []string{"-x", "none", filepath.Join(dir, "libc.so.6")}
	}
	files := map[string][]byte{
		libraries[0]: compile("libtensorflow_cc.so.2", fmt.Sprintf("%s\nconst char* TF_Version(void) { return %q; }", source, m.version), args...),
		libraries[1]: compile("libtensorflow_framework.so.2", "void TF_Other(void) {}"),
	}
	for _, name := range headers {
		files["tensorflow/include/"+name] = []byte("#include \"tensorflow/c/inner/version.h\"\n")
	}
	files["tensorflow/include/tensorflow/c/inner/version.h"] = []byte("const char* TF_Version(void);\n")
	files["tensorflow/include/tensorflow/core/other.h"] = []byte("not wanted\n")
	files["tensorflow.libs/libother.so.5"] = []byte("a library of others")
	record := "tensorflow/__init__.py,,\n"
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256(files[name])
		record += fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
	}
	if !m.unlisted {
		files["tensorflow_cpu-"+m.release+".dist-info/RECORD"] = []byte(record)
	}
	files["tensorflow_other-1.0.dist-info/RECORD"] = []byte("tensorflow_other/__init__.py,,\n")
	if m.damaged {
		files[libraries[1]][1000]++
	}
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "tensorflow_cpu.whl")
	if err := os.WriteFile(file, out.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// goEnv returns one of Go's settings.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := testkit.Command(t, "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestSettings takes the TensorFlow of a Python, changes Go's settings, beside what the user has there,
// takes another TensorFlow in its place, and undoes it.
func TestSettings(t *testing.T) {
	elsewhere(t)
	folder := filepath.Join(t.TempDir(), "a folder")
	if err := exec.Command("go", "env", "-w", `CGO_CFLAGS=-O1 "-DMINE=a b"`).Run(); err != nil {
		t.Fatal(err)
	}
	out := setUp(t, "--python", testkit.Python(t), "--folder", folder)
	if !regexp.MustCompile(`^TensorFlow 2\.\d+\.\d+ of /.*/tensorflow works\ngo env now says\n  CGO_CFLAGS=-O1 '-DMINE=a b' '-I`).MatchString(out) {
		t.Errorf("it said\n%s", out)
	}
	first := goEnv(t, "CGO_LDFLAGS")
	if want := "-O2 -g '-L" + folder + "/2."; !strings.HasPrefix(first, want) || !strings.HasSuffix(first, "/site-packages/tensorflow") {
		t.Errorf("CGO_LDFLAGS are %s; expected %s... and the library's folder", first, want)
	}
	if again := setUp(t, "--python", testkit.Python(t), "--folder", folder); again != out {
		t.Errorf("the second time it said\n%s; expected\n%s", again, out)
	}
	file := madeUp{version: "2.20.0", release: "2.20.0"}.wheel(t)
	setUp(t, "--wheel", file, "--folder", folder)
	found, err := filepath.Glob(filepath.Join(folder, "2.20.0-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q, %v", found, err)
	}
	for name, want := range map[string]string{
		"CGO_CFLAGS":  `-O1 '-DMINE=a b' '-I` + found[0] + `/include'`,
		"CGO_LDFLAGS": fmt.Sprintf("-O2 -g '-L%s/lib' %s '-Wl,-rpath,%[1]s/lib'", found[0], beside),
	} {
		if got := goEnv(t, name); got != want {
			t.Errorf("%s is\n%s; expected\n%s", name, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(found[0], "include/tensorflow/core/other.h")); err == nil {
		t.Error("a header that nothing includes was kept")
	}
	if text, err := os.ReadFile(filepath.Join(found[0], "tensorflow.libs/libother.so.5")); err != nil || len(text) == 0 {
		t.Errorf("what the library needs of others is not beside it: %v", err)
	}
	before := goEnv(t, "CGO_LDFLAGS")
	t.Setenv("CGO_LDFLAGS", "-lother")
	wrong(t, fault.Usage, `CGO_LDFLAGS is set to "-lother" in the environment, which hides Go's settings; unset it, .*`, "--undo")
	t.Setenv("CGO_LDFLAGS", "")
	if after := goEnv(t, "CGO_LDFLAGS"); after != before {
		t.Errorf("an --undo that was refused changed CGO_LDFLAGS from %s to %s", before, after)
	}
	setUp(t, "--undo")
	if c, ld := goEnv(t, "CGO_CFLAGS"), goEnv(t, "CGO_LDFLAGS"); c != `-O1 '-DMINE=a b'` || ld != defaultFlags {
		t.Errorf("after --undo, CGO_CFLAGS are %s and CGO_LDFLAGS %s", c, ld)
	}
	setUp(t, "--undo")
}

// TestPrint prints commands of a shell that are those of Go's settings.
func TestPrint(t *testing.T) {
	elsewhere(t)
	t.Setenv("CGO_CFLAGS", "-O3 -DA='b'") // of the environment, which counts
	folder := filepath.Join(t.TempDir(), "it's")
	out := setUp(t, "--print", "--wheel", madeUp{version: "2.18.9", release: "2.18.9"}.wheel(t), "--folder", folder)
	cmd := testkit.Command(t, "bash", "-c", out+`printf '%s\n' "$CGO_CFLAGS" "$CGO_LDFLAGS"`)
	said, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(said), "\n")
	for i, want := range []string{`-O3 "-DA='b'" "-I` + folder + `/2.18.9-`, `-O2 -g "-L` + folder + `/2.18.9-`} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("%s; expected %s...", lines[i], want)
		}
	}
	if text, err := os.ReadFile(os.Getenv("GOENV")); err == nil {
		t.Errorf("Go's settings have %s", text)
	}
}

// TestFetch fetches a wheel with a pip that stands in for the real one, and fetches none the next time.
func TestFetch(t *testing.T) {
	elsewhere(t)
	file := madeUp{version: "2.18.1", release: "2.18.1"}.wheel(t)
	sum, err := checksum(file)
	if err != nil {
		t.Fatal(err)
	}
	before := wheels[runtime.GOARCH]
	t.Cleanup(func() { wheels[runtime.GOARCH] = before })
	known := before
	known.sha256 = sum
	wheels[runtime.GOARCH] = known
	programs := t.TempDir()
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	pip := func(script string) {
		if err := os.WriteFile(filepath.Join(programs, "python3"), []byte("#!/bin/bash\n"+script), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	folder := t.TempDir()
	pip(`echo "ERROR: Could not find a version" >&2; exit 1`)
	wrong(t, fault.Failed, `pip cannot fetch tensorflow\S* 2\.18\.1: ERROR: Could not find a version; check the network and pip's index, or fetch the wheel .*`, "--folder", folder)
	pip(`echo "/usr/bin/python3: No module named pip" >&2; exit 1`)
	wrong(t, fault.Failed, `there is no pip to fetch TensorFlow with; install Python and pip .*`, "--folder", folder)
	const argument = `$(printf '%%s\n' "$@" | sed -n 's/^--%s=//p')`
	into := fmt.Sprintf(argument, "dest")
	pip(fmt.Sprintf(`[ "$(cat "%s")" = "%s==%s --hash=sha256:%s" ] && cp '%s' "%s"`,
		fmt.Sprintf(argument, "requirement"), known.project, known.release, sum, file, into))
	if out := setUp(t, "--folder", folder); !strings.HasPrefix(out, "fetching "+known.project+" 2.18.1 with pip") {
		t.Errorf("it said\n%s", out)
	}
	pip("exit 1")
	if out := setUp(t, "--folder", folder); strings.Contains(out, "fetching") {
		t.Errorf("the second time it said\n%s", out)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v; expected one folder and a lock", entries, err)
	}
	other := madeUp{version: "2.18.2", release: "2.18.2"}.wheel(t)
	pip(fmt.Sprintf(`cp '%s' "%s"`, other, into))
	wrong(t, fault.Damaged, `pip fetched tensorflow_cpu\.whl, whose SHA-256 checksum is \w+; expected `+sum, "--folder", t.TempDir())
}

// TestWrong holds what gorbit-setup says where something is missing or does not fit.
func TestWrong(t *testing.T) {
	elsewhere(t)
	folder := t.TempDir()
	good := madeUp{version: "2.18.1", release: "2.18.1"}.wheel(t)
	text := filepath.Join(t.TempDir(), "text.whl")
	if err := os.WriteFile(text, []byte("no zip"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		file  string
		class fault.Class
		want  string
	}{
		{"older", madeUp{version: "2.17.1", release: "2.17.1"}.wheel(t), fault.Usage, `/.* is TensorFlow 2\.17\.1; expected 2\.18 to 2\.21`},
		{"newer", madeUp{version: "3.0.0", release: "3.0.0"}.wheel(t), fault.Usage, `/.* is TensorFlow 3\.0\.0; expected 2\.18 to 2\.21`},
		{"another than it says", madeUp{version: "2.17.1", release: "2.18.1"}.wheel(t), fault.Usage, `/.*/lib is TensorFlow 2\.17\.1; expected 2\.18 to 2\.21`},
		{"old C library", madeUp{version: "2.18.1", release: "2.18.1", needs: "GLIBC_9.99"}.wheel(t), fault.Failed,
			`the C library of this machine is too old for TensorFlow in /.*/lib, which needs GLIBC_9\.99; expected a newer Linux, or an older release of TensorFlow \(--python, --wheel\)`},
		{"damaged", madeUp{version: "2.18.1", release: "2.18.1", damaged: true}.wheel(t), fault.Damaged,
			`/.*\.whl: tensorflow/libtensorflow_framework\.so\.2 is damaged: its SHA-256 checksum is \w{64}; expected \w{64}, as the wheel says; fetch or install it again`},
		{"no list", madeUp{version: "2.18.1", release: "2.18.1", unlisted: true}.wheel(t), fault.Damaged, `/.*\.whl: no list of files .* names tensorflow/libtensorflow_cc\.so\.2; expected what pip installs .*`},
		{"no wheel", text, fault.Damaged, `/.*text\.whl: zip: not a valid zip file; expected a wheel of TensorFlow, such as .*`},
		{"no file", text + "x", fault.Failed, `open /.*text\.whlx: no such file or directory`},
	} {
		t.Run(tt.name, func(t *testing.T) { wrong(t, tt.class, tt.want, "--wheel", tt.file, "--folder", folder) })
	}
	wrong(t, fault.Usage, `--python /no/python: .*no such file or directory; expected an interpreter of Python 3`, "--python", "/no/python", "--folder", folder)
	wrong(t, fault.Usage, `/bin/true has no TensorFlow; install it there with pip install 'tensorflow-cpu==2\.18\.\*', or leave --python out, so that it is fetched`, "--python", "/bin/true", "--folder", folder)
	wrong(t, fault.Usage, `--python and --wheel were both given; expected one of them`, "--python", "a", "--wheel", "b")
	wrong(t, fault.Usage, `unexpected argument "a"; .*`, "a")
	wrong(t, fault.Usage, `flag provided but not defined: -b .*`, "--b")
	for _, tt := range []struct {
		name, variable, value string
		class                 fault.Class
		want                  string
	}{
		{"hidden flags", "CGO_CFLAGS", "-O1", fault.Usage, `CGO_CFLAGS is set to "-O1" in the environment, which hides Go's settings; unset it, or take the output of gorbit-setup --print`},
		{"no settings", "GOENV", "off", fault.Usage, `GOENV is off, so that Go keeps no settings; .*`},
		{"no compiler", "CC", "no-such-cc", fault.Failed, `there is no C compiler no-such-cc; install gcc \(Debian, Ubuntu: apt-get install gcc libc6-dev\), or name another with go env -w CC=clang`},
		{"a compiler that fails", "CC", "false", fault.Failed, `the C compiler false does not work: exit status 1; install gcc .*`},
		{"no Go", "PATH", t.TempDir(), fault.Failed, `the go command is not on PATH; install Go .*`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(tt.variable, tt.value)
			wrong(t, tt.class, tt.want, "--wheel", good, "--folder", folder)
		})
	}
}

// TestLacking runs a program with a library that lacks a function which that of its set-up had: what needs
// it is told so when it calls it, and not before.
func TestLacking(t *testing.T) {
	elsewhere(t)
	folder, other, dir := t.TempDir(), t.TempDir(), t.TempDir()
	whole := madeUp{version: "2.18.1", release: "2.18.1", source: "int TF_More(void) { return 7; }"}.wheel(t)
	settings := setUp(t, "--print", "--wheel", whole, "--folder", folder)
	setUp(t, "--print", "--wheel", madeUp{version: "2.20.0", release: "2.20.0"}.wheel(t), "--folder", other)
	program := filepath.Join(dir, "calls")
	source := `#include <stdio.h>
const char* TF_Version(void);
int TF_More(void);
int main(int n, char** args) { puts(TF_Version()); fflush(stdout); return n > 1 ? TF_More() : 0; }
`
	link := settings + fmt.Sprintf(`echo "$0" | eval "${CC:-cc} -x c -o %s - -x none $CGO_LDFLAGS -ltensorflow -ldl -lpthread"`, program)
	if out, err := testkit.Command(t, "bash", "-ec", link, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	libraries, err := filepath.Glob(filepath.Join(other, "2.20.0-*", "lib"))
	if err != nil || len(libraries) != 1 {
		t.Fatalf("%q, %v", libraries, err)
	}
	lacks := "2.20.0\ncalls: TensorFlow 2.20.0 in " + libraries[0] + "/libtensorflow_cc.so.2 lacks the function TF_More, which this command calls; " +
		"expected TensorFlow 2.18 to 2.21: set GORBIT_TENSORFLOW to the folder of such a library, or run gorbit-setup (in a checkout, make setup)\n"
	for _, tt := range []struct {
		library string
		args    []string
		code    int
		want    string
	}{
		{"", []string{"more"}, 7, "2.18.1\n"},
		{libraries[0], nil, 0, "2.20.0\n"},
		{libraries[0], []string{"more"}, 1, lacks},
		{dir, nil, 1, "calls: TensorFlow's library cannot be loaded: " + dir + "/libtensorflow_cc.so.2: cannot open shared object file: No such file or directory; " +
			"install the program with its library, or run gorbit-setup (in a checkout, make setup)\n"},
	} {
		cmd := testkit.Command(t, program, tt.args...)
		cmd.Env = append(cmd.Environ(), "GORBIT_TENSORFLOW="+tt.library, "LD_LIBRARY_PATH=", "LC_ALL=C")
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.code || string(out) != tt.want {
			t.Errorf("%q with %q ends with %d and\n%s; expected %d and\n%s", tt.args, tt.library, code, out, tt.code, tt.want)
		}
	}
}

// TestCross builds for the other processor, and runs what it built with the program that go run would take.
func TestCross(t *testing.T) {
	elsewhere(t)
	target := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	name := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[target]
	t.Setenv("GOARCH", target)
	t.Setenv("CC", name+"-linux-gnu-gcc")
	t.Setenv("AR", name+"-linux-gnu-ar")
	t.Setenv("CGO_ENABLED", "1") // which is off in builds for another processor
	if _, err := exec.LookPath(os.Getenv("CC")); err != nil {
		t.Skipf("no compiler for %s: %v", target, err)
	}
	emulator, err := exec.LookPath("qemu-" + name + "-static")
	if err != nil {
		t.Skipf("no emulator of %s: %v", target, err)
	}
	programs := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec %s -L /usr/%s-linux-gnu \"$@\"\n", emulator, name)
	if err := os.WriteFile(filepath.Join(programs, "go_linux_"+target+"_exec"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", programs+":"+path)
	file := madeUp{version: "2.19.7", release: "2.19.7"}.wheel(t)
	folder := t.TempDir()
	if out := setUp(t, "--print", "--wheel", file, "--folder", folder); !strings.HasPrefix(out, "export CGO_CFLAGS=") {
		t.Errorf("it said\n%s", out)
	}
	wrong(t, fault.Usage, `Go builds for `+target+` on this machine's \w+, and its settings hold for both; take the output of gorbit-setup --print`, "--wheel", file, "--folder", folder)
	t.Setenv("PATH", path)
	wrong(t, fault.Failed, `TensorFlow in /.* does not work: .*go_linux_`+target+`_exec.*`, "--print", "--wheel", file, "--folder", folder)
	t.Setenv("GOARCH", runtime.GOARCH)
	t.Setenv("CC", "")
	t.Setenv("AR", "")
	wrong(t, fault.Usage, `/.*/libtensorflow_cc\.so\.2 is for EM_\w+; expected a library for EM_\w+, which Go builds for`, "--wheel", file, "--folder", folder)
	t.Setenv("GOARCH", "riscv64")
	wrong(t, fault.Failed, `programs are built for linux on riscv64; expected Linux on amd64 or arm64, for which there is a TensorFlow`, "--print")
}

// FuzzFlags holds that flags are read as they were written, whatever they are.
func FuzzFlags(f *testing.F) {
	f.Add(`-O2 '-I/a b'  "-DC='d'"`)
	f.Add(`a'b "`)
	f.Fuzz(func(t *testing.T, text string) {
		flags, err := split(text)
		if err != nil {
			return
		}
		joined, err := join(flags)
		if err != nil {
			return // both kinds of quotation marks
		}
		if again, err := split(joined); err != nil || !slices.Equal(again, flags) {
			t.Errorf("%q is %q, written as %q and read as %q, %v", text, flags, joined, again, err)
		}
	})
}
