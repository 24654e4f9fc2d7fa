package dataset

import "math/bits"

// place is where an example lies.
type place struct {
	row   int32
	start int32 // of its first token in the row
	seq   int32 // its number among the examples of the row, from 1
}

// packer lays examples into rows. It is reused from batch to batch, and its
// memory with it.
type packer struct {
	places []place // by example, the result

	sorted []int32 // examples, longest first
	counts []int32 // of examples by length, while sorting

	rowOf []int32  // by example
	used  []int32  // tokens by row
	seqs  []int32  // examples by row
	next  []int32  // the next row with as much room, by row, or -1
	head  []int32  // a row with so much room, by room; valid where open has the bit
	open  []uint64 // which rooms rows have, as a bit set
	tree  []int32  // the largest room below a node, for first-fit
}

// pack gives every example its place in p.places and returns the shape of the
// rows. No length is below 1 or above limit.
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
		if !fixed {
			limit = p.shorten(lengths, limit)
		}
		rows, rowLength = p.bestFit(lengths, limit, n)
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

// shortenTries bounds how many layouts shorten looks at.
const shortenTries = 48

// shorten returns the row length, at most limit, with which bestFit spends the
// fewest cells. Rows are few, so at the full length the last one is often half
// empty, and the same number of shorter rows, or one row more, holds the same
// examples.
func (p *packer) shorten(lengths []int32, limit int) int {
	longest, sum := int(lengths[p.sorted[0]]), 0
	for _, l := range lengths {
		sum += int(l)
	}
	full, used := p.bestFit(lengths, limit, len(lengths))
	best, cells := limit, full*used
	tries := shortenTries
	for rows := (sum + limit - 1) / limit; rows <= full+2; rows++ {
		for l := max(longest, (sum+rows-1)/rows); l <= limit && rows*l < cells; l++ {
			if tries--; tries < 0 {
				return best
			}
			if got, used := p.bestFit(lengths, l, rows); got > 0 {
				best, cells = l, got*used
				break
			}
		}
	}
	return best
}

// bestFit puts the examples, longest first, each into the row that has the
// least room left for it. It returns the number of rows and the tokens of the
// fullest, or zeros where it needs more rows than most. Rows are found by
// their room, so an example costs the same however many rows there are.
func (p *packer) bestFit(lengths []int32, limit, most int) (rows, fullest int) {
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
			if rows == most {
				return 0, 0
			}
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
