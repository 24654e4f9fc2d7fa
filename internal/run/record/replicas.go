package record

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// Replicas measures how each of several replicas spends its time.
type Replicas struct {
	// Model computes the steps.
	Model *loop.Model
	// Clocks are the replicas'.
	Clocks interface{ Times() []strategy.Times }
	// Cluster has the workers; nil without any.
	Cluster *cluster.Cluster
	// Times returns those of the loop.
	Times func() runner.Times
	first progress // at the end of the first loop, which includes the start-up
	told  progress // at the end of the last loop
}

// progress is a snapshot of the time spent and the examples trained on since the training began.
type progress struct {
	loops    time.Duration // time spent in loops
	times    []strategy.Times
	examples []int64
}

// share describes how a replica spent a period of time.
type share struct {
	name                           string
	perSecond                      float64 // examples per second
	compute, reduce, update, input float64 // percent of the time
}

// now reads all clocks.
func (r *Replicas) now() progress {
	return progress{loops: r.Times().InLoops, times: r.Clocks.Times(), examples: append([]int64(nil), r.Model.Examples...)}
}

// names returns readable names of the replicas: the address of the worker and its device.
func (r *Replicas) names() []string {
	if r.Cluster == nil {
		return r.Model.Strategy.Runtime().Devices
	}
	var out []string
	for _, w := range r.Cluster.Workers() {
		for _, d := range w.Devices {
			out = append(out, w.Address+d[strings.LastIndexByte(d, '/'):])
		}
	}
	return out
}

// shares describes how the replicas spent the time between two snapshots. The part of the loop
// time that a replica did not use itself counts as input: waiting for a batch, passing it on, and
// the session call.
func (r *Replicas) shares(since, now progress) []share {
	all := now.loops - since.loops
	if all <= 0 || now.examples == nil {
		return nil
	}
	var out []share
	for i, name := range r.names() {
		at := share{name: name}
		var before strategy.Times
		done := now.examples[i]
		if since.examples != nil {
			before = since.times[i]
			done -= since.examples[i]
		}
		percent := func(d time.Duration) float64 { return 100 * d.Seconds() / all.Seconds() }
		at.compute = percent(now.times[i].Compute - before.Compute)
		at.reduce = percent(now.times[i].Reduce - before.Reduce)
		at.update = percent(now.times[i].Update - before.Update)
		at.input = max(0, 100-at.compute-at.reduce-at.update)
		at.perSecond = float64(done) / all.Seconds()
		out = append(out, at)
	}
	return out
}

// Action returns an action that writes to TensorBoard the shares of the replicas in a loop and the
// memory of the workers, under replica_0, worker_0 and so on.
func (r *Replicas) Action(b *Board, log *slog.Logger) runner.Action {
	return func(_ context.Context, step int64, _ runner.Outputs) error {
		now := r.now()
		for i, s := range r.shares(r.told, now) {
			line := []any{"step", step, "replica", i, "device", s.name}
			for _, v := range []struct {
				tag   string
				value float64
			}{{"examples_per_second", s.perSecond}, {"compute_percent", s.compute}, {"reduce_percent", s.reduce}, {"update_percent", s.update}, {"input_percent", s.input}} {
				line = append(line, v.tag, words.Rounded(v.value, 1))
				if b.Train.Writer != nil {
					b.Train.Scalar(fmt.Sprintf("replica_%d/%s", i, v.tag), step, v.value)
				}
			}
			log.Debug("replica", line...)
		}
		if r.told = now; r.first.examples == nil {
			r.first = now
		}
		if r.Cluster == nil || b.Train.Writer == nil {
			return nil
		}
		for i, u := range r.Cluster.Usage() {
			if u.At.IsZero() {
				continue // no report from this worker yet
			}
			b.Train.Scalar(fmt.Sprintf("worker_%d/memory_mib", i), step, float64(u.RSS>>20))
			b.Train.Scalar(fmt.Sprintf("worker_%d/peak_memory_mib", i), step, float64(u.PeakRSS>>20))
		}
		return nil
	}
}

// Table writes the shares of the replicas after the first loop, or of the whole training if it had
// only one, and the memory and CPU time of the workers and this process. It calls Write once per
// line.
func (r *Replicas) Table(out io.Writer) error {
	now := r.now()
	all := r.shares(r.first, now)
	if all == nil {
		all = r.shares(progress{}, now)
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "replica\texamples/s\tcompute\treduce\tupdate\tinput\t\n")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%.1f\t%.0f%%\t%.0f%%\t%.0f%%\t%.0f%%\t\n", s.name, s.perSecond, s.compute, s.reduce, s.update, s.input)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.Cluster != nil {
		fmt.Fprint(w, "worker\tpeak memory, MiB\tprocessor time, s\t\n")
		for _, u := range r.Cluster.Usage() {
			fmt.Fprintf(w, "%s\t%d\t%.1f\t\n", u.Address, u.PeakRSS>>20, u.CPU.Seconds())
		}
		fmt.Fprintf(w, "chief\t%d\t%.1f\t\n", PeakMemory()>>20, processorTime().Seconds())
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for line := range strings.Lines(text.String()) {
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
	}
	return nil
}
