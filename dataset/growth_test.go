package dataset_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// sizesOf returns the batch sizes of epochs of n records, by the definition of Growth.
func sizesOf(g Growth, n, epochs int, drop bool) (sizes []int) {
	for e := range epochs {
		for at := 0; at < n; {
			size := 0
			for _, s := range g {
				if s.Records <= int64(e*n+at) {
					size = s.Size
				}
			}
			if drop && n-at < size {
				break
			}
			sizes = append(sizes, min(size, n-at))
			at += size
		}
	}
	return sizes
}

// Batches grow as they are defined to, each record is drawn once an epoch, and from any position on the
// rest is the same, also in parts.
func TestGrowth(t *testing.T) {
	const n = 101
	f := samples(t, n)
	growth := Growth{{0, 3}, {30, 4}, {150, 20}}
	for _, drop := range []bool{false, true} {
		cfg := Config{BatchSize: 20, Growth: growth, Epochs: 3, DropRemainder: drop, Seed: 3, Layout: packed.Config{RowLength: 64}}
		d := open(t, cfg, f)
		all := rest(t, d, 1000)
		var sizes []int
		drawn := map[string]int{}
		for _, b := range all {
			sizes = append(sizes, b.Examples)
			for _, id := range b.Records {
				drawn[fmt.Sprint(b.Epoch, id)]++
			}
		}
		if want := sizesOf(growth, n, 3, drop); !slices.Equal(sizes, want) {
			t.Fatalf("drop %v: batches of %v, expected %v", drop, sizes, want)
		}
		for name, times := range drawn {
			if times != 1 {
				t.Errorf("record %s was drawn %d times", name, times)
			}
		}
		if !drop && len(drawn) != 3*n {
			t.Errorf("%d records were drawn, expected %d", len(drawn), 3*n)
		}
		if count, err := d.Batches(t.Context(), 3); err != nil || count != int64(len(all)) {
			t.Errorf("%d batches were counted, %v; expected %d", count, err, len(all))
		}
		part := cfg
		part.Part = Part{From: 1, To: 2, Of: 3}
		for k, b := range rest(t, open(t, part, f), 1000) {
			if b.State != all[k].State {
				t.Fatalf("batch %d: a part is at %v, the whole at %v", k, b.State, all[k].State)
			}
		}
		for k := 0; k < len(all)-1; k += 3 {
			if err := d.Restore(all[k].State); err != nil {
				t.Fatal(err)
			}
			if b := next(t, d); !reflect.DeepEqual(b.Features, all[k+1].Features) || b.State != all[k+1].State {
				t.Fatalf("batch %d is another one after %v", k+1, all[k].State)
			}
			if at := d.EpochsAt(int64(k + 1)); math.Abs(at-float64(all[k].State.Epoch)) > 1 || all[k].State.Position == 0 && at != float64(all[k].State.Epoch) {
				t.Errorf("%d batches are %v epochs; they end at %v", k+1, at, all[k].State)
			}
		}
		s := all[0].State
		s.Position = 4
		if err := d.Restore(s); err == nil || !strings.Contains(err.Error(), "its position is 4; expected the end of a batch of 3") {
			t.Errorf("position 4: %v", err)
		}
		if err := open(t, Config{BatchSize: 20, DropRemainder: drop, Seed: 3, Layout: cfg.Layout}, f).Restore(all[0].State); err == nil || !strings.Contains(err.Error(), "the growth of batches was 0:3,30:4,150:20 and is not set") {
			t.Errorf("without growth: %v", err)
		}
	}
}

// Batches of fixed rows have one shape and no more examples than their stage says, and are the same from
// any position on.
func TestGrowthOfFixedRows(t *testing.T) {
	const n = 200
	r := rand.New(rand.NewPCG(1, 2))
	f := ofLengths(t, randomLengths(r, n, 30))
	growth := Growth{{0, 2}, {20, 5}, {250, 24}}
	cfg := Config{BatchSize: 24, Growth: growth, Epochs: 3, Seed: 3, Layout: packed.Config{RowLength: 32, Rows: 8}}
	d := open(t, cfg, f)
	all := rest(t, d, 1000)
	from := State{}
	for k, b := range all {
		most := 0
		for _, s := range growth {
			if s.Records <= from.Epoch*n+from.Position {
				most = s.Size
			}
		}
		if b.Rows != 8 || b.RowLength != 32 || b.Examples > most {
			t.Fatalf("batch %d has %d rows of %d with %d examples; expected 8 of 32 with %d", k, b.Rows, b.RowLength, b.Examples, most)
		}
		from = b.State
	}
	if count, err := d.Batches(t.Context(), 3); err != nil || count != int64(len(all)) {
		t.Errorf("%d batches were counted, %v; expected %d", count, err, len(all))
	}
	for k := 0; k < len(all)-1; k += 5 {
		if err := d.Restore(all[k].State); err != nil {
			t.Fatal(err)
		}
		if b := next(t, d); !reflect.DeepEqual(b.Features, all[k+1].Features) || b.State != all[k+1].State {
			t.Fatalf("batch %d is another one after %v", k+1, all[k].State)
		}
	}
}

func TestGrowthIsChecked(t *testing.T) {
	for want, g := range map[string]Growth{
		"batches grow from record 5 on":               {{5, 32}},
		"batches have size 0 from record 0 on":        {{0, 0}, {5, 32}},
		"after size 8 from record 0 on":               {{0, 8}, {5, 8}},
		"batches grow to size 16; expected the batch": {{0, 8}, {5, 16}},
	} {
		err := Config{Files: []string{"x"}, BatchSize: 32, Growth: g, Layout: packed.Config{}}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; expected %s", g, err, want)
		}
	}
}

// More damaged batches in a row than a later epoch has are no epoch of them.
func TestGrowthPassesOverDamage(t *testing.T) {
	m := memory{name: "dir/damaged.tfrecord", records: make([][]byte, 60)}
	for k := range 50 {
		m.records = append(m.records, rowtest.SampleRecord(t, k))
	}
	var all Files
	all.Add(m.name, m)
	cfg := Config{BatchSize: 20, Growth: Growth{{0, 3}, {90, 20}}, Epochs: 1, Shuffle: ShuffleNone, OnCorrupt: tfrecord.Skip}
	if b := next(t, open(t, cfg, all)); b.Examples != 3 || b.State.Skipped != 60 {
		t.Errorf("%d examples after %d damaged ones, expected 3 after 60", b.Examples, b.State.Skipped)
	}
}
