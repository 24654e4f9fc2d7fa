package job

import (
	"context"
	"os"
	"testing"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// BenchmarkStep measures training steps on real batches. GORBIT_BENCH_GRAPH and
// GORBIT_BENCH_DATA name an export and a converted data set; without them it is the
// tests' small model.
func BenchmarkStep(b *testing.B) {
	ctx := context.Background()
	p := Defaults()
	p.Data.RowLength = rowLength
	if graph := os.Getenv("GORBIT_BENCH_GRAPH"); graph != "" {
		p.Graph, p.Data.Dir = graph, os.Getenv("GORBIT_BENCH_DATA")
		p.Data.RowLength = 128
	} else {
		p.Graph, p.Data.Dir = fixture(b)
	}
	env := quiet()
	export, err := openExport(p.Graph, env)
	if err != nil {
		b.Fatal(err)
	}
	records, err := openData(p.Data.Dir)
	if err != nil {
		b.Fatal(err)
	}
	set, err := records.open(ctx, p, export.Contract, p.Data.Train, toTrain, env.Log)
	if err != nil {
		b.Fatal(err)
	}
	defer set.Close()
	s, err := strategy.NewOneDevice(ctx, export, p.strategy(strategy.FunctionsTrain))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	m := &model{OneDevice: s, export: export}
	if err := m.initialize(ctx, "", false, "", env.Out); err != nil {
		b.Fatal(err)
	}
	var tokens, positions int
	step := func(i int64) {
		batch, err := set.Next(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.Step(ctx, batch, runner.Hyper{Step: i, LearningRate: 1e-5, Seed: 1}); err != nil {
			b.Fatal(err)
		}
		tokens += batch.Tokens
		positions += batch.Rows * batch.RowLength
	}
	for i := range int64(3) {
		step(i)
	}
	tokens, positions = 0, 0
	n := int64(3)
	for b.Loop() {
		step(n)
		n++
	}
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(b.N*p.Train.BatchSize)/seconds, "examples/s")
	b.ReportMetric(float64(tokens)/seconds, "tokens/s")
	b.ReportMetric(100*float64(tokens)/float64(positions), "%real")
}
