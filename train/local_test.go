package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster/clustertest"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
)

// startWorkers starts workers with a folder of data each, "" for the chief's, and
// returns their addresses as the params have them.
func startWorkers(t testing.TB, devices string, dirs ...string) string {
	t.Helper()
	return strings.Join(clustertest.StartSelf(t, devices, dirs...), ",")
}

// localParams is a run of 9 steps without dropout, in epochs whose fifth batch has two
// draws, one of which may be a damaged record.
func localParams(t *testing.T, data, input, workers string) params.Params {
	t.Helper()
	p := testParams(t)
	p.Data.Dir, p.Data.OnCorrupt = data, "skip"
	p.Train.BatchSize, p.Train.Steps, p.Train.EvalInterval, p.Train.StepsPerLoop = 43, 9, params.NoEval, 1
	p.Checkpoint.Interval, p.Checkpoint.Best = 100, ""
	p.Optimizer.LearningRate, p.Optimizer.Schedule, p.Optimizer.WarmupRatio = 1e-3, "constant", 0
	for _, name := range []string{"hidden_dropout", "attention_dropout", "classifier_dropout"} {
		p.Optimizer.Hyperparameters[name] = 0
	}
	p.Summary.Enabled = false
	p.Strategy.Input, p.Strategy.Workers = input, workers
	return p
}

// damagedData is the fixture's data with a record more that is no Example.
func damagedData(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	_, data := fixture(t)
	copyFolder(t, dir, data)
	path := filepath.Join(dir, "train-00000-of-00002.tfrecord")
	os.Remove(path + ".index")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := tfrecord.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write([]byte("no example")), w.Close()); err != nil {
		t.Fatal(err)
	}
	extra, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, append(old, extra...))
	return dir
}

// steps remembers what every step was made of.
type steps struct {
	runner.Observer
	all []string
}

func (s *steps) Begin(string, int64, int64) {}
func (s *steps) End()                       {}
func (s *steps) Step(i runner.StepInfo) {
	s.all = append(s.all, fmt.Sprintf("step %d, epoch %d: %d examples, %d tokens", i.Step, i.Epoch, i.Examples, i.Tokens))
}

func mustTrain(t testing.TB, p params.Params, run string) []string {
	t.Helper()
	seen := new(steps)
	env := quiet()
	env.Observer = seen
	if _, err := Train(context.Background(), p, run, env); err != nil {
		t.Fatal(err)
	}
	return seen.all
}

// skippedRecords is the number of damaged records that a run's last position counts.
func skippedRecords(t *testing.T, run string) int64 {
	t.Helper()
	state, err := runner.ParseRunState(newest(t, run).State)
	if err != nil {
		t.Fatal(err)
	}
	var trainer runner.TrainerState
	var position dataset.State
	if err := errors.Join(json.Unmarshal(state.Trainer, &trainer), json.Unmarshal(trainer.Position, &position)); err != nil {
		t.Fatal(err)
	}
	return position.Skipped
}

// alike holds the variables and slots of two runs against each other.
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
		if name == "optimizer/iterations" {
			if !bytes.Equal(g[name], w[name]) {
				t.Errorf("%s is %v, expected %v", name, g[name], w[name])
			}
			continue
		}
		for i := 0; i < len(w[name]); i += 4 {
			a := math.Float32frombits(binary.LittleEndian.Uint32(g[name][i:]))
			b := math.Float32frombits(binary.LittleEndian.Uint32(w[name][i:]))
			if !(math.Abs(float64(a-b)) <= 1e-5) {
				t.Errorf("%s[%d] is %v, expected %v", name, i/4, a, b)
				break
			}
		}
	}
}

// TestLocalInput wants the workers' own input to train what the chief's does, step by
// step, and to continue where the other stopped.
func TestLocalInput(t *testing.T) {
	long(t)
	dir := t.TempDir()
	data := damagedData(t)
	own := filepath.Join(dir, "copied")
	copyFolder(t, own, data)
	one, two := startWorkers(t, "cpu:1", "", own), startWorkers(t, "cpu:2", own, "")
	both := strings.Split(one, ",")[0] + "," + strings.Split(two, ",")[1]
	for _, test := range []struct {
		name, workers string
		accumulate    int
		shard         bool
	}{
		{"2 workers, 2 devices, accumulate 2", two, 2, false},
		{"workers of 1 and 2 devices, sharded optimizer", both, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var runs []string
			var seen [][]string
			for _, input := range []string{params.InputChief, params.InputLocal} {
				p := localParams(t, data, input, test.workers)
				p.Strategy.Accumulate, p.Strategy.ShardOptimizer = test.accumulate, test.shard
				run := filepath.Join(t.TempDir(), input)
				seen = append(seen, mustTrain(t, p, run))
				runs = append(runs, run)
			}
			alike(t, runs[1], runs[0])
			if !slices.Equal(seen[1], seen[0]) {
				t.Errorf("the steps were\n%s\nexpected\n%s", strings.Join(seen[1], "\n"), strings.Join(seen[0], "\n"))
			}
			if got, want := skippedRecords(t, runs[1]), skippedRecords(t, runs[0]); got != want || want == 0 {
				t.Errorf("%d damaged records are counted, expected %d", got, want)
			}
		})
	}
	t.Run("goes on from the other's checkpoint", func(t *testing.T) {
		undisturbed := filepath.Join(dir, "undisturbed")
		mustTrain(t, localParams(t, data, params.InputChief, ""), undisturbed)
		run := filepath.Join(dir, "continued")
		for i, input := range []string{params.InputChief, params.InputLocal, params.InputChief} {
			p := localParams(t, data, input, one)
			p.Train.Steps = 3 * int64(i+1)
			mustTrain(t, p, run)
		}
		alike(t, run, undisturbed)
	})
}

// afterStep begins an error that comes while a run trains.
var afterStep = regexp.MustCompile(`^input after step \d+: `)

// TestLocalInputErrors wants one sentence that names the worker and what is wrong, and
// no restart.
func TestLocalInputErrors(t *testing.T) {
	long(t)
	_, data := fixture(t)
	copied := func(change func(dir string)) string {
		dir := t.TempDir()
		copyFolder(t, dir, data)
		change(dir)
		return dir
	}
	const file = "train-00001-of-00002.tfrecord"
	bad := copied(func(dir string) { spoil(t, filepath.Join(dir, file), 17, 9) })
	for _, test := range []struct {
		name, chief, dir string // the chief's data, and those of the second worker
		class            fault.Class
		want             string
	}{
		{"no folder", data, filepath.Join(t.TempDir(), "gone"), fault.Failed, "gone/train-00000-of-00002.tfrecord not found; with --input local every worker reads its own part"},
		{"a file less", data, copied(func(dir string) { os.Remove(filepath.Join(dir, file)) }), fault.Failed, file + " not found; with --input local"},
		{"fewer records", data, copied(func(dir string) {
			os.Remove(filepath.Join(dir, file+".index"))
			records.Write(t, filepath.Join(dir, file), 2, 80)
		}), fault.Failed, file + " has 80 records; expected 83, as the chief's file"},
		{"other records", data, copied(func(dir string) {
			os.Remove(filepath.Join(dir, file+".index"))
			records.Write(t, filepath.Join(dir, file), 9, 83)
		}), fault.Failed, file + " has other records than the chief's file"},
		{"other contents of the same size", data, copied(func(dir string) { spoil(t, filepath.Join(dir, file), 17, 1) }), fault.Failed, file + " has other records than the chief's file"},
		{"damaged since it was indexed", data, copied(func(dir string) { flip(t, filepath.Join(dir, file)) }), fault.Damaged, file + " has 82 records; expected 83, as the chief's file; it is damaged, and "},
		{"a bad record", bad, bad, fault.Damaged, file + `: record 17: feature "segment_ids" has 9`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log strings.Builder
			env := Env{Out: io.Discard, Log: slog.New(slog.NewTextHandler(&log, nil))}
			workers := startWorkers(t, "cpu:1", "", test.dir)
			run := filepath.Join(t.TempDir(), "run")
			_, err := Train(context.Background(), localParams(t, test.chief, params.InputLocal, workers), run, env)
			if err == nil {
				t.Fatal("it trains")
			}
			if got := fault.Of(err); got != test.class {
				t.Errorf("the error is of class %s, expected %s", got, test.class)
			}
			said := afterStep.ReplaceAllString(err.Error(), "")
			// Either worker may have the bad record.
			first, second, _ := strings.Cut(workers, ",")
			from := strings.HasPrefix(said, "worker "+second+": ") || test.chief == bad && strings.HasPrefix(said, "worker "+first+": ")
			if !from || !strings.Contains(said, test.want) || strings.Contains(said, "\n") {
				t.Errorf("the error is %q, expected one of %s with %q", said, second, test.want)
			}
			if strings.Contains(log.String(), "a worker was lost") {
				t.Errorf("it was tried again:\n%s", &log)
			}
			if _, err := os.Stat(filepath.Join(run, runfolder.Params)); err == nil && test.name != "a bad record" {
				t.Error("the folder of the run was written")
			}
		})
	}
}

// flip damages a file that has an index.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	writeFile(t, path, b)
}

// spoil makes the last type id of a record of a file another, and keeps the file's size.
func spoil(t *testing.T, path string, record int, id byte) {
	t.Helper()
	f, err := tfrecord.OpenIndexed(path)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for i := range f.Len() {
		r, err := f.Record(i, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Clone(r))
	}
	last := len(all[record]) - 1
	if all[record][last] > 1 {
		t.Fatalf("the record does not end with a type id but with %d", all[record][last])
	}
	if all[record][last] == id {
		id = 0
	}
	all[record][last] = id
	w, err := tfrecord.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDrawnAgain makes steps of batches that were drawn for fewer micro-batches, as
// after memory ran out, and goes back in between.
func TestDrawnAgain(t *testing.T) {
	_, data := fixture(t)
	ctx := context.Background()
	p := localParams(t, data, params.InputLocal, startWorkers(t, "cpu:1", "", ""))
	m, on, set := onWorkers(t, p)
	local := newLocalSource(set, on.Drawer, 1, quiet().Log)
	defer local.wait()
	// No rate: the same batch has the same loss at any step.
	var losses [2][]float64
	var total int64
	for pass, accumulate := range [][]int{{1, 1, 1, 1, 1}, {2, 2, 1, 3, 1}} {
		if err := local.Seek(nil); err != nil {
			t.Fatal(err)
		}
		for step, n := range accumulate {
			local.accumulate = n
			b, err := local.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			batch := b.Payload
			if pass == 1 && step == 2 {
				if batch, err = batch.Halve(ctx); err != nil {
					t.Fatal(err)
				}
				n *= 2
			}
			if batch.Drawn.Accumulate != n || len(batch.Examples) != 2*n {
				t.Errorf("step %d is of %d micro-batches, expected %d on each of 2 replicas", step, len(batch.Examples), n)
			}
			r, err := m.Step(ctx, batch, runner.Hyper{Step: int64(step)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Sums[runner.WeightSum][0] != float64(b.Examples) {
				t.Errorf("step %d has weight %v of %d examples", step, r.Sums[runner.WeightSum], b.Examples)
			}
			if total += int64(b.Examples); m.Examples[0]+m.Examples[1] != total {
				t.Errorf("after step %d, replicas have trained on %v examples, expected %d together", step, m.Examples, total)
			}
			losses[pass] = append(losses[pass], r.Sums[runner.LossSum][0])
		}
	}
	for i, want := range losses[0] {
		if math.Abs(losses[1][i]-want) > 1e-4*want {
			t.Errorf("losses are %v, expected %v", losses[1], losses[0])
			break
		}
	}
	if slices.Max(losses[0]) == slices.Min(losses[0]) {
		t.Error("all batches have the same loss")
	}
}
