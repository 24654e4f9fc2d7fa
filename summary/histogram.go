package summary

import "math"

// histogram returns a matrix [buckets, 3] of left edge, right edge and count, as
// tf.summary.histogram computes it: buckets of equal width from the smallest value to
// the largest. Only the last bucket includes its right edge. Without values everything
// is 0. If all values are equal, all edges are that value, and the last bucket counts
// them.
func histogram(values []float32, buckets int) []float64 {
	rows := make([]float64, 3*buckets)
	low, high, n := math.Inf(1), math.Inf(-1), 0
	for _, v := range values {
		if x := float64(v); !math.IsNaN(x) && !math.IsInf(x, 0) {
			low, high = min(low, x), max(high, x)
			n++
		}
	}
	if n == 0 {
		return rows
	}
	width := (high - low) / float64(buckets)
	for i := range buckets {
		rows[3*i] = low + float64(i)*width
		rows[3*i+1] = low + float64(i+1)*width
	}
	rows[3*buckets-2] = high
	if width == 0 {
		rows[3*buckets-1] = float64(n)
		return rows
	}
	for _, v := range values {
		if x := float64(v); !math.IsNaN(x) && !math.IsInf(x, 0) {
			rows[3*min(int((x-low)/width), buckets-1)+2]++
		}
	}
	return rows
}
