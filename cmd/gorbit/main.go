// Command gorbit trains TensorFlow models from Go: it converts text to TFRecords,
// trains exported graphs on them, evaluates, predicts and exports.
//
// Exit codes: 0 done, 1 failed, 2 usage (flags or params), 3 damaged data (records,
// checkpoints or rows), 75 stopped by a signal after saving: the same command continues the run. A crash
// ends with its signal: see package tfprocess.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/train/params"
)

// stderr is standard error for messages, in which may be what others wrote.
var stderr = shown.Writer(os.Stderr)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run runs the command line and returns the exit code.
func run(args []string) int {
	ctx, stop := stopContext(args)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(shown.Writer(os.Stdout))
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return fault.ExitDone
	}
	code := exitCode(err)
	// A run that was told to stop, and one that launch started, have already reported it.
	if code != fault.ExitStopped && !is[*chiefError](err) {
		fmt.Fprintln(stderr, fault.Program+message(err))
	}
	return code
}

// message returns what is printed of an error: one line, or one for each of several problems.
func message(err error) string {
	out := oneLine(err.Error())
	if several := (*params.PreflightError)(nil); errors.As(err, &several) {
		out = strings.Replace(out, oneLine(several.Error()), several.Lines(), 1)
	}
	return out
}

// oneLine joins the lines of a message with semicolons. It drops the lines in which TensorFlow
// names the place of an error in its graph.
func oneLine(message string) string {
	var kept []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "[[") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "; ")
}

func usagef(format string, args ...any) error { return fault.Usagef(format, args...) }

// trialVariable is set in the environment of a training that is a trial of gorbit tune, which tells errors
// of the machine from others by the exit code.
const trialVariable = "GORBIT_TRIAL"

// exitCode returns the exit code for an error: that of the training process if launch started
// one, otherwise that of the error's class.
func exitCode(err error) int {
	if chief := (*chiefError)(nil); errors.As(err, &chief) {
		return chief.code
	}
	if code := fault.ExitCode(err); code != fault.ExitFailed || os.Getenv(trialVariable) == "" || !fault.OfMachine(err) {
		return code
	}
	return fault.ExitMachine
}

func is[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

// stopContext returns a context that the first SIGINT, SIGTERM or SIGHUP cancels, with the
// signal's name as the cause. A second signal of any of these ends the process at once, whatever
// it is doing. A signal that was ignored when the process started, as SIGHUP is under nohup, stays
// ignored in this process and in its children.
func stopContext(args []string) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	heeded := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	if len(heeded) == 0 { // signal.Notify takes an empty list for all signals
		return ctx, func() { cancel(nil) }
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, heeded...)
	calls := new(atomic.Int64)
	ctx = context.WithValue(ctx, callsKey{}, calls)
	doing := func() string { return "stopping" }
	if len(args) > 0 && args[0] == "train" {
		doing = func() string { return stopsTraining(calls.Load()) }
	}
	if len(args) > 0 && args[0] == "watch" {
		doing = func() string { return "the run continues; watching ends" }
	}
	go stopOn(signals, doing, stderr, cancel, os.Exit)
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// callsKey is the key of the number of steps in a call of the devices, which stopContext's message
// names, in its context.
type callsKey struct{}

// tellCalls makes the message of a signal name the steps in a call.
func tellCalls(ctx context.Context, steps int) {
	if calls, ok := ctx.Value(callsKey{}).(*atomic.Int64); ok {
		calls.Store(int64(steps))
	}
}

// stopsTraining says when a training stops whose calls have so many steps; 0 means that it is not
// known yet.
func stopsTraining(steps int64) string {
	if steps > 1 {
		return fmt.Sprintf("saving and stopping within a call of %d steps", steps)
	}
	return "saving and stopping within a step"
}

// stopOn cancels at the first signal and exits at the second.
func stopOn(signals <-chan os.Signal, doing func() string, log io.Writer, cancel context.CancelCauseFunc, exit func(int)) {
	s := <-signals
	fmt.Fprintf(log, "gorbit: %v: %s; a second signal stops at once\n", s, doing())
	cancel(&fault.Error{Class: fault.Stopped, Err: errors.New(s.String())})
	<-signals
	exit(fault.ExitFailed)
}
