package dataset

// The uses of keys, so that no two permutations share one.
const (
	useRecords = iota // of the whole set
	useBlocks         // of the blocks of a buffered shuffle
	useWindow         // of the records of a window, followed by its number
)

// order says which record is drawn at which position of one epoch. It keeps
// what it computed last, so a goroutine needs one of its own.
type order struct {
	mode Shuffle
	n    int64 // records
	seed uint64
	// epoch is the one the rest belongs to, or -1.
	epoch int64

	perm permutation // of the records, or of the blocks

	// Of a buffered shuffle: blocks of consecutive records stand in permuted
	// order in slots, and a window of slots is shuffled record by record. The
	// last block of the set may be short; its slot is known, so the beginning
	// of every window is too.
	block, blocks, window int64
	short, deficit        int64 // the slot of the last block, and how many records it lacks
	drawn                 int64 // number of the window that inner belongs to, or -1
	inner                 permutation
}

func newOrder(mode Shuffle, n int64, seed uint64, buffer int) *order {
	o := &order{mode: mode, n: n, seed: seed, epoch: -1}
	if mode == ShuffleBuffer {
		o.block = min(max(int64(buffer)/64, 1), 1024)
		o.blocks = (n + o.block - 1) / o.block
		o.window = (int64(buffer) + o.block - 1) / o.block
		o.deficit = o.blocks*o.block - n
	}
	return o
}

// draw returns the records that are drawn at the positions of an epoch from start
// to end, in the memory of draws.
func (o *order) draw(draws []int64, epoch, start, end int64) []int64 {
	draws = draws[:0]
	for pos := start; pos < end; pos++ {
		draws = append(draws, pos)
	}
	switch o.mode {
	case ShuffleFull:
		o.begin(epoch)
		o.perm.atEach(draws)
	case ShuffleBuffer:
		for i, pos := range draws {
			draws[i] = o.at(epoch, pos)
		}
	}
	return draws
}

// at returns the record that is drawn at a position of an epoch.
func (o *order) at(epoch, pos int64) int64 {
	if o.mode == ShuffleNone {
		return pos
	}
	o.begin(epoch)
	if o.mode == ShuffleFull {
		return o.perm.at(pos)
	}

	// Positions behind the short block are moved up by what it lacks, which
	// makes a division find windows and slots.
	w := pos / (o.window * o.block)
	if pos >= o.before((o.short/o.window+1)*o.window) {
		w = (pos + o.deficit) / (o.window * o.block)
	}
	start := o.before(w * o.window)
	if w != o.drawn {
		size := o.before(min((w+1)*o.window, o.blocks)) - start
		o.inner = newPermutation(size, key(o.seed, useWindow, uint64(epoch), uint64(w)))
		o.drawn = w
	}
	i := start + o.inner.at(pos-start)
	if i >= o.before(o.short+1) {
		i += o.deficit
	}
	return o.perm.at(i/o.block)*o.block + i%o.block
}

// begin makes ready for an epoch.
func (o *order) begin(epoch int64) {
	if epoch == o.epoch {
		return
	}
	o.epoch = epoch
	if o.mode == ShuffleFull {
		o.perm = newPermutation(o.n, key(o.seed, useRecords, uint64(epoch)))
		return
	}
	o.perm = newPermutation(o.blocks, key(o.seed, useBlocks, uint64(epoch)))
	o.short = o.perm.inverse(o.blocks - 1)
	o.drawn = -1
}

// before returns how many records lie in the slots below one.
func (o *order) before(slot int64) int64 {
	n := slot * o.block
	if slot > o.short {
		n -= o.deficit
	}
	return n
}
