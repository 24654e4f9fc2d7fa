package int8

import (
	"encoding/binary"
	"math"
)

// The form of a packed matrix: panels of columns, the numbers of four rows side by side, and after the
// rows of a panel a row of scales and a row of sums.
const (
	columns = 16
	fours   = 4
	rest    = 2
)

// Steps is the largest whole number that a weight or an activation is rounded to.
const Steps = 127

// Fits reports whether a matrix of this shape can be packed.
func Fits(shape []int64) bool {
	return len(shape) == 2 && shape[0] > 0 && shape[1] > 0 && shape[0]%columns == 0 && shape[1]%columns == 0
}

// PackedShape returns the shape of a packed matrix. Its type is int32, each of which is four int8 numbers.
func PackedShape(shape []int64) []int64 {
	return []int64{shape[1] / columns, shape[0]/fours + rest, columns}
}

// Pack rounds the values of a matrix, row after row, to whole numbers of a step of each column, and returns
// them in the packed form. ok is false if a value is not finite.
func Pack(values []float32, shape []int64) (packed []byte, ok bool) {
	rows, width := int(shape[0]), int(shape[1])
	stride := (rows/fours + rest) * columns * fours
	packed = make([]byte, width/columns*stride)
	for j := range width {
		panel, column := packed[j/columns*stride:][:stride], j%columns*fours
		largest := float32(0)
		for i := range rows {
			v := values[i*width+j]
			if v-v != 0 {
				return nil, false
			}
			largest = max(largest, v, -v)
		}
		step, sum := largest/Steps, int32(0)
		for i := range rows {
			n := int32(0)
			if step > 0 {
				n = min(Steps, max(-Steps, int32(math.RoundToEven(float64(values[i*width+j])/float64(step)))))
			}
			sum += n
			panel[i/fours*columns*fours+column+i%fours] = byte(n)
		}
		after := panel[rows*columns:]
		binary.LittleEndian.PutUint32(after[column:], math.Float32bits(step))
		binary.LittleEndian.PutUint32(after[columns*fours+column:], uint32(sum))
	}
	return packed, true
}
