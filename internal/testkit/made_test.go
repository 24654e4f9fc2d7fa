package testkit

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestMadeOnce asks for one folder many times at once. The script must run once, also where a test
// was killed that had begun to make the folder.
func TestMadeOnce(t *testing.T) {
	const script = `
import os, pathlib, sys
out, log = map(pathlib.Path, sys.argv[1:])
assert not list(out.iterdir()), "something is left of the test that was killed"
(out / "made").touch()
with log.open("a") as f:
    f.write("once ")
`
	log := filepath.Join(t.TempDir(), "log")
	folder := filepath.Join(Root(), ".cache", "tests", checksum(t, script, []string{log}))
	if err := os.MkdirAll(filepath.Join(folder+".part", "half"), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.RemoveAll(folder)
		os.Remove(folder + ".lock")
	})
	var made sync.WaitGroup
	for range 5 {
		made.Go(func() {
			if got := Made(t, script, log); got != folder {
				t.Errorf("got %s, want %s", got, folder)
			}
		})
	}
	made.Wait()
	if got, err := os.ReadFile(log); string(got) != "once " || err != nil {
		t.Errorf("the script ran %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "made")); err != nil {
		t.Error(err)
	}
}

// TestWithoutSpaces wants one export for configurations that only look different.
func TestWithoutSpaces(t *testing.T) {
	for config, want := range map[string]string{
		"tiny":                       "tiny",
		"{\"a b\": 1,\n\t\"c\": 2 }": `{"a b":1,"c":2}`,
		`{"a b":1,"c":2}`:            `{"a b":1,"c":2}`,
	} {
		if got := withoutSpaces(t, config); got != want {
			t.Errorf("%s becomes %s; expected %s", config, got, want)
		}
	}
}
