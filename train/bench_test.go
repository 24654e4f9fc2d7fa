package train

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// BenchmarkStep measures training steps on real batches. GORBIT_BENCH_GRAPH and
// GORBIT_BENCH_DATA name an export and a converted data set; without them it is the
// tests' small model.
func BenchmarkStep(b *testing.B) {
	ctx := context.Background()
	p := params.Defaults()
	p.Data.RowLength = rowLength
	if graph := os.Getenv("GORBIT_BENCH_GRAPH"); graph != "" {
		p.Graph, p.Data.Dir = graph, os.Getenv("GORBIT_BENCH_DATA")
		p.Data.RowLength = 128
	} else {
		p.Graph, p.Data.Dir = fixture(b)
	}
	env := quiet()
	export, err := prepare.OpenExport(context.Background(), p.Graph, env.prepare())
	if err != nil {
		b.Fatal(err)
	}
	records, err := prepare.OpenData(p.Data.Dir)
	if err != nil {
		b.Fatal(err)
	}
	set, err := records.Open(ctx, p, export.Contract, p.Data.Train, prepare.ToTrain, env.Log)
	if err != nil {
		b.Fatal(err)
	}
	defer set.Close()
	if os.Getenv("GORBIT_BENCH_STANDARD") != "" {
		p.Runtime.Kernels = "off"
	}
	if lanes := os.Getenv("GORBIT_BENCH_LANES"); lanes != "" {
		if p.Runtime.Lanes, err = strconv.Atoi(lanes); err != nil {
			b.Fatal(err)
		}
	}
	s, err := prepare.OpenLocal(ctx, p, export, strategy.FunctionsTrain)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	m, data := loop.NewModel(s, nil, nil), loop.NewSource(set, s, 1)
	if _, err := loop.Initialize(ctx, s, export, loop.Init{}); err != nil {
		b.Fatal(err)
	}
	var tokens, positions int
	var outside time.Duration
	step := func(i int64) {
		batch, err := data.Next(ctx)
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		r, err := m.Step(ctx, batch.Payload, runner.Hyper{Step: i, LearningRate: 1e-5, Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		outside += time.Since(start) - r.InSession
		tokens += batch.Tokens
		for _, p := range batch.Payload.Micro {
			positions += cells(p)
		}
	}
	for i := range int64(3) {
		step(i)
	}
	tokens, positions, outside = 0, 0, 0
	before := usage(b)
	n := int64(3)
	for b.Loop() {
		step(n)
		n++
	}
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(b.N*p.Train.BatchSize)/seconds, "examples/s")
	b.ReportMetric(float64(tokens)/seconds, "tokens/s")
	b.ReportMetric(100*float64(tokens)/float64(positions), "%real")
	b.ReportMetric(float64(outside.Microseconds())/float64(b.N), "outside-µs/op")
	after := usage(b)
	processor := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(processor)/1e9/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(after.Minflt-before.Minflt)/float64(b.N), "faults/op")
	b.ReportMetric(float64(after.Maxrss)/1024, "peak-MiB")
}

// BenchmarkPredict answers on GORBIT_BENCH_SPLIT of a run, GORBIT_BENCH_RUN: as
// gorbit predict does, and by the session calls alone, made up beforehand and
// run one after the other.
func BenchmarkPredict(b *testing.B) {
	folder, split := os.Getenv("GORBIT_BENCH_RUN"), cmp.Or(os.Getenv("GORBIT_BENCH_SPLIT"), "test")
	if folder == "" {
		b.Skip("GORBIT_BENCH_RUN names no run")
	}
	ctx := context.Background()
	r, err := OpenRun(ctx, folder, nil, quiet())
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Load(ctx, ""); err != nil {
		b.Fatal(err)
	}
	var calls []*dataset.Batch
	examples := 0
	for window, err := range r.examples(ctx, split) {
		if err != nil {
			b.Fatal(err)
		}
		slices.SortStableFunc(window, func(x, y text.Encoding) int { return len(y.IDs) - len(x.IDs) })
		for examples += len(window); len(window) > 0; {
			n := min(len(window), max(1, callCells/max(1, len(window[0].IDs))))
			batch, err := predictModel{run: r}.batch(window[:n])
			if err != nil {
				b.Fatal(err)
			}
			calls, window = append(calls, batch), window[n:]
		}
	}
	rate := func(b *testing.B) {
		b.ReportMetric(float64(b.N*examples)/b.Elapsed().Seconds(), "examples/s")
	}
	b.Run("calls alone", func(b *testing.B) {
		for b.Loop() {
			for _, c := range calls {
				if _, err := r.on.Predict(ctx, c.Features); err != nil {
					b.Fatal(err)
				}
			}
		}
		rate(b)
	})
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			if err := r.PredictSplit(ctx, split, func(predict.Answer) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
}

func usage(b *testing.B) syscall.Rusage {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u
}
