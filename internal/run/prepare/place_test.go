package prepare_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/train/params"
)

func TestLostWorker(t *testing.T) {
	because := func(address string, phase cluster.Phase, err error) error {
		return fmt.Errorf("step 3: %w", &cluster.WorkerError{Address: address, Phase: phase, Err: err})
	}
	worker := func(address string, phase cluster.Phase) error { return because(address, phase, errors.New("gone")) }
	died, cannot := &cluster.FailedError{Message: "its TensorFlow process ended"}, &cluster.FailedError{Message: "no such devices", Final: true}
	for _, test := range []struct {
		err  error
		lost bool
		left string // without what did not come back
	}{
		{worker("a:1", cluster.PhaseRun), true, "b:2"},
		{because("a:1", cluster.PhaseRun, died), true, "b:2"},
		{worker("a:1", cluster.PhaseReserve), true, "b:2"},
		{because("a:1", cluster.PhaseReserve, died), true, "b:2"},
		{because("a:1", cluster.PhaseReserve, cannot), false, "b:2"},
		{worker("a:1", cluster.PhaseStart), true, "b:2"},
		{because("a:1", cluster.PhaseStart, died), true, "b:2"},
		{because("a:1", cluster.PhaseStart, cannot), false, "b:2"},
		{errors.Join(worker("a:1", cluster.PhaseStart), because("b:2", cluster.PhaseStart, cannot)), false, ""},
		{worker("a:1", cluster.PhaseConnect), false, "b:2"},
		{worker("b:2", cluster.PhaseGreet), false, "a:1"},
		{errors.Join(worker("a:1", cluster.PhaseConnect), worker("b:2", cluster.PhaseConnect)), false, ""},
		{fmt.Errorf("step 3: %w", &strategy.SessionLostError{Err: errors.New("reset")}), true, ""},
		{fmt.Errorf("step 3: %w", &cluster.PausedError{Paused: time.Minute, Timeout: time.Minute, Err: worker("a:1", cluster.PhaseRun)}), true, ""},
		{errors.New("disk full"), false, ""},
	} {
		if got := prepare.LostWorker(test.err); got != test.lost {
			t.Errorf("%v: lost is %v", test.err, got)
		}
		left, some := prepare.WithoutWorkers(params.Strategy{Workers: "a:1,b:2"}, test.err)
		if !some {
			left.Workers = ""
		}
		if left.Workers != test.left {
			t.Errorf("%v: %q are left, want %q", test.err, left.Workers, test.left)
		}
	}
}

// TestLostCause wants the worker and the cause first, however long the rest is.
func TestLostCause(t *testing.T) {
	long := "ABORTED: From /job:worker: " + strings.Repeat("[[{{node apply/gradients}}]]\n\t", 50)
	for want, err := range map[string]error{
		"worker a:1: run: after 0s: gone; the worker ended":                       &cluster.WorkerError{Address: "a:1", Phase: cluster.PhaseRun, Err: errors.New("gone")},
		"lost the session with the workers: ABORTED: From /job:worker: [[{{node ": &strategy.SessionLostError{Err: errors.New(long)},
		"the chief itself did not run for 1m0s":                                   &cluster.PausedError{Paused: time.Minute, Timeout: time.Minute, Err: &cluster.WorkerError{Address: "a:1", Err: errors.New("gone")}},
	} {
		got := prepare.LostCause(fmt.Errorf("step 3 on records %s and 28 more: training step: %w", strings.Repeat("train-00000-of-00002.tfrecord:17, ", 14), err)).Error()
		if !strings.HasPrefix(got, want) || len(got) > 350 || strings.Contains(got, "\n") {
			t.Errorf("%d bytes: %s\nwant to begin with %s", len(got), got, want)
		}
	}
}

// A start is tried again only if the params say so, and a stop ends the wait.
func TestStartTPUWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nothing listens there
	for _, test := range []struct {
		name  string
		wait  bool
		stop  bool
		lines int
	}{{"no wait", false, false, 0}, {"waits", true, false, 1}, {"stopped", true, true, 1}} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			var lines bytes.Buffer
			log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
				if test.stop {
					cancel(fault.Stopped)
				}
				return lines.Write(b)
			}), nil))
			s := params.Defaults().Strategy
			s.TPU, s.TPUWait, s.TPUReadyTimeout = "grpc://"+l.Addr().String(), test.wait, 1500*time.Millisecond
			_, err := prepare.StartTPU(ctx, s, log)
			down := (*tpu.SystemError)(nil)
			if test.stop != errors.Is(err, fault.Stopped) || !test.stop && !errors.As(err, &down) {
				t.Errorf("error %v", err)
			}
			if n := strings.Count(lines.String(), "waiting for the TPU"); n != test.lines {
				t.Errorf("%d lines of waiting, want %d:\n%s", n, test.lines, lines.String())
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestNoGPU wants to hear whether it is TensorFlow that cannot use a GPU, or the machine that has none.
func TestNoGPU(t *testing.T) {
	if n, err := cuda.Count(); n > 0 || err != nil {
		t.Skip("this machine has GPUs, and the test is of one that has none")
	}
	why := cuda.NotBuilt
	if cuda.Built() {
		why = "this machine has no GPU that TensorFlow can use; see gorbit devices"
	}
	for want, s := range map[string]params.Strategy{
		"params: strategy.devices is gpu, but " + why:                                                        {Devices: "gpu"},
		"params: strategy.name is mirrored, but " + why + "; or name other devices, as with --devices cpu:2": {Name: "mirrored"},
	} {
		if _, err := prepare.OpenLocal(t.Context(), params.Params{Strategy: s}, &graphs.Export{}, strategy.FunctionsEvaluate); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
