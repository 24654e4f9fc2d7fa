package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/crashtest"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/params"
)

// copied copies a folder to a new one of the same file system as the tests' folders.
func copied(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "export")
	copyFolder(t, to, from)
	return to
}

// smallGraph writes an export whose graph has a few bytes, with the initial values of another one.
func smallGraph(t *testing.T, dir, values string) string {
	t.Helper()
	copyFolder(t, filepath.Join(dir, runfolder.ValuesFolder), filepath.Join(values, runfolder.ValuesFolder))
	for name, content := range map[string]string{"saved_model.pb": "graph", "assets/gorbit.json": "{}", "serving/saved_model.pb": "served", "fingerprint.pb": "no"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, content)
	}
	return dir
}

// TestRunStandsAlone evaluates, predicts with and continues a run whose export is gone.
func TestRunStandsAlone(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs = 12, 0
	whole := filepath.Join(t.TempDir(), "whole")
	mustTrain(t, p, whole)

	p.Graph = copied(t, p.Graph)
	run := filepath.Join(t.TempDir(), "run")
	ctx, stop := context.WithCancel(t.Context())
	env := quiet()
	var lines []string
	env.Out = &lineFunc{func(line string) {
		lines = append(lines, line)
		if strings.Contains(line, "saved checkpoint to") {
			stop()
		}
	}}
	if _, err := Train(ctx, p, run, env); !errors.Is(err, fault.Stopped) {
		t.Fatalf("got %v; expected a stop", err)
	}
	if last := lines[len(lines)-1]; !regexp.MustCompile(`^stopped at step \d+ of 12, which is in .*/run/checkpoints/ckpt-\d+; the same command continues\n$`).MatchString(last) {
		t.Errorf("a stopped run ends with %q", last)
	}
	if err := os.Rename(p.Graph, p.Graph+"-away"); err != nil {
		t.Fatal(err)
	}
	before, err := loaded(t, run, quiet()).Evaluate(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := loaded(t, run, quiet(), "graph="+p.Graph+"-away").Evaluate(t.Context(), ""); err != nil || !reflect.DeepEqual(again, before) {
		t.Errorf("with the export the outputs are %v, %v; expected %v", again, err, before)
	}
	if _, err := OpenRun(t.Context(), run, []string{"graph=" + p.Graph}, quiet()); err == nil || !strings.Contains(err.Error(), p.Graph+": no such folder") {
		t.Errorf("the export that was asked for is gone: %v", err)
	}

	// The same command continues, and ends in the same bits.
	mustTrain(t, p, run)
	sameRuns(t, run, whole)

	// Another graph is refused, as ever.
	p.Graph, p.Train.Steps = testkit.Export(t, bertConfig, "--pooling", "first"), 18
	if _, err := Train(t.Context(), p, run, quiet()); err == nil || !strings.Contains(err.Error(), "not a checkpoint of this model") {
		t.Errorf("another graph: %v", err)
	}
}

// lineFunc calls a function with every line.
type lineFunc struct{ each func(string) }

func (l *lineFunc) Write(p []byte) (int, error) {
	l.each(string(p))
	return len(p), nil
}

// TestKeepGraph makes copies of small graphs.
//
// Long: a case per way in which a copy is made, changed or damaged.
func TestKeepGraph(t *testing.T) {
	graph, _ := fixture(t)
	keep := func(t *testing.T, folder, export string) *runfolder.KeptGraph {
		t.Helper()
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := runfolder.KeepGraph(folder, export, export); err != nil {
			t.Fatal(err)
		}
		kept, err := runfolder.ReadKeptGraph(folder)
		if err != nil || kept == nil {
			t.Fatalf("the copy is %v, %v", kept, err)
		}
		return kept
	}
	names := func(k *runfolder.KeptGraph) (out []string) {
		for _, part := range k.Files {
			out = append(out, part.Name)
		}
		return out
	}
	all := []string{"assets/gorbit.json", "saved_model.pb", "serving/saved_model.pb", "variables/variables.data-00000-of-00001", "variables/variables.index"}

	t.Run("linked", func(t *testing.T) {
		export, folder := smallGraph(t, t.TempDir(), graph), t.TempDir()
		kept := keep(t, folder, export)
		if !reflect.DeepEqual(names(kept), all) {
			t.Errorf("kept are %q; expected %q", names(kept), all)
		}
		for _, name := range all {
			if !runfolder.SameFile(filepath.Join(export, name), filepath.Join(folder, runfolder.GraphFolder, name)) {
				t.Errorf("%s is no link", name)
			}
		}
		// The list is not written again.
		list := filepath.Join(folder, runfolder.GraphFolder, runfolder.KeptFile)
		was, err := os.Stat(list)
		if err != nil {
			t.Fatal(err)
		}
		keep(t, folder, export)
		if is, err := os.Stat(list); err != nil || !os.SameFile(is, was) {
			t.Errorf("the copy was made again, %v", err)
		}
		if err := runfolder.KeepGraph(folder, filepath.Join(folder, runfolder.GraphFolder), "x"); err != nil {
			t.Errorf("the copy itself as the graph: %v", err)
		}
	})
	t.Run("of symbolic links", func(t *testing.T) {
		export, folder, dir := smallGraph(t, t.TempDir(), graph), t.TempDir(), t.TempDir()
		link, real := filepath.Join(dir, "link"), filepath.Join(dir, "real.pb")
		model := filepath.Join(export, "saved_model.pb")
		if err := errors.Join(os.Symlink(export, link), os.Rename(model, real), os.Symlink(real, model)); err != nil {
			t.Fatal(err)
		}
		if kept := keep(t, folder, link); !reflect.DeepEqual(names(kept), all) {
			t.Errorf("kept are %q; expected %q", names(kept), all)
		}
		if info, err := os.Lstat(filepath.Join(folder, runfolder.GraphFolder, "saved_model.pb")); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the copy is %v, %v; expected a file", info, err)
		}
	})
	t.Run("copied", func(t *testing.T) {
		export, folder := smallGraph(t, t.TempDir(), graph), filepath.Join(testkit.MemoryDir(t), "run")
		defer vfs.Mount(folder, unlinked{vfs.OS{}})()
		if kept := keep(t, folder, export); !reflect.DeepEqual(names(kept), all[:3]) {
			t.Errorf("kept are %q; expected %q", names(kept), all[:3])
		}
		if _, err := os.Stat(filepath.Join(folder, runfolder.GraphFolder, runfolder.ValuesFolder)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("initial values were copied: %v", err)
		}
	})
	t.Run("changed", func(t *testing.T) {
		export, folder := smallGraph(t, t.TempDir(), graph), t.TempDir()
		keep(t, folder, export)
		replaced := filepath.Join(export, "saved_model.pb")
		if err := errors.Join(os.Remove(replaced), os.WriteFile(replaced, []byte("another"), 0o666), os.RemoveAll(filepath.Join(export, "serving"))); err != nil {
			t.Fatal(err)
		}
		p := params.Params{Graph: export}
		var log bytes.Buffer
		if at, err := runfolder.GraphToRead(p, folder, nil, slog.New(slog.NewTextHandler(&log, nil))); err != nil || at != filepath.Join(folder, runfolder.GraphFolder) {
			t.Errorf("the graph to read is %s, %v", at, err)
		}
		if !strings.Contains(log.String(), "the export was changed since") {
			t.Errorf("the log is %q", &log)
		}
		kept := keep(t, folder, export)
		if content, err := os.ReadFile(filepath.Join(folder, runfolder.GraphFolder, "saved_model.pb")); err != nil || string(content) != "another" {
			t.Errorf("the copy has %q, %v", content, err)
		}
		if _, err := os.Stat(filepath.Join(folder, runfolder.GraphFolder, "serving")); err == nil || len(kept.Files) != 4 {
			t.Errorf("the copy still has a served graph: %v", names(kept))
		}
	})
	t.Run("damaged", func(t *testing.T) {
		for what, damage := range map[string]func(own string) error{
			"is not the file that was copied": func(own string) error {
				name := filepath.Join(own, "saved_model.pb")
				return errors.Join(os.Remove(name), os.WriteFile(name, []byte("grap!"), 0o666))
			},
			"is missing": func(own string) error { return os.Remove(filepath.Join(own, "assets", "gorbit.json")) },
			"variables.index is not the file": func(own string) error {
				name := filepath.Join(own, "variables", "variables.index")
				return errors.Join(os.Remove(name), os.WriteFile(name, nil, 0o666))
			},
			"is not in the folder": func(own string) error {
				list, err := json.Marshal(runfolder.KeptGraph{Files: []runfolder.KeptPart{{Name: "../x"}}})
				return errors.Join(err, os.WriteFile(filepath.Join(own, runfolder.KeptFile), list, 0o666))
			},
		} {
			export, folder := smallGraph(t, t.TempDir(), graph), t.TempDir()
			keep(t, folder, export)
			if err := damage(filepath.Join(folder, runfolder.GraphFolder)); err != nil {
				t.Fatal(err)
			}
			_, err := runfolder.GraphToRead(params.Params{Graph: export}, folder, nil, quiet().Log)
			if !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), what) {
				t.Errorf("got %v; expected %q", err, what)
			}
			keep(t, folder, export) // made again
		}
	})
	t.Run("none", func(t *testing.T) {
		gone := filepath.Join(t.TempDir(), "gone")
		_, err := runfolder.GraphToRead(params.Params{Graph: gone}, "runs/a", nil, quiet().Log)
		if err == nil || !strings.Contains(err.Error(), "run runs/a has no copy of it; name an export of the same model with --set graph=FOLDER") {
			t.Errorf("got %v", err)
		}
	})
}

// TestCrashOfKeptGraph crashes while a copy of a graph is made, and while it takes the place of
// another one, with links and without.
func TestCrashOfKeptGraph(t *testing.T) {
	graph, _ := fixture(t)
	first, second := testkit.MemoryDir(t), testkit.MemoryDir(t)
	smallGraph(t, first, graph)
	smallGraph(t, second, graph)
	writeFile(t, filepath.Join(second, "saved_model.pb"), "another")
	program := crashtest.Program{
		Prepare: func(dir string) error { return runfolder.KeepGraph(dir, first, "first") },
		Run:     func(dir string) error { return runfolder.KeepGraph(dir, second, "second") },
	}
	t.Run("links", func(t *testing.T) { crashtest.Survives(t, program) })
	program.Wrap = func(f vfs.WorkFS) vfs.WorkFS { return unlinked{f} }
	program.Prepare = nil
	t.Run("copies", func(t *testing.T) { crashtest.Survives(t, program) })
}

// unlinked is a file system that cannot link files.
type unlinked struct{ vfs.WorkFS }

func (unlinked) Link(string, string) error { return errors.ErrUnsupported }
