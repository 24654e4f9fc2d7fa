package train

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorbit-ml/gorbit/internal/cluster"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// replicas watches where each replica's time goes, where there are several.
type replicas struct {
	model   *Model
	clocks  interface{ Times() []strategy.Times } // of the replicas
	cluster *cluster.Cluster                      // nil within one process
	times   func() runner.Times                   // of the loop
	first   progress                              // up to the first loop, which has the start in it
	told    progress                              // up to the last loop
}

// progress is what has been done since the training began.
type progress struct {
	loops    time.Duration // spent in loops
	times    []strategy.Times
	examples []int64
}

// share is what a replica did in some time.
type share struct {
	name                           string
	perSecond                      float64 // examples
	compute, reduce, update, input float64 // percent of the time
}

// now reads all clocks.
func (r *replicas) now() progress {
	return progress{loops: r.times().InLoops, times: r.clocks.Times(), examples: append([]int64(nil), r.model.examples...)}
}

// names tells the replicas apart for people: by the address of the worker, and the
// device there.
func (r *replicas) names() []string {
	if r.cluster == nil {
		return r.model.strategy.Runtime().Devices
	}
	var out []string
	for _, w := range r.cluster.Workers() {
		for _, d := range w.Devices {
			out = append(out, w.Address+d[strings.LastIndexByte(d, '/'):])
		}
	}
	return out
}

// shares says what the replicas did from one moment to another. What of the loops'
// time is not the replica's own is the input's: waiting for a batch, handing it
// over, and the call of the session.
func (r *replicas) shares(since, now progress) []share {
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

// action writes to TensorBoard what the replicas did in a loop, and what memory the
// workers have, under replica_0, worker_0 and so on.
func (r *replicas) action(b *board, log *slog.Logger) runner.Action {
	return func(_ context.Context, step int64, _ runner.Outputs) error {
		now := r.now()
		for i, s := range r.shares(r.told, now) {
			line := []any{"step", step, "replica", i, "device", s.name}
			for _, v := range []struct {
				tag   string
				value float64
			}{{"examples_per_second", s.perSecond}, {"compute_percent", s.compute}, {"reduce_percent", s.reduce}, {"update_percent", s.update}, {"input_percent", s.input}} {
				line = append(line, v.tag, rounded(v.value, 1))
				if b.train.Writer != nil {
					b.train.Scalar(fmt.Sprintf("replica_%d/%s", i, v.tag), step, v.value)
				}
			}
			log.Debug("replica", line...)
		}
		if r.told = now; r.first.examples == nil {
			r.first = now
		}
		if r.cluster == nil || b.train.Writer == nil {
			return nil
		}
		for i, u := range r.cluster.Usage() {
			if u.At.IsZero() {
				continue // nothing was heard yet
			}
			b.train.Scalar(fmt.Sprintf("worker_%d/memory_mib", i), step, float64(u.RSS>>20))
			b.train.Scalar(fmt.Sprintf("worker_%d/peak_memory_mib", i), step, float64(u.PeakRSS>>20))
		}
		return nil
	}
}

// table writes what the replicas did behind the first loop, or in all of the training
// where that is all, and what the workers and this process used, one line at a time.
func (r *replicas) table(out io.Writer) error {
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
	if r.cluster != nil {
		fmt.Fprint(w, "worker\tpeak memory, MiB\tprocessor time, s\t\n")
		for _, u := range r.cluster.Usage() {
			fmt.Fprintf(w, "%s\t%d\t%.1f\t\n", u.Address, u.PeakRSS>>20, u.CPU.Seconds())
		}
		fmt.Fprintf(w, "chief\t%d\t%.1f\t\n", peakMemory()>>20, processorTime().Seconds())
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
