package described

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Tensor is an output of a call as the program's binding returned it.
type Tensor struct {
	// DType is float32, float64, int32, int64, uint8 or bool.
	DType string
	Shape []int64
	// Raw has the values, row-major, in the machine's order of bytes.
	Raw []byte
}

// Results divides the outputs of a call, one for each of the Answers, among its n examples.
func (m *Model) Results(n int, outputs []Tensor) ([]predict.Result, error) {
	results := make([]predict.Result, n)
	for i := range results {
		results[i] = make(predict.Result, len(outputs))
	}
	for k, t := range outputs {
		a := m.Answers[k]
		flat, err := t.float64s()
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", a.Name, err)
		}
		if len(t.Shape) == 0 || t.Shape[0] != int64(n) {
			return nil, fmt.Errorf("the model returned %s of shape %v for %d examples; expected the first axis to have as many", a.Name, t.Shape, n)
		}
		if n == 0 {
			continue
		}
		each := make([]int, len(t.Shape)-1)
		for i, d := range t.Shape[1:] {
			each[i] = int(d)
		}
		size := len(flat) / n
		if len(a.Classes) > 0 && len(each) == 1 && size != len(a.Classes) && size != 1 {
			return nil, fmt.Errorf("the model returned %s %v for %d examples; expected %d values for each", t.DType, t.Shape, n, len(a.Classes))
		}
		for i := range results {
			results[i][k] = predict.Values{Shape: each, Data: flat[i*size : (i+1)*size]}
		}
	}
	return results, nil
}

// float64s returns the values.
func (t Tensor) float64s() ([]float64, error) {
	le := binary.NativeEndian
	size := map[string]int{"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1, "bool": 1}[t.DType]
	if size == 0 {
		return nil, fmt.Errorf("has values of %s; expected float32, float64, int32, int64, uint8 or bool", t.DType)
	}
	out := make([]float64, len(t.Raw)/size)
	for i := range out {
		switch v := t.Raw[i*size:]; t.DType {
		case "float32":
			out[i] = float64(math.Float32frombits(le.Uint32(v)))
		case "float64":
			out[i] = math.Float64frombits(le.Uint64(v))
		case "int32":
			out[i] = float64(int32(le.Uint32(v)))
		case "int64":
			out[i] = float64(int64(le.Uint64(v)))
		default:
			out[i] = float64(v[0])
		}
	}
	return out, nil
}

// Rows are the tensors of texts with one text in a row: token ids, 1 for each token, and types, each
// row-major with rows of Length.
type Rows struct {
	Length           int
	IDs, Mask, Types []int32
}

// Padded lays encoded texts into rows as long as the longest.
func Padded(examples []text.Encoding) Rows {
	var r Rows
	for _, e := range examples {
		r.Length = max(r.Length, len(e.IDs))
	}
	n := len(examples) * r.Length
	r.IDs, r.Mask, r.Types = make([]int32, n), make([]int32, n), make([]int32, n)
	for i, e := range examples {
		from := i * r.Length
		copy(r.IDs[from:], e.IDs)
		copy(r.Types[from:], e.TypeIDs)
		for j := range e.IDs {
			r.Mask[from+j] = 1
		}
	}
	return r
}

// Lengths returns the numbers of tokens of texts.
func Lengths(examples []text.Encoding) []int {
	lengths := make([]int, len(examples))
	for i, e := range examples {
		lengths[i] = len(e.IDs)
	}
	return lengths
}

// Cut shortens the values of tokens to those of each example, in results of rows of a length.
func (m *Model) Cut(results []predict.Result, lengths []int, length int) {
	for k, a := range m.Answers {
		for i := range results {
			if v := &results[i][k]; a.Tokens && len(v.Shape) > 0 && v.Shape[0] == length {
				*v = v.First(lengths[i])
			}
		}
	}
}
