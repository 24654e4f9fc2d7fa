package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// memory is a file of records in memory; a nil record is damaged.
type memory struct {
	name    string
	records [][]byte
}

func (m memory) Len() int { return len(m.records) }

func (m memory) Record(i int, buf []byte) ([]byte, error) {
	if m.records[i] == nil {
		return nil, &tfrecord.CorruptError{Path: m.name, Record: int64(i), Reason: "made so"}
	}
	return append(buf[:0], m.records[i]...), nil
}

// record returns an Example.
func record(t testing.TB, features ...tfrecord.Feature) []byte {
	t.Helper()
	b, err := tfrecord.AppendExample(nil, features...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sample returns the example number n of a made-up set: its first token tells n,
// the others depend on it, and its length varies.
func sample(n int) Example {
	l := 3 + int(mix(uint64(n))%40)
	e := Example{Label: int32(n % 3), Labeled: true}
	for i := range l {
		e.IDs = append(e.IDs, int32(1000+n+i))
		e.TypeIDs = append(e.TypeIDs, int32(2*i/l))
	}
	return e
}

func sampleRecord(t testing.TB, n int) []byte {
	e := sample(n)
	return record(t,
		tfrecord.Int64Feature("input_ids", wide(e.IDs)...),
		tfrecord.Int64Feature("segment_ids", wide(e.TypeIDs)...),
		tfrecord.Int64Feature("label_ids", int64(e.Label)))
}

func wide(v []int32) []int64 {
	w := make([]int64, len(v))
	for i, x := range v {
		w[i] = int64(x)
	}
	return w
}

// samples returns made-up records 0 to n-1 in a few files, one of them empty.
func samples(t testing.TB, n int) files {
	var f files
	k := 0
	for i, size := range []int{n / 3, 0, n / 2, n - n/3 - n/2} {
		m := memory{name: fmt.Sprintf("dir/s-%05d-of-00004.tfrecord", i)}
		for range size {
			m.records = append(m.records, sampleRecord(t, k))
			k++
		}
		f.add(m.name, m)
	}
	return f
}

// open returns a Dataset of files in memory.
func open(t testing.TB, cfg Config, f files) *Dataset {
	t.Helper()
	cfg.Files = f.paths
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	d, err := newDataset(cfg.withDefaults(), f, "hash")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// next returns the next batch, or nil at the end.
func next(t testing.TB, d *Dataset) *Batch {
	t.Helper()
	b, err := d.Next(context.Background())
	if err == io.EOF {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rest returns all batches that are left, but no more than most.
func rest(t testing.TB, d *Dataset, most int) (all []*Batch) {
	t.Helper()
	for len(all) < most {
		b := next(t, d)
		if b == nil {
			break
		}
		all = append(all, b)
	}
	return all
}

// failure returns the error of the first Next that has one.
func failure(t testing.TB, d *Dataset) error {
	t.Helper()
	for {
		if _, err := d.Next(context.Background()); err != nil {
			return err
		}
	}
}

// unpack returns the examples of a batch in their order, and fails the test
// where the batch breaks the rules of packed rows.
func unpack(t testing.TB, b *Batch) []Example {
	t.Helper()
	get := func(name string, shape ...int) []int32 {
		f := b.Feature(name)
		if f == nil || fmt.Sprint(f.Shape) != fmt.Sprint(shape) || len(f.Float32) != 0 {
			t.Fatalf("feature %s is %+v, expected int32 of shape %v", name, f, shape)
		}
		size := 1
		for _, d := range shape {
			size *= d
		}
		if len(f.Int32) != size {
			t.Fatalf("feature %s has %d values, expected shape %v", name, len(f.Int32), shape)
		}
		return f.Int32
	}
	ids, types := get(InputIDs, b.Rows, b.RowLength), get(TypeIDs, b.Rows, b.RowLength)
	seqs, positions := get(SequenceIDs, b.Rows, b.RowLength), get(PositionIDs, b.Rows, b.RowLength)
	cls, labels := get(ClsPositions, b.Examples), get(LabelIDs, b.Examples)
	weights := b.Feature(ExampleWeights)
	if weights == nil || fmt.Sprint(weights.Shape) != fmt.Sprint([]int{b.Examples}) || len(weights.Float32) != b.Examples || weights.Int32 != nil {
		t.Fatalf("weights are %+v, expected %d", weights, b.Examples)
	}
	if len(b.Features) != 7 || len(b.Records) != b.Examples {
		t.Fatalf("batch has %d features and %d records, expected 7 and %d", len(b.Features), len(b.Records), b.Examples)
	}

	tokens := 0
	examples := make([]Example, b.Examples)
	used := make([]bool, len(ids))
	for i, at := range cls {
		if weights.Float32[i] != 1 {
			t.Fatalf("example %d weighs %v", i, weights.Float32[i])
		}
		e := Example{Label: labels[i], Labeled: true}
		row := int(at) / b.RowLength
		for k := int(at); k < (row+1)*b.RowLength && seqs[k] == seqs[at] && seqs[k] != 0; k++ {
			if used[k] || positions[k] != int32(k)-at {
				t.Fatalf("example %d: cell %d is used twice (%v) or has position %d, expected %d", i, k, used[k], positions[k], int32(k)-at)
			}
			used[k] = true
			e.IDs, e.TypeIDs = append(e.IDs, ids[k]), append(e.TypeIDs, types[k])
			tokens++
		}
		examples[i] = e
	}
	for k := range ids {
		col := k % b.RowLength
		switch {
		case !used[k] && (ids[k] != 0 || types[k] != 0 || seqs[k] != 0 || positions[k] != 0):
			t.Fatalf("cell %d belongs to no example and is not padding", k)
		case !used[k]:
		case col == 0 && seqs[k] != 1,
			col > 0 && seqs[k] != seqs[k-1] && seqs[k] != seqs[k-1]+1,
			col > 0 && seqs[k] == seqs[k-1]+1 && positions[k] != 0:
			t.Fatalf("cell %d: sequence %d, position %d behind sequence %d", k, seqs[k], positions[k], seqs[max(k-1, 0)])
		}
	}
	if tokens != b.Tokens || b.Rows > b.Examples {
		t.Fatalf("batch counts %d tokens and %d rows, and holds %d tokens of %d examples", b.Tokens, b.Rows, tokens, b.Examples)
	}
	return examples
}

// writeShards writes made-up records 0 to n-1 in files of the given count.
func writeShards(t testing.TB, base string, n, count int, opts ...tfrecord.WriterOption) []string {
	t.Helper()
	var paths []string
	for s := range count {
		path := tfrecord.ShardName(base, s, count)
		w, err := tfrecord.Create(path, opts...)
		if err != nil {
			t.Fatal(err)
		}
		for k := s * n / count; k < (s+1)*n/count; k++ {
			if err := w.Write(sampleRecord(t, k)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// copyFile copies a file of testdata to where an index can be written.
func copyFile(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func asRecordError(t testing.TB, err error) *RecordError {
	t.Helper()
	var e *RecordError
	if !errors.As(err, &e) {
		t.Fatalf("error is %v, expected a RecordError", err)
	}
	return e
}
