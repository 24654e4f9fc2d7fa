package bpe

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/heap"
	"github.com/gorbit-ml/gorbit/text"
)

// symbol is a part of a word that is a token.
type symbol struct {
	id   int32
	size int32 // bytes
}

// splitter is the text.Splitter of a model.
type splitter struct {
	m       *Model
	symbols []symbol
	merges  []merge // of a symbol and the next
	heap    heap.Heap[candidate]
	cache   cache
}

// AppendIDs implements text.Splitter.
func (s *splitter) AppendIDs(dst []int32, word string) []int32 {
	for s.m.marked {
		end := s.m.nextMark(word)
		if end == len(word) {
			break
		}
		dst = s.appendIDs(dst, word[:end])
		word = word[end:]
	}
	return s.appendIDs(dst, word)
}

// nextMark returns where the next mark is that no merge joins to what is before it, or the length of the word.
func (m *Model) nextMark(word string) int {
	for i := 1; i < len(word); i++ {
		n := strings.Index(word[i:], mark)
		if n < 0 {
			break
		}
		if i += n; !m.before[word[i-1]] && !strings.HasSuffix(word[:i], mark) {
			return i
		}
	}
	return len(word)
}

// appendIDs is AppendIDs of a word that is not divided at marks.
func (s *splitter) appendIDs(dst []int32, word string) []int32 {
	if len(word) > maxShort {
		return s.appendLong(dst, word)
	}
	k := keyOf(word)
	if e := s.cache.find(k); e != nil {
		if e.count == 1 {
			return append(dst, e.at)
		}
		return append(dst, s.cache.ids[e.at:int(e.at)+int(e.count)]...)
	}
	from := len(dst)
	dst = s.appendNew(dst, word)
	s.cache.put(k, dst[from:])
	return dst
}

// appendLong is AppendIDs of a word that is too long for the table of short ones.
func (s *splitter) appendLong(dst []int32, word string) []int32 {
	if len(word) > maxLong {
		return s.appendNew(dst, word)
	}
	if ids, ok := s.cache.long[word]; ok {
		return append(dst, ids...)
	}
	from := len(dst)
	dst = s.appendNew(dst, word)
	s.cache.putLong(word, dst[from:])
	return dst
}

// appendNew is AppendIDs of a word that is not in the cache.
func (s *splitter) appendNew(dst []int32, word string) []int32 {
	for _, one := range s.split(word) {
		dst = append(dst, one.id)
	}
	return dst
}

// Append implements text.Splitter.
func (s *splitter) Append(dst []text.Piece, word string) []text.Piece {
	for word != "" {
		end := len(word)
		if s.m.marked {
			end = s.m.nextMark(word)
		}
		for _, one := range s.split(word[:end]) {
			dst = append(dst, text.Piece{ID: one.id, Len: one.size})
		}
		word = word[end:]
	}
	return dst
}

// few is the most symbols of a word of which the first pair is searched for, and not kept in a heap.
const few = 48

// split splits a word. The result is valid until the next call.
func (s *splitter) split(word string) []symbol {
	if s.m.cfg.IgnoreMerges {
		if id, ok := s.m.ids[word]; ok {
			s.symbols = append(s.symbols[:0], symbol{id, int32(len(word))})
			return s.symbols
		}
	}
	s.symbols = s.m.appendSymbols(s.symbols[:0], word)
	if len(s.symbols) > few {
		s.joinMany()
	} else {
		s.joinFew()
	}
	return s.symbols
}

// joinFew joins pairs until none is left: always the first one of those of the lowest rank.
func (s *splitter) joinFew() {
	all, merges := s.symbols, s.merges[:0]
	for i := 1; i < len(all); i++ {
		merges = append(merges, s.m.merges.get(all[i-1].id, all[i].id))
	}
	for len(merges) > 0 {
		best := 0
		for i := range merges {
			if merges[i].rank < merges[best].rank {
				best = i
			}
		}
		if merges[best].id < 0 {
			break
		}
		all[best] = symbol{merges[best].id, all[best].size + all[best+1].size}
		all = append(all[:best+1], all[best+2:]...)
		merges = append(merges[:best], merges[best+1:]...)
		if best < len(merges) {
			merges[best] = s.m.merges.get(all[best].id, all[best+1].id)
		}
		if best > 0 {
			merges[best-1] = s.m.merges.get(all[best-1].id, all[best].id)
		}
	}
	s.symbols, s.merges = all, merges
}

// joinMany is joinFew for long words, with a heap and a list.
func (s *splitter) joinMany() {
	all := s.symbols
	next, prev := make([]int32, len(all)), make([]int32, len(all))
	s.heap = s.heap[:0]
	push := func(left, right int32) {
		if left < 0 || int(right) >= len(all) {
			return
		}
		if m := s.m.merges.get(all[left].id, all[right].id); m.id >= 0 {
			s.heap.Push(uint64(m.rank)<<32|uint64(left), candidate{m.id, left, all[left].id, all[right].id})
		}
	}
	for i := range all {
		prev[i], next[i] = int32(i-1), int32(i+1)
		push(int32(i-1), int32(i))
	}
	for len(s.heap) > 0 {
		c := s.heap.Pop()
		right := next[c.at]
		if all[c.at].size == 0 || int(right) >= len(all) || all[c.at].id != c.left || all[right].id != c.right {
			continue // one of both has become part of another
		}
		all[c.at] = symbol{c.id, all[c.at].size + all[right].size}
		all[right].size = 0
		after := next[right]
		next[c.at] = after
		if int(after) < len(all) {
			prev[after] = c.at
		}
		push(prev[c.at], c.at)
		push(c.at, after)
	}
	kept := all[:0]
	for i := int32(0); int(i) < len(all); i = next[i] {
		kept = append(kept, all[i])
	}
	s.symbols = kept
}

// candidate is a pair that may be joined.
type candidate struct {
	id          int32 // of both
	at          int32 // of the left symbol
	left, right int32 // ids
}

// appendSymbols appends the characters of a word, or its bytes, as tokens.
func (m *Model) appendSymbols(dst []symbol, word string) []symbol {
	if m.cfg.Bytes {
		for i := range len(word) {
			dst = append(dst, symbol{m.first[word[i]], 1})
		}
		return dst
	}
	unknown := int32(0) // bytes of the unknown characters before
	flush := func() {
		if unknown > 0 {
			dst = append(dst, symbol{m.unk, unknown})
			unknown = 0
		}
	}
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+n]
		if i > 0 && m.cfg.Prefix != "" {
			char = m.cfg.Prefix + char
		}
		if i += n; i == len(word) {
			char += m.cfg.Suffix
		}
		if id, ok := m.ids[char]; ok {
			flush()
			dst = append(dst, symbol{id, int32(n)})
			continue
		}
		if m.cfg.ByteFallback {
			if with, ok := m.appendHex(dst, char); ok {
				dst = with // before an unknown character that comes earlier, as in the library
				continue
			}
		}
		if m.unk >= 0 {
			if !m.cfg.FuseUnk {
				flush()
			}
			unknown += int32(n)
		}
	}
	flush()
	return dst
}

// appendHex appends the tokens of the bytes of a character, if all have one.
func (m *Model) appendHex(dst []symbol, char string) ([]symbol, bool) {
	for i := range len(char) {
		id := m.hex[char[i]]
		if id < 0 {
			return nil, false
		}
		dst = append(dst, symbol{id, 1})
	}
	return dst, true
}

// Words of at most maxShort bytes are kept in a table, those of at most maxLong in a map.
const (
	maxShort = 16
	maxLong  = 256
)

// key is a short word: all of its bytes, some of them twice.
type key struct {
	a, b uint64
	size uint8
}

func keyOf(word string) key {
	n := len(word)
	switch {
	case n >= 8:
		return key{load8(word), load8(word[n-8:]), uint8(n)}
	case n >= 4:
		return key{load4(word), load4(word[n-4:]), uint8(n)}
	case n > 0:
		return key{uint64(word[0]) | uint64(word[n/2])<<8 | uint64(word[n-1])<<16, 0, uint8(n)}
	}
	return key{}
}

func load8(s string) uint64 {
	return binary.LittleEndian.Uint64([]byte(s[:8]))
}

func load4(s string) uint64 {
	return uint64(binary.LittleEndian.Uint32([]byte(s[:4])))
}

func (k *key) hash() uint64 {
	h := (k.a ^ uint64(k.size)*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h ^= h >> 32
	h = (h ^ k.b) * 0x94d049bb133111eb
	return h ^ h>>29
}

// The cache begins with 1<<minBits slots and has at most 1<<maxBits; when these are full, it begins anew.
const (
	minBits  = 12
	maxBits  = 17
	mostLong = 1 << 14
)

// cache has the ids of words.
type cache struct {
	slots []entry
	used  int
	ids   []int32
	long  map[string][]int32
}

// entry is a short word. A word of one token has its id in at, others their first place in cache.ids.
type entry struct {
	key
	count uint16
	at    int32
}

func (c *cache) find(k key) *entry {
	if len(c.slots) == 0 {
		return nil
	}
	mask := uint64(len(c.slots) - 1)
	for i := k.hash() & mask; ; i = (i + 1) & mask {
		e := &c.slots[i]
		if e.key == k {
			return e
		}
		if e.size == 0 {
			return nil
		}
	}
}

func (c *cache) put(k key, ids []int32) {
	if c.used >= len(c.slots)*5/8 {
		c.grow()
	}
	e := entry{key: k, count: uint16(len(ids))}
	if len(ids) == 1 {
		e.at = ids[0]
	} else {
		e.at = int32(len(c.ids))
		c.ids = append(c.ids, ids...)
	}
	c.insert(e)
}

func (c *cache) insert(e entry) {
	mask := uint64(len(c.slots) - 1)
	i := e.hash() & mask
	for c.slots[i].size > 0 {
		i = (i + 1) & mask
	}
	c.slots[i] = e
	c.used++
}

func (c *cache) grow() {
	old := c.slots
	c.used = 0
	switch {
	case len(old) == 0:
		c.slots = make([]entry, 1<<minBits)
	case len(old) < 1<<maxBits:
		c.slots = make([]entry, 4*len(old))
		for _, e := range old {
			if e.size > 0 {
				c.insert(e)
			}
		}
	default:
		clear(old)
		c.ids = c.ids[:0]
	}
}

func (c *cache) putLong(word string, ids []int32) {
	if c.long == nil || len(c.long) >= mostLong {
		c.long = map[string][]int32{}
	}
	c.long[string([]byte(word))] = append([]int32(nil), ids...)
}
