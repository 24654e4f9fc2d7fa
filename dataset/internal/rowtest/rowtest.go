// Package rowtest has records, and checks of the batches that packed rows of them are, for the tests
// of package dataset and of those below it.
package rowtest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Example is a tokenized text, as package packed has it.
type Example struct {
	IDs     []int32
	TypeIDs []int32
	Label   int32
	Labeled bool
}

// Record returns an Example.
func Record(t testing.TB, features ...tfrecord.Feature) []byte {
	t.Helper()
	b, err := tfrecord.AppendExample(nil, features...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Sample returns the example number n of a made-up set: its first token tells n,
// the others depend on it, and its length varies.
func Sample(n int) Example {
	l := 3 + rand.New(rand.NewPCG(uint64(n), 0)).IntN(40)
	e := Example{Label: int32(n % 3), Labeled: true}
	for i := range l {
		e.IDs = append(e.IDs, int32(1000+n+i))
		e.TypeIDs = append(e.TypeIDs, int32(2*i/l))
	}
	return e
}

// SampleRecord returns the record of Sample.
func SampleRecord(t testing.TB, n int) []byte {
	e := Sample(n)
	return Record(t,
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

// Unpack returns the examples of a batch in their order, and fails the test
// where the batch breaks the rules of packed rows.
func Unpack(t testing.TB, b *dataset.Batch) []Example {
	t.Helper()
	if b.Rows > b.Examples {
		t.Fatalf("%d rows of %d examples", b.Rows, b.Examples)
	}
	return UnpackFixed(t, b, b.Examples)
}

// UnpackFixed is Unpack for fixed rows, whose axis of examples has as many places as given.
func UnpackFixed(t testing.TB, b *dataset.Batch, places int) []Example {
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
	ids, types := get("input_ids", b.Rows, b.RowLength), get("type_ids", b.Rows, b.RowLength)
	seqs, positions := get("sequence_ids", b.Rows, b.RowLength), get("position_ids", b.Rows, b.RowLength)
	cls, labels := get("cls_positions", places), get("labels", places)
	weights := b.Feature("example_weights")
	if weights == nil || fmt.Sprint(weights.Shape) != fmt.Sprint([]int{places}) || len(weights.Float32) != places || weights.Int32 != nil {
		t.Fatalf("weights are %+v, expected %d", weights, places)
	}
	for i := b.Examples; i < places; i++ {
		if cls[i] != 0 || labels[i] != 0 || weights.Float32[i] != 0 {
			t.Fatalf("place %d is unused and has position %d, label %d, weight %v", i, cls[i], labels[i], weights.Float32[i])
		}
	}
	cls = cls[:b.Examples]
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
	if tokens != b.Tokens {
		t.Fatalf("batch counts %d tokens and %d rows, and holds %d tokens of %d examples", b.Tokens, b.Rows, tokens, b.Examples)
	}
	return examples
}

// WriteShards writes made-up records 0 to n-1 in files of the given count.
func WriteShards(t testing.TB, base string, n, count int, opts ...tfrecord.WriterOption) []string {
	t.Helper()
	var paths []string
	for s := range count {
		path := tfrecord.ShardName(base, s, count)
		first, end := s*n/count, (s+1)*n/count
		records.WriteFile(t, path, end-first, func(i int) []byte { return SampleRecord(t, first+i) }, opts...)
		paths = append(paths, path)
	}
	return paths
}

// mrpcLengths is how many of the training pairs of MRPC have 19, 20, ... tokens
// in BERT's uncased vocabulary, special tokens included.
var mrpcLengths = []int{
	2, 0, 2, 3, 2, 2, 11, 15, 12, 29, 19, 20, 31, 46, 37, 46, 46, 63, 70, 82, 61, 72, 86, 73, 74, 92, 112, 97, 91, 76, 88, 93,
	105, 84, 109, 109, 95, 91, 86, 97, 115, 104, 119, 89, 74, 106, 73, 69, 69, 59, 68, 56, 44, 43, 36, 40, 26, 24, 19, 23, 13,
	11, 14, 5, 10, 8, 1, 3, 4, 2, 3, 1, 1, 0, 0, 0, 0, 2, 1, 1, 0, 2, 0, 0, 1,
}

// MRPC returns the lengths of MRPC's training pairs in a random order.
func MRPC(seed uint64) []int32 {
	var all []int32
	for i, n := range mrpcLengths {
		for range n {
			all = append(all, int32(19+i))
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
