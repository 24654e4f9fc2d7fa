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
	slots                 []int64
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
		o.begin(epoch)
		for rest := draws; len(rest) > 0; {
			rest = rest[o.drawWindow(rest):]
		}
	}
	return draws
}

// drawWindow replaces the positions that lie in the same window as the first by
// the records drawn there, and returns how many these are.
func (o *order) drawWindow(positions []int64) int {
	// Positions behind the short block are moved up by what it lacks, which
	// makes a division find windows and slots.
	w := positions[0] / (o.window * o.block)
	if positions[0] >= o.before((o.short/o.window+1)*o.window) {
		w = (positions[0] + o.deficit) / (o.window * o.block)
	}
	start, end := o.before(w*o.window), o.before(min((w+1)*o.window, o.blocks))
	if w != o.drawn {
		o.inner = newPermutation(end-start, key(o.seed, useWindow, uint64(o.epoch), uint64(w)))
		o.drawn = w
	}
	n := 0
	for n < len(positions) && positions[n] < end {
		positions[n] -= start
		n++
	}
	positions = positions[:n]
	o.inner.atEach(positions)

	o.slots = o.slots[:0]
	for i, p := range positions {
		p += start
		if p >= o.before(o.short+1) {
			p += o.deficit
		}
		o.slots = append(o.slots, p/o.block)
		positions[i] = p % o.block
	}
	o.perm.atEach(o.slots)
	for i, block := range o.slots {
		positions[i] += block * o.block
	}
	return n
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
