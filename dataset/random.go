package dataset

// Random is a generator of numbers for layouts whose batches have something drawn: SplitMix64. It
// follows from its key, and so from nothing that changes with the readers or with a resume.
type Random struct{ state uint64 }

// NewRandom returns the generator for a seed and the numbers that say what it is for. The numbers
// begin with 3: 0 to 2 and 4 are the keys of the orders.
func NewRandom(seed uint64, uses ...uint64) Random { return Random{key(seed, uses...)} }

// Below returns a number of 0 to n-1. The share of each differs by less than n in 2^64.
func (r *Random) Below(n int) int {
	return int(scale(r.next(), uint64(n)))
}

// next returns 64 random bits.
func (r *Random) next() uint64 {
	r.state += golden
	return mix(r.state)
}
