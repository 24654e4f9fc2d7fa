// Package heap has a priority queue.
package heap

// Item is an item of a heap, and the key that it is ordered by.
type Item[T any] struct {
	Key   uint64
	Value T
}

// Heap has items, that of the lowest key at the top: a heap of four children, in which a hole moves and not
// the items around it. Keys are numbers, because comparing these is several times as fast as a function
// that compares. The zero value is empty.
type Heap[T any] []Item[T]

// Push adds an item.
func (h *Heap[T]) Push(key uint64, value T) {
	*h = append(*h, Item[T]{})
	all := *h
	i := len(all) - 1
	for i > 0 {
		up := (i - 1) / 4
		if key >= all[up].Key {
			break
		}
		all[i] = all[up]
		i = up
	}
	all[i] = Item[T]{key, value}
}

// Pop takes the first item from a heap that has one.
func (h *Heap[T]) Pop() T {
	all := *h
	top, last := all[0].Value, len(all)-1
	item := all[last]
	if *h = all[:last]; last > 0 {
		h.Replace(item.Key, item.Value)
	}
	return top
}

// Replace puts another item in place of the first one.
func (h *Heap[T]) Replace(key uint64, value T) {
	all := *h
	i := 0
	for {
		first := 4*i + 1
		if first >= len(all) {
			break
		}
		best := first
		for k := first + 1; k < min(first+4, len(all)); k++ {
			if all[k].Key < all[best].Key {
				best = k
			}
		}
		if all[best].Key >= key {
			break
		}
		all[i] = all[best]
		i = best
	}
	all[i] = Item[T]{key, value}
}
