package train

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/record"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// journal tells in the run's folder which process trained, on what, and how it ended. The run does
// not depend on it, so that a journal that cannot be written is a warning.
type journal struct {
	process int
	opened  time.Time        // when the process began to open the graph and the data
	memory  record.MemoryUse // at that time
	began   time.Time        // zero before the first step
	peak    float64          // of the devices, in FLOPs per second; 0 if it was not measured
	step    func() int64
	spent   runfolder.Spent // on training
}

// journalStart writes that this process is about to make its first step. Attempts after the first one
// belong to the same process.
func (t *training) journalStart(on strategy.Runtime, step func() int64) {
	first := t.journal.began.IsZero()
	t.journal.step = step
	if !first {
		return
	}
	t.journal.began, t.journal.process = time.Now(), os.Getpid()
	host, _ := os.Hostname()
	contract := t.Export.Contract
	start := runfolder.Start{
		Time: t.journal.began.Truncate(time.Second), Process: t.journal.process, Host: host,
		Gorbit: t.env.Version, Go: runtime.Version(), TensorFlow: tf.Version(),
		Processor: devices.Processor(), Cores: runtime.NumCPU(), MemoryMiB: record.MachineMemory() >> 20,
		Devices: on.Devices, Kernels: on.Kernels, Precision: contract.Precision,
		Model: contract.Model.Architecture, Parameters: contract.Parameters(),
		Step: step(), Steps: t.steps, StepsPerEpoch: t.examples.BatchesPerEpoch(), Examples: t.examples.NumExamples(),
	}
	if t.Params.Train.BatchWarmup != "" {
		start.StepsPerEpoch = 0 // not the same in all epochs
	}
	start.OffloadedBytes = on.OffloadedBytes
	start.PeakFLOPS = record.MachinePeak(on, contract.Precision, t.Params.Strategy.Kind())
	t.journal.peak = start.PeakFLOPS
	if opened := t.journal.opened; !opened.IsZero() {
		start.InitSeconds, start.Memory = words.Rounded(t.journal.began.Sub(opened).Seconds(), 3), record.MemoryNow().Since(t.journal.memory)
	}
	if order, err := t.Params.BestOrder(loop.KnownTask(contract)); err == nil && t.Params.Checkpoint.Best != "" && t.evaluations != nil {
		start.Best, start.Mode = t.Params.Checkpoint.Best, params.BestModes[order]
	}
	t.warnJournal(runfolder.AppendStart(t.folder, start))
}

// journalEnd writes how this process ended: with err, or nil if the run is complete.
func (t *training) journalEnd(ctx context.Context, err error) {
	if t.journal.began.IsZero() {
		return
	}
	end := runfolder.End{Time: time.Now().Truncate(time.Second), Process: t.journal.process, Outcome: runfolder.Finished,
		Step: t.journal.step(), Seconds: words.Rounded(time.Since(t.journal.began).Seconds(), 1), PeakMemoryMiB: record.PeakMemory() >> 20, MemoryAfter: record.Memory()}
	switch {
	case errors.Is(err, runner.ErrStopped) || err != nil && ctx.Err() != nil:
		end.Outcome = runfolder.Stopped
	case err != nil:
		end.Outcome, end.Error = runfolder.Failed, err.Error()
	}
	t.warnJournal(runfolder.AppendEnd(t.folder, end))
}

// journalPhases writes phases that have ended.
func (t *training) journalPhases(ended []runfolder.Phase) {
	t.warnJournal(runfolder.AppendPhases(t.folder, ended))
}

func (t *training) warnJournal(err error) {
	if err != nil {
		t.env.Log.Warn("cannot write the journal of the run", "file", runfolder.Journal, "error", err)
	}
}

// tellTrainerState writes trainer_state.json. The run does not depend on it.
func (t *training) tellTrainerState(state runner.RunState) {
	t.warnTrainerState(runfolder.WriteTrainerState(t.folder, t.course(), state))
}

func (t *training) warnTrainerState(err error) {
	if err != nil {
		t.env.Log.Warn("cannot write the state of the trainer", "file", runfolder.Trainer, "error", err)
	}
}

// course returns what trainer_state.json says of the run's params.
func (t *training) course() runfolder.Course {
	p := t.Params
	course := runfolder.Course{MaxSteps: t.steps, Data: t.examples, BatchSize: int64(p.Train.BatchSize), Evaluates: t.evaluations != nil,
		LogEvery: p.Train.StepsPerLoop.Steps(), EvalEvery: p.Train.EvalInterval.Steps(), SaveEvery: p.Checkpoint.Interval.Steps()}
	if p.Train.EvalInterval == -1 { // at the end
		course.EvalEvery = t.steps
	}
	return course
}
