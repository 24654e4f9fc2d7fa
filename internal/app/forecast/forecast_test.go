package forecast

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/exec/peak"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// program writes a program that does what a shell script says, with the folder of the run in $run.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gorbit")
	script = "#!/bin/sh\nset -e\nrun=$5\n" + script
	if err := os.WriteFile(path, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

// left is a script of a training that leaves a journal.
const left = `grep -q 'batch_size: 16' "$3" && grep -q 'steps: 10' "$3" && grep -q 'warmup_ratio: 0' "$3"
mkdir -p $run/checkpoints
cp "$3" $run/params.yaml
printf 12345 >$run/checkpoints/ckpt-10.index
cat >$run/processes.jsonl <<END
{"event":"start","process":7,"init_seconds":3,"offloaded_bytes":67108864,"devices":["/device:CPU:0"],"precision":"float32"}
{"event":"phase","process":7,"phase":"train","step":4,"seconds":6,"steps":4,"examples":64,"tokens":640,"accumulate":1}
{"event":"phase","process":7,"phase":"train","step":8,"seconds":4,"steps":4,"examples":64,"tokens":640,"flops":8e9,"accumulate":ACCUMULATE}
{"event":"phase","process":7,"phase":"eval","step":8,"seconds":9,"steps":2,"examples":20}
{"event":"phase","process":7,"phase":"save","step":8,"seconds":1}
{"event":"phase","process":7,"phase":"train","step":10,"seconds":2.5,"steps":2,"examples":32,"tokens":320}
{"event":"phase","process":7,"phase":"eval","step":10,"seconds":2,"steps":2,"examples":20}
{"event":"phase","process":7,"phase":"save","step":10,"seconds":0.5}
{"event":"end","process":7,"outcome":"finished","step":10,"seconds":30,"peak_memory_mib":100}
END
`

func TestProbe(t *testing.T) {
	p := params.Defaults()
	p.Graph, p.Data.Dir, p.Train.BatchSize = "exports/x", "data/x", 16
	by := Prober{Steps: 4, EvalSteps: 2}
	for _, tt := range []struct {
		name, script string
		memory       int64
		want         string // part of the error
		tooLarge     bool
	}{
		{"fits", strings.Replace(left, "ACCUMULATE", "1", 1), 0, "", false},
		{"divided", strings.Replace(left, "ACCUMULATE", "2", 1), 0, "divided into 2 parts", true},
		{"limit", `exec awk 'BEGIN { s = "x"; while (1) s = s s }'`, 64 << 20, "more than 64 MiB", true},
		{"killed", "kill -9 $$", 0, "the system killed it", true},
		{"out of memory", "echo warning; echo gorbit: step 1: out of memory: OOM when allocating; exit 1", 0, "OOM when allocating", true},
		{"out of memory in C", "echo \"terminate called after throwing an instance of 'std::bad_alloc'\"; echo gorbit: crashed with SIGABRT; ulimit -c 0; kill -ABRT $$", 0, "crashed with SIGABRT", true},
		{"fails", "echo starting; echo gorbit: data x: no such folder >&2; exit 1", 0, "data x: no such folder", false},
		{"nothing", `mkdir $run; cp "$3" $run/params.yaml`, 0, "no journal", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			by := by
			var dump strings.Builder
			by.Program, by.Memory, by.Dump = program(t, tt.script), tt.memory, &dump
			seen, err := by.run(t.Context(), p)
			var tooLarge *OutOfMemoryError
			if errors.As(err, &tooLarge) != tt.tooLarge || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v; expected %q, too large %v", err, tt.want, tt.tooLarge)
			}
			if crashed := strings.Contains(tt.want, "crashed"); crashed != strings.Contains(dump.String(), "std::bad_alloc") {
				t.Errorf("the dump is %q", dump.String())
			}
			if err == nil && seen.checkpoint != 5 {
				t.Errorf("a checkpoint of %d bytes; expected 5", seen.checkpoint)
			}
		})
	}
}

// TestElsewhere plans trainings that fit with the slots of the optimizer on disk alone, in memory alone, and
// not at all.
func TestElsewhere(t *testing.T) {
	const killed = "kill -9 $$\n"
	fits := strings.Replace(left, "ACCUMULATE", "1", 1)
	onDisk := "if grep -q 'offload: disk' \"$3\"; then\n%s\nfi\n%s"
	for _, tt := range []struct {
		name, offload, script string
		want                  []string // in what is printed
	}{
		{"fits", "", fmt.Sprintf(onDisk, killed, fits), nil},
		{"on disk", "", fmt.Sprintf(onDisk, fits+"exit", killed), []string{"the system killed it", "(--set strategy.offload=disk) --batch-size 16 takes 100 MiB at most, 1.000 s a step"}},
		{"all on disk", "", fmt.Sprintf(strings.Replace(onDisk, "disk", "all", 1), fits+"exit", killed), []string{"With variables, gradients and the optimizer's slots on disk (--set strategy.offload=all) --batch-size 16 takes 100 MiB"}},
		{"nowhere", "", killed, []string{"With variables, gradients and the optimizer's slots on disk (--set strategy.offload=all): does not fit"}},
		{"all asked for", "all", fits, []string{"  files    64 MiB, variables, gradients and the optimizer's slots in the run's folder, on a disk that reads 134 MB/s and writes 67.1 MB/s: as far as memory cannot hold them, a step takes up to 2.0 s for that"}},
		{"asked for", "disk", fits, []string{"memory   100 MiB", "with the optimizer's slots in memory, not on disk: 100 MiB at most, 1.000 s a step; on disk it takes 1.00 times as long"}},
		{"only on disk", "disk", fmt.Sprintf(onDisk, fits+"exit", killed), []string{"with the optimizer's slots in memory, not on disk: does not fit"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := params.Defaults()
			p.Graph, p.Data.Dir, p.Train.BatchSize, p.Strategy.Offload = "exports/x", "data/x", 16, tt.offload
			by := Prober{Steps: 4, EvalSteps: 2, Program: program(t, tt.script), Dump: io.Discard}
			plan := &Plan{Asked: 16, Sizes: []Size{{BatchSize: 16, Offload: tt.offload}}, Files: &peak.Disk{Read: 128 << 20, Write: 64 << 20}}
			_ = plan.Sizes[0].try(t.Context(), by, plan.Outline, p)
			if err := plan.elsewhere(t.Context(), p, by, func(int) {}); err != nil {
				t.Fatal(err)
			}
			if asked := plan.Sizes[0]; asked.Problem == "" {
				plan.Best, plan.Largest = 16, 16
			}
			var out strings.Builder
			if err := plan.Write(&out, 0); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s\nexpected %q", out.String(), want)
				}
			}
			if said := strings.Contains(out.String(), "slots"); said != (tt.want != nil) {
				t.Errorf("slots are spoken of: %v\n%s", said, out.String())
			}
		})
	}
}

func TestPredict(t *testing.T) {
	dir := t.TempDir()
	p := params.Defaults()
	p.Train.BatchSize, p.Checkpoint.MaxToKeep = 16, 2
	by := Prober{Program: program(t, strings.Replace(left, "ACCUMULATE", "1", 1)), Steps: 4, EvalSteps: 2}
	p.Graph, p.Data.Dir = dir, dir
	seen, err := by.run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	o := train.Outline{Steps: 110, Done: 10, StepsPerEpoch: 50, Examples: 800, MeanTokens: 12, EvalExamples: 40, EvalBatches: 4, Evaluations: 2, Saves: 5}
	s := Size{BatchSize: 16}
	s.predict(o, p, seen)
	// Steps take 1 s for 160 tokens, and have 192 on average.
	want := map[string][2]float64{
		"seconds of a step":   {s.SecondsPerStep, 1.2},
		"examples per second": {s.ExamplesPerSecond, 16 / 1.2},
		"FLOPs per second":    {s.FLOPS, 2e9},
		"start":               {s.StartSeconds, 3 + 2},
		"steps":               {s.StepsSeconds, 100 * 1.2},
		"evaluations":         {s.EvalSeconds, 2 * 4},
		"saves":               {s.SaveSeconds, 4*0.5 + 1},
		"all":                 {s.Seconds, 5 + 120 + 8 + 3},
		"memory":              {float64(s.Memory), 100 << 20},
		"kept":                {float64(s.Kept), 3},
		"disk":                {float64(s.Disk), 15},
	}
	for name, w := range want {
		if math.Abs(w[0]-w[1]) > 1e-9*w[1] {
			t.Errorf("%s: %v; expected %v", name, w[0], w[1])
		}
	}

	plan := &Plan{Outline: o, Asked: 16, Best: 16, Largest: 16, Available: 1 << 30, Sizes: []Size{{BatchSize: 8, Memory: 60 << 20}, s}}
	if got := plan.expected(32); got != 180<<20 {
		t.Errorf("a batch size of 32 is expected to take %d; expected %d", got, 180<<20)
	}
	if plan.SetPeak(1e9) || plan.Sizes[0].MFU != 0 {
		t.Errorf("a share of %v of a peak that a probe was faster than", plan.Sizes[0].MFU)
	}
	if !plan.SetPeak(8e9) {
		t.Error("the probes were faster than their peak")
	}
	plan.Sizes = append(plan.Sizes, Size{BatchSize: 32, Problem: "does not fit: it takes more than 64 MiB"})
	plan.Products = &peak.Products{Float32: 2e9, BF16: 1e9}
	var out strings.Builder
	if err := plan.Write(&out, 1e9); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"10 of them are done", "  time     2:16: 2:00 of steps, 8.0 s of 2 evaluations, 3.0 s of 5 checkpoints, 5.0 s of start",
		"2 GFLOP/s, 25.0 % of the machine's peak (MFU)", "3 checkpoints kept of 5 B each: 15 B, of 1 GB that are free",
		"does not fit: it takes more than 64 MiB", "\nproducts in bf16 are slower than in float32 on this machine: 1 GFLOP/s against 2 GFLOP/s\n", "--batch-size 16 is as fast as any; the largest that fits is 16"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the plan lacks %q:\n%s", line, &out)
		}
	}
	for _, tt := range []struct {
		best, asked int
		sizes       []Size
		want        string
	}{
		{0, 16, []Size{{BatchSize: 16, Problem: "x"}}, "no batch size that was tried"},
		{8, 16, []Size{{BatchSize: 8}, {BatchSize: 16, Problem: "x"}}, "--batch-size 16 cannot be trained with"},
		{32, 16, []Size{{BatchSize: 16, ExamplesPerSecond: 10}, {BatchSize: 32, ExamplesPerSecond: 12}}, "--batch-size 32 is 20 % faster than 16"},
	} {
		p := Plan{Best: tt.best, Asked: tt.asked, Sizes: tt.sizes}
		if got := p.advice(); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q; expected %q", got, tt.want)
		}
	}
}

// A probe whose journal has one stretch only cannot be read.
func TestPredictOfLittle(t *testing.T) {
	s := Size{}
	s.predict(train.Outline{}, params.Defaults(), &observed{process: runfolder.Process{Phases: []runfolder.Phase{{Kind: runfolder.Training}}}})
	if s.Problem == "" {
		t.Error("no problem with one stretch of training")
	}
}
