package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/record"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// onWorkers returns the model of the params at its start, its workers and the records to
// train on.
func onWorkers(t *testing.T, p params.Params) (*loop.Model, prepare.Placed, *dataset.Dataset) {
	t.Helper()
	ctx := context.Background()
	export, set := opened(t, p)
	on, err := prepare.OpenModel(ctx, p, export, strategy.FunctionsTrain, localData(p, export.Contract, set), quiet().prepare())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		on.Close()
		on.Workers.Close()
	})
	scalars, err := prepare.ScalarsOf(p, export.Contract)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loop.Initialize(ctx, on, export, loop.Init{}); err != nil {
		t.Fatal(err)
	}
	return loop.NewModel(on, scalars, nil), on, set
}

// TestWorkersAreWatched wants TensorBoard and the table to say what two workers have
// used.
func TestWorkersAreWatched(t *testing.T) {
	ctx := context.Background()
	p := testParams(t)
	p.Strategy.Workers = startWorkers(t, "cpu:1", "", "")
	m, on, set := onWorkers(t, p)
	workers := on.Workers
	batch, err := loop.NewSource(set, on, 1).Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Step(ctx, batch.Payload, runner.Hyper{LearningRate: 1e-3, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	// Before the step a worker may not have loaded TensorFlow, and one report after it may be of then.
	const library = 50 << 20 // TensorFlow's library alone takes more
	for last, reports := workers.Usage(), 0; reports < 20; {
		now := workers.Usage()
		if !slices.ContainsFunc(now, func(u cluster.Usage) bool { return u.RSS < library }) {
			break
		}
		if !slices.Equal(now, last) {
			last, reports = now, reports+1
		}
		time.Sleep(10 * time.Millisecond)
	}

	watched := &record.Replicas{Model: m, Clocks: on, Cluster: workers, Times: func() runner.Times { return runner.Times{InLoops: time.Minute} }}
	dir := t.TempDir()
	board := new(record.Board)
	if err := board.Open(dir, 0, p, on); err != nil {
		t.Fatal(err)
	}
	if err := watched.Action(board, quiet().Log)(ctx, 1, nil); err != nil {
		t.Fatal(err)
	}
	board.Close(quiet().Log)
	shown := make(map[string]float64)
	for _, e := range readEvents(t, filepath.Join(dir, "train")) {
		for _, v := range e.GetSummary().GetValue() {
			if content := v.GetTensor().GetTensorContent(); len(content) == 4 {
				shown[v.Tag] = float64(math.Float32frombits(binary.LittleEndian.Uint32(content)))
			}
		}
	}
	var table strings.Builder
	if err := watched.Table(&table); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^ +worker +peak memory, MiB +processor time, s$`).MatchString(table.String()) {
		t.Errorf("the table has no line of names:\n%s", &table)
	}
	for i, address := range p.Strategy.Addresses() {
		memory, peak := shown[fmt.Sprintf("worker_%d/memory_mib", i)], shown[fmt.Sprintf("worker_%d/peak_memory_mib", i)]
		if memory < library>>20 || peak < memory {
			t.Errorf("TensorBoard shows %v MB of worker %d, and %v at its peak", memory, i, peak)
		}
		var inTable float64
		line := regexp.MustCompile(`(?m)^ +` + regexp.QuoteMeta(address) + ` +(\d+) +[0-9.]+$`).FindStringSubmatch(table.String())
		if line == nil {
			t.Fatalf("worker %s is not in the table:\n%s", address, &table)
		}
		if _, err := fmt.Sscan(line[1], &inTable); err != nil || inTable < peak {
			t.Errorf("the table has a peak of %s MB for worker %d (%v), TensorBoard had %v before", line[1], i, err, peak)
		}
	}
}
