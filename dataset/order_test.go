package dataset

import (
	"slices"
	"testing"
)

// drawn returns the records of an epoch in drawing order.
func drawn(o *order, epoch int64) []int64 {
	all := make([]int64, o.n)
	for i := range all {
		all[i] = o.at(epoch, int64(i))
	}
	return all
}

func TestEveryEpochDrawsEveryRecordOnce(t *testing.T) {
	for _, mode := range []Shuffle{ShuffleFull, ShuffleBuffer, ShuffleNone} {
		for _, n := range []int64{1, 2, 3, 10, 63, 64, 65, 129, 1000, 5000} {
			for _, buffer := range []int{1, 2, 7, 64, 128, 200, 1000, 100000} {
				if mode != ShuffleBuffer && buffer > 1 {
					continue
				}
				o := newOrder(mode, n, 5, buffer)
				for epoch := range int64(3) {
					all := drawn(o, epoch)
					slices.Sort(all)
					for i, r := range all {
						if r != int64(i) {
							t.Fatalf("%s of %d, buffer %d, epoch %d: record %d is drawn in place of %d", mode, n, buffer, epoch, r, i)
						}
					}
				}
			}
		}
	}
}

func TestOrderDoesNotDependOnThePath(t *testing.T) {
	const n = 777
	for _, mode := range []Shuffle{ShuffleFull, ShuffleBuffer, ShuffleNone} {
		forward := newOrder(mode, n, 9, 100)
		first, second := drawn(forward, 0), drawn(forward, 1)
		hopping := newOrder(mode, n, 9, 100)
		jump := newPermutation(2*n, 3)
		for i := range int64(2 * n) {
			k := jump.at(i)
			want := first
			if k >= n {
				want = second
			}
			if got := hopping.at(k/n, k%n); got != want[k%n] {
				t.Fatalf("%s: position %d of epoch %d gives record %d, expected %d", mode, k%n, k/n, got, want[k%n])
			}
		}
		if same := slices.Equal(first, second); same != (mode == ShuffleNone) {
			t.Errorf("%s: two epochs are equal: %v", mode, same)
		}
		other := drawn(newOrder(mode, n, 10, 100), 0)
		if same := slices.Equal(first, other); same != (mode == ShuffleNone) {
			t.Errorf("%s: two seeds are equal: %v", mode, same)
		}
	}
}

// TestBufferReadsBlocks holds a buffered shuffle to its purpose: while a window
// is drawn, only its blocks are read.
func TestBufferReadsBlocks(t *testing.T) {
	const n, buffer = 10_010, 640 // blocks of 10, windows of 64 blocks
	o := newOrder(ShuffleBuffer, n, 1, buffer)
	all := drawn(o, 4)
	read := map[int64]int{}
	moved := 0
	for i, r := range all {
		read[r/o.block] = i/buffer + 1
		if i > 0 && r != all[i-1]+1 {
			moved++
		}
	}
	if moved < n*9/10 {
		t.Errorf("%d of %d draws are followed by the next record in the file, expected hardly any", n-moved, n)
	}
	for i, r := range all {
		if w := i / buffer; read[r/o.block]-1 != w {
			t.Fatalf("block %d is read in windows %d and %d", r/o.block, w, read[r/o.block]-1)
		}
	}

	// With a short last block in the middle of the order, windows still hold
	// whole blocks.
	o = newOrder(ShuffleBuffer, n-3, 1, buffer)
	blocks := map[int64]int64{}
	for i := range o.n {
		b := o.at(4, i) / o.block
		if w, ok := blocks[b]; ok && w != o.drawn {
			t.Fatalf("block %d is read in windows %d and %d", b, w, o.drawn)
		}
		blocks[b] = o.drawn
	}
}

// at returns the record that is drawn at a position of an epoch.
func (o *order) at(epoch, pos int64) int64 { return o.draw(nil, epoch, pos, pos+1)[0] }

func TestDrawsDoNotDependOnBatches(t *testing.T) {
	for _, mode := range []Shuffle{ShuffleFull, ShuffleBuffer, ShuffleNone} {
		for _, n := range []int64{1, 7, 97, 1000} {
			for _, buffer := range []int{1, 10, 200, 5000} {
				single, many := newOrder(mode, n, 5, buffer), newOrder(mode, n, 5, buffer)
				for _, size := range []int64{1, 3, 4, 32, n} {
					for start := int64(0); start < n; start += size {
						end := min(start+size, n)
						for i, got := range many.draw(nil, 2, start, end) {
							if want := single.at(2, start+int64(i)); got != want {
								t.Fatalf("%s of %d, buffer %d: position %d draws %d in a batch of %d, alone %d", mode, n, buffer, start+int64(i), got, size, want)
							}
						}
					}
				}
			}
		}
	}
}

// The batches of an epoch are counted by stages, and not one by one.
func TestWalkOfManyRecords(t *testing.T) {
	s := Settings{Records: 1 << 50, BatchSize: 8}
	if n, at := s.walk(Growth{{0, 1}, {1 << 49, 8}}, 0, s.Records); n != 1<<49+1<<46 || at != s.Records {
		t.Errorf("%d batches up to %d, want %d up to %d", n, at, int64(1<<49+1<<46), s.Records)
	}
}
