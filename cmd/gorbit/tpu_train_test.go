package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
)

// tpuSteps is the number of steps of the runs of TestTrainOnTPU.
const tpuSteps = 20

// onTPU is a folder with a graph and data, and the result of a run on 2 CPU devices.
type onTPU struct {
	*user
	want    map[string]string // tensors
	metrics []metric
}

// metric is a line of metrics.jsonl.
type metric struct {
	Phase   string
	Step    int64
	Outputs runner.Outputs
}

// TestTrainOnTPU trains with the emulator of a TPU, in calls of one and of several steps, on one host
// of 2 cores and on two of 4, with interruptions and faults. A run must end as that on 2 CPU
// devices, but for rounding, or with one sentence.
func TestTrainOnTPU(t *testing.T) {
	t.Parallel()
	o := &onTPU{user: newUser(t)}
	o.fixture(400, "--split-by-hash", "id")
	o.start(t, o.train("cpus", "--devices", "cpu:2", "--set", "runtime.kernels=off")...).exits(fault.ExitDone)
	o.want, o.metrics = o.result(t, "cpus")

	for _, test := range []struct {
		name string
		do   func(*onTPU, *testing.T)
	}{
		{"calls of 1, 5 and 20 steps", (*onTPU).calls},
		{"two hosts", (*onTPU).hosts},
		{"two hosts that are processes, of which one dies", (*onTPU).hostsApart},
		{"killed", (*onTPU).killed},
		{"stopped by a signal", (*onTPU).stopped},
		{"preempted", (*onTPU).preempted},
		{"goes on on another topology, and on CPUs", (*onTPU).elsewhere},
		{"faults", (*onTPU).faults},
		{"buckets", (*onTPU).buckets},
		{"refusals", (*onTPU).refusals},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Cleanup(func() { gone(t, "") })
			test.do(o, t)
		})
	}
}

// train returns the command line of a run.
func (o *onTPU) train(run string, more ...string) []string {
	args := append([]string{"train", "--graph", "graph", "--data", "data", "--run", run, "--steps", fmt.Sprint(tpuSteps), "--batch-size", "32",
		"--set", "data.rows=8", "--learning-rate", "1e-3", "--steps-per-loop", "20", "--checkpoint-interval", "5", "--eval-interval", "10"}, noDropout...)
	return append(args, more...)
}

// emulator starts the emulator, of one host with 2 cores unless told otherwise, and returns its
// address.
func (o *onTPU) emulator(t *testing.T, more ...string) (*running, string) {
	t.Helper()
	e := o.start(t, append([]string{"tpu-emulator", "--topology", "1x1x1x2", "--listen", freeAddresses(t, 1)[0]}, more...)...)
	e.says("; it is no TPU")
	_, rest, _ := strings.Cut(e.out.String(), " on ")
	at, _, _ := strings.Cut(rest, ";")
	return e, at
}

// result returns what a run ended with.
func (o *onTPU) result(t *testing.T, run string) (tensors map[string]string, metrics []metric) {
	t.Helper()
	tensors, text := o.state(run, tpuSteps)
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var m metric
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		metrics = append(metrics, m)
	}
	return tensors, metrics
}

// near checks that a run ended as that on CPUs, but for rounding.
func (o *onTPU) near(t *testing.T, run string) {
	t.Helper()
	const most = 1e-5
	got, metrics := o.result(t, run)
	if len(metrics) != len(o.metrics) || len(got) != len(o.want) {
		t.Fatalf("%d lines of metrics and %d tensors, want %d and %d", len(metrics), len(got), len(o.metrics), len(o.want))
	}
	for i, want := range o.metrics {
		if metrics[i].Phase != want.Phase || metrics[i].Step != want.Step || len(metrics[i].Outputs) != len(want.Outputs) {
			t.Fatalf("line %d of the metrics is %v, want %v", i+1, metrics[i], want)
		}
		for name, value := range want.Outputs {
			if g := metrics[i].Outputs[name]; !(math.Abs(g-value) <= most*max(1, math.Abs(value))) {
				t.Errorf("%s of step %d is %v, on CPUs %v", name, want.Step, g, value)
			}
		}
	}
	nearTensors(t, got, o.want, most)
}

// same checks that two runs ended in the same bits.
func (o *onTPU) same(t *testing.T, run, other string) {
	t.Helper()
	want, metrics := o.state(other, tpuSteps)
	o.alike(t, run, tpuSteps, want, metrics)
}

func (o *onTPU) calls(t *testing.T) {
	_, at := o.emulator(t)
	for _, n := range []string{"1", "5", "20"} {
		run := "calls-" + n
		r := o.start(t, o.train(run, "--tpu", "grpc://"+at, "--steps-per-call", n)...)
		r.exits(fault.ExitDone)
		if !strings.Contains(r.out.String(), "gorbit tpu-emulator and no TPU") {
			t.Errorf("the run does not say that this is no TPU:\n%s", &r.out)
		}
		o.near(t, run)
	}
	o.same(t, "calls-5", "calls-20")
}

func (o *onTPU) hosts(t *testing.T) {
	_, at := o.emulator(t, "--topology", "2x1x1x2", "--hosts", "2")
	o.start(t, o.train("hosts", "--tpu", "grpc://"+at+",grpc://"+freeAddresses(t, 1)[0])...).exits(fault.ExitDone)
	o.near(t, "hosts")
}

// hostsApart trains on two hosts that are processes of their own, of one core each. The second one is killed in the middle,
// and started again: the run continues. Killed once more, it stays away, and the run ends with a
// sentence that names it.
func (o *onTPU) hostsApart(t *testing.T) {
	at := freeAddresses(t, 4)
	peers := strings.Join(at[2:], ",")
	host := func(i int, more ...string) *running {
		e, _ := o.emulator(t, append([]string{"--topology", "2x1x1x1", "--listen", at[i], "--hosts", "2", "--peers", peers, "--host-index", fmt.Sprint(i)}, more...)...)
		return e
	}
	host(0, "--fault", "slow@1:300ms")
	second := host(1)
	kills := func(run string, more ...string) *running {
		t.Helper()
		r := o.start(t, o.train(run, append(more, "--tpu", "grpc://"+at[0]+",grpc://"+at[1], "--steps-per-call", "5")...)...)
		r.says("saved checkpoint to " + run + "/checkpoints/ckpt-5")
		kill(t, second.Process.Pid, syscall.SIGKILL)
		second.wait()
		return r
	}
	r := kills("apart")
	second = host(1)
	r.exits(fault.ExitDone)
	if !strings.Contains(r.out.String(), "the TPU was lost; starting it again") {
		t.Errorf("the run was not disturbed:\n%s", &r.out)
	}
	o.near(t, "apart")

	o.failsOnce(t, o.start(t, o.train("refused", "--tpu", "grpc://"+at[1]+",grpc://"+at[0])...), "this is host 1 of an emulated TPU")

	// In a step, which the first host's server then waits for when the session is to be closed.
	r = kills("alone", "--tpu-timeout", "8s", "--max-restarts", "1", "--steps", "1000", "--eval-interval", "1000")
	o.failsOnce(t, r, "nothing answers at grpc://"+at[1])
}

func (o *onTPU) killed(t *testing.T) {
	e, at := o.emulator(t)
	args := o.train("killed", "--tpu", "grpc://"+at, "--steps-per-call", "5")
	r := o.start(t, args...)
	r.says("saved checkpoint to killed/checkpoints/ckpt-10")
	kill(t, r.Process.Pid, syscall.SIGKILL)
	r.wait()
	o.start(t, args...).exits(fault.ExitDone)
	o.same(t, "killed", "calls-5")
	// The emulator outlived the client, and ends by a signal.
	kill(t, e.Process.Pid, syscall.SIGTERM)
	e.wait()
}

func (o *onTPU) stopped(t *testing.T) {
	_, at := o.emulator(t, "--fault", "slow@1:200ms")
	args := o.train("stopped", "--tpu", "grpc://"+at, "--steps-per-call", "5")
	r := o.start(t, args...)
	r.says("saved checkpoint to stopped/checkpoints/ckpt-5")
	kill(t, r.Process.Pid, syscall.SIGTERM)
	r.exits(fault.ExitStopped)
	if want := "gorbit: terminated: saving and stopping within a call of 5 steps; a second signal stops at once\n"; !strings.Contains(r.out.String(), want) {
		t.Errorf("the run says\n%s, want %q", &r.out, want)
	}
	o.start(t, args...).exits(fault.ExitDone)
	o.same(t, "stopped", "calls-5")
}

func (o *onTPU) preempted(t *testing.T) {
	// It comes back, and the run waits for it.
	_, at := o.emulator(t, "--fault", "preempt@3:3s")
	r := o.start(t, o.train("preempted", "--tpu", "grpc://"+at, "--steps-per-call", "5", "--tpu-wait", "--tpu-ready-timeout", "2m")...)
	r.exits(fault.ExitDone)
	if !strings.Contains(r.out.String(), "the TPU was lost; starting it again and continuing from the last checkpoint") {
		t.Errorf("the run was not disturbed:\n%s", &r.out)
	}
	o.same(t, "preempted", "calls-5")

	// Without waiting the run ends, and continues on another TPU, of another topology.
	_, at = o.emulator(t, "--fault", "preempt@3:10m")
	o.failsOnce(t, o.start(t, o.train("moved", "--tpu", "grpc://"+at, "--steps-per-call", "5")...), "TPU")
	_, at = o.emulator(t, "--topology", "2x1x1x2")
	o.start(t, o.train("moved", "--tpu", "grpc://"+at, "--steps-per-call", "5")...).exits(fault.ExitDone)
	o.near(t, "moved")
}

// failsOnce checks that a run ends with one sentence.
func (o *onTPU) failsOnce(t *testing.T, r *running, says string) {
	t.Helper()
	r.exits(fault.ExitFailed)
	_, after, _ := strings.Cut("\n"+r.out.String(), "\ngorbit: ")
	if !strings.Contains(after, says) || strings.Count(after, "\n") != 1 {
		t.Errorf("the last words are %q, want one line with %q", after, says)
	}
}

func (o *onTPU) elsewhere(t *testing.T) {
	_, at := o.emulator(t)
	first := o.train("elsewhere", "--tpu", "grpc://"+at)
	first = append(first, "--steps", "10", "--schedule", "constant", "--warmup-ratio", "0")
	o.start(t, first...).exits(fault.ExitDone)
	_, at = o.emulator(t, "--topology", "2x1x1x2")
	second := o.train("elsewhere", "--tpu", "grpc://"+at)
	second = append(second, "--steps", "15", "--schedule", "constant", "--warmup-ratio", "0")
	o.start(t, second...).exits(fault.ExitDone)
	third := o.train("elsewhere", "--schedule", "constant", "--warmup-ratio", "0", "--devices", "cpu:1")
	o.start(t, third...).exits(fault.ExitDone)

	whole := &onTPU{user: o.user}
	o.start(t, o.train("whole", "--schedule", "constant", "--warmup-ratio", "0", "--devices", "cpu:2", "--set", "runtime.kernels=off")...).exits(fault.ExitDone)
	whole.want, _ = whole.result(t, "whole")
	_, whole.metrics = o.result(t, "elsewhere") // ends of loops differ
	whole.near(t, "elsewhere")
}

// faults are those of a run. Those of a start are in package tpu's tests and in scripts.
func (o *onTPU) faults(t *testing.T) {
	for _, test := range []struct {
		fault string
		more  []string
		ends  bool   // with the result of a run that was not disturbed
		says  string // the run's sentence, or a line of the log if it ends
	}{
		{fault: "mismatch", says: "the topology has"},
		{fault: "forget@3", ends: true, says: "the TPU was lost"},
		{fault: "cut@3", ends: true, says: "the TPU was lost"},
		{fault: "fail@3", says: "step"},
		{fault: "oom", says: "start another run with fewer data.rows"},
		{fault: "hang@2", more: []string{"--tpu-timeout", "5s", "--max-restarts", "0"}, says: "TPU"}, // not in a first call, which may take ten times as long
	} {
		t.Run(test.fault, func(t *testing.T) {
			_, at := o.emulator(t, "--fault", test.fault)
			run := "fault-" + strings.NewReplacer("@", "-", ":", "-").Replace(test.fault)
			r := o.start(t, o.train(run, append([]string{"--tpu", "grpc://" + at, "--steps-per-call", "5"}, test.more...)...)...)
			if !test.ends {
				o.failsOnce(t, r, test.says)
				return
			}
			r.exits(fault.ExitDone)
			if !strings.Contains(r.out.String(), test.says) {
				t.Errorf("the run does not say %q:\n%s", test.says, &r.out)
			}
			o.same(t, run, "calls-5")
		})
	}
}

// buckets trains in rows of several lengths, each example in one of its own.
func (o *onTPU) buckets(t *testing.T) {
	other := &onTPU{user: o.user}
	rows := []string{"--set", "data.packing=none", "--set", "data.rows=16", "--set", "data.buckets=12,16", "--batch-size", "16"}
	o.start(t, other.train("buckets-cpus", append(rows, "--devices", "cpu:2", "--set", "runtime.kernels=off")...)...).exits(fault.ExitDone)
	other.want, other.metrics = other.result(t, "buckets-cpus")
	_, at := o.emulator(t)
	r := o.start(t, other.train("buckets", append(rows, "--tpu", "grpc://"+at)...)...)
	r.exits(fault.ExitDone)
	if !strings.Contains(r.out.String(), "row_length=12,16,32") || strings.Count(r.out.String(), "compiling for the TPU") != 3 {
		t.Errorf("the run does not tell its shapes:\n%s", &r.out)
	}
	other.near(t, "buckets")
}

func (o *onTPU) refusals(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--tpu", "grpc://127.0.0.1:1"}, fault.ExitFailed, "start TensorFlow's server on the TPU VM"},
		{[]string{"--tpu", "grpc://127.0.0.1:1", "--set", "runtime.lanes=2"}, fault.ExitUsage, "runtime.lanes is set, which is not for a TPU; leave it out"},
		{[]string{"--tpu", "grpc://127.0.0.1:1", "--devices", "cpu:2"}, fault.ExitUsage, "strategy.devices is set, which is not for a TPU; leave it out"},
		{[]string{"--tpu-wait"}, fault.ExitUsage, "strategy.tpu_wait is set, which is only for strategy tpu"},
	} {
		r := o.start(t, o.train("refused", test.args...)...)
		r.exits(test.code)
		if !strings.Contains(r.out.String(), test.says) {
			t.Errorf("%v says %s, want %q", test.args, &r.out, test.says)
		}
	}
}
