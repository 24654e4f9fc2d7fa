package testkit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Export returns an export of the exporter's BERT classifier. Config is one of the exporter's by
// name, such as tiny, or a JSON object; flags are those of the exporter's command line less
// --config and --out. What was exported once is used again, see [Made].
func Export(t testing.TB, config string, flags ...string) string {
	t.Helper()
	return filepath.Join(Made(t, exportScript, append([]string{config}, flags...)...), "graph")
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

// Made returns a folder of what a Python script makes. The script finds the folder in sys.argv[1]
// and the arguments behind it, and reads nothing else but the exporter.
//
// Python and TensorFlow take seconds to start, so the folder is kept in .cache/tests, by a checksum
// of the script, its arguments, the exporter's sources and TensorFlow's version, and used again by
// every test that asks for the same: do not change what is in it.
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
	making, err := os.MkdirTemp(kept, "making-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(making)
	RunPython(t, script, append([]string{making}, args...)...)
	// Another test may have made the same meanwhile.
	if err := os.Rename(making, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return dir
}

// checksum returns the checksum of all that decides what a script makes.
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
	sources, err := filepath.Glob(filepath.Join(Root(), "tools", "gorbit_export", "*.py"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("the exporter's sources: %v", err)
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
