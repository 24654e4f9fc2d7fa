package packed

import "math/bits"

// place is the position of an example.
type place struct {
	row   int32
	start int32 // position of its first token in the row
	seq   int32 // its number among the examples of the row, from 1
}

// packer lays examples into rows. It and its memory are reused from batch to batch.
type packer struct {
	places []place // by example, the result

	sorted []int32 // examples, longest first
	counts []int32 // number of examples by length, while sorting

	rowOf []int32  // row by example
	used  []int32  // tokens by row
	seqs  []int32  // examples by row
	next  []int32  // the next row with the same room, by row, or -1
	head  []int32  // a row with that room, by room; valid if open has the bit
	open  []uint64 // the rooms that rows have, as a bit set
	tree  []int32  // the largest room below a node, for first-fit

	distinct []int32 // the lengths that occur, longest first
	have     []int32 // examples by length
	left     []int32 // examples not yet placed, by length
	picks    []pick  // what fill has placed
	last     [tightRoom]uint8
}

// pack sets the place of each example in p.places, and returns the shape of the
// rows. All lengths are between 1 and limit.
func (p *packer) pack(how Packing, lengths []int32, limit int, fixed bool) (rows, rowLength int) {
	n := len(lengths)
	p.places = resize(p.places, n)
	p.rowOf = resize(p.rowOf, n)
	p.used = resize(p.used, n)
	p.seqs = resize(p.seqs, n)
	var in []int32 // the order in which examples are put into their rows
	switch how {
	case PackNone:
		for i, l := range lengths {
			p.rowOf[i] = int32(i)
			rowLength = max(rowLength, int(l))
		}
		rows = n
	case PackFirstFit:
		rows, rowLength = p.firstFit(lengths, limit)
	default:
		p.sort(lengths, limit)
		in = p.sorted
		rows, rowLength = p.bestFit(lengths, limit)
		if rows > 1 {
			rows, rowLength = p.tighten(lengths, limit, fixed, rows, rowLength)
		}
	}
	if fixed {
		rowLength = limit
	}

	clear(p.used[:rows])
	clear(p.seqs[:rows])
	for k := range n {
		i := k
		if in != nil {
			i = int(in[k])
		}
		r := p.rowOf[i]
		p.seqs[r]++
		p.places[i] = place{row: r, start: p.used[r], seq: p.seqs[r]}
		p.used[r] += lengths[i]
	}
	return rows, rowLength
}

// The bounds of the search for a tight layout.
const (
	tightTries  = 48  // layouts to try
	tightShapes = 16  // numbers of rows to try
	tightRoom   = 128 // below this room a row is finished with the best sum of lengths
	tightShare  = 5   // a row may waste this multiple of its even share of the spare cells
)

// tighten looks for rows of at most limit tokens that have fewer cells than the
// given rows, and returns the shape it found, or the given one. Since there are few
// rows, the last one is often half empty at the full length, and the same number of
// shorter rows, or one more row, holds the same examples. Shapes are tried from the
// fewest cells up, so the first that fits is the best.
func (p *packer) tighten(lengths []int32, limit int, fixed bool, rows, fullest int) (int, int) {
	sum := 0
	p.distinct = p.distinct[:0]
	p.have = resize(p.have, limit+1)
	p.left = resize(p.left, limit+1)
	clear(p.have)
	for _, i := range p.sorted {
		l := lengths[i]
		if p.have[l]++; p.have[l] == 1 {
			p.distinct = append(p.distinct, l)
		}
		sum += int(l)
	}
	longest := int(p.distinct[0])
	least := (sum + limit - 1) / limit
	if fixed {
		for r := least; r < rows; r++ {
			if got, used := p.fill(r, limit, sum); got > 0 {
				p.assign(lengths)
				return got, used
			}
		}
		return rows, fullest
	}

	var shapes [tightShapes]struct{ rows, length int }
	step := max(1, least/(2*tightShapes))
	for i := range shapes {
		r := least + i*step
		shapes[i].rows, shapes[i].length = r, max(longest, (sum+r-1)/r)
	}
	from := 0 // minimum number of cells of the next shape
	for range tightTries {
		best, cells := -1, rows*fullest
		for i := range shapes {
			s := &shapes[i]
			if short := from - s.rows*s.length; short > 0 {
				s.length += (short + s.rows - 1) / s.rows
			}
			if c := s.rows * s.length; c < cells && s.length <= limit {
				best, cells = i, c
			}
		}
		if best < 0 {
			break
		}
		s := &shapes[best]
		if got, used := p.fill(s.rows, s.length, sum); got > 0 {
			p.assign(lengths)
			return got, used
		}
		s.length++
		from = cells + cells/1024
	}
	return rows, fullest
}

// pick places an example of a length in a row.
type pick struct{ length, row int32 }

// fill places all lengths into at most the given number of rows of at most limit
// tokens. It returns the number of rows used and the tokens of the fullest one, or
// zeros if the lengths do not fit. Each row starts with the longest remaining length,
// continues with the longest that fit, and ends with the lengths whose sum fills it
// best. The reachable sums are a bit set, which each length ORs with itself, shifted
// by the length. A row may stay short while there are cells to spare, which leaves
// lengths that combine well to the rows that need them.
func (p *packer) fill(most, limit, sum int) (rows, fullest int) {
	spare := most*limit - sum
	left := p.left[:len(p.have)]
	copy(left, p.have)
	lens := p.distinct
	p.picks = p.picks[:0]
	for ; rows < most; rows++ {
		for len(lens) > 0 && left[lens[0]] == 0 {
			lens = lens[1:]
		}
		if len(lens) == 0 {
			break
		}
		room := limit
		k := 0
		for k < len(lens) {
			l := lens[k]
			if left[l] == 0 || int(l) > room {
				k++
				continue
			}
			if room < min(limit, tightRoom) {
				break
			}
			left[l]--
			room -= int(l)
			p.picks = append(p.picks, pick{l, int32(rows)})
		}
		if room > 0 && k < len(lens) {
			waste := min(spare, tightShare*spare/(most-rows))
			best := p.sums(lens[k:], left, room, max(0, room-waste))
			room -= best
			for best > 0 {
				l := int32(p.last[best])
				left[l]--
				best -= int(l)
				p.picks = append(p.picks, pick{l, int32(rows)})
			}
		}
		if spare -= room; spare < 0 {
			return 0, 0
		}
		fullest = max(fullest, limit-room)
	}
	for _, l := range lens {
		if left[l] > 0 {
			return 0, 0
		}
	}
	return rows, fullest
}

// sums returns the greatest sum of lengths, of which there are as many as left
// says, that is at most room, or the first that is found of at least enough.
// p.last holds the length that a sum ends with. Room is below tightRoom.
func (p *packer) sums(lens, left []int32, room, enough int) int {
	// Bit s of low, or s-64 of high, stands for the sum s.
	low, high := uint64(1), uint64(0)
	upToLow, upToHigh := ^uint64(0), uint64(0)
	if room < 63 {
		upToLow = 1<<(room+1) - 1
	} else {
		upToHigh = 1<<(room-63) - 1
	}
	for _, l := range lens {
		for n := left[l]; n > 0; n-- {
			var newLow, newHigh uint64
			if l < 64 {
				newLow, newHigh = low<<l, high<<l|low>>(64-l)
			} else {
				newHigh = low << (l - 64)
			}
			newLow &= upToLow &^ low
			newHigh &= upToHigh &^ high
			if newLow|newHigh == 0 {
				break
			}
			low |= newLow
			high |= newHigh
			best := bits.Len64(newLow) - 1
			if newHigh != 0 {
				best = bits.Len64(newHigh) + 63
			}
			for ; newLow != 0; newLow &= newLow - 1 {
				p.last[bits.TrailingZeros64(newLow)] = uint8(l)
			}
			for ; newHigh != 0; newHigh &= newHigh - 1 {
				p.last[64+bits.TrailingZeros64(newHigh)%64] = uint8(l)
			}
			if best >= enough {
				return best
			}
		}
	}
	if high != 0 {
		return bits.Len64(high) + 63
	}
	return bits.Len64(low) - 1
}

// assign gives the rows of the picks to examples, of equal lengths in their own
// order.
func (p *packer) assign(lengths []int32) {
	at := p.left
	for k := len(p.sorted) - 1; k >= 0; k-- {
		at[lengths[p.sorted[k]]] = int32(k)
	}
	for _, c := range p.picks {
		p.rowOf[p.sorted[at[c.length]]] = c.row
		at[c.length]++
	}
}

// bestFit puts the examples, longest first, each into the row that has the
// least room left for it. It returns the number of rows and the tokens of the
// fullest. Rows are found by their room, so an example costs the same however
// many rows there are.
func (p *packer) bestFit(lengths []int32, limit int) (rows, fullest int) {
	p.head = resize(p.head, limit+1)
	p.open = resize(p.open, limit/64+1)
	p.next = resize(p.next, len(lengths))
	head, open, next := p.head, p.open, p.next
	clear(open)
	least := limit
	for _, i := range p.sorted {
		l := int(lengths[i])
		w := l / 64
		set := open[w] >> (l % 64) << (l % 64)
		for set == 0 && w+1 < len(open) {
			w++
			set = open[w]
		}
		var row int32
		room := limit
		if set == 0 {
			row = int32(rows)
			rows++
		} else {
			room = w*64 + bits.TrailingZeros64(set)
			row = head[room]
			if head[room] = next[row]; next[row] < 0 {
				open[w] &^= 1 << (room % 64)
			}
		}
		p.rowOf[i] = row
		room -= l
		least = min(least, room)
		next[row] = -1
		if bit := uint64(1) << (room % 64); open[room/64]&bit != 0 {
			next[row] = head[room]
		} else {
			open[room/64] |= bit
		}
		head[room] = row
	}
	return rows, limit - least
}

// firstFit puts the examples, in their own order, each into the first row that
// has room for it, found through a tree of the largest room.
func (p *packer) firstFit(lengths []int32, limit int) (rows, fullest int) {
	leaves := 1 << bits.Len(uint(len(lengths)-1))
	p.tree = resize(p.tree, 2*leaves)
	for i := range p.tree {
		p.tree[i] = int32(limit)
	}
	for i, l := range lengths {
		at := 1
		for at < leaves {
			if at *= 2; p.tree[at] < l {
				at++
			}
		}
		row := at - leaves
		p.rowOf[i] = int32(row)
		rows = max(rows, row+1)
		p.tree[at] -= l
		fullest = max(fullest, limit-int(p.tree[at]))
		for at /= 2; at >= 1; at /= 2 {
			p.tree[at] = max(p.tree[2*at], p.tree[2*at+1])
		}
	}
	return rows, fullest
}

// sort puts the examples into p.sorted, longest first, equal ones in their own
// order.
func (p *packer) sort(lengths []int32, limit int) {
	p.sorted = resize(p.sorted, len(lengths))
	p.counts = resize(p.counts, limit+2)
	clear(p.counts)
	for _, l := range lengths {
		p.counts[l]++
	}
	at := int32(0)
	for l := limit; l >= 0; l-- {
		at, p.counts[l] = at+p.counts[l], at
	}
	for i, l := range lengths {
		p.sorted[p.counts[l]] = int32(i)
		p.counts[l]++
	}
}

// resize returns a slice of n elements whose content is undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n+n/4)[:n]
	}
	return s[:n]
}
