package train

import "sync/atomic"

// filling counts how full the rows of batches are.
type filling struct{ tokens, cells atomic.Int64 }

// read returns the numbers of tokens and of positions so far.
func (f *filling) read() [2]int64 { return [2]int64{f.tokens.Load(), f.cells.Load()} }

// add counts a batch of the given number of tokens in rows of the given number of positions.
func (f *filling) add(tokens, cells int) {
	f.tokens.Add(int64(tokens))
	f.cells.Add(int64(cells))
}
