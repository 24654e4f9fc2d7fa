package dense_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
)

// TestBuckets draws epochs of batches of several lengths: all of a batch and of its parts have one, and
// only the last ones of an epoch hold examples that need less, or are not full.
func TestBuckets(t *testing.T) {
	layout := layouts()["padded, buckets"]
	lengths := []int{5, 12, 20}
	batches := all(t, dataset.Config{Files: write(t, 200), BatchSize: 8, Seed: 3, Layout: layout})
	kinds, values, places := make(map[int]int), 0, 0
	for i, b := range batches {
		kind := slices.Index(lengths, b.RowLength)
		if kind < 0 || b.Rows != 8 {
			t.Fatalf("batch %d has %d examples of length %d", i, b.Rows, b.RowLength)
		}
		kinds[kind]++
		values, places = values+b.Tokens, places+b.Rows*b.RowLength
		shorter := 0
		for _, l := range b.Feature("lengths").Int32[:b.Examples] {
			if kind > 0 && int(l) <= lengths[kind-1] {
				shorter++
			}
		}
		if (shorter > 0 || b.Examples < 8) && i < len(batches)-len(lengths) {
			t.Errorf("batch %d of %d has %d examples, %d of which need less than %d", i, len(batches), b.Examples, shorter, b.RowLength)
		}
		parts, err := layout.Divide(b, 3, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if p.RowLength != b.RowLength || p.Rows != 3 {
				t.Errorf("a part of a batch of length %d has %d examples of length %d", b.RowLength, p.Rows, p.RowLength)
			}
		}
	}
	if len(kinds) != 3 || len(batches) > 200/8+len(lengths) {
		t.Errorf("%d batches of each length are %v", len(batches), kinds)
	}
	plain := 0
	layout.Buckets = nil
	for _, b := range all(t, dataset.Config{Files: write(t, 200), BatchSize: 8, Seed: 3, Layout: layout}) {
		plain += b.Rows * b.RowLength
	}
	if filled, without := float64(values)/float64(places), float64(values)/float64(plain); filled < without+0.2 {
		t.Errorf("%.0f %% of the places are filled, without buckets %.0f %%", 100*filled, 100*without)
	}

	layout = layouts()["padded, buckets"]
	for _, b := range all(t, dataset.Config{Files: write(t, 50), BatchSize: 8, Layout: layout, DropRemainder: true}) {
		if b.Examples != 8 {
			t.Errorf("a batch has %d examples, though remainders are left out", b.Examples)
		}
	}
	_, err := dataset.Open(context.Background(), dataset.Config{Files: write(t, 9), BatchSize: 8, Layout: layout, Part: dataset.Part{From: 0, To: 1, Of: 2}})
	if err == nil {
		t.Error("parts of batches of buckets are read")
	}
}

// A record that changed after it was measured, or that is too long, is refused.
func TestBucketsRefuse(t *testing.T) {
	a := layouts()["padded, buckets"].Assemblers()().(dataset.PlacedAssembler)
	at := func(length int) []byte {
		n := 0
		for len(example(n)[5].Int64s) != length {
			n++
		}
		return record(t, example(n), false)
	}
	if bad := a.AddAt(1, dataset.RecordID{}, at(12)); bad != nil {
		t.Fatal(bad)
	}
	for _, c := range []struct{ place, length int }{{1, 13}, {2, 12}, {-1, 3}} {
		if bad := a.AddAt(int32(c.place), dataset.RecordID{}, at(c.length)); bad == nil || !strings.Contains(bad.Reason, "no room was kept for it") {
			t.Errorf("length %d in bucket %d: %v", c.length, c.place, bad)
		}
	}
	if b := a.Batch(); b.Examples != 1 || b.RowLength != 12 || b.Tokens != 12 {
		t.Errorf("the batch has %d examples, length %d, %d values", b.Examples, b.RowLength, b.Tokens)
	}

	layout := layouts()["padded, buckets"]
	layout.MaxLength = 15 // examples have up to 20
	d := open(t, dataset.Config{Files: write(t, 50), BatchSize: 8, Layout: layout, Epochs: 1})
	for {
		_, err := d.Next(context.Background())
		var bad *dataset.RecordError
		if errors.As(err, &bad) && strings.Contains(bad.Reason, "more than the limit of 15") {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
