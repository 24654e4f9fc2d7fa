package forecast

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Prober trains for a few steps.
type Prober struct {
	// Program is gorbit, and Args are its flags before those of the probe.
	Program string
	Args    []string
	// Steps is the number of steps that are measured. As many are made before them, to warm up.
	Steps int64
	// EvalSteps is the most batches of an evaluation.
	EvalSteps int64
	// Memory is the most memory that a training may have, in bytes; 0 is any.
	Memory int64
	// Dump gets all that a training printed which crashed.
	Dump io.Writer
}

// overlapped is the number of steps that are made while a checkpoint is written.
const overlapped = 2

// params returns those of a probe: the run's own, for a few steps. The first loop warms up. After the
// second one there are an evaluation and a save, and overlapped steps while it is written, with an
// evaluation and a save at the end.
func (p Prober) params(of params.Params) params.Params {
	of.Train.StepsPerLoop = params.Interval(p.Steps)
	of.Train.Steps = 2*p.Steps + overlapped
	if of.Train.EvalInterval != -2 {
		of.Train.EvalInterval = params.Interval(2 * p.Steps)
	}
	if of.Eval.Steps == 0 || of.Eval.Steps > p.EvalSteps {
		of.Eval.Steps = p.EvalSteps
	}
	of.Train.Patience = 0
	if of.Optimizer.Schedule == runner.OnPlateau { // it needs evaluations
		of.Optimizer.Schedule, of.Optimizer.Plateau.Metric = runner.Constant, ""
	}
	of.Optimizer.WarmupSteps, of.Optimizer.WarmupRatio = 0, 0
	of.Checkpoint.Interval, of.Checkpoint.MaxToKeep, of.Checkpoint.KeepEveryHours, of.Checkpoint.Best = params.Interval(2*p.Steps), 1, 0, ""
	return of
}

// OutOfMemoryError says that a training does not fit in the memory.
type OutOfMemoryError struct{ Reason string }

func (e *OutOfMemoryError) Error() string { return "does not fit: " + e.Reason }

// observed is what a probe left.
type observed struct {
	process    runfolder.Process
	checkpoint int64 // bytes of a checkpoint
}

// run trains with the params in a folder of its own, which it removes.
func (p Prober) run(ctx context.Context, of params.Params) (*observed, error) {
	dir, err := os.MkdirTemp("", "gorbit-plan-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	text, err := p.params(of).YAML()
	if err != nil {
		return nil, err
	}
	file, run := filepath.Join(dir, "params.yaml"), filepath.Join(dir, "run")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	if err := p.train(ctx, "train", "--params", file, "--run", run, "--progress", "off"); err != nil {
		return nil, err
	}
	read, err := runfolder.Read(run, false, time.Now())
	if err != nil {
		return nil, err
	}
	if len(read.Processes) != 1 || read.Processes[0].End == nil {
		return nil, errors.New("the probe has no journal")
	}
	out := &observed{process: read.Processes[0]}
	for i, f := range out.process.Phases {
		if f.Kind == runfolder.Training && i > 0 && f.Accumulate > int64(of.Strategy.Accumulate) {
			return nil, &OutOfMemoryError{fmt.Sprintf("memory ran out, and its batches were divided into %d parts one after the other", f.Accumulate)}
		}
	}
	out.checkpoint, err = size(filepath.Join(run, runfolder.Checkpoints))
	return out, err
}

// size returns the bytes of the files in a folder.
func size(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// train runs the program to its end. It is killed when it has more memory than it may have; if the
// system's memory runs out all the same, the system ends it before all others.
func (p Prober) train(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, p.Program, append(p.Args, args...)...)
	cmd.Args[0] = "gorbit"
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TF_CONFIG=") { // the machines of a cluster are not started here
			cmd.Env = append(cmd.Env, v)
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("1000"), 0) // as far as the system has it
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if p.Memory > 0 && devices.Resident(cmd.Process.Pid) > p.Memory {
				over.Store(true)
				_ = cmd.Process.Kill()
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case over.Load():
		return &OutOfMemoryError{fmt.Sprintf("it takes more than %s", mebibytes(p.Memory))}
	case err == nil:
		return nil
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		if status.Signal() == syscall.SIGKILL {
			return &OutOfMemoryError{"the system killed it, as it does when memory runs out"}
		}
		if _, err := p.Dump.Write(out.Bytes()); err != nil {
			return err
		}
	}
	last, _ := fault.Last(out.String())
	if strings.Contains(last, "out of memory") || strings.Contains(out.String(), "std::bad_alloc") {
		return &OutOfMemoryError{last}
	}
	return errors.New(last)
}
