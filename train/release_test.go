package train

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// readOnly is a strategy that only reads what it is fed, and runs out of memory at some steps.
type readOnly struct {
	loop.Strategy
	micro int
	fails func(step int64, micro int) bool
	sums  []uint32
}

func (r *readOnly) Runtime() strategy.Runtime { return strategy.Runtime{MicroBatches: r.micro} }

func (r *readOnly) Steps(_ context.Context, steps []strategy.StepInput) ([]strategy.Result, error) {
	var out []strategy.Result
	for _, s := range steps {
		if r.fails != nil && r.fails(s.Seed[1], len(s.Batches)) {
			return out, fmt.Errorf("step: %w", &strategy.OutOfMemoryError{Err: errors.New("OOM when allocating")})
		}
		sum := uint32(0)
		// Twice, so that what the readers write meanwhile is seen by the race detector.
		for range 2 {
			for _, micro := range s.Batches {
				for i := range micro {
					sum = crc32.Update(sum, crc32.IEEETable, micro[i].Raw())
				}
			}
			runtime.Gosched()
		}
		r.sums = append(r.sums, sum)
		out = append(out, strategy.Result{Iterations: s.Seed[1] + 1, Applied: true, Sums: map[string][]float64{"loss_sum": {1}, "weight_sum": {1}}})
	}
	return out, nil
}

// inputs opens data of a kind: packed rows, or images.
func inputs(t testing.TB, kind string) *dataset.Dataset {
	t.Helper()
	config := dataset.Config{BatchSize: 8, Readers: 2, Shuffle: dataset.ShuffleFull, Seed: 3}
	path := filepath.Join(t.TempDir(), "train.tfrecord")
	switch kind {
	case "packed":
		records.Write(t, path, 1, 90)
		config.Layout = packed.Config{VocabSize: records.VocabSize, NumLabels: 2, NumTypes: 2, RowLength: rowLength}
	case "images":
		writeExamples(t, path, 40, func(i int) []tfrecord.Feature {
			pixels := make([]byte, 64*64*3)
			for j := range pixels {
				pixels[j] = byte(i*31 + j)
			}
			return []tfrecord.Feature{tfrecord.BytesFeature("image", pixels), tfrecord.Int64Feature("label", int64(i%3))}
		})
		config.Layout = dense.Config{Features: []dataset.Spec{
			{Name: "image", DType: dataset.Uint8, Shape: []int{64, 64, 3}}, {Name: "label", DType: dataset.Int32, Role: dataset.Label},
			{Name: "example_weights", DType: dataset.Float32, Role: dataset.Weight}}}
	}
	config.Files = []string{path}
	d, err := dataset.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestReleasedBatches feeds the same values whether batches are released or not, while readers write
// to the memory that was given back, and repeats what did not fit.
func TestReleasedBatches(t *testing.T) {
	const steps, perCall = 60, 3
	for _, kind := range []string{"packed", "images"} {
		for _, micro := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s in %d", kind, micro), func(t *testing.T) {
				run := func(release bool) []uint32 {
					// Memory runs out in the middle of a call, once.
					s := &readOnly{micro: micro, fails: func(step int64, n int) bool { return step >= 31 && n == micro }}
					m, source := loop.NewModel(s, nil, nil), loop.NewSource(inputs(t, kind), s, 1)
					for step := int64(0); step < steps; {
						var batches []*loop.Batch
						var hypers []runner.Hyper
						for i := range int64(perCall) {
							b, err := source.Next(t.Context())
							if err != nil {
								t.Fatal(err)
							}
							if !release {
								b.Payload.From = nil
							}
							batches, hypers = append(batches, b.Payload), append(hypers, runner.Hyper{Step: step + i})
						}
						for len(batches) > 0 {
							results, err := m.Steps(t.Context(), batches, hypers)
							if err != nil || len(results) == 0 {
								t.Fatalf("%d results: %v", len(results), err)
							}
							for i, b := range batches {
								// A retried batch was read again, and its parts belong to that
								// reading.
								if done := i < len(results); release && b.Micro == nil != done && step+int64(i) < 31 {
									t.Errorf("batch %d of step %d, done: %t; its memory was given back: %t", i, step, done, b.Micro == nil)
								}
							}
							batches, hypers = batches[len(results):], hypers[len(results):]
							step += int64(len(results))
						}
					}
					return s.sums
				}
				if kept, released := run(false), run(true); len(kept) != steps || !slices.Equal(kept, released) {
					t.Errorf("%d batches that are kept and %d that are released differ", len(kept), len(released))
				}
			})
		}
	}
}

// BenchmarkInput takes batches from the source, as a training that computes nothing.
func BenchmarkInput(b *testing.B) {
	for _, kind := range []string{"packed", "images"} {
		for _, release := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/released=%t", kind, release), func(b *testing.B) {
				s := &readOnly{micro: 1}
				m, source := loop.NewModel(s, nil, nil), loop.NewSource(inputs(b, kind), s, 1)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				b.ReportAllocs()
				for b.Loop() {
					batch, err := source.Next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					if !release {
						batch.Payload.From = nil
					}
					if _, err := m.Step(b.Context(), batch.Payload, runner.Hyper{}); err != nil {
						b.Fatal(err)
					}
				}
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.NumGC-before.NumGC)/float64(b.N)*1000, "collections/1000-batches")
			})
		}
	}
}
