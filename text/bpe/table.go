package bpe

// mergeTable has the merges by their pairs: a hash table with open addressing.
type mergeTable struct {
	slots []slot
	shift uint8
}

type slot struct {
	pair  uint64 // both ids, plus one
	merge merge
}

func newMergeTable(n int) mergeTable {
	bits := uint8(4)
	for 1<<bits < 2*n {
		bits++
	}
	return mergeTable{make([]slot, 1<<bits), 64 - bits}
}

func (t *mergeTable) put(a, b int32, m merge) {
	key := uint64(a)<<32 | uint64(b) + 1
	for i := key * 0x9e3779b97f4a7c15 >> t.shift; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if s.pair == 0 || s.pair == key {
			*s = slot{key, m}
			return
		}
	}
}

// none is the merge of a pair that is not joined.
var none = merge{1<<31 - 1, -1}

// get returns the merge of a pair, or none.
func (t *mergeTable) get(a, b int32) merge {
	key := uint64(a)<<32 | uint64(b) + 1
	for i := key * 0x9e3779b97f4a7c15 >> t.shift; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if s.pair == key {
			return s.merge
		}
		if s.pair == 0 {
			return none
		}
	}
}
