package train

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// BenchmarkStepsPerCall compares numbers of steps per call, turn about on the same batches.
// GORBIT_BENCH_GRAPH, GORBIT_BENCH_DATA and GORBIT_BENCH_LANES are those of BenchmarkStep.
// GORBIT_BENCH_CALLS lists the numbers (1,16), GORBIT_BENCH_BATCH is the size of a batch (32), and
// GORBIT_BENCH_WORKERS the number of workers on this machine with one CPU device each (0: one
// device of this process). In a round, every number makes as many steps as the largest says. The
// results are medians over the rounds: the time of a step, the processor time of this process, and
// the time in percent of that of the first number in the same round. It also gives the least time.
func BenchmarkStepsPerCall(b *testing.B) {
	p := params.Defaults()
	p.Data.RowLength = rowLength
	if graph := os.Getenv("GORBIT_BENCH_GRAPH"); graph != "" {
		p.Graph, p.Data.Dir, p.Data.RowLength = graph, os.Getenv("GORBIT_BENCH_DATA"), 128
	} else {
		p.Graph, p.Data.Dir = fixture(b)
	}
	p.Runtime.Lanes = number(b, cmp.Or(os.Getenv("GORBIT_BENCH_LANES"), "0"))
	p.Train.BatchSize = number(b, cmp.Or(os.Getenv("GORBIT_BENCH_BATCH"), "32"))
	workers := number(b, cmp.Or(os.Getenv("GORBIT_BENCH_WORKERS"), "0"))
	var sides []*caller
	each := 1
	for _, text := range strings.Split(cmp.Or(os.Getenv("GORBIT_BENCH_CALLS"), "1,16"), ",") {
		p.Train.StepsPerCall = number(b, text)
		if workers > 0 {
			p.Strategy.Workers = startWorkers(b, "cpu:1", slices.Repeat([]string{""}, workers)...)
		}
		each = max(each, p.Train.StepsPerCall)
		sides = append(sides, newCaller(b, p))
	}
	for _, s := range sides { // the first calls of every number of steps prepare the graph
		s.round(b, each)
		s.round(b, each)
		s.took, s.used = nil, nil
	}
	for b.Loop() {
		for _, s := range sides {
			s.round(b, each)
		}
	}
	for _, s := range sides {
		shares := make([]float64, len(s.took))
		for i, took := range s.took {
			shares[i] = 100 * float64(took) / float64(sides[0].took[i])
		}
		report := func(value float64, unit string) { b.ReportMetric(value, fmt.Sprintf("%s-by-%d", unit, s.calls)) }
		report(milliseconds(median(s.took))/float64(each), "ms/step")
		report(milliseconds(slices.Min(s.took))/float64(each), "least-ms/step")
		report(milliseconds(median(s.used))/float64(each), "cpu-ms/step")
		report(median(shares), "%")
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median[T cmp.Ordered](values []T) T { return slices.Sorted(slices.Values(values))[len(values)/2] }

func number(b *testing.B, text string) int {
	b.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// caller makes steps, so many in a call.
type caller struct {
	calls      int
	model      *loop.Model
	data       *loop.Source
	steps      int64
	took, used []time.Duration // by round: the time, and the processor time of this process
}

func newCaller(b *testing.B, p params.Params) *caller {
	b.Helper()
	ctx, env := context.Background(), quiet()
	export, set := opened(b, p)
	s, err := prepare.OpenModel(ctx, p, export, strategy.FunctionsTrain, nil, env.prepare())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if _, err := loop.Initialize(ctx, s, export, loop.Init{}); err != nil {
		b.Fatal(err)
	}
	return &caller{calls: p.Train.StepsPerCall, model: loop.NewModel(s, nil, nil), data: loop.NewSource(set, s, 1)}
}

// round makes steps, and takes the time that their calls need. The batches are read before.
func (c *caller) round(b *testing.B, steps int) {
	b.Helper()
	ctx := context.Background()
	var batches []*loop.Batch
	var hypers []runner.Hyper
	for range steps {
		batch, err := c.data.Next(ctx)
		if err != nil {
			b.Fatal(err)
		}
		batches = append(batches, batch.Payload)
		hypers = append(hypers, runner.Hyper{Step: c.steps, LearningRate: 1e-5, Seed: 1})
		c.steps++
	}
	before, start := usage(b), time.Now()
	for len(batches) > 0 {
		n := min(c.calls, len(batches))
		results, err := c.model.Steps(ctx, batches[:n], hypers[:n])
		if err != nil || len(results) != n {
			b.Fatalf("%d results of %d steps: %v", len(results), n, err)
		}
		batches, hypers = batches[n:], hypers[n:]
	}
	c.took = append(c.took, time.Since(start))
	after := usage(b)
	c.used = append(c.used, time.Duration(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()))
}
