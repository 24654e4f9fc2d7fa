package packed

import (
	"fmt"
)

// Shapes returns the shapes of each of n micro-batches of batches with fixed rows, one for each of
// Buckets and RowLength, the largest last. It returns nil if Rows is 0.
func (c Config) Shapes(n int) []Shape {
	largest := c.Shape(n)
	if largest.Rows == 0 {
		return nil
	}
	var out []Shape
	c = c.withDefaults()
	for _, length := range c.lengths() {
		out = append(out, Shape{largest.Rows, length, largest.Examples})
	}
	return out
}

// lengths returns the lengths of fixed rows, ascending.
func (c *Config) lengths() []int {
	return append(c.Buckets[:len(c.Buckets):len(c.Buckets)], c.RowLength)
}

const (
	// maxBuckets is the most lengths of rows. On a TPU each has programs of its own.
	maxBuckets = 64
	// maxWaiting is the most records that may wait for a batch of their bucket. A position names them.
	maxWaiting = 1 << 16
	// A place of a Filler is a row, with the bucket above these bits.
	rowBits = 24
)

// validateBuckets checks the buckets of fixed rows, for batches of at most a given number of
// examples.
func (c Config) validateBuckets(examples int) error {
	if len(c.Buckets) == 0 {
		return nil
	}
	before := 0
	for _, length := range c.Buckets {
		if length <= before || length >= c.RowLength {
			return fmt.Errorf("buckets of rows have %v tokens; expected ascending numbers of 1 to %d, below the row length", c.Buckets, c.RowLength-1)
		}
		before = length
	}
	most := min(examples, c.Rows*c.withDefaults().RowExamples)
	switch {
	case len(c.Buckets) >= maxBuckets:
		return fmt.Errorf("there are %d buckets of rows; expected at most %d", len(c.Buckets), maxBuckets-1)
	case c.Rows >= 1<<rowBits:
		return fmt.Errorf("number of rows is %d; expected at most %d with buckets", c.Rows, 1<<rowBits-1)
	case (len(c.Buckets)+1)*most > maxWaiting:
		return fmt.Errorf("%d buckets for batches of up to %d examples are too many; expected at most %d examples in all", len(c.Buckets)+1, most, maxWaiting)
	}
	return nil
}

// placeIn returns the place of an example in a row of a bucket.
func placeIn(bucket int, row int32) int32 { return int32(bucket)<<rowBits | row }

// placeOf is the inverse of placeIn, for places that are not negative.
func placeOf(place int32) (bucket int, row int32) {
	return int(place >> rowBits), place & (1<<rowBits - 1)
}

// first returns the example before the one that a row of a bucket begins with: the first one of the
// bucket. Shorter ones fill the rest of a row, and begin one only where no other is left.
func (f *filler) first(lengths []int32, bucket int) int32 {
	if bucket == 0 {
		return 0
	}
	for before := int32(0); ; {
		i := f.after[before]
		if i < 0 {
			return 0
		}
		if int(lengths[i]) > f.lengths[bucket-1] {
			return before
		}
		before = i + 1
	}
}
