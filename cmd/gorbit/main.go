// Command gorbit trains TensorFlow models from Go: it converts text to TFRecords,
// trains exported graphs on them, evaluates, predicts and exports.
//
// Exit codes: 0 done, 1 failed, 2 usage (flags or params), 3 damaged data (records,
// checkpoints or rows), 75 stopped by a signal after saving: the same command continues the run.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/params"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run runs the command line and returns the exit code.
func run(args []string) int {
	ctx, stop := stopContext(args)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return fault.ExitDone
	}
	code := exitCode(err)
	// A run that was told to stop, and one that launch started, have already reported it.
	if code != fault.ExitStopped && !is[*chiefError](err) {
		fmt.Fprintln(os.Stderr, fault.Program+message(err))
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
