package packed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
)

// described lists what a model could tell an example by, weight included.
func described(t *testing.T, b *dataset.Batch) []string {
	t.Helper()
	spans, err := spans(b)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i, s := range spans {
		positions := b.Feature(PositionIDs).Int32[s.from:s.to]
		for k, p := range positions {
			if int(p) != k {
				t.Fatalf("example %d has positions %v", i, positions)
			}
		}
		out = append(out, fmt.Sprint(b.Feature(InputIDs).Int32[s.from:s.to], b.Feature(TypeIDs).Int32[s.from:s.to],
			b.Feature(LabelIDs).Int32[i], b.Feature(ExampleWeights).Float32[i]))
	}
	return out
}

func TestSplitKeepsEveryExample(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, packing := range []Packing{PackBestFit, PackFirstFit, PackNone} {
		for range 60 {
			cfg := Config{Packing: packing, RowLength: 32, FixedRowLength: random.IntN(2) == 0}
			examples := make([]Example, 1+random.IntN(40))
			for i := range examples {
				n := 1 + random.IntN(32)
				e := Example{Label: random.Int32N(3), Labeled: true}
				for range n {
					e.IDs = append(e.IDs, random.Int32N(100))
					e.TypeIDs = append(e.TypeIDs, random.Int32N(2))
				}
				examples[i] = e
			}
			whole, err := FromExamples(cfg, examples)
			if err != nil {
				t.Fatal(err)
			}
			for i := range whole.Examples {
				whole.Feature(ExampleWeights).Float32[i] = float32(1 + i)
			}
			n := 1 + random.IntN(9)
			parts, err := cfg.Split(whole, n)
			if err != nil {
				t.Fatal(err)
			}
			if len(parts) != n {
				t.Fatalf("%d parts, expected %d", len(parts), n)
			}
			want := described(t, whole)
			var got []string
			total, least, most := 0, whole.Tokens, 0
			for _, p := range parts {
				total += p.Tokens
				least, most = min(least, p.Tokens), max(most, p.Tokens)
				mine := described(t, p)
				if p.Examples == 0 {
					if w := p.Feature(ExampleWeights).Float32; p.Tokens != 0 || len(w) != 1 || w[0] != 0 {
						t.Fatalf("an empty part has %d tokens and weights %v", p.Tokens, w)
					}
					continue
				}
				if p.Examples != len(mine) || len(p.Records) != len(mine) {
					t.Fatalf("a part says %d examples and %d records, and holds %d", p.Examples, len(p.Records), len(mine))
				}
				for i, m := range mine {
					if m != want[p.Records[i].Record] {
						t.Fatalf("example %v is %s, was %s", p.Records[i], m, want[p.Records[i].Record])
					}
				}
				if !slices.IsSortedFunc(p.Records, func(a, b dataset.RecordID) int { return int(a.Record - b.Record) }) {
					t.Fatalf("records are not in order: %v", p.Records)
				}
				got = append(got, mine...)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("examples after the split\n%v\nbefore\n%v", got, want)
			}
			// Longest first to the least loaded never differs by more than an example.
			if total != whole.Tokens || most-least > 32 {
				t.Fatalf("%d tokens in parts of %d to %d, expected %d", total, least, most, whole.Tokens)
			}
		}
	}
}

func TestSplitInOneIsTheBatch(t *testing.T) {
	cfg := Config{RowLength: 16}
	whole, err := FromExamples(cfg, []Example{{IDs: []int32{1, 2, 3}, Label: 1, Labeled: true}, {IDs: []int32{4}, Labeled: true}})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := cfg.Split(whole, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range parts[0].Features {
		w := whole.Features[i]
		if f.Name != w.Name || !slices.Equal(f.Int32, w.Int32) || !slices.Equal(f.Float32, w.Float32) || !slices.Equal(f.Shape, w.Shape) {
			t.Errorf("feature %s is %v, was %v", f.Name, f, w)
		}
	}
}

func TestLongRows(t *testing.T) {
	for _, c := range []struct {
		config Config
		n      int
		longer bool
	}{
		{Config{RowLength: 128}, 4096, true},
		{Config{RowLength: 128, Packing: PackBestFit}, 129, true},
		{Config{RowLength: 128}, 128, false},
		{Config{RowLength: 128}, 0, false},
		{Config{RowLength: 128, FixedRowLength: true}, 4096, false},
		{Config{RowLength: 128, Packing: PackNone}, 4096, false},
		{Config{RowLength: 128, Packing: PackFirstFit}, 4096, false},
	} {
		got, longer := c.config.withDefaults().longRows(c.n)
		want := c.config.RowLength
		if c.longer {
			want = c.n
		}
		if longer != c.longer || got.RowLength != want {
			t.Errorf("%+v with rows of %d: %d, %v", c.config, c.n, got.RowLength, longer)
		}
	}
}

func TestSplitRefuses(t *testing.T) {
	cfg := Config{RowLength: 16}
	whole, err := FromExamples(cfg, []Example{{IDs: []int32{1}, Labeled: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.Split(whole, 0); err == nil {
		t.Error("no error for 0 parts")
	}
	whole.Release()
	if _, err := cfg.Split(whole, 2); err == nil {
		t.Error("no error for a batch that has been released")
	}
}
