package packed

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

var partsSpec = dataset.Spec{Name: "starts", DType: dataset.Int32, Shape: []int{4}, Make: MakeParts}

// partsOf returns the parts of example n, 1 to 4 of 1 to 6 tokens.
func partsOf(n int) (out [][]int32) {
	for p := range 1 + n%4 {
		part := make([]int32, 1+(n*5+p*3)%6)
		for i := range part {
			part[i] = int32(100*n + 10*p + i)
		}
		out = append(out, part)
	}
	return out
}

// partsRecord returns the record of parts, whose tokens stand behind one of padding if padded is set.
func partsRecord(t testing.TB, parts [][]int32, padded bool) []byte {
	var ids, starts, mask []int64
	for _, part := range parts {
		if padded {
			ids, mask = append(ids, 0), append(mask, 0)
		}
		starts = append(starts, int64(len(ids)))
		for _, id := range part {
			ids, mask = append(ids, int64(id)), append(mask, 1)
		}
	}
	if padded {
		starts[0] = 0 // the first part begins with the record
		ids, mask = ids[1:], mask[1:]
		for i := range starts[1:] {
			starts[i+1]--
		}
	}
	features := []tfrecord.Feature{tfrecord.Int64Feature("input_ids", ids...), tfrecord.Int64Feature("label_ids", 0), tfrecord.Int64Feature("starts", starts...)}
	if padded {
		features = append(features, tfrecord.Int64Feature("input_mask", mask...))
	}
	return rowtest.Record(t, features...)
}

// readParts takes the parts of each example out of a batch, by its features alone.
func readParts(t *testing.T, b *dataset.Batch) (out [][][]int32) {
	t.Helper()
	ids, seqs, positions := b.Feature(InputIDs).Int32, b.Feature(SequenceIDs).Int32, b.Feature(PositionIDs).Int32
	starts := b.Feature("starts")
	if want := []int{b.Feature(ExampleWeights).Shape[0], 4}; !slices.Equal(starts.Shape, want) {
		t.Fatalf("starts have shape %v, want %v", starts.Shape, want)
	}
	used := make([]bool, len(ids))
	seen := map[[2]int32]bool{} // row and number of a sequence
	for e := range b.Examples {
		own := starts.Int32[4*e : 4*e+4]
		var parts [][]int32
		for k, at := range own {
			if k > 0 && at == own[0] {
				continue
			}
			row := at / int32(b.RowLength)
			key := [2]int32{row, seqs[at]}
			if seqs[at] < 1 || int(seqs[at]) > b.RowLength || seen[key] {
				t.Fatalf("part %d of example %d has the number %d in row %d, which is out of range or was there before", k, e, seqs[at], row)
			}
			seen[key] = true
			var part []int32
			for i := at; i/int32(b.RowLength) == row && int(i) < len(ids) && seqs[i] == seqs[at]; i++ {
				if positions[i] != int32(len(part)) {
					t.Fatalf("token %d of a part has position %d", len(part), positions[i])
				}
				used[i] = true
				part = append(part, ids[i])
			}
			parts = append(parts, part)
		}
		if own[0]/int32(b.RowLength) != slices.Max(own)/int32(b.RowLength) {
			t.Fatalf("example %d is in several rows: its parts begin at %v, and rows have %d tokens", e, own, b.RowLength)
		}
		out = append(out, parts)
	}
	for i, s := range seqs {
		if s != 0 != used[i] {
			t.Fatalf("cell %d has sequence %d and belongs to an example: %v", i, s, used[i])
		}
	}
	return out
}

// TestPartsLaws packs examples with parts in each way, and divides the batches again.
func TestPartsLaws(t *testing.T) {
	for name, cfg := range map[string]Config{
		"best-fit":  {RowLength: 40},
		"first-fit": {RowLength: 40, Packing: PackFirstFit},
		"none":      {RowLength: 40, Packing: PackNone},
		"fixed":     {RowLength: 40, FixedRowLength: true},
		"limited":   {RowLength: 40, MaxTokens: 6}, // of a part
	} {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, padded %v", name, padded), func(t *testing.T) {
				cfg.Extras = []dataset.Spec{partsSpec}
				if err := cfg.Validate(13); err != nil {
					t.Fatal(err)
				}
				a := cfg.Assemblers()()
				var want [][][]int32
				var tokens, pairs int64
				for n := range 13 {
					parts := partsOf(n)
					if bad := a.Add(dataset.RecordID{Record: int64(n)}, partsRecord(t, parts, padded)); bad != nil {
						t.Fatal(bad)
					}
					want = append(want, parts)
					for _, part := range parts {
						tokens, pairs = tokens+int64(len(part)), pairs+int64(len(part)*len(part))
					}
				}
				b := a.Batch()
				if got := readParts(t, b); !equalParts(got, want) {
					t.Fatalf("the batch has %v, want %v", got, want)
				}
				if int64(b.Tokens) != tokens || b.Pairs != pairs {
					t.Errorf("%d tokens and %d pairs, want %d and %d", b.Tokens, b.Pairs, tokens, pairs)
				}
				divided, err := cfg.Divide(b, 3, 80)
				if err != nil {
					t.Fatal(err)
				}
				found := map[int64][][]int32{}
				for _, part := range divided {
					for i, parts := range readParts(t, part) {
						found[part.Records[i].Record] = parts
					}
				}
				for n, parts := range want {
					if !equalParts([][][]int32{found[int64(n)]}, [][][]int32{parts}) {
						t.Fatalf("example %d of a part of the batch has %v, want %v", n, found[int64(n)], parts)
					}
				}
			})
		}
	}
}

func equalParts(a, b [][][]int32) bool {
	return slices.EqualFunc(a, b, func(x, y [][]int32) bool {
		return slices.EqualFunc(x, y, func(p, q []int32) bool { return slices.Equal(p, q) })
	})
}

// TestPartsOfTexts packs texts that are not in files: each is one part.
func TestPartsOfTexts(t *testing.T) {
	b, err := FromExamples(Config{RowLength: 8, Labels: LabelsNone, Extras: []dataset.Spec{partsSpec}}, []Example{{IDs: []int32{1, 2, 3}}, {IDs: []int32{4, 5}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := readParts(t, b); !equalParts(got, [][][]int32{{{1, 2, 3}}, {{4, 5}}}) {
		t.Errorf("the batch has %v", got)
	}
}

func TestPartsRefusals(t *testing.T) {
	record := func(tokens int, starts ...int64) []byte {
		return rowtest.Record(t, tfrecord.Int64Feature("input_ids", make([]int64, tokens)...), tfrecord.Int64Feature("label_ids", 0), tfrecord.Int64Feature("starts", starts...))
	}
	cfg := Config{RowLength: 12, MaxTokens: 5, Truncate: true, Extras: []dataset.Spec{partsSpec}}
	for _, c := range []struct {
		data []byte
		want string
	}{
		{record(5), "has 0 values; expected the first token of each part, 1 to 4"},
		{record(5, 0, 1, 2, 3, 4), "has 5 values; expected the first token of each part, 1 to 4"},
		{record(5, 1, 2), "is [1 2]; expected the first token of each part, ascending from 0"},
		{record(5, 0, 2, 2), "is [0 2 2]; expected the first token of each part, ascending from 0"},
		{record(5, 0, 5), "is 5; expected the number of a token, 0 to 4"},
		{record(9, 0, 3), "has a part of 6 tokens, more than the limit of 5"},
		{record(13, 0, 5, 10), "has 13 tokens, more than the row length of 12"}, // also with Truncate
	} {
		a := cfg.Assemblers()()
		bad := a.Add(dataset.RecordID{}, c.data)
		if bad == nil || bad.Reason != c.want {
			t.Errorf("error %v, want %q", bad, c.want)
		}
		if bad := a.Add(dataset.RecordID{}, record(4, 0, 2)); bad != nil {
			t.Errorf("after %q: %v", c.want, bad)
		} else if got := readParts(t, a.Batch()); !equalParts(got, [][][]int32{{{0, 0}, {0, 0}}}) {
			t.Errorf("after %q the batch has %v", c.want, got)
		}
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Extras: []dataset.Spec{partsSpec, {Name: "more", DType: dataset.Int32, Shape: []int{2}, Make: MakeParts}}}, "feature more is made as parts, and another one is as well"},
		{Config{Extras: []dataset.Spec{{Name: "x", DType: dataset.Int32, Make: MakeParts}}}, "feature x is made as parts and has shape []; expected 1 axes"},
		{Config{Extras: []dataset.Spec{{Name: "x", DType: dataset.Int32, Shape: []int{-1}, Make: MakeParts}}}, "expected the most parts of an example"},
		{Config{Extras: []dataset.Spec{{Name: "x", DType: dataset.Int32, Shape: []int{2}, Make: MakeParts, Role: dataset.Label}}}, "feature x is made as parts and has role label; expected input"},
		{Config{Extras: []dataset.Spec{partsSpec}, Masking: &masking}, "examples have parts, and targets or masked tokens"},
	} {
		if err := c.cfg.Validate(4); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
