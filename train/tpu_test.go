package train

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/train/params"
)

// What a TPU does not have is refused by name, and so is what only a TPU has.
func TestTPUParams(t *testing.T) {
	for _, name := range []string{"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG"} {
		t.Setenv(name, "")
	}
	const here = "grpc://10.0.0.2:8470"
	for _, test := range []struct {
		set  []string
		want string // the error, "" for none
	}{
		{set: []string{"strategy.tpu=" + here}},
		{set: []string{"strategy.tpu=local"}},
		{set: []string{"strategy.tpu=node-1", "strategy.tpu_zone=us-central1-b", "strategy.tpu_project=p-1", "strategy.tpu_wait=true", "strategy.tpu_ready_timeout=30m"}},
		{set: []string{"strategy.tpu=grpc://"}, want: `address is "grpc://" (no host)`},
		{set: []string{"strategy.tpu=Node"}, want: `TPU name is "Node"`},
		{set: []string{"strategy.name=tpu"}, want: "no TPU given; expected --tpu NAME"},
		{set: []string{"strategy.tpu=" + here, "strategy.name=mirrored", "strategy.devices=cpu:2"}, want: "strategy.tpu is set, which is only for strategy tpu"},
		{set: []string{"strategy.tpu_zone=us-central1-b"}, want: "strategy.tpu_zone is set, which is only for strategy tpu; name a TPU with strategy.tpu, or leave it out"},
		{set: []string{"strategy.tpu_wait=true"}, want: "strategy.tpu_wait is set, which is only for strategy tpu"},
		{set: []string{"strategy.tpu_timeout=1m"}, want: "strategy.tpu_timeout is set, which is only for strategy tpu"},
		{set: []string{"strategy.tpu=" + here, "strategy.tpu_wait=true"}, want: "strategy.tpu_ready_timeout is 0; expected how long to wait"},
		{set: []string{"strategy.tpu=" + here, "strategy.tpu_timeout=10ms"}, want: "strategy.tpu_timeout is 10ms; expected 1s to 1h"},
		{set: []string{"strategy.tpu=" + here, "strategy.tpu_ready_timeout=-1s"}, want: "ready timeout is -1s"},
		{set: []string{"strategy.tpu=" + here, "strategy.devices=cpu:2"}, want: "strategy.devices is set, which is not for a TPU; leave it out"},
		{set: []string{"strategy.tpu=" + here, "strategy.workers=a:1"}, want: "workers is a:1, which is only for strategy multiworker"},
		{set: []string{"strategy.tpu=" + here, "strategy.accumulate=2"}, want: "strategy.accumulate is set"},
		{set: []string{"strategy.tpu=" + here, "strategy.elastic=true"}, want: "strategy.elastic is set"},
		{set: []string{"strategy.tpu=" + here, "strategy.shard_optimizer=true"}, want: "strategy.shard_optimizer is set"},
		{set: []string{"strategy.tpu=" + here, "strategy.bucket_mb=2"}, want: "strategy.bucket_mb is set"},
		{set: []string{"strategy.tpu=" + here, "runtime.device=/device:CPU:0"}, want: "runtime.device is"},
		{set: []string{"strategy.tpu=" + here, "runtime.lanes=2"}, want: "runtime.lanes is set"},
		{set: []string{"strategy.tpu=" + here, "runtime.kernels='off'"}, want: "runtime.kernels is set"},
		{set: []string{"strategy.tpu=" + here, "runtime.intra_op_threads=2"}, want: "runtime.intra_op_threads is set"},
	} {
		p := params.Defaults()
		p.Graph, p.Data.Dir = "graph", "data"
		if err := p.Load(nil, test.set); err != nil {
			t.Fatal(err)
		}
		err := p.Validate()
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || !errors.Is(err, fault.Usage)) {
			t.Errorf("%v: error %v, want %q", test.set, err, test.want)
		}
		if err == nil && p.Strategy.Kind() != devices.TPU {
			t.Errorf("%v: the strategy is %s", test.set, p.Strategy.Kind())
		}
	}
	t.Setenv("TPU_NAME", here)
	p := params.Defaults()
	p.Graph, p.Data.Dir, p.Strategy.Name = "graph", "data", "tpu"
	if err := p.Validate(); err != nil {
		t.Errorf("TPU_NAME is not taken: %v", err)
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

// A run that began on CPUs continues on a TPU without their kernels and lanes.
func TestKeepOnTPU(t *testing.T) {
	dir := t.TempDir()
	before := params.Defaults()
	before.Runtime.Lanes, before.Runtime.Kernels, before.Data.RowLength = 2, "off", 24
	text, err := before.YAML()
	if err == nil {
		err = runfolder.Replace(dir+"/"+runfolder.Params, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := params.Defaults()
	p.Strategy.TPU = "local"
	if kept := p.Keep(filepath.Join(dir, runfolder.Params)); len(kept) > 0 || p.Runtime.Lanes != 0 || p.Runtime.Kernels != "on" || p.Data.RowLength != 24 {
		t.Errorf("kept %v: lanes %d, kernels %s, rows of %d", kept, p.Runtime.Lanes, p.Runtime.Kernels, p.Data.RowLength)
	}
	p.Strategy.TPU = ""
	if p.Keep(filepath.Join(dir, runfolder.Params)); p.Runtime.Lanes != 2 || p.Runtime.Kernels != "off" {
		t.Errorf("on CPUs: lanes %d, kernels %s", p.Runtime.Lanes, p.Runtime.Kernels)
	}
}

// Graphs that do not fit are refused before the TPU is started.
func TestTPUGraphs(t *testing.T) {
	export, _ := opened(t, testParams(t))
	for _, test := range []struct {
		change func(c *graphs.Contract)
		want   string
	}{
		{func(*graphs.Contract) {}, ""},
		{func(c *graphs.Contract) { c.Precision = graphs.FP16 }, "export the graph with --precision bf16 or float32"},
		{func(c *graphs.Contract) { c.Features[0].Axes = []string{"rows", "words"} }, "has an axis words, and strategy is tpu"},
	} {
		c := *export.Contract
		c.Features = slices.Clone(c.Features)
		test.change(&c)
		err := prepare.CheckTPUGraph(&c)
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || !errors.Is(err, fault.Usage)) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
	p := testParams(t)
	p.Strategy.TPU, p.Data.Rows = "grpc://127.0.0.1:1", 8
	p.Graph = narrow(t, graphs.FP16).Graph
	if _, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet()); err == nil || !strings.Contains(err.Error(), "export the graph with --precision") {
		t.Errorf("training a graph in fp16: %v", err)
	}
}
