package train

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestFinishedInReadOnlyFolder trains a run that is complete, in a folder that cannot be written to: it
// says that the run is complete. One that is not complete cannot continue there.
func TestFinishedInReadOnlyFolder(t *testing.T) {
	p := crashParams(t)
	complete := freeRun(t, p)
	p.Train.Steps = 8
	longer := freeRun(t, p)
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	if err := trainFree(t.Context(), *complete, run, quiet()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(p.Data.Dir), 0o755); err != nil { // for that user
		t.Fatal(err)
	}
	testkit.AsUser(t, dir)
	chmod := func(folders, files fs.FileMode) {
		if err := filepath.WalkDir(run, func(path string, d fs.DirEntry, err error) error {
			mode := files
			if d != nil && d.IsDir() {
				mode = folders
			}
			return errors.Join(err, os.Chmod(path, mode))
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { chmod(0o755, 0o644) })
	for _, files := range []fs.FileMode{0o444, 0o644} {
		chmod(0o555, files)
		var out bytes.Buffer
		env := quiet()
		env.Out = &out
		if err := trainFree(t.Context(), *complete, run, env); err != nil || !strings.Contains(out.String(), "is complete: 4 of 4 steps") {
			t.Errorf("files of mode %v: %v, %q", files, err, &out)
		}
		if err := trainFree(t.Context(), *longer, run, env); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("files of mode %v: a run with more steps: %v, want that the folder cannot be written to", files, err)
		}
	}
}
