package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// row is an example as a request gives it: a JSON value or, of columns, the fields of an object. All
// values are parts of the request's body, so that an example takes no memory before it is read.
type row struct {
	value  []byte
	fields map[string][]byte
}

// fieldNames are the names that the fields of an example may have, and those that a message tells.
type fieldNames struct{ known, expected []string }

// check refuses the name of a field that no example has.
func (f fieldNames) check(number int, name string) error {
	if slices.Contains(f.known, name) {
		return nil
	}
	return badf("example %d has the field %q; expected %s", number+1, words.Clip(name, 60), names(f.expected))
}

// object returns the fields of an example.
func (r row) object(number int, f fieldNames) (map[string][]byte, error) {
	if r.fields != nil {
		return r.fields, nil
	}
	if kindOf(r.value) != '{' {
		return nil, badf("example %d is %s; expected an object with %s", number+1, clip(r.value), names(f.expected))
	}
	fields := make(map[string][]byte)
	in := readerOf(r.value, "")
	return fields, in.object(func(name string) (err error) {
		if err = f.check(number, name); err == nil {
			fields[name], err = in.value()
		}
		return err
	})
}

// reader reads a JSON text from its beginning, and no further than its user wants.
type reader struct {
	*json.Decoder
	from []byte
	what string // is wrong if it is not JSON
}

func readerOf(from []byte, what string) reader {
	return reader{json.NewDecoder(bytes.NewReader(from)), from, what}
}

// bad returns an error of the decoder as that of a request.
func (r reader) bad(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("unexpected end of JSON input")
	}
	return badf("%s: %s", r.what, strings.TrimPrefix(err.Error(), "json: "))
}

// kind returns the first character of the next value.
func (r reader) kind() byte {
	return kindOf(bytes.TrimLeft(r.from[r.InputOffset():], " \t\r\n:,"))
}

// value returns the next value.
func (r reader) value() ([]byte, error) {
	var n length
	if err := r.Decode(&n); err != nil {
		return nil, r.bad(err)
	}
	end := int(r.InputOffset())
	return r.from[end-int(n) : end], nil
}

// length is that of a JSON value.
type length int

// UnmarshalJSON implements json.Unmarshaler.
func (n *length) UnmarshalJSON(value []byte) error {
	*n = length(len(value))
	return nil
}

// token returns the next token.
func (r reader) token() (json.Token, error) {
	t, err := r.Token()
	if err != nil {
		err = r.bad(err)
	}
	return t, err
}

// object calls a function with the name of each field of an object. It reads the field's value.
func (r reader) object(each func(name string) error) error {
	_, err := r.token()
	for err == nil && r.More() {
		var name json.Token
		if name, err = r.token(); err == nil {
			err = each(name.(string))
		}
	}
	if err == nil {
		_, err = r.token()
	}
	return err
}

// list calls a function with each example of a list, which is the value of a field, and returns their
// number.
func (r reader) list(name string, most int, each func(i int, value []byte)) (n int, err error) {
	if r.kind() != '[' {
		value, err := r.value()
		if err == nil {
			err = badf("%q is %s; expected a list", words.Clip(name, 60), clip(value))
		}
		return 0, err
	}
	_, err = r.token()
	for ; err == nil && r.More(); n++ {
		if n == most {
			return n, badf("more than %d examples given; expected 1 to %d", most, most)
		}
		var value []byte
		if value, err = r.value(); err == nil {
			each(n, value)
		}
	}
	if err == nil {
		_, err = r.token()
	}
	return n, err
}

// requestReader reads the examples of a request.
type requestReader struct {
	reader
	form   form
	most   int // examples
	fields fieldNames

	given []string // fields that have examples
	rows  []row
	only  map[string][]byte // fields of the only example
}

// rowsOf returns the examples of a request and its form. It reads no further than the first thing that is
// not as expected or is beyond a limit.
func rowsOf(f form, body []byte, most int, fields fieldNames) ([]row, form, error) {
	r := &requestReader{reader: readerOf(body, "the request is not a JSON object as expected"), form: f, most: most, fields: fields}
	field, complete := r.servingField, r.completeServing
	if f == answers {
		r.what = `the request is not an object with "text", "texts" or "examples"`
		field, complete = r.answerField, r.completeAnswer
	}
	err := r.request(field)
	if err == nil {
		err = complete()
	}
	if n := len(r.rows); err == nil && (n < 1 || n > most) {
		err = badf("%d examples given; expected 1 to %d", n, most)
	}
	return r.rows, r.form, err
}

// request reads the object of a request, or null, which is an object without fields.
func (r *requestReader) request(field func(name string) error) error {
	kind := r.kind()
	if kind == '{' {
		if err := r.object(field); err != nil {
			return err
		}
	} else if _, err := r.value(); err != nil {
		return err
	} else if kind != 'n' {
		return badf("%s: it is a JSON %s", r.what, kindName(kind))
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		return badf("the request has something after its object")
	}
	return nil
}

// answerField reads a field of a request of our own form. Upper and lower case are the same.
func (r *requestReader) answerField(name string) (err error) {
	switch lower := strings.ToLower(name); lower {
	case fieldText, fieldPair:
		if r.only == nil {
			r.only = make(map[string][]byte)
		}
		r.only[lower], err = r.value()
		return err
	case "texts", "examples":
		return r.take(lower)
	}
	return r.bad(fmt.Errorf("unknown field %q", words.Clip(name, 60)))
}

func (r *requestReader) completeAnswer() error {
	text := r.only[fieldText] != nil
	if text {
		r.give(fieldText)
	}
	switch {
	case len(r.given) != 1:
		return badf(`%d of "text", "texts" and "examples" are given; expected one of them`, len(r.given))
	case !text && r.only != nil:
		return badf(`"text_pair" is given without "text"`)
	case text:
		r.rows = []row{{fields: r.only}}
	}
	return nil
}

// servingField reads a field of a request of TensorFlow Serving's form. Those that it does not know are
// skipped.
func (r *requestReader) servingField(name string) error {
	predict := r.form == instances || r.form == inputs
	name = strings.ToLower(name)
	switch {
	case name == "signature_name":
		return r.checkSignature()
	case name == "context" && !predict:
		return badf(`"context" is given; expected all features in "examples"`)
	case name == "inputs" && predict:
		r.form = inputs
		if r.kind() != '[' {
			return r.columns()
		}
		return r.take(name)
	case name == "examples" && !predict, name == "instances" && predict:
		return r.take(name)
	}
	_, err := r.value()
	return err
}

func (r *requestReader) completeServing() error {
	switch {
	case len(r.given) > 1:
		return badf(`both "instances" and "inputs" are given; expected one of them`)
	case len(r.given) == 1:
		return nil
	case r.form == instances:
		return badf(`"instances" is missing`)
	}
	return badf(`"examples" is missing`)
}

// checkSignature reads the name of a signature.
func (r *requestReader) checkSignature() error {
	value, err := r.value()
	if err != nil {
		return err
	}
	var name string
	switch kind := kindOf(value); {
	case kind == 'n':
	case kind != '"':
		return badf("%s: %q is a JSON %s", r.what, "signature_name", kindName(kind))
	default:
		if err := json.Unmarshal(value, &name); err != nil {
			return r.bad(err)
		}
	}
	if name != "" && name != defaultSignature {
		return badf("signature_name is %q; expected %q, the only one that is served", words.Clip(name, 60), defaultSignature)
	}
	return nil
}

// give notes that a field has examples, and forgets those of one that has the same name.
func (r *requestReader) give(name string) {
	if r.rows = nil; !slices.Contains(r.given, name) {
		r.given = append(r.given, name)
	}
}

// take reads a list of examples.
func (r *requestReader) take(name string) error {
	r.give(name)
	_, err := r.list(name, r.most, func(_ int, value []byte) { r.rows = append(r.rows, row{value: value}) })
	return err
}

// columns reads TensorFlow Serving's columns: an object of lists, of which each has a field of every
// example.
func (r *requestReader) columns() error {
	r.give("inputs")
	if r.kind() != '{' {
		value, err := r.value()
		if err == nil {
			err = badf(`"inputs" is %s; expected an object of lists, or a list`, clip(value))
		}
		return err
	}
	first := true
	return r.object(func(name string) error {
		if err := r.fields.check(0, name); err != nil {
			return err
		}
		n, err := r.list(name, r.most, func(i int, value []byte) {
			if first {
				r.rows = append(r.rows, row{fields: make(map[string][]byte)})
			}
			if i < len(r.rows) {
				r.rows[i].fields[name] = value
			}
		})
		if err == nil && n != len(r.rows) {
			err = badf("the columns of \"inputs\" have %d and %d values; expected the same number of each", len(r.rows), n)
		}
		first = false
		return err
	})
}

// kindName returns the name of a kind of JSON values, given their first character.
func kindName(first byte) string {
	switch first {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	}
	return "number"
}

// kindOf returns the first character of a JSON value, or 0.
func kindOf(raw []byte) byte {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) > 0 {
		return raw[0]
	}
	return 0
}

// clip returns the beginning of a value for a message.
func clip(value []byte) string {
	const most = 60
	return words.Clip(string(value[:min(len(value), most+1)]), most)
}

// names lists names for a message.
func names(all []string) string {
	var b strings.Builder
	for i, name := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", name)
	}
	return b.String()
}
