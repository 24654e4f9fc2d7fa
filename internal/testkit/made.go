package testkit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Export returns an export of the exporter's BERT classifier. Config is the name of one of the
// exporter's configurations, such as tiny, or a JSON object. Flags are flags of the exporter's
// command line, without --config and --out. Exports are reused; see [Made].
func Export(t testing.TB, config string, flags ...string) string {
	t.Helper()
	args := append([]string{withoutSpaces(t, config)}, flags...)
	return filepath.Join(Made(t, exportScript, args...), "graph")
}

// withoutSpaces returns a configuration in the form that tests share, however each of them indents it.
func withoutSpaces(t testing.TB, config string) string {
	t.Helper()
	if !strings.HasPrefix(config, "{") {
		return config // a name
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(config)); err != nil {
		t.Fatalf("the configuration of an export: %v", err)
	}
	return compact.String()
}

const exportScript = `import pathlib, sys
from gorbit_export.__main__ import main
out, config, *flags = sys.argv[1:]
if config.startswith("{"):
    path = pathlib.Path(out, "config.json")
    path.write_text(config)
    config = str(path)
sys.exit(main(["bert-classifier", "--config", config, "--out", out + "/graph", *flags]))
`

// Made returns a folder with the output of a Python script. The script gets the folder as
// sys.argv[1], followed by the arguments, and may read nothing else except the exporter.
//
// Python and TensorFlow take seconds to start. So the folder is kept in .cache/tests, by a checksum
// of the script, its arguments, the exporter's sources and TensorFlow's version, and reused by all
// tests that ask for the same. Do not change its content.
func Made(t testing.TB, script string, args ...string) string {
	t.Helper()
	kept := filepath.Join(Root(), ".cache", "tests")
	dir := filepath.Join(kept, checksum(t, script, args))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(kept, 0o777); err != nil {
		t.Fatal(err)
	}
	// One test makes the folder. Others that want it, also those of other processes, wait.
	lock, err := os.Create(dir + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	making := dir + ".part"
	if err := os.RemoveAll(making); err != nil { // left by a test that was killed
		t.Fatal(err)
	}
	if err := os.Mkdir(making, 0o777); err != nil {
		t.Fatal(err)
	}
	RunPython(t, script, append([]string{making}, args...)...)
	if err := os.Rename(making, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checksum returns the checksum of everything that determines the output of a script.
func checksum(t testing.TB, script string, args []string) string {
	t.Helper()
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q\n", script, args)
	packages := filepath.Join(Root(), ".venv", "lib", "python*", "site-packages")
	for _, pattern := range []string{"tensorflow*.dist-info", "keras*.dist-info", "numpy*.dist-info"} {
		found, err := filepath.Glob(filepath.Join(packages, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			fmt.Fprintf(sum, "%q\n", filepath.Base(f))
		}
	}
	var sources []string
	for _, pattern := range []string{"*.py", "*/*.py"} {
		found, err := filepath.Glob(filepath.Join(Root(), "tools", "gorbit_export", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("the exporter's sources %s: %v", pattern, err)
		}
		sources = append(sources, found...)
	}
	for _, s := range sources {
		fmt.Fprintf(sum, "%q\n", filepath.Base(s))
		f, err := os.Open(s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:12])
}
