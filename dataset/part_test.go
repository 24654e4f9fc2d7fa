package dataset_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/dataset/packed"
)

// TestPartsCoverEveryBatch wants parts of any number to hold together what the whole
// batches hold, in their order, and positions to mean the same.
func TestPartsCoverEveryBatch(t *testing.T) {
	const n = 101
	f := samples(t, n)
	for _, shuffle := range []Shuffle{ShuffleFull, ShuffleBuffer, ShuffleNone} {
		for _, drop := range []bool{false, true} {
			cfg := Config{BatchSize: 20, Epochs: 2, Shuffle: shuffle, Buffer: 20, DropRemainder: drop, Seed: 3, Layout: packed.Config{RowLength: 64}}
			whole := rest(t, open(t, cfg, f), 100)
			for _, of := range []int{1, 2, 3, 7, 20, 23} {
				t.Run(fmt.Sprintf("%s/drop=%v/%d", shuffle, drop, of), func(t *testing.T) {
					var parts [][]*Batch
					for i := range of {
						part := cfg
						part.Part = Part{From: i, To: i + 1, Of: of}
						parts = append(parts, rest(t, open(t, part, f), 100))
						if len(parts[i]) != len(whole) {
							t.Fatalf("%d batches of part %d, expected %d", len(parts[i]), i, len(whole))
						}
					}
					for k, want := range whole {
						var got []RecordID
						fewest, most := n, 0
						for _, p := range parts {
							b := p[k]
							if b.State != want.State {
								t.Fatalf("batch %d: a part is at %v, the whole at %v", k, b.State, want.State)
							}
							if b.Examples > 0 {
								rowtest.Unpack(t, b)
							} else if w := b.Feature(packed.ExampleWeights).Float32; len(w) != 1 || w[0] != 0 || b.Tokens != 0 {
								t.Fatalf("batch %d: an empty part has weights %v and %d tokens", k, w, b.Tokens)
							}
							got = append(got, b.Records...)
							fewest, most = min(fewest, b.Examples), max(most, b.Examples)
						}
						if !slices.Equal(got, want.Records) {
							t.Fatalf("batch %d: the parts hold %v, expected %v", k, got, want.Records)
						}
						if most-fewest > 1 {
							t.Errorf("batch %d: parts of %d to %d examples", k, fewest, most)
						}
					}
				})
			}
		}
	}
}

// TestWideParts wants parts of different widths to lie side by side.
func TestWideParts(t *testing.T) {
	f := samples(t, 50)
	cfg := Config{BatchSize: 16, Epochs: 1, Layout: packed.Config{RowLength: 64}}
	whole := rest(t, open(t, cfg, f), 100)
	var got [][]RecordID
	for _, p := range []Part{{0, 4, 5}, {4, 5, 5}} {
		cfg.Part = p
		for k, b := range rest(t, open(t, cfg, f), 100) {
			if len(got) <= k {
				got = append(got, nil)
			}
			got[k] = append(got[k], b.Records...)
		}
	}
	for k, b := range whole {
		if !slices.Equal(got[k], b.Records) {
			t.Errorf("batch %d: the parts hold %v, expected %v", k, got[k], b.Records)
		}
	}
}

func TestPartsThatCannotBe(t *testing.T) {
	for _, p := range []Part{{0, 0, 1}, {1, 1, 2}, {2, 1, 3}, {-1, 1, 2}, {0, 3, 2}, {0, 1, 0}, {0, 1, MaxParts + 1}} {
		if err := (Config{Files: []string{"f"}, BatchSize: 1, Part: p}).Validate(); err == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
}

// TestEmptyPartsSplit divides a part without examples.
func TestEmptyPartsSplit(t *testing.T) {
	cfg := Config{BatchSize: 1, Part: Part{0, 1, 2}, Layout: packed.Config{RowLength: 64}}
	b := next(t, open(t, cfg, samples(t, 5)))
	micro, err := packed.Config{RowLength: 64}.Split(b, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range micro {
		if m.Examples != 0 || m.Tokens != 0 || !slices.Equal(m.Feature(packed.ExampleWeights).Float32, []float32{0}) {
			t.Errorf("micro-batch %d has %d examples, %d tokens, weights %v", i, m.Examples, m.Tokens, m.Feature(packed.ExampleWeights).Float32)
		}
	}
}

// TestDrawnNamesTheRecords holds the names of what is to be drawn against what is.
func TestDrawnNamesTheRecords(t *testing.T) {
	for _, shuffle := range []Shuffle{ShuffleFull, ShuffleBuffer, ShuffleNone} {
		d := open(t, Config{BatchSize: 8, Epochs: 2, Shuffle: shuffle, Buffer: 20, Layout: packed.Config{RowLength: 64}}, samples(t, 30))
		at := d.State()
		for _, b := range rest(t, d, 100) {
			if got := d.Drawn(at); !reflect.DeepEqual(got, b.Records) {
				t.Fatalf("%s, %v: %v are named, %v are drawn", shuffle, at, got, b.Records)
			}
			if at = at.After(); at != b.State {
				t.Fatalf("%s: the next position is %v, expected %v", shuffle, at, b.State)
			}
		}
	}
}
