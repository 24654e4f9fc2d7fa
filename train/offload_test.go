package train

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestOffload stops and continues a run with the slots of the optimizer on disk and in memory in turn. It
// must end as one that had them in memory all the time: variables, slots and metrics.
func TestOffload(t *testing.T) {
	long(t)
	p := testParams(t)
	onDisk := p
	onDisk.Strategy.Offload = params.OffloadDisk
	run, whole := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "whole")
	mustTrain(t, p, whole)
	stopAt(t, onDisk, run, 4)
	stopAt(t, onDisk, run, 7)
	stopAt(t, p, run, 10)
	all := p
	all.Strategy.Offload = params.OffloadAll
	stopAt(t, all, run, 13)
	stopAt(t, onDisk, run, 16)
	mustTrain(t, all, run)
	sameRuns(t, run, whole)
	if left, err := filepath.Glob(filepath.Join(run, ".offload-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	// A run is read with the variables in memory or in files.
	inMemory, inFiles := loaded(t, run, quiet()), loaded(t, run, quiet(), "strategy.offload=all")
	if !slices.ContainsFunc(inFiles.on.Variables(), func(v strategy.VariableSpec) bool { return v.Offloaded }) {
		t.Error("no variable is in a file")
	}
	want, err := inMemory.Evaluate(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := inFiles.Evaluate(t.Context(), ""); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; expected %v", got, err, want)
	}
	if _, err := OpenRun(t.Context(), run, []string{"strategy.offload=disk"}, quiet()); err == nil || !strings.Contains(err.Error(), "expected all, for the variables") {
		t.Errorf("%v; expected that evaluations have no slots", err)
	}
}

func TestOffloadRefused(t *testing.T) {
	p := params.Defaults()
	p.Graph, p.Data.Dir, p.Strategy.Offload = "graph", "data", params.OffloadDisk
	for _, c := range []struct {
		change func(*params.Strategy)
		want   string
	}{
		{func(*params.Strategy) {}, ""},
		{func(s *params.Strategy) { s.Offload = "host" }, `strategy.offload is "host"; expected`},
		{func(s *params.Strategy) { s.Offload = params.OffloadAll }, ""},
		{func(s *params.Strategy) { s.Offload, s.Devices = params.OffloadAll, "cpu:2" }, "strategy.offload is all, and each device of strategy mirrored would have a copy"},
		{func(s *params.Strategy) { s.Workers = "10.0.0.2:2222" }, "strategy.offload is disk, which is not for strategy multiworker"},
		{func(s *params.Strategy) { s.Name, s.TPU = devices.TPU, "local" }, "strategy.offload is set, which is not for a TPU"},
	} {
		tried := p
		c.change(&tried.Strategy)
		if err := tried.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; expected %q", tried.Strategy, err, c.want)
		}
	}
}

// TestMemoryWarning trains where the memory is too little for what the parameters take alone.
func TestMemoryWarning(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval = 1, params.NoEval
	const warning, mend = "take more memory than is available", "--set strategy.offload="
	for _, c := range []struct {
		memory      int64
		offload     string
		warns, says bool
	}{{0, "", false, false}, {1 << 40, "", false, false}, {64, "", true, true}, {64, params.OffloadDisk, true, true}, {64, params.OffloadAll, false, false}} {
		var log bytes.Buffer
		env := quiet()
		env.Log, env.Memory = slog.New(slog.NewTextHandler(&log, nil)), c.memory
		p.Strategy.Offload = c.offload
		if _, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), env); err != nil {
			t.Fatal(err)
		}
		if said := log.String(); strings.Contains(said, warning) != c.warns || strings.Contains(said, mend) != c.says {
			t.Errorf("%+v: the log is\n%s", c, said)
		}
	}
}

// TestOffloadKilled kills a run with all on disk at checkpoints. Its end is that of one that had all in
// memory and was not killed.
func TestOffloadKilled(t *testing.T) {
	long(t)
	p := testParams(t)
	k := newKiller(t, p)
	p.Strategy.Offload = params.OffloadAll
	k.params = paramsFile(t, p)
	k.endsAsAnother(t, betweenSaves)
}

// peakAnonymous runs a training and returns the most memory that it had which is not of files.
func peakAnonymous(t *testing.T, p params.Params) (peak int64) {
	t.Helper()
	cmd := killer{params: paramsFile(t, p)}.child(t, filepath.Join(t.TempDir(), "run"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v: %s", err, cmd.Stderr)
			}
			return peak
		case <-time.After(5 * time.Millisecond):
			peak = max(peak, devices.Resident(cmd.Process.Pid)-devices.ResidentFiles(cmd.Process.Pid))
		}
	}
}

// TestOffloadAllMemory trains a model whose AdamW state is more than four times the memory that it may take in
// addition to what the same training of a narrow one of as many layers takes, whose graph is as large: as it
// starts, trains and saves.
func TestOffloadAllMemory(t *testing.T) {
	long(t)
	const layers, hidden = 12, 512
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Interval, p.Train.BatchSize = 3, params.NoEval, 2, 4
	p.InitValues, p.Strategy.Offload, p.Runtime.Lanes = params.ValuesOfSeed, params.OffloadAll, 1
	p.Graph = testkit.Export(t, configOf(layers), "--pooling", "mean")
	small := peakAnonymous(t, p)
	p.Graph = testkit.Export(t, fmt.Sprintf(`{"hidden_size": %d, "num_hidden_layers": %d, "num_attention_heads": 4,
		"intermediate_size": %d, "vocab_size": %d, "max_position_embeddings": %d}`, hidden, layers, 4*hidden, vocabSize, rowLength), "--pooling", "mean")
	export, _ := opened(t, p)
	state := 16 * export.Contract.Parameters()
	took := peakAnonymous(t, p) - small
	t.Logf("%d MiB of variables, gradients and slots; %d MiB in memory beside the %d MiB of a narrow one", state>>20, took>>20, small>>20)
	if took > state/4 {
		t.Errorf("the model takes %d MiB more than a narrow one; expected at most a quarter of its state of %d MiB", took>>20, state>>20)
	}
}

// TestOffloadMemory compares the peaks of resident memory, pages of files included, of two processes that
// train a model of 205 MB of slots.
func TestOffloadMemory(t *testing.T) {
	long(t)
	const hidden, tokens = 32, 800_000
	p := testParams(t)
	p.Graph = testkit.Export(t, fmt.Sprintf(`{"hidden_size": %d, "num_hidden_layers": 1, "num_attention_heads": 4,
		"intermediate_size": 64, "vocab_size": %d, "max_position_embeddings": %d}`, hidden, tokens, rowLength), "--pooling", "mean")
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Interval = 5, params.NoEval, 3
	peak := func() int64 {
		folder := filepath.Join(t.TempDir(), "run")
		cmd := killer{params: paramsFile(t, p)}.child(t, folder)
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, cmd.Stderr)
		}
		run, err := runfolder.Read(folder, false, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return run.PeakMemoryMiB << 20
	}
	inMemory := peak()
	p.Strategy.Offload = params.OffloadDisk
	onDisk, slots := peak(), int64(2*4*hidden*tokens)
	t.Logf("%d MiB with the slots in memory, %d MiB with them on disk; they are %d MiB", inMemory>>20, onDisk>>20, slots>>20)
	if saved := inMemory - onDisk; saved < slots*3/4 {
		t.Errorf("slots on disk save %d MiB of memory; expected most of %d MiB", saved>>20, slots>>20)
	}
}
