package dataset_test

import (
	"slices"
	"testing"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
)

// TestTake draws, in every epoch and however batches are laid out, the records that a set of all draws
// first, with their own ids.
func TestTake(t *testing.T) {
	const n, taken = 90, 20
	ids := func(d *Dataset) (out []RecordID) {
		for {
			b := next(t, d)
			if b == nil {
				return out
			}
			out = append(out, b.Records...)
		}
	}
	order := func(a, b RecordID) int { return 1000*(a.File-b.File) + int(a.Record-b.Record) }
	all := ids(open(t, Config{BatchSize: 10, Epochs: 1, Seed: 7}, samples(t, n)))
	want := slices.SortedFunc(slices.Values(all[:taken]), order)
	for name, cfg := range map[string]Config{
		"in order":      {BatchSize: 8, Epochs: 1, Shuffle: ShuffleNone, Take: Take{taken, 7}},
		"shuffled":      {BatchSize: 8, Epochs: 1, Seed: 3, Take: Take{taken, 7}},
		"by a buffer":   {BatchSize: 8, Epochs: 1, Seed: 3, Shuffle: ShuffleBuffer, Buffer: 5, Take: Take{taken, 7}},
		"in fixed rows": {BatchSize: 8, Epochs: 1, Take: Take{taken, 7}, Layout: packed.Config{RowLength: 64, Rows: 4}},
	} {
		d := open(t, cfg, samples(t, n))
		got := ids(d)
		slices.SortFunc(got, order)
		if !slices.Equal(got, want) || d.NumExamples() != taken {
			t.Errorf("%s: %d records %v; expected %v", name, d.NumExamples(), got, want)
		}
	}
	more := open(t, Config{BatchSize: 10, Epochs: 1, Seed: 7, Take: Take{n + 1, 7}}, samples(t, n))
	if got := ids(more); !slices.Equal(got, all) {
		t.Errorf("more than there are: %v; expected all, %v", got, all)
	}
	if (Config{Files: []string{"f"}, BatchSize: 1, Layout: packed.Config{}, Take: Take{Records: -1}}).Validate() == nil {
		t.Error("-1 records can be taken")
	}
}
