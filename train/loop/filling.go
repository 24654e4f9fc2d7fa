package loop

import "sync/atomic"

// Filling counts how full the rows of batches are.
type Filling struct{ tokens, cells atomic.Int64 }

// Read returns the numbers of tokens and of positions so far.
func (f *Filling) Read() [2]int64 { return [2]int64{f.tokens.Load(), f.cells.Load()} }

// add counts a batch of the given number of tokens in rows of the given number of positions.
func (f *Filling) add(tokens, cells int) {
	f.tokens.Add(int64(tokens))
	f.cells.Add(int64(cells))
}
