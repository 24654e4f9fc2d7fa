package testkit

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// commandTime is how long a command of a test may take. It is far more than any needs.
	commandTime = 10 * time.Minute
	// printTime is how long it may take to print its goroutines.
	printTime = 20 * time.Second
)

// Command is exec.Command for a test. If the command still runs after ten minutes, or shortly before the
// test's own deadline, it has to print all its goroutines and to end (SIGQUIT), and the test fails with
// what it has written to standard error. It is killed if it outlives the test.
func Command(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	limit := commandTime
	if own, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := own.Deadline(); ok {
			limit = min(limit, time.Until(end)-2*printTime)
		}
	}
	late, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return command(t, late, program, args...)
}

// command is Command with a context that ends when the command has to end.
func command(t testing.TB, late context.Context, program string, args ...string) *exec.Cmd {
	began := time.Now()
	ctx, cancel := context.WithCancel(late)
	cmd := exec.CommandContext(ctx, program, args...)
	var asked atomic.Bool
	cmd.Cancel = func() error {
		if late.Err() == nil { // the test has ended
			return cmd.Process.Kill()
		}
		asked.Store(true)
		if err := errors.Join(cmd.Process.Signal(syscall.SIGQUIT), cmd.Process.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
		for end := time.Now().Add(printTime); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if cmd.Process.Signal(syscall.Signal(0)) != nil { // it has ended
				return nil
			}
		}
		return cmd.Process.Kill()
	}
	t.Cleanup(func() {
		cancel()
		if asked.Load() {
			t.Errorf("%v still ran after %v and had to print its goroutines:\n%s", cmd, time.Since(began).Round(time.Second), written(cmd))
		}
	})
	return cmd
}

// written returns what a command that has ended wrote to standard error, if that was kept.
func written(cmd *exec.Cmd) string {
	switch w := cmd.Stderr.(type) {
	case fmt.Stringer:
		return w.String()
	case interface{ Bytes() []byte }: // of Output
		return string(w.Bytes())
	}
	return ""
}
