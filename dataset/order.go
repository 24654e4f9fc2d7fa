package dataset

// What keys are used for, so that no two permutations share one.
const (
	useRecords = iota // the records of the whole set
	useBlocks         // the blocks of a buffered shuffle
	useWindow         // the records of a window, followed by its number
	useMasks          // of package packed: the tokens of a record
	useSample         // the records that are drawn with replacement, one for each position
)

// order maps the positions of an epoch to records. It caches what it computed last,
// so each goroutine needs its own.
type order struct {
	mode Shuffle
	n    int64 // records
	seed uint64
	// epoch is the epoch of the fields below, or -1.
	epoch int64

	sampler *sampler // nil if every record is drawn once

	perm permutation // of the records, or of the blocks

	// For a buffered shuffle: blocks of consecutive records are placed in slots in
	// permuted order, and each window of slots is shuffled record by record. The
	// last block of the set may be short; its slot is known, and so is the
	// beginning of every window.
	block, blocks, window int64
	short, deficit        int64 // the slot of the last block, and how many records it lacks
	drawn                 int64 // number of inner's window, or -1
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

// draw returns the records drawn at the positions start to end of an epoch, in the
// memory of draws.
func (o *order) draw(draws []int64, epoch, start, end int64) []int64 {
	draws = draws[:0]
	if o.sampler != nil {
		for pos := start; pos < end; pos++ {
			draws = append(draws, o.sampler.at(o.seed, epoch, pos))
		}
		return draws
	}
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

// drawWindow replaces the positions in the same window as the first one by the
// records drawn there, and returns their number.
func (o *order) drawWindow(positions []int64) int {
	// Positions after the short block are shifted by the records it lacks, so that
	// a division finds windows and slots.
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

// begin prepares for an epoch.
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

// before returns the number of records in the slots below slot.
func (o *order) before(slot int64) int64 {
	n := slot * o.block
	if slot > o.short {
		n -= o.deficit
	}
	return n
}
