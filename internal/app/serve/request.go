package serve

import (
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/train/predict"
)

// form is the form of a request, which decides that of the response.
type form int

const (
	answers   form = iota // of our own: answers as gorbit predict gives them
	instances             // TensorFlow Serving's rows
	inputs                // TensorFlow Serving's columns
	classify              // TensorFlow Serving's examples, for probabilities
	regress               // TensorFlow Serving's examples, for a number
)

// verbs are the verbs of URLs and the forms of their requests. Those of predict are instances or
// inputs.
var verbs = map[string]form{"answer": answers, "predict": instances, "classify": classify, "regress": regress}

// request is a request for answers.
type request struct {
	form     form
	examples []example // as the model gets them
	// divided are the texts of a request that are several examples for the model; nil means one each.
	divided []predict.Division
	// raw means that the examples of :predict were given as tensors, so that the response has the
	// model's outputs instead of answers.
	raw bool
}

// statusError is an error with the status of its response.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string { return e.message }

// badf returns the error of a request that is not as expected.
func badf(format string, args ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// limits are the limits of a request.
type limits struct {
	examples   int  // most examples
	refuseLong bool // texts that are too long are refused instead of cut
	images     *room
}

// defaultSignature is the only signature that models are called with.
const defaultSignature = "serving_default"

// parse reads the body of a request for a model.
func (m *Model) parse(f form, body []byte, l limits) (*request, error) {
	if !utf8.Valid(body) {
		return nil, badf("the request is not valid UTF-8")
	}
	if m.sourced() {
		return nil, badf("model %s makes texts of sources; expected POST /v1/completions", m.Name)
	}
	if m.Texts != nil {
		return m.parseTexts(f, body, l)
	}
	return m.Features.parse(f, body, l)
}

// shapeOf returns the shape of nested lists of numbers and booleans. raw must be valid JSON.
func shapeOf(raw []byte) ([]int, error) {
	var shape []int  // of the lists that have ended
	var counts []int // values so far of the lists that have not
	leaf := -1       // depth of the values
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case ' ', '\t', '\r', '\n', ',':
		case '[':
			if len(counts) > 0 {
				counts[len(counts)-1]++
			}
			if counts = append(counts, 0); len(counts) > maxAxes {
				return nil, fmt.Errorf("has more than %d axes", maxAxes)
			}
			if len(counts) > len(shape) {
				shape = append(shape, -1)
			}
		case ']':
			d := len(counts) - 1
			if shape[d] >= 0 && shape[d] != counts[d] {
				return nil, errUneven
			}
			shape[d] = counts[d]
			counts = counts[:d]
		case '{', '"':
			return nil, fmt.Errorf("has the value %s; expected numbers", clip(raw[i:]))
		default:
			if len(counts) > 0 {
				counts[len(counts)-1]++
			}
			if leaf >= 0 && leaf != len(counts) {
				return nil, errUneven
			}
			leaf = len(counts)
			i += len(leading(raw[i:])) - 1
		}
	}
	if leaf >= 0 && leaf != len(shape) {
		return nil, errUneven
	}
	return shape, nil
}

// leading returns the number or boolean that a text begins with; it is empty if there is none.
func leading(raw []byte) []byte {
	for i, c := range raw {
		switch c {
		case ' ', '\t', '\r', '\n', ',', '[', ']':
			return raw[:i]
		}
	}
	return raw
}

// flatten returns the numbers and booleans of nested lists of a shape, in order.
func flatten[T any](raw []byte, shape []int, read func(token string) (T, error)) ([]T, error) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	out := make([]T, 0, n)
	for i := 0; i < len(raw); i++ {
		token := leading(raw[i:])
		if len(token) == 0 {
			continue
		}
		v, err := read(string(token))
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		i += len(token)
	}
	return out, nil
}

// maxAxes is the most axes of a tensor.
const maxAxes = 16

var errUneven = errors.New("has lists of different lengths; expected the same length along each axis")
