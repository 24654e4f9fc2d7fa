package job

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/fleet"
)

// startWorkers starts workers with a folder of data each, "" for the chief's, and
// returns their addresses as the params have them.
func startWorkers(t *testing.T, devices string, dirs ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var addresses []string
	var serving sync.WaitGroup
	for _, dir := range dirs {
		s, err := fleet.Listen(fleet.SupervisorConfig{Listen: "127.0.0.1:0", Devices: devices, Threads: 1, Child: []string{os.Args[0], workerChild, dir},
			Log: slog.New(slog.DiscardHandler), ChildLog: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, s.Addr())
		serving.Go(func() { s.Serve(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	return strings.Join(addresses, ",")
}

// localParams is a run of 12 steps without dropout, in epochs whose fifth batch has one
// example.
func localParams(t *testing.T, input, workers string) Params {
	t.Helper()
	p := testParams(t)
	p.Train.BatchSize, p.Train.Steps, p.Train.EvalInterval, p.Train.StepsPerLoop = 43, 12, noEval, 1
	p.Checkpoint.Interval, p.Checkpoint.Best = 4, ""
	p.Optimizer.LearningRate = 1e-3
	for _, name := range []string{"hidden_dropout", "attention_dropout", "classifier_dropout"} {
		p.Optimizer.Hyperparameters[name] = 0
	}
	p.Summary.Enabled = false
	p.Strategy.Input, p.Strategy.Workers = input, workers
	return p
}

func mustTrain(t *testing.T, p Params, run string) {
	t.Helper()
	if _, err := Train(context.Background(), p, run, quiet()); err != nil {
		t.Fatal(err)
	}
}

// alike holds the variables of two runs against each other.
func alike(t *testing.T, got, want string) {
	t.Helper()
	g, gotStep := final(t, got)
	w, wantStep := final(t, want)
	if gotStep != wantStep || len(g) != len(w) {
		t.Fatalf("%d variables at step %d, expected %d at %d", len(g), gotStep, len(w), wantStep)
	}
	for name := range w {
		if len(w[name])%4 != 0 || len(g[name]) != len(w[name]) {
			t.Fatalf("%s has %d bytes, expected %d", name, len(g[name]), len(w[name]))
		}
		for i := 0; i < len(w[name]); i += 4 {
			a := math.Float32frombits(binary.LittleEndian.Uint32(g[name][i:]))
			b := math.Float32frombits(binary.LittleEndian.Uint32(w[name][i:]))
			if math.Abs(float64(a-b)) > 1e-5 {
				t.Errorf("%s[%d] is %v, expected %v", name, i/4, a, b)
				break
			}
		}
	}
}

// TestLocalInput wants the workers' own input to train what the chief's does.
func TestLocalInput(t *testing.T) {
	dir := t.TempDir()
	_, data := fixture(t)
	own := filepath.Join(dir, "copied")
	if err := os.CopyFS(own, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	one, two := startWorkers(t, "cpu:1", "", own), startWorkers(t, "cpu:2", own, "")
	for _, test := range []struct {
		name, workers string
		accumulate    int
		shard         bool
	}{
		{"2 workers", one, 1, false},
		{"2 workers, 2 devices, accumulate 2", two, 2, false},
		{"2 workers, sharded optimizer, accumulate 2", one, 2, true},
		{"a worker with 2 devices", strings.Split(two, ",")[0], 1, false},
		{"workers of 1 and 2 devices", strings.Split(one, ",")[0] + "," + strings.Split(two, ",")[1], 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var runs []string
			for _, input := range []string{inputChief, inputLocal} {
				p := localParams(t, input, test.workers)
				p.Strategy.Accumulate, p.Strategy.ShardOptimizer = test.accumulate, test.shard
				run := filepath.Join(t.TempDir(), input)
				mustTrain(t, p, run)
				runs = append(runs, run)
			}
			alike(t, runs[1], runs[0])
			sameLines(t, runs[1], runs[0])
		})
	}
	t.Run("goes on from the other's checkpoint", func(t *testing.T) {
		undisturbed := filepath.Join(dir, "undisturbed")
		mustTrain(t, localParams(t, inputLocal, one), undisturbed)
		for _, first := range []string{inputChief, inputLocal} {
			run := filepath.Join(dir, first)
			p := localParams(t, first, one)
			p.Train.Steps, p.Optimizer.Schedule, p.Optimizer.WarmupRatio = 6, "constant", 0
			mustTrain(t, p, run)
			p.Strategy.Input, p.Train.Steps = map[string]string{inputChief: inputLocal, inputLocal: inputChief}[first], 12
			mustTrain(t, p, run)
		}
		alike(t, filepath.Join(dir, inputLocal), filepath.Join(dir, inputChief))
	})
}

// sameLines wants the same numbers of examples and tokens in both metrics.
func sameLines(t *testing.T, got, want string) {
	t.Helper()
	var lines [2]int
	for i, run := range []string{got, want} {
		text, err := os.ReadFile(filepath.Join(run, metricsFile))
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = strings.Count(string(text), "\n")
	}
	if lines[0] != lines[1] || lines[0] == 0 {
		t.Errorf("%d lines of metrics, expected %d", lines[0], lines[1])
	}
}

// TestLocalInputErrors wants one sentence that names the worker and what is wrong, and
// no restart.
func TestLocalInputErrors(t *testing.T) {
	_, data := fixture(t)
	copied := func(change func(dir string)) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
		change(dir)
		return dir
	}
	const file = "train-00001-of-00002.tfrecord"
	for _, test := range []struct{ name, dir, want string }{
		{"no folder", filepath.Join(t.TempDir(), "gone"), "gone/train-00000-of-00002.tfrecord; with --input local every worker reads its own part"},
		{"a file less", copied(func(dir string) { os.Remove(filepath.Join(dir, file)) }), file + "; with --input local"},
		{"fewer records", copied(func(dir string) {
			os.Remove(filepath.Join(dir, file+".index"))
			records(t, filepath.Join(dir, file), 2, 80)
		}), "they have 170 records, the chief's 173"},
		{"other records", copied(func(dir string) {
			os.Remove(filepath.Join(dir, file+".index"))
			records(t, filepath.Join(dir, file), 9, 83)
		}), "the files have other names, sizes or numbers of records"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log strings.Builder
			env := Env{Out: io.Discard, Log: slog.New(slog.NewTextHandler(&log, nil))}
			workers := startWorkers(t, "cpu:1", "", test.dir)
			run := filepath.Join(t.TempDir(), "run")
			_, err := Train(context.Background(), localParams(t, inputLocal, workers), run, env)
			if err == nil {
				t.Fatal("it trains")
			}
			bad := strings.Split(workers, ",")[1]
			if got := err.Error(); !strings.HasPrefix(got, "worker "+bad+": ") || !strings.Contains(got, test.want) || strings.Contains(got, "\n") {
				t.Errorf("the error is %q, expected one of %s with %q", got, bad, test.want)
			}
			if strings.Contains(log.String(), "a worker was lost") {
				t.Errorf("it was tried again:\n%s", &log)
			}
			if _, err := os.Stat(filepath.Join(run, paramsFile)); err == nil {
				t.Error("the folder of the run was written")
			}
		})
	}
}
