package text

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Encoding is a text, or a pair of texts, as input of a model.
type Encoding struct {
	IDs       []int32 // with special tokens, such as [CLS] a [SEP] or [CLS] a [SEP] b [SEP]
	TypeIDs   []int32 // those of the template; as long as IDs
	Truncated bool    // whether tokens were dropped
}

// Pair is a text and an optional second text.
type Pair struct{ A, B string }

// Encode returns the ids of a text, or of a pair if b is not empty, with special
// tokens, truncated to maxLen ids in total. A maxLen of 0 or less means no limit.
//
// A pair that is too long loses tokens at the ends, the longer text first, as in the
// tokenizers library. With room for n tokens, a text of n/2 or fewer stays whole and
// the other gets the rest. Otherwise each gets n/2, and the longer one (b, if they are
// equally long) the odd token. The special tokens stay even if maxLen is too small.
func (t *Tokenizer) Encode(a, b string, maxLen int) Encoding {
	var e Encoding
	t.EncodeInto(&e, a, b, maxLen)
	return e
}

// Lengths is how many tokens each of two texts has, those that were dropped included.
type Lengths struct{ A, B int }

// EncodeInto is [Tokenizer.Encode] into the slices of e, which grow as needed.
func (t *Tokenizer) EncodeInto(e *Encoding, a, b string, maxLen int) Lengths {
	f := &t.template.Single
	if b != "" {
		f = &t.template.Pair
	}
	most := math.MaxInt
	if maxLen > 0 {
		most = maxLen
	}
	ids := appendSpecials(e.IDs[:0], f.Before)
	first := len(ids)
	ids, moreA := t.algorithm.AppendFirst(ids, a, most)
	keepA, keepB, moreB := len(ids)-first, 0, 0
	ids = appendSpecials(ids, f.Between)
	second := len(ids)
	if b != "" {
		ids, moreB = t.algorithm.AppendFirst(ids, b, most)
		keepB = len(ids) - second
	}
	lenA, lenB := keepA+moreA, keepB+moreB
	if specials := f.Specials(); maxLen > 0 && lenA+lenB+specials > maxLen {
		keepA, keepB = longestFirst(lenA, lenB, max(0, maxLen-specials))
		at := first + keepA + len(f.Between)
		copy(ids[at:], ids[second:second+keepB])
		appendSpecials(ids[:first+keepA], f.Between)
		ids = ids[:at+keepB]
	}
	ids = appendSpecials(ids, f.After)
	types := slices.Grow(e.TypeIDs[:0], len(ids))
	types = appendTypes(types, f.Before)
	types = appendType(types, f.TypeA, keepA)
	types = appendTypes(types, f.Between)
	types = appendType(types, f.TypeB, keepB)
	types = appendTypes(types, f.After)
	*e = Encoding{IDs: ids, TypeIDs: types, Truncated: keepA+keepB < lenA+lenB}
	return Lengths{lenA, lenB}
}

func appendSpecials(ids []int32, specials []Special) []int32 {
	for _, s := range specials {
		ids = append(ids, s.ID)
	}
	return ids
}

func appendTypes(types []int32, specials []Special) []int32 {
	for _, s := range specials {
		types = append(types, s.Type)
	}
	return types
}

func appendType(types []int32, typ int32, n int) []int32 {
	for range n {
		types = append(types, typ)
	}
	return types
}

// longestFirst returns how many tokens are kept of two texts of a and b tokens if
// there is room for n < a+b.
func longestFirst(a, b, n int) (int, int) {
	short, long := min(a, b), 0
	if rest := n - short; rest >= short {
		long = rest
	} else {
		short, long = n/2, n-n/2
	}
	if a > b {
		return long, short
	}
	return short, long
}

// batchChunk is how many texts of a batch a goroutine encodes at a time.
const batchChunk = 64

// EncodeBatch encodes texts like [Tokenizer.Encode], on all cores. The results are in
// the order of the texts.
func (t *Tokenizer) EncodeBatch(texts []Pair, maxLen int) []Encoding {
	out := make([]Encoding, len(texts))
	chunks := (len(texts) + batchChunk - 1) / batchChunk
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range min(chunks, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			var scratch Encoding
			var ids []int32
			for {
				lo := int(taken.Add(1)-1) * batchChunk
				if lo >= len(texts) {
					return
				}
				hi := min(lo+batchChunk, len(texts))
				ids = t.encodeChunk(out[lo:hi], texts[lo:hi], maxLen, &scratch, ids[:0])
			}
		})
	}
	wg.Wait()
	return out
}

// encodeChunk encodes texts into out, with a single allocation for all of them. It
// returns its working space ids for the next chunk.
func (t *Tokenizer) encodeChunk(out []Encoding, texts []Pair, maxLen int, scratch *Encoding, ids []int32) []int32 {
	var lengths [batchChunk]int
	for i, p := range texts {
		t.EncodeInto(scratch, p.A, p.B, maxLen)
		ids = append(append(ids, scratch.IDs...), scratch.TypeIDs...)
		lengths[i], out[i].Truncated = len(scratch.IDs), scratch.Truncated
	}
	rest := slices.Clone(ids)
	for i := range out {
		n := lengths[i]
		out[i].IDs, out[i].TypeIDs = rest[:n:n], rest[n:2*n:2*n]
		rest = rest[2*n:]
	}
	return ids
}
