// Package records writes training records for tests.
package records

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// VocabSize is the exclusive upper limit of token ids, and MaxTokens the maximum number of
// tokens of an example.
const (
	VocabSize = 60
	MaxTokens = 15
)

// Write writes n examples, generated from a seed, to a file, in the form of gorbit convert. The
// two labels alternate; the label says whether token 7 is among the tokens.
func Write(t testing.TB, path string, seed uint64, n int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	WriteFile(t, path, n, func(i int) []byte {
		length := 4 + r.IntN(MaxTokens-3)
		ids, types := make([]int64, length), make([]int64, length)
		for j := range ids {
			ids[j] = 10 + r.Int64N(VocabSize-10)
			types[j] = int64(j * 2 / length)
		}
		label := int64(i % 2)
		if label == 1 {
			ids[1+r.IntN(length-1)] = 7
		}
		record, err := tfrecord.AppendExample(nil, tfrecord.Int64Feature("input_ids", ids...),
			tfrecord.Int64Feature("segment_ids", types...), tfrecord.Int64Feature("label_ids", label))
		if err != nil {
			t.Fatal(err)
		}
		return record
	})
}

// WriteFile writes n records to a file; record returns each.
func WriteFile(t testing.TB, path string, n int, record func(i int) []byte, opts ...tfrecord.WriterOption) {
	t.Helper()
	w, err := tfrecord.Create(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := w.Write(record(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
