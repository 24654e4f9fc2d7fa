package packed

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestFromExamples(t *testing.T) {
	examples := []Example{
		{IDs: []int32{101, 5, 102}, TypeIDs: []int32{0, 0, 0}, Label: 1, Labeled: true},
		{IDs: []int32{101, 6, 102, 7, 8, 102}, TypeIDs: []int32{0, 0, 0, 1, 1, 1}, Label: 0, Labeled: true},
		{IDs: []int32{101, 102}, Label: 2, Labeled: true},
	}
	b, err := FromExamples(Config{Packing: PackFirstFit, RowLength: 8, FixedRowLength: true, NumLabels: 3, VocabSize: 103}, examples)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int32{
		InputIDs:     {101, 5, 102, 101, 102, 0, 0, 0, 101, 6, 102, 7, 8, 102, 0, 0},
		TypeIDs:      {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0},
		SequenceIDs:  {1, 1, 1, 2, 2, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0},
		PositionIDs:  {0, 1, 2, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0},
		ClsPositions: {0, 8, 3},
		LabelIDs:     {1, 0, 2},
	}
	for name, w := range want {
		if got := b.Feature(name).Int32; !slices.Equal(got, w) {
			t.Errorf("%s is %v, expected %v", name, got, w)
		}
	}
	if got := b.Feature(ExampleWeights).Float32; !slices.Equal(got, []float32{1, 1, 1}) {
		t.Errorf("weights are %v", got)
	}
	if b.Examples != 3 || b.Labeled != 3 || b.Tokens != 11 || b.Rows != 2 || b.RowLength != 8 || b.Density() != 11.0/16 || b.Feature("none") != nil {
		t.Errorf("batch is %+v", b)
	}
	if got := b.Describe(2); got != "example 2" {
		t.Errorf("record is described as %q", got)
	}

	// The same examples with any packing, and rows no longer than they must be.
	for i := range examples {
		if examples[i].TypeIDs == nil {
			examples[i].TypeIDs = make([]int32, len(examples[i].IDs))
		}
	}
	for _, how := range packings {
		b, err := FromExamples(Config{Packing: how}, examples)
		if err != nil {
			t.Fatal(err)
		}
		if got := unpack(t, b); !reflect.DeepEqual(got, examples) {
			t.Errorf("%s: examples are %v, expected %v", how, got, examples)
		}
		if length := map[Packing]int{PackBestFit: 11, PackFirstFit: 11, PackNone: 6}[how]; b.RowLength != length {
			t.Errorf("%s: rows are %d long, expected %d", how, b.RowLength, length)
		}
	}
}

func TestFromExamplesWithoutLabels(t *testing.T) {
	for _, mode := range []Labels{LabelsNone, LabelsOptional} {
		b, err := FromExamples(Config{Labels: mode, NumLabels: 2}, []Example{{IDs: []int32{1, 2}, Label: 9}, {IDs: []int32{3}, Label: 1, Labeled: true}})
		if err != nil {
			t.Fatal(err)
		}
		labels, labeled := []int32{0, 0}, 0
		if mode == LabelsOptional {
			labels, labeled = []int32{0, 1}, 1
		}
		if !slices.Equal(b.Feature(LabelIDs).Int32, labels) || b.Labeled != labeled {
			t.Errorf("%s: labels are %v, %d of them given", mode, b.Feature(LabelIDs).Int32, b.Labeled)
		}
	}
}

func TestFromExamplesErrors(t *testing.T) {
	ok := Example{IDs: []int32{1}, Labeled: true}
	for _, c := range []struct {
		cfg     Config
		example Example
		want    string
	}{
		{Config{}, Example{IDs: []int32{1}}, `example 1: feature "labels" is missing`},
		{Config{}, Example{Labeled: true}, `example 1: feature "input_ids" has no tokens`},
		{Config{}, Example{IDs: []int32{1, 2}, TypeIDs: []int32{0}, Labeled: true}, `example 1: feature "type_ids" has 1 values; expected 2, one for each of the token ids`},
		{Config{VocabSize: 5}, Example{IDs: []int32{5}, Labeled: true}, `example 1: feature "input_ids" has 5 at position 0; expected 0 to 4`},
		{Config{}, Example{IDs: []int32{math.MinInt32}, Labeled: true}, `has -2147483648`},
		{Config{NumTypes: 2}, Example{IDs: []int32{1}, TypeIDs: []int32{2}, Labeled: true}, `feature "type_ids" has 2`},
		{Config{NumLabels: 2}, Example{IDs: []int32{1}, Label: 2, Labeled: true}, `feature "labels" is 2; expected a label of 0 to 1`},
		{Config{RowLength: 1}, Example{IDs: []int32{1, 2}, Labeled: true}, `has 2 tokens, more than the row length of 1`},
	} {
		_, err := FromExamples(c.cfg, []Example{ok, c.example})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, expected %q", err, c.want)
			continue
		}
		asRecordError(t, err)
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "0 examples; expected 1 or more"},
		{Config{Packing: "x"}, "packing"},
	} {
		if _, err := FromExamples(c.cfg, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, expected %q", err, c.want)
		}
	}
}

func TestTruncationKeepsTheLastToken(t *testing.T) {
	long := Example{Labeled: true}
	for i := range 10 {
		long.IDs = append(long.IDs, int32(100+i))
		long.TypeIDs = append(long.TypeIDs, int32(i/5))
	}
	short := sample(3)
	for limit := 1; limit < 10; limit++ {
		b, err := FromExamples(Config{RowLength: limit, Truncate: true}, []Example{long, short, long})
		if err != nil {
			t.Fatal(err)
		}
		got := unpack(t, b)
		want := append(slices.Clone(long.IDs[:limit-1]), 109)
		types := append(slices.Clone(long.TypeIDs[:limit-1]), 1)
		if !slices.Equal(got[0].IDs, want) || !slices.Equal(got[2].IDs, want) || !slices.Equal(got[0].TypeIDs, types) {
			t.Errorf("cut to %d: %v, expected %v", limit, got[0], want)
		}
		n := 2
		if len(short.IDs) > limit {
			n = 3
		}
		if b.Truncated != n {
			t.Errorf("cut to %d: %d truncated, expected %d", limit, b.Truncated, n)
		}
	}
}

func BenchmarkFromExamples(b *testing.B) {
	var examples []Example
	for k := range 32 {
		examples = append(examples, sample(k))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FromExamples(Config{}, examples); err != nil {
			b.Fatal(err)
		}
	}
}
