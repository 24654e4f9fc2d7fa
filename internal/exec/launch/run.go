package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Config is the configuration of Run.
type Config struct {
	Commands
	// Token is the secret of the run, which processes that want one read from the first line of
	// standard input. Nothing else has it: no command line, no file, no log.
	Token string
	// Env is the environment of the processes; nil is this process' own.
	Env []string
	// MaxRestarts is how often workers, and a chief that crashed, may be started again, all of them
	// together.
	MaxRestarts int
	// RestartDelay is the time between the end of a process and its next start.
	RestartDelay time.Duration
	// Grace is how long a process may take to end when it is asked to, before it
	// is killed.
	Grace time.Duration
	// Stdout gets the chief's standard output. Stderr gets its standard error and all output of the
	// workers. Both get whole lines; lines of workers have a prefix.
	Stdout, Stderr io.Writer
	// Color shows prefixes in a colour per worker.
	Color bool
	// Log gets a line for each start, stop and restart.
	Log *slog.Logger
}

// Validate returns an error that names the field at fault.
func (c Config) Validate() error {
	switch {
	case len(c.Chief.Args) == 0:
		return errors.New("the chief has no command")
	case c.MaxRestarts < 0:
		return fmt.Errorf("max restarts is %d; expected 0 or more", c.MaxRestarts)
	case c.RestartDelay < 0 || c.Grace < 0:
		return fmt.Errorf("restart delay is %v and grace period is %v; expected 0 or more", c.RestartDelay, c.Grace)
	}
	return nil
}

// WorkerError reports a worker of this machine that could not be started, or that ended and was not
// restarted.
type WorkerError struct {
	Name, Address string
	// How it ended, such as "exit code 1" or "signal SIGKILL", and the last line
	// that it wrote.
	How, Last string
	// Restarts is how often processes had been started again.
	Restarts int
	// Err is why it could not be started at all.
	Err error
}

func (e *WorkerError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s at %s: %v", e.Name, e.Address, e.Err)
	}
	s := fmt.Sprintf("%s at %s ended with %s", e.Name, e.Address, e.How)
	if e.Restarts > 0 {
		s += fmt.Sprintf(", after %d restarts", e.Restarts)
	}
	if e.Last != "" {
		s += fmt.Sprintf("; its last line was: %s", e.Last)
	}
	return s
}

func (e *WorkerError) Unwrap() error { return e.Err }

// exitUsage is the exit code for wrong usage. Restarting would not help.
const exitUsage = 2

// Run runs the commands of this machine until the chief ends, and returns the
// chief's exit code. A worker that ends earlier is restarted, and so is a chief that crashes.
//
// When the context ends, Run asks the chief to stop; it saves before it ends. If a worker cannot be
// restarted, Run stops the chief too and returns a *WorkerError. No process is left when Run returns.
func Run(ctx context.Context, c Config) (int, error) {
	if err := c.Validate(); err != nil {
		return 0, err
	}
	l := &launcher{Config: c}
	// Workers run longer than the chief, which needs them to save.
	serving, stopWorkers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorkers()
	training, stopChief := context.WithCancelCause(ctx)
	defer stopChief(nil)

	var workers sync.WaitGroup
	for i, w := range c.Workers {
		if !w.Local {
			continue
		}
		workers.Go(func() {
			if err := l.serve(serving, i, w); err != nil {
				stopChief(err)
			}
		})
	}
	stdout, stderr := &lines{out: c.Stdout}, &lines{out: c.Stderr}
	end, err := l.train(training, stdout, stderr)
	stdout.flush()
	stderr.flush()
	failed := context.Cause(training)
	stopWorkers()
	workers.Wait()
	if err != nil {
		return 0, err
	}
	code := exitCode(end)
	var worker *WorkerError
	if code != 0 && errors.As(failed, &worker) {
		return 0, worker
	}
	if code == killed {
		return 0, l.chiefError(end)
	}
	return code, nil
}

// launcher runs the commands and counts restarts.
type launcher struct {
	Config

	mu       sync.Mutex
	restarts int
}

// train runs the chief, and restarts it when it crashes, until the context ends. It returns what run
// does.
func (l *launcher) train(ctx context.Context, stdout, stderr io.Writer) (end, err error) {
	for {
		end, err = l.run(ctx, l.Chief, stdout, stderr)
		if err != nil || ctx.Err() != nil || !crashed(end) || l.Chief.startsAnew() {
			return end, err
		}
		n, again := l.again(killed)
		if !again {
			return end, nil
		}
		l.Log.Warn("the training crashed; restarting it, and it continues from the last checkpoint", "process", l.Chief.Name,
			"ended_with", how(end), "restart", n, "max_restarts", l.MaxRestarts)
		select {
		case <-ctx.Done():
			return end, nil
		case <-time.After(l.RestartDelay):
		}
	}
}

// chiefError returns the error of a chief that a signal ended.
func (l *launcher) chiefError(end error) error {
	text := fmt.Sprintf("%s ended with %s", l.Chief.Name, how(end))
	switch {
	case !crashed(end):
	case l.Chief.startsAnew():
		text += "; it was not started again, since " + overwrite + " would remove what it has saved: leave that out to continue the run"
	case l.restarts > 0:
		text += fmt.Sprintf(", after %d restarts", l.restarts)
	}
	return errors.New(text)
}

// serve runs a worker, and restarts it when it ends, until the context ends. The error is always a
// *WorkerError.
func (l *launcher) serve(ctx context.Context, i int, c Command) error {
	for {
		out := &lines{prefix: l.prefix(i, c), out: l.Stderr}
		end, err := l.run(ctx, c, out, out)
		last := out.flush()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return &WorkerError{Name: c.Name, Address: c.Address, Err: err}
		}
		n, again := l.again(exitCode(end))
		if !again {
			return &WorkerError{Name: c.Name, Address: c.Address, How: how(end), Last: last, Restarts: n}
		}
		l.Log.Warn("a worker ended; restarting it, and training continues from the last checkpoint", "worker", c.Name, "address", c.Address,
			"ended_with", how(end), "restart", n, "max_restarts", l.MaxRestarts)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(l.RestartDelay):
		}
	}
}

// again counts a restart if one is left and the exit code does not rule it out.
func (l *launcher) again(code int) (restarts int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if code == exitUsage || l.restarts == l.MaxRestarts {
		return l.restarts, false
	}
	l.restarts++
	return l.restarts, true
}

// run runs a command until it ends, and stops it when the context ends. The first error is the
// process's exit status, the second one says that it could not be started.
func (l *launcher) run(ctx context.Context, c Command, stdout, stderr io.Writer) (end, err error) {
	l.Log.Debug("start", "process", c.Name, "command", c.String())
	if c.Token {
		c.secret = l.Token
	}
	p, err := Start(c, l.Env, stdout, stderr)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		if p.Terminate(l.Grace) {
			l.Log.Warn("killed a process that did not end when asked to", "process", c.Name, "waited", l.Grace)
		}
	}
	return p.err, nil
}

// colors are the terminal colours of the workers' prefixes.
var colors = []int{36, 33, 35, 32, 34, 31}

func (l *launcher) prefix(i int, c Command) string {
	prefix := "[" + c.Name + "] "
	if !l.Color {
		return prefix
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colors[i%len(colors)], prefix)
}
