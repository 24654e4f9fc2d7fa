// Package buckets chooses which of a few lengths a batch has, so that examples of similar length come
// together.
package buckets

// Lengths are the lengths of batches, or of their rows, ascending. A bucket is one of them, by its
// place.
type Lengths []int

// Of returns the bucket of the shortest length that holds an example.
func (l Lengths) Of(length int32) int {
	for b, most := range l {
		if int(length) <= most {
			return b
		}
	}
	return len(l) - 1 // the room of a record is no more than that
}

// Next returns the bucket of the next batch, given the lengths of the examples that wait: the first
// one for which enough examples for any batch wait, or, at the end of an epoch, when there is none,
// that of the longest example.
func (l Lengths) Next(waiting []int32, enough int) int {
	counts := make([]int, len(l))
	longest := 0
	for _, length := range waiting {
		b := l.Of(length)
		if counts[b]++; counts[b] == enough {
			return b
		}
		longest = max(longest, b)
	}
	return longest
}
