package forecast

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/exec/peak"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Size is what a training takes with a batch size.
type Size struct {
	BatchSize int `json:"batch_size"`
	// Problem says why it cannot be trained with; "" if it can. The rest is zero then.
	Problem string `json:"problem,omitempty"`

	SecondsPerStep    float64 `json:"seconds_per_step"`
	ExamplesPerSecond float64 `json:"examples_per_second"`
	TokensPerSecond   float64 `json:"tokens_per_second"`
	// Padding is the share of the rows' positions without a token, from 0 to 1.
	Padding float64 `json:"padding"`
	// FLOPS is in floating point operations per second, and MFU is their share of the machine's peak;
	// 0 if it is not known.
	FLOPS float64 `json:"flops_per_second"`
	MFU   float64 `json:"mfu"`
	// Memory is the most memory of the process, in bytes.
	Memory int64 `json:"memory_bytes"`

	// Steps, Evaluations and Saves are those that the run still has to do.
	Steps       int64 `json:"steps"`
	Evaluations int64 `json:"evaluations"`
	Saves       int64 `json:"saves"`
	// Seconds is the time of the run: the start, steps, evaluations and saves.
	Seconds      float64 `json:"seconds"`
	StartSeconds float64 `json:"start_seconds"`
	StepsSeconds float64 `json:"steps_seconds"`
	EvalSeconds  float64 `json:"eval_seconds"`
	SaveSeconds  float64 `json:"save_seconds"`

	// Checkpoint is the size of a checkpoint, and Disk that of all that the run keeps, in bytes.
	Checkpoint int64 `json:"checkpoint_bytes"`
	Kept       int64 `json:"checkpoints_kept"`
	Disk       int64 `json:"disk_bytes"`
	// Offload is strategy.offload, and Offloaded the size of what is in files by it.
	Offload   string `json:"offload,omitempty"`
	Offloaded int64  `json:"offloaded_bytes,omitempty"`

	devices   []string
	precision string
	tooLarge  bool // whether the problem is that it does not fit in the memory
}

// Plan is what a training takes.
type Plan struct {
	train.Outline
	// Sizes are the batch sizes, in rising order, and Asked is that of the params.
	Sizes []Size `json:"sizes"`
	Asked int    `json:"batch_size"`
	// Best is the fastest batch size by examples per second, and Largest is the largest that fits; 0 if
	// none does.
	Best    int `json:"best_batch_size"`
	Largest int `json:"largest_batch_size"`
	// Available is the memory that a training may have, in bytes.
	Available int64 `json:"memory_available"`
	// OnDisk is what the training takes with the params' batch size and strategy.offload=disk, or all if it
	// does not fit with that either, if it does not fit in the memory without. InMemory is the other way
	// round, if the params have it. Otherwise they are nil.
	OnDisk   *Size `json:"slots_on_disk,omitempty"`
	InMemory *Size `json:"slots_in_memory,omitempty"`
	// Files is how fast the disk of the run is, where the params have files on it (strategy.offload); nil
	// if that is not known.
	Files *peak.Disk `json:"files,omitempty"`
	// Products is how fast the machine's CPU multiplies in bf16 and in float32; nil if that is not
	// known, or the training is not on this CPU.
	Products *peak.Products `json:"products,omitempty"`
}

// New tries batch sizes, and says what a training with the params in a folder takes with each. tell is
// called before each of them. The params' own batch size is among them.
func New(ctx context.Context, p params.Params, folder string, sizes []int, by Prober, env train.Env, tell func(batchSize int)) (*Plan, error) {
	plan := &Plan{Asked: p.Train.BatchSize, Available: by.Memory}
	sizes = append(slices.Clone(sizes), p.Train.BatchSize)
	slices.Sort(sizes)
	for _, n := range slices.Compact(sizes) {
		tried := p
		if n != plan.Asked {
			tried.Train.BatchSize, tried.Train.BatchWarmup = n, ""
		}
		outline, err := train.NewOutline(ctx, tried, folder, env)
		if n == plan.Asked {
			if err != nil {
				return nil, err
			}
			plan.Outline = outline
		}
		s := Size{BatchSize: n, Offload: p.Strategy.Offload}
		switch need := plan.expected(n); {
		case err != nil:
			s.Problem = err.Error()
		case by.Memory > 0 && need > by.Memory:
			s.Problem, s.tooLarge = fmt.Sprintf("not tried: it would take some %s", mebibytes(need)), true
		default:
			tell(n)
			tried.Train.BatchWarmup = "" // its first steps are smaller than most
			err := s.try(ctx, by, outline, tried)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if n == plan.Asked && err != nil && !s.tooLarge {
				return nil, fmt.Errorf("a training of %d steps failed: %w", by.params(tried).Train.Steps, err)
			}
		}
		plan.Sizes = append(plan.Sizes, s)
	}
	if err := plan.elsewhere(ctx, p, by, tell); err != nil {
		return nil, err
	}
	fastest := 0.0
	for _, s := range plan.Sizes {
		if s.Problem == "" {
			plan.Largest = s.BatchSize
			if s.ExamplesPerSecond > fastest {
				plan.Best, fastest = s.BatchSize, s.ExamplesPerSecond
			}
		}
	}
	return plan, nil
}

// try trains for a few steps, and sets what that showed. The error is that of Problem.
func (s *Size) try(ctx context.Context, by Prober, o train.Outline, p params.Params) error {
	seen, err := by.run(ctx, p)
	if err != nil {
		s.Problem, s.tooLarge = err.Error(), errors.As(err, new(*OutOfMemoryError))
		return err
	}
	s.predict(o, p, seen)
	return nil
}

// elsewhere tries the params' batch size with the slots of the optimizer on disk, if it does not fit in the
// memory without, and with all on disk if it does not fit then; or in memory, if they are on disk.
func (p *Plan) elsewhere(ctx context.Context, of params.Params, by Prober, tell func(batchSize int)) error {
	asked := p.Of(p.Asked)
	var offloads []string
	switch {
	case of.Strategy.Offload != "":
		offloads = []string{""}
	case asked.tooLarge:
		offloads = []string{params.OffloadDisk, params.OffloadAll}
	}
	of.Train.BatchWarmup = ""
	for _, offload := range offloads {
		of.Strategy.Offload = offload
		if of.Validate() != nil {
			continue // such as a copy for each of several devices
		}
		tell(p.Asked)
		tried := &Size{BatchSize: p.Asked, Offload: offload}
		_ = tried.try(ctx, by, p.Outline, of) // is its Problem
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if offload == "" {
			p.InMemory = tried
			return nil
		}
		if p.OnDisk = tried; !tried.tooLarge {
			return nil
		}
	}
	return nil
}

// expected returns the memory that a batch size takes if it grows as it did between the two before, or
// 0 if there are no two.
func (p *Plan) expected(batchSize int) int64 {
	var known []Size
	for _, s := range p.Sizes {
		if s.Problem == "" {
			known = append(known, s)
		}
	}
	if len(known) < 2 {
		return 0
	}
	a, b := known[len(known)-2], known[len(known)-1]
	return b.Memory + int64(float64(b.Memory-a.Memory)/float64(b.BatchSize-a.BatchSize)*float64(batchSize-b.BatchSize))
}

// predict sets what a probe showed, and what the run takes by it.
func (s *Size) predict(o train.Outline, p params.Params, seen *observed) {
	var stretches, evals []runfolder.Phase
	saved := 0.0
	for _, f := range seen.process.Phases {
		switch f.Kind {
		case runfolder.Training:
			stretches = append(stretches, f)
		case runfolder.Evaluating:
			evals = append(evals, f)
		case runfolder.Saving:
			saved = max(saved, f.Seconds)
		}
	}
	if len(stretches) < 2 {
		s.Problem = "the probe ended before its second loop"
		return
	}
	cold, warm := stretches[0], stretches[1]
	own := warm.Seconds / float64(warm.Steps) // of the probe's batches
	s.ExamplesPerSecond, s.TokensPerSecond = float64(warm.Examples)/warm.Seconds, float64(warm.Tokens)/warm.Seconds
	s.Padding, s.FLOPS = warm.Padding, warm.FLOPs/warm.Seconds
	s.Memory = seen.process.End.PeakMemoryMiB << 20
	s.Offloaded = seen.process.Start.OffloadedBytes
	s.devices, s.precision = seen.process.Start.Devices, seen.process.Start.Precision

	// A step of packed rows takes as long as it has tokens.
	longer := 1.0
	if o.MeanTokens > 0 && warm.Tokens > 0 {
		longer = o.MeanTokens * float64(warm.Examples) / float64(warm.Tokens)
	}
	s.SecondsPerStep = own * longer
	s.ExamplesPerSecond /= longer

	s.Steps, s.Evaluations, s.Saves = o.Steps-o.Done, o.Evaluations, o.Saves
	s.StartSeconds = seen.process.Start.InitSeconds + max(0, cold.Seconds-float64(cold.Steps)*own)
	s.StepsSeconds = float64(s.Steps) * s.SecondsPerStep
	if n := len(evals); n > 0 && evals[n-1].Examples > 0 {
		last := evals[n-1]
		s.EvalSeconds = float64(s.Evaluations) * last.Seconds / float64(last.Examples) * float64(o.EvalExamples)
	}
	// By how much a save delays the steps during which it is written.
	delay := 0.0
	if len(stretches) > 2 {
		delay = min(saved, max(0, stretches[2].Seconds-float64(stretches[2].Steps)*own))
	}
	if s.Saves > 0 {
		s.SaveSeconds = float64(s.Saves-1)*delay + saved // the last one is waited for
	}
	s.Seconds = s.StartSeconds + s.StepsSeconds + s.EvalSeconds + s.SaveSeconds

	s.Checkpoint, s.Kept = seen.checkpoint, s.Saves
	if most := int64(p.Checkpoint.MaxToKeep); most > 0 {
		if s.Kept = min(s.Kept, most); p.Checkpoint.Best != "" && s.Evaluations > 0 {
			s.Kept = min(s.Saves, most+1)
		}
		if hours := p.Checkpoint.KeepEveryHours; hours > 0 {
			s.Kept = min(s.Saves, s.Kept+int64(s.Seconds/3600/hours))
		}
	}
	s.Disk = s.Kept * s.Checkpoint
}

// Of returns what the training takes with a batch size, or nil if it was not tried.
func (p *Plan) Of(batchSize int) *Size {
	i := slices.IndexFunc(p.Sizes, func(s Size) bool { return s.BatchSize == batchSize })
	if i < 0 {
		return nil
	}
	return &p.Sizes[i]
}

// SetPeak sets the shares of a machine's peak, in FLOPs per second. It sets none and returns false if a
// batch size is faster than the peak, which was measured wrongly then.
func (p *Plan) SetPeak(flops float64) bool {
	if slices.ContainsFunc(p.Sizes, func(s Size) bool { return s.FLOPS > flops }) {
		return false
	}
	for i := range p.Sizes {
		if flops > 0 {
			p.Sizes[i].MFU = p.Sizes[i].FLOPS / flops
		}
	}
	return true
}

// On returns the devices and the precision that were trained with, or nil if nothing fits.
func (p *Plan) On() (devices []string, precision string) {
	for _, s := range p.Sizes {
		if s.devices != nil {
			return s.devices, s.precision
		}
	}
	return nil, ""
}
