package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/doctor"
	"github.com/gorbit-ml/gorbit/internal/app/forecast"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/peak"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// planFlags are the flags of gorbit plan in addition to those of gorbit train.
type planFlags struct {
	run             string
	files, settings []string
	sizes           []int
	steps, evals    int64
	memory          float64
	json            bool
}

func newPlan(g *globals) *cobra.Command {
	var p planFlags
	cmd := &cobra.Command{
		Use:   "plan --graph EXPORT --data DATA [flags]",
		Short: "Say what a training will take, after a few steps",
		Long: `Says what gorbit train with the same flags will take: the time of the run with its
evaluations and checkpoints, memory, disk, and how fast other batch sizes are.

For each batch size it trains for a few steps and evaluates a few batches, in a process of
its own and a temporary folder. The run's folder is not changed. One that does not fit in
the memory ends alone, and is named as such.`,
		Example: `  gorbit plan --graph exports/mrpc --data data/mrpc --epochs 3
  gorbit plan --params base.yaml --run runs/mrpc --batch-sizes 16,64,256 --json`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&p.run, "run", "", "`FOLDER` that the run will be in, or is in: what is done of it is not planned again")
	f.StringArrayVar(&p.files, "params", nil, "YAML `FILE` of params; may be repeated, later files win")
	f.StringArrayVar(&p.settings, "set", nil, "one param, as `SECTION.NAME=VALUE`; may be repeated")
	help.Group(f, "The run and its params", "run", "params", "set")
	f.IntSliceVar(&p.sizes, "batch-sizes", nil, "batch sizes `N,N...` to try in addition to the run's own (default: half of it, twice and four times as many)")
	f.Int64Var(&p.steps, "probe-steps", 8, "steps `N` that are measured with each batch size, after as many to warm up")
	f.Int64Var(&p.evals, "probe-batches", 8, "batches `N` of an evaluation that are measured")
	f.Float64Var(&p.memory, "memory", 0, "memory in `GIB` that the training may have (default: what is available)")
	f.BoolVar(&p.json, "json", false, "print JSON")
	help.Group(f, "The plan", "batch-sizes", "probe-steps", "probe-batches", "memory", "json")
	short := addParams(f, trainGroups...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		base, _, err := train.LoadParams(cmd.Context(), p.run, func(base *params.Params) error {
			return base.Load(p.files, append(p.settings, short()...))
		})
		if err != nil {
			return err
		}
		return p.make(cmd, g, base)
	}
	return cmd
}

// check returns an error for a flag of the plan that makes no sense.
func (p *planFlags) check() error {
	switch {
	case p.steps < 1:
		return usagef("--probe-steps is %d; expected 1 or more", p.steps)
	case p.evals < 1:
		return usagef("--probe-batches is %d; expected 1 or more", p.evals)
	case !(p.memory >= 0) || math.IsInf(p.memory, 1):
		return usagef("--memory is %v; expected GiB, such as 8", p.memory)
	}
	for _, n := range p.sizes {
		if n < 1 {
			return usagef("--batch-sizes has %d; expected 1 or more", n)
		}
	}
	return nil
}

// make makes the plan and prints it.
func (p *planFlags) make(cmd *cobra.Command, g *globals, base params.Params) error {
	if err := p.check(); err != nil {
		return err
	}
	ctx, machine := cmd.Context(), doctor.ThisMachine(runtime.NumCPU())
	env, err := g.env(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	if p.run != "" && vfs.Scheme(p.run) == "" {
		base.Keep(vfs.Join(p.run, runfolder.Params))
	}
	if err := base.Absolute(); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	by := forecast.Prober{Program: program, Args: []string{"--log-level", "warn"}, Steps: p.steps, EvalSteps: p.evals, Memory: int64(p.memory * (1 << 30)), Dump: os.Stderr}
	for _, op := range g.allowOps {
		by.Args = append(by.Args, "--allow-op", op)
	}
	if by.Memory == 0 {
		const left = 0.95 // the rest of the system needs some, too
		by.Memory = int64(left * float64(available(machine)))
	}
	if p.sizes == nil {
		n := base.Train.BatchSize
		p.sizes = []int{max(1, n/2), 2 * n, 4 * n}
	}
	made, err := forecast.New(ctx, base, p.run, p.sizes, by, env, func(n int) {
		env.Log.Info("training for a few steps", "train.batch_size", n)
	})
	if err != nil {
		return err
	}
	p.measure(cmd, base, made, env)
	if at := existing(p.run); base.Strategy.Offload != "" && at != "" {
		disk, err := peak.MeasureDisk(cmd.Context(), at)
		if err != nil {
			env.Log.Warn("how fast the files of strategy.offload are is not known", "error", err)
		} else {
			made.Files = &disk
		}
	}
	if p.json {
		return writeJSON(cmd.OutOrStdout(), made)
	}
	return made.Write(cmd.OutOrStdout(), freeAt(machine, p.run))
}

// measure sets the plan's shares of the machine's peak, and how fast the machine's CPU multiplies in
// bf16 and in float32. What is not remembered is measured: after the trainings, of which it would take
// memory of a GPU.
func (p *planFlags) measure(cmd *cobra.Command, base params.Params, made *forecast.Plan, env train.Env) {
	on, precision := made.On()
	if on == nil || base.Strategy.Workers != "" || base.Strategy.TPU != "" || base.Strategy.Name == devices.TPU {
		return
	}
	key, n, ok := peak.Of(on, precision)
	if !ok {
		return
	}
	if key.Kind == "CPU" {
		products, err := measuredProducts(cmd.Context())
		if err != nil {
			env.Log.Warn("whether products in bf16 are slower than in float32 is not known", "error", err)
		} else {
			made.Products = &products
		}
	}
	if s := made.Sizes[0]; s.Problem == "" && s.FLOPS == 0 {
		return // the export does not say what its model costs
	}
	for _, again := range []bool{false, true} { // what is remembered may have been measured on a busy machine
		found, err := measuredPeak(cmd.Context(), key, again)
		if err != nil {
			env.Log.Warn("the machine's peak is not known", "error", err)
			return
		}
		if made.SetPeak(found.FLOPS * float64(n)) {
			return
		}
	}
	env.Log.Warn("the probes were faster than the machine's peak as it was measured: " + peak.Again)
}

// available returns how many bytes of a machine's memory a process may take; 0 if that is not known.
func available(machine doctor.Machine) int64 {
	free, _, limit := machine.Memory()
	return int64(min(free, limit))
}

// freeAt returns the free bytes of the disk of a folder, which may not be there yet; 0 if they are not
// known.
func freeAt(machine doctor.Machine, folder string) uint64 {
	at := existing(folder)
	if at == "" {
		return 0
	}
	free, _, err := machine.Space(at)
	if err != nil {
		return 0
	}
	return free
}

// existing returns the folder in which a folder is or would be made on a disk of this machine; "" if it is
// elsewhere.
func existing(folder string) string {
	if vfs.Scheme(folder) != "" {
		return ""
	}
	at, err := filepath.Abs(folder)
	if err != nil {
		return ""
	}
	for ; ; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil && info.IsDir() {
			return at
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// peakTime is how long products of one shape are measured.
const peakTime = 500 * time.Millisecond

// measuredPeak returns the peak of a device of this machine. If it is not remembered, or again is set,
// it is measured and remembered, unless the machine was busy (peak.BusyError).
func measuredPeak(ctx context.Context, key peak.Key, again bool) (peak.Peak, error) {
	store, err := peak.OfUser()
	if err != nil {
		return peak.Peak{}, err
	}
	if p, ok := store.Find(key); ok && !again {
		return p, nil
	}
	p, err := peak.Measure(ctx, key, peakTime)
	if err != nil {
		return p, err
	}
	return p, store.Keep(p)
}

// measuredProducts compares the products of this machine's CPU in bf16 and float32. They are measured
// together unless both are remembered: the speed of a shared machine changes by the hour.
func measuredProducts(ctx context.Context) (peak.Products, error) {
	store, err := peak.OfUser()
	if err != nil {
		return peak.Products{}, err
	}
	_, float32s := store.Find(peak.CPU("float32"))
	_, bf16s := store.Find(peak.CPU("bf16"))
	return peak.CompareProducts(ctx, devices.SlowBF16(), func(ctx context.Context, key peak.Key) (peak.Peak, error) {
		return measuredPeak(ctx, key, !float32s || !bf16s)
	})
}

// inspectPeaks reports the peaks of this machine that are remembered, or measures them. Precisions that
// the processor emulates are left out.
func inspectPeaks(ctx context.Context, measure bool) []doctor.Finding {
	keys := []peak.Key{peak.CPU("float32")}
	if devices.NativeBF16() {
		keys = append(keys, peak.CPU("bf16"))
	}
	if gpu, ok := peak.GPU("float32"); ok {
		gpu16 := gpu
		gpu16.Precision = "bf16"
		keys = []peak.Key{gpu, gpu16}
	}
	store, err := peak.OfUser()
	if err != nil {
		return nil // there is no place to remember it
	}
	var out []doctor.Finding
	for _, key := range keys {
		p, known := store.Find(key)
		if measure {
			if p, err = measuredPeak(ctx, key, true); err != nil {
				return append(out, doctor.Finding{Check: "peak", Level: doctor.Note, Text: err.Error(), Do: "trainings do not say which share of the peak they reach"})
			}
		}
		if known || measure {
			out = append(out, doctor.Finding{Check: "peak", Level: doctor.OK,
				Text: fmt.Sprintf("%sFLOP/s in matrix products in %s, measured %s", words.Scaled(p.FLOPS, " ", "k", "M", "G", "T", "P"), key.Precision, p.Measured.Local().Format(time.DateOnly))})
		}
	}
	return out
}
