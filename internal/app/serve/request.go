package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/words"
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
}

// defaultSignature is the only signature that models are called with.
const defaultSignature = "serving_default"

// parse reads the body of a request for a model.
func (m *Model) parse(f form, body []byte, l limits) (*request, error) {
	if !utf8.Valid(body) {
		return nil, badf("the request is not valid UTF-8")
	}
	rows, f, err := rowsOf(f, body)
	if err != nil {
		return nil, err
	}
	if n := len(rows); n < 1 || n > l.examples {
		return nil, badf("%d examples given; expected 1 to %d", n, l.examples)
	}
	r := &request{form: f}
	tensors := true
	if m.Texts != nil {
		tensors, err = m.parseTexts(r, rows, l)
	} else {
		if r.examples, err = m.Features.parse(rows); err == nil && l.refuseLong {
			if i := slices.IndexFunc(r.examples, func(e example) bool { return e.cut }); i >= 0 {
				err = badf("example %d has a text that is too long, and this server does not cut texts", i+1)
			}
		}
	}
	r.raw = tensors && (f == instances || f == inputs)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// rowsOf returns the examples of a request, each as its JSON value, and the request's form.
func rowsOf(f form, body []byte) ([]json.RawMessage, form, error) {
	if f == answers {
		rows, err := answerRows(body)
		return rows, f, err
	}
	var in struct {
		Signature *string         `json:"signature_name"`
		Instances json.RawMessage `json:"instances"`
		Inputs    json.RawMessage `json:"inputs"`
		Examples  json.RawMessage `json:"examples"`
		Context   json.RawMessage `json:"context"`
	}
	if err := unmarshal(body, &in); err != nil {
		return nil, f, err
	}
	if s := in.Signature; s != nil && *s != "" && *s != defaultSignature {
		return nil, f, badf("signature_name is %q; expected %q, the only one that is served", words.Clip(*s, 60), defaultSignature)
	}
	switch {
	case f == classify || f == regress:
		if in.Context != nil {
			return nil, f, badf(`"context" is given; expected all features in "examples"`)
		}
		rows, err := list(in.Examples, "examples")
		return rows, f, err
	case in.Instances != nil && in.Inputs != nil:
		return nil, f, badf(`both "instances" and "inputs" are given; expected one of them`)
	case in.Inputs != nil:
		rows, err := transposed(in.Inputs)
		return rows, inputs, err
	}
	rows, err := list(in.Instances, "instances")
	return rows, instances, err
}

// answerRows returns the examples of a request of our own form.
func answerRows(body []byte) ([]json.RawMessage, error) {
	var in struct {
		Text     json.RawMessage `json:"text"`
		Pair     json.RawMessage `json:"text_pair"`
		Texts    json.RawMessage `json:"texts"`
		Examples json.RawMessage `json:"examples"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, badf(`the request is not an object with "text", "texts" or "examples": %s`, reason(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, badf("the request has something after its object")
	}
	given := 0
	for _, v := range []json.RawMessage{in.Text, in.Texts, in.Examples} {
		if v != nil {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, badf(`%d of "text", "texts" and "examples" are given; expected one of them`, given)
	case in.Pair != nil && in.Text == nil:
		return nil, badf(`"text_pair" is given without "text"`)
	case in.Text != nil:
		return []json.RawMessage{body}, nil
	case in.Texts != nil:
		return list(in.Texts, "texts")
	}
	return list(in.Examples, "examples")
}

// transposed returns the rows of TensorFlow Serving's columns: those of an object have the columns as
// fields, and those of a list are its values.
func transposed(columns json.RawMessage) ([]json.RawMessage, error) {
	if kindOf(columns) == '[' {
		return list(columns, "inputs")
	}
	var byName map[string]json.RawMessage
	if err := json.Unmarshal(columns, &byName); err != nil || byName == nil {
		return nil, badf(`"inputs" is %s; expected an object of lists, or a list`, words.Clip(string(columns), 60))
	}
	var rows []map[string]json.RawMessage
	for name, column := range byName {
		values, err := list(column, name)
		if err != nil {
			return nil, err
		}
		if rows == nil {
			rows = make([]map[string]json.RawMessage, len(values))
			for i := range rows {
				rows[i] = make(map[string]json.RawMessage, len(byName))
			}
		}
		if len(values) != len(rows) {
			return nil, badf("the columns of \"inputs\" have %d and %d values; expected the same number of each", len(rows), len(values))
		}
		for i, v := range values {
			rows[i][name] = v
		}
	}
	out := make([]json.RawMessage, len(rows))
	for i, row := range rows {
		made, err := json.Marshal(row)
		if err != nil {
			return nil, badf("inputs: %v", err)
		}
		out[i] = made
	}
	return out, nil
}

// list returns the values of a list. A nil list is an error that names it.
func list(raw json.RawMessage, name string) ([]json.RawMessage, error) {
	if raw == nil {
		return nil, badf("%q is missing", words.Clip(name, 60))
	}
	var values []json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return nil, badf("%q is %s; expected a list", words.Clip(name, 60), words.Clip(string(raw), 60))
	}
	return values, nil
}

// unmarshal decodes an object of TensorFlow Serving's form.
func unmarshal(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return badf("the request is not a JSON object as expected: %s", reason(err))
	}
	return nil
}

// reason returns an error of decoding JSON without names of Go.
func reason(err error) string {
	if typed := (*json.UnmarshalTypeError)(nil); errors.As(err, &typed) {
		if typed.Field == "" {
			return "it is a JSON " + typed.Value
		}
		return fmt.Sprintf("%q is a JSON %s", typed.Field, typed.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// kindOf returns the first character of a JSON value, or 0.
func kindOf(raw json.RawMessage) byte {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) > 0 {
		return raw[0]
	}
	return 0
}

// fieldsOf decodes an object and refuses fields that are not expected.
func fieldsOf(raw json.RawMessage, number int, expected ...string) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, badf("example %d is %s; expected an object with %s", number+1, words.Clip(string(raw), 60), names(expected))
	}
	for name := range fields {
		if !slices.Contains(expected, name) {
			return nil, badf("example %d has the field %q; expected %s", number+1, words.Clip(name, 60), names(expected))
		}
	}
	return fields, nil
}

// flatten calls each with the numbers and booleans of nested lists, in order, and returns the shape of
// the lists. raw must be valid JSON.
func flatten(raw json.RawMessage, each func(token []byte) error) ([]int, error) {
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
			return nil, fmt.Errorf("has the value %s; expected numbers", words.Clip(string(raw[i:]), 60))
		default:
			if len(counts) > 0 {
				counts[len(counts)-1]++
			}
			if leaf >= 0 && leaf != len(counts) {
				return nil, errUneven
			}
			leaf = len(counts)
			end := i
			for end < len(raw) && !bytes.ContainsRune([]byte(" \t\r\n,]"), rune(raw[end])) {
				end++
			}
			if err := each(raw[i:end]); err != nil {
				return nil, err
			}
			i = end - 1
		}
	}
	if leaf >= 0 && leaf != len(shape) {
		return nil, errUneven
	}
	return shape, nil
}

// maxAxes is the most axes of a tensor.
const maxAxes = 16

var errUneven = errors.New("has lists of different lengths; expected the same length along each axis")

// names lists names for a message.
func names(all []string) string {
	var b bytes.Buffer
	for i, name := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", name)
	}
	return b.String()
}
