package dataset_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

var benchmarkRecords = flag.String("records", "", "TFRecord file that BenchmarkNext reads instead of its own")

// benchmarkFile writes records of the lengths of MRPC's pairs.
func benchmarkFile(b *testing.B, n int) string {
	lengths := rowtest.MRPC(1)
	path := filepath.Join(b.TempDir(), "bench.tfrecord")
	w, err := tfrecord.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	for k := range n {
		ids, types := make([]int64, lengths[k%len(lengths)]), make([]int64, lengths[k%len(lengths)])
		for i := range ids {
			ids[i] = int64((k + 7919*i) % 30522)
			types[i] = int64(2 * i / len(ids))
		}
		if err := w.Write(rowtest.Record(b, tfrecord.Int64Feature("input_ids", ids...), tfrecord.Int64Feature("segment_ids", types...), tfrecord.Int64Feature("label_ids", int64(k%2)), tfrecord.Int64Feature("example_id", int64(k)))); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkNext takes the whole path from a file to batches.
func BenchmarkNext(b *testing.B) {
	path := *benchmarkRecords
	if path == "" {
		path = benchmarkFile(b, 100_000)
	}
	for _, c := range []struct {
		shuffle Shuffle
		batch   int
		readers int
		rows    int // fixed, or 0
	}{
		{ShuffleBuffer, 32, 1, 0}, {ShuffleBuffer, 32, 2, 0}, {ShuffleFull, 32, 1, 0}, {ShuffleFull, 32, 2, 0},
		{ShuffleFull, 1024, 1, 0}, {ShuffleFull, 1024, 2, 0},
		{ShuffleFull, 40, 1, 14}, {ShuffleFull, 40, 2, 14}, {ShuffleFull, 1280, 1, 428}, {ShuffleFull, 1280, 2, 428},
	} {
		name := fmt.Sprintf("shuffle=%s/batch=%d/readers=%d", c.shuffle, c.batch, c.readers)
		if c.rows > 0 {
			name = fmt.Sprintf("shuffle=%s/rows=%d/readers=%d", c.shuffle, c.rows, c.readers)
		}
		b.Run(name, func(b *testing.B) {
			layout := packed.Config{VocabSize: 30522, NumLabels: 2, NumTypes: 2}
			if c.rows > 0 {
				layout.Rows, layout.RowExamples = c.rows, 5
			}
			d, err := Open(context.Background(), Config{Files: []string{path}, BatchSize: c.batch, Readers: c.readers, Shuffle: c.shuffle, Buffer: 10_000, Layout: layout})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			n := 0
			used := processorTime(b)
			b.ReportAllocs()
			for b.Loop() {
				batch, err := d.Next(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				n += batch.Examples
				batch.Release()
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "examples/s")
			b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(n), "cpu-ns/example")
		})
	}
}

// BenchmarkPlan counts the batches of an epoch of fixed rows, from the lengths alone: those of the
// first are known since the dataset was opened.
func BenchmarkPlan(b *testing.B) {
	const n = 100_000
	lengths := rowtest.MRPC(1)
	all := make([]int32, n)
	for i := range all {
		all[i] = lengths[i%len(lengths)]
	}
	f := ofLengths(b, all)
	for _, rows := range []int{14, 428} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			d := open(b, Config{BatchSize: 3 * rows, Layout: packed.Config{Rows: rows, RowExamples: 5}}, f)
			used := processorTime(b)
			for b.Loop() {
				if _, err := d.Batches(b.Context(), 2); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(b.N)/n, "cpu-ns/example")
		})
	}
}

// processorTime returns what the process has used of all processors, which other
// programs on the machine disturb less than the time that passes.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLabels reads the labels of all records, as the first opening of a file does that is sampled.
func BenchmarkLabels(b *testing.B) {
	const n = 100_000
	path := benchmarkFile(b, n)
	used := processorTime(b)
	for b.Loop() {
		os.Remove(path + ".labels.index")
		d, err := Open(b.Context(), Config{Files: []string{path}, BatchSize: 32, Layout: packed.Config{}, Sampling: &Sampling{Label: []string{"label_ids"}}})
		if err != nil {
			b.Fatal(err)
		}
		d.Close()
	}
	b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(b.N)/n, "cpu-ns/example")
}

// BenchmarkMeasure measures the lengths of all records, as the first opening of a file does.
func BenchmarkMeasure(b *testing.B) {
	const n = 100_000
	path := benchmarkFile(b, n)
	used := processorTime(b)
	for b.Loop() {
		os.Remove(path + ".lengths.index")
		d, err := Open(b.Context(), Config{Files: []string{path}, BatchSize: 1 << 20, Layout: packed.Config{Rows: 1 << 16}})
		if err != nil {
			b.Fatal(err)
		}
		d.Close()
	}
	b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(b.N)/n, "cpu-ns/example")
}
