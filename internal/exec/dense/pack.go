package dense

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

// leastRows is the least rows of a table that is packed.
const leastRows = 16

// FitsTable reports whether a table of this shape can be packed.
func FitsTable(shape []int64) bool {
	return len(shape) == 2 && shape[0] >= leastRows && shape[1] > 0 && shape[1]%fours == 0
}

// TableShape returns the shape of a packed table. Its type is that of packed matrices. A row's last number
// is its step, and byte i of the others has the columns of its quarter i.
func TableShape(shape []int64) []int64 { return []int64{shape[0], shape[1]/fours + 1} }

// PackTable rounds the values of a table, row after row, to whole numbers of a step of each row, and returns
// them in the packed form. ok is false if a value is not finite.
func PackTable(values []float32, shape []int64) (packed []byte, ok bool) {
	width, quarter := int(shape[1]), int(shape[1])/fours
	for ; len(values) > 0; values = values[width:] {
		largest := float32(0)
		for _, v := range values[:width] {
			if v-v != 0 {
				return nil, false
			}
			largest = max(largest, v, -v)
		}
		step, at := largest/Steps, len(packed)
		packed = append(packed, make([]byte, quarter*fours)...)
		for j, v := range values[:width] {
			packed[at+j%quarter*fours+j/quarter] = byte(steps(v, step))
		}
		packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(step))
	}
	return packed, true
}

// steps rounds a value to a whole number of steps.
func steps(v, step float32) int32 {
	if step == 0 {
		return 0
	}
	return min(Steps, max(-Steps, int32(math.RoundToEven(float64(v)/float64(step)))))
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
			n := steps(values[i*width+j], step)
			sum += n
			panel[i/fours*columns*fours+column+i%fours] = byte(n)
		}
		after := panel[rows*columns:]
		binary.LittleEndian.PutUint32(after[column:], math.Float32bits(step))
		binary.LittleEndian.PutUint32(after[columns*fours+column:], uint32(sum))
	}
	return packed, true
}
