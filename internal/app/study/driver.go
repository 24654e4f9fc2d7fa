package study

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/app/tune"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// Files and folders of a study.
const (
	JournalFile = "journal.log"
	BaseFile    = "base.yaml"
	BestFile    = "best.yaml"
	ReportFile  = "report.html"
	logFolder   = "logs"
)

// Process is the training of a trial.
type Process interface {
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Code is its exit code then, or -1 if a signal ended it, and How says it in words.
	Code() int
	How() string
	// Terminate asks the process to save and end, and kills it after the grace period.
	Terminate(grace time.Duration) (killed bool)
}

// Job is a trial that is about to be trained.
type Job struct {
	// Number is the trial's, and Folder that of its run.
	Number int
	Folder string
	// Settings are its params, of the form "section.name=value", in the order of the study's space.
	Settings []string
	// Cores are those that it may use; none means all.
	Cores []int
	// Log gets what the process prints.
	Log *os.File
}

// Driver runs the trials of a study.
type Driver struct {
	// Folder is the study's, and Journal the one in it.
	Folder  string
	Journal *Journal
	// Slots are the trials that run side by side, each with the cores that it may use; none of them
	// means all.
	Slots [][]int
	// Start starts the training of a trial.
	Start func(Job) (Process, error)
	// Value writes a value of a param as a setting has it.
	Value func(d tune.Distribution, v float64) string
	// Poll is the time between two looks at the metrics of a trial, and Grace the time that a process
	// may take to save and end.
	Poll, Grace time.Duration
	// Out gets a line for each trial that begins and ends.
	Out io.Writer
	Log *slog.Logger
	Now func() time.Time

	objective string
	taken     map[int]bool // trials that a slot runs; guarded by the journal
	ended     int          // trials that this process has ended; guarded by the journal
	broken    []stopped    // trials that the machine stopped; guarded by the journal
}

// stopped is a trial that the machine stopped, by a signal or an error such as a full disk, and what was
// said of it. It is not over: the same command continues with it.
type stopped struct {
	trial    int
	sentence string
}

// mostBroken is the number of trials that the machine stops before a study begins no more of them.
const mostBroken = 3

// Run runs trials until the study is done. If the context is cancelled, the trials save and stop, and
// Run returns the cause, of class fault.Stopped. If the first trials all fail, Run returns an error
// with what the last of them said; called again, it tries one more. Trials that the machine stopped are an
// error as well; called again, Run continues with them.
func (d *Driver) Run(ctx context.Context) error {
	d.taken, d.ended, d.broken = make(map[int]bool), 0, nil
	d.Journal.View(func(s *tune.Study) {
		c, _ := s.Config()
		d.objective = c.Objective
	})
	group, ctx := errgroup.WithContext(ctx)
	for _, cores := range d.Slots {
		group.Go(func() error {
			for {
				job, err := d.next(ctx)
				if err != nil || job == nil {
					return err
				}
				job.Cores = cores
				if err := d.run(ctx, *job); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if n := len(d.broken); n > 0 {
		var numbers []string
		for _, b := range d.broken {
			numbers = append(numbers, strconv.Itoa(b.trial))
		}
		return fmt.Errorf("the machine stopped trials before their end (%s), the last one with: %s; see %s; the same command continues them", strings.Join(numbers, ", "), d.broken[n-1].sentence, filepath.Join(d.Folder, logFolder))
	}
	var sentence string
	next := "the same command tries the next trial"
	d.Journal.View(func(s *tune.Study) {
		sentence = d.hopeless(s)
		if s.Ask(d.Now()) == nil {
			next = "a larger --trials tries another one"
		}
	})
	if sentence != "" {
		return fmt.Errorf("the first trials all failed, the last one with: %s; see %s; %s", sentence, filepath.Join(d.Folder, logFolder), next)
	}
	return nil
}

// hopeless returns the error of the last trial if the first ones all failed, the last of them in this
// process, and "" otherwise: what they failed of, such as a full disk, may be mended since.
func (d *Driver) hopeless(s *tune.Study) string {
	if d.ended == 0 {
		return ""
	}
	return s.Hopeless()
}

// next returns a trial that is to be run: one that runs by the journal and that no process trains, or
// else a new one. It returns nil if there is none.
func (d *Driver) next(ctx context.Context) (job *Job, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	take := func(s *tune.Study) {
		if len(d.broken) >= mostBroken {
			return
		}
		for _, t := range s.Trials() {
			if t.Own() && t.State == tune.Running && !d.taken[t.Number] {
				d.taken[t.Number] = true
				job = d.job(s, t)
				return
			}
		}
	}
	for asked := true; asked && job == nil; {
		err = d.Journal.Update(ctx, func(s *tune.Study) ([]tune.Op, error) {
			asked = false
			if take(s); job != nil || d.hopeless(s) != "" || len(d.broken) >= mostBroken {
				return nil, nil
			}
			op := s.Ask(d.Now())
			if op == nil {
				return nil, nil
			}
			asked = true
			return []tune.Op{op}, d.unused(len(s.Trials()))
		})
		if err != nil {
			return nil, err
		}
		if asked {
			d.Journal.View(take) // unless another slot has taken the new trial: then one more
		}
	}
	return job, nil
}

// unused returns an error if there is a run where a new trial's would be. It is not the trial's: it was
// made with other params, by a study whose journal is gone.
func (d *Driver) unused(trial int) error {
	folder := filepath.Join(d.Folder, filepath.FromSlash(tune.RunFolder(trial)))
	switch _, err := os.Lstat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fault.Usagef("%s is there, and %s says nothing of trial %d; expected no run where a new trial's is made; remove the runs that an earlier study left, or choose another folder with --study", folder, d.Journal.path, trial)
}

// job describes a trial.
func (d *Driver) job(s *tune.Study, t *tune.Trial) *Job {
	j := &Job{Number: t.Number, Folder: filepath.Join(d.Folder, filepath.FromSlash(t.Run))}
	c, _ := s.Config()
	for _, p := range c.Space {
		if v, ok := t.Params[p.Name]; ok {
			j.Settings = append(j.Settings, p.Name+"="+d.Value(t.Distributions[p.Name], v))
		}
	}
	verb := "trial %d: %s\n"
	if _, err := os.Stat(j.Folder); err == nil {
		verb = "trial %d continues: %s\n"
	}
	fmt.Fprintf(d.Out, verb, t.Number, strings.Join(j.Settings, " "))
	return j
}

// run trains a trial to its end.
func (d *Driver) run(ctx context.Context, j Job) error {
	f := &follower{driver: d, job: j, log: runfolder.NewLog()}
	// An earlier process may have left evaluations by which the trial is over.
	over, err := f.tell(ctx)
	if err != nil {
		return err
	}
	sentence := ""
	if !over {
		var machine bool
		if sentence, machine, err = d.train(ctx, j, f); err != nil {
			return err
		}
		if machine {
			d.Journal.View(func(*tune.Study) { d.broken = append(d.broken, stopped{j.Number, sentence}) })
			fmt.Fprintf(d.Out, "trial %d was stopped: %s\n", j.Number, sentence)
			return nil
		}
	}
	err = d.Journal.Update(ctx, func(s *tune.Study) ([]tune.Op, error) {
		d.ended++
		return s.End(j.Number, sentence, d.Now()), nil
	})
	if err != nil {
		return err
	}
	d.Journal.View(func(s *tune.Study) { d.printEnd(s.Trials()[j.Number]) })
	return nil
}

// printEnd says how a trial ended.
func (d *Driver) printEnd(t *tune.Trial) {
	switch {
	case t.State == tune.Failed:
		fmt.Fprintf(d.Out, "trial %d failed: %s\n", t.Number, t.Error)
	case t.HasValue:
		fmt.Fprintf(d.Out, "trial %d %s: %s %.4g\n", t.Number, t.State, d.objective, t.Value)
	default:
		fmt.Fprintf(d.Out, "trial %d %s\n", t.Number, t.State)
	}
}

// train runs the process of a trial until it ends, or until the trial is over by what it evaluated.
// It returns the sentence of a failure, or "", and whether the failure is one of the machine.
func (d *Driver) train(ctx context.Context, j Job, f *follower) (sentence string, machine bool, err error) {
	if err := d.awaitFolder(ctx, j); err != nil {
		return "", false, err
	}
	path := filepath.Join(d.Folder, logFolder, fmt.Sprintf("%04d.log", j.Number))
	if err := vfs.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", false, err
	}
	j.Log, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return "", false, err
	}
	defer j.Log.Close()
	info, err := j.Log.Stat()
	if err != nil {
		return "", false, err
	}
	p, err := d.Start(j)
	if err != nil {
		return "", false, err
	}
	stop := func() {
		if p.Terminate(d.Grace) {
			d.Log.Warn("killed a trial that did not stop when asked to", "trial", j.Number, "waited", d.Grace)
		}
	}
	tick := time.NewTicker(d.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			stop()
			return "", false, context.Cause(ctx)
		case <-p.Done():
			// What it evaluated counts before how it ended.
			if over, err := f.tell(ctx); over || err != nil {
				return "", false, err
			}
			return ended(p, j.Log, info.Size())
		case <-tick.C:
			over, err := f.tell(ctx)
			if err != nil {
				stop()
				return "", false, err
			}
			if over {
				stop()
				return "", false, nil
			}
		}
	}
}

// ended returns the sentence of a failure, or "" for a training that is complete, and whether the failure
// is one of the machine.
func ended(p Process, log *os.File, from int64) (sentence string, machine bool, err error) {
	switch p.Code() {
	case fault.ExitDone:
		return "", false, nil
	case fault.ExitStopped:
		return "", false, &fault.Error{Class: fault.Stopped, Err: errors.New("the training of a trial was stopped by a signal")}
	}
	machine = p.Code() == fault.ExitMachine || p.Code() < 0
	if last := lastError(log, from); last != "" {
		return last, machine, nil
	}
	return "the training ended with " + p.How(), machine, nil
}

// lastError returns the last error that a process printed; "" if there is none.
func lastError(log *os.File, from int64) string {
	info, err := log.Stat()
	if err != nil {
		return ""
	}
	const most = 64 << 10 // the error is at the end
	from = max(from, info.Size()-most)
	text := make([]byte, info.Size()-from)
	n, _ := log.ReadAt(text, from)
	last, ok := fault.Last(string(text[:n]))
	if !ok {
		return ""
	}
	return last
}

// awaitFolder waits until no process trains in the run of a trial. One that a killed study left has
// been told to stop and saves.
func (d *Driver) awaitFolder(ctx context.Context, j Job) error {
	for said := false; ; said = true {
		holder, err := checkpoint.Holder(j.Folder)
		if err != nil || holder == nil {
			return err
		}
		if !said {
			d.Log.Info("waiting for a process that still trains the trial", "trial", j.Number, "process", holder.PID)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d.Poll):
		}
	}
}

// follower tells the journal what a trial evaluates.
type follower struct {
	driver *Driver
	job    Job
	log    *runfolder.Log
	told   int64 // the last step that was told
}

// tell tells the evaluations that are new, and returns whether the trial is over by them.
func (f *follower) tell(ctx context.Context) (over bool, err error) {
	d := f.driver
	if err := f.log.Follow(f.job.Folder); err != nil {
		return false, err
	}
	if damage := f.log.News(); damage != "" {
		d.Log.Warn("the trial is judged by the rest of its metrics", "trial", f.job.Number, "damage", damage)
	}
	if series := f.log.Eval[d.objective]; series != nil {
		for i, step := range series.Steps {
			if step <= f.told {
				continue
			}
			if over, err := f.report(ctx, tune.Report{Step: step, Value: series.Values[i]}); over || err != nil {
				return over, err
			}
			f.told = step
		}
	}
	d.Journal.View(func(s *tune.Study) {
		t := s.Trials()[f.job.Number]
		over = t.Prune || t.State != tune.Running // Optuna may have ended it
	})
	return over, nil
}

func (f *follower) report(ctx context.Context, r tune.Report) (over bool, err error) {
	err = f.driver.Journal.Update(ctx, func(s *tune.Study) ([]tune.Op, error) {
		if op := s.Report(f.job.Number, r); op != nil {
			return []tune.Op{op}, nil
		}
		return nil, nil
	})
	f.driver.Journal.View(func(s *tune.Study) {
		t := s.Trials()[f.job.Number]
		over = t.Prune || t.State != tune.Running
	})
	return over, err
}
