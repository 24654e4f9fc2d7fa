package predict

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/shown"
)

// Answer is the answer for one example. Each Renderer has a type of its own.
type Answer interface {
	// Fields are the values of the answer, in the order of its JSON object.
	Fields() []Field
	// Columns are the values that follow the columns of a Table. All answers of a Renderer have
	// columns of the same names.
	Columns() []Field
	// Text is the answer for people, on one line.
	Text() string
	// Row is the answer as columns without names.
	Row() []string
	// Cut reports that the text was longer than the model's limit and was cut, so that the answer
	// uses only its beginning.
	Cut() bool
}

// Field is a named value of an answer: a string, number or bool, a list, or an Object.
type Field struct {
	Name  string
	Value any
	// Each, for an Object among the columns of a table, is the beginning of the names of the
	// columns that its fields are in files without objects.
	Each string
}

// Object is a list of fields. Its JSON is an object with the fields in their order.
type Object []Field

// MarshalJSON implements json.Marshaler.
func (o Object) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// sorted returns the fields by name.
func (o Object) sorted() Object {
	return slices.SortedFunc(slices.Values(o), func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
}

// Format is an output format of answers, one line per answer.
type Format string

// The formats.
const (
	Text Format = "text" // for people, and "truncated" for a text that was cut
	TSV  Format = "tsv"  // columns without names, such as label, tab, probability
	JSON Format = "json" // the answer as an object
	CSV  Format = "csv"  // only for the answers to a Table
)

// Validate returns an error if the format is unknown.
func (f Format) Validate() error {
	if f != "" && f != Text && f != TSV && f != CSV && f != JSON {
		return fmt.Errorf("format is %q; expected %s, %s, %s or %s", string(f), Text, TSV, CSV, JSON)
	}
	return nil
}

// Write writes an answer to w, as one line.
func (f Format) Write(w io.Writer, a Answer) error {
	var err error
	switch f {
	case JSON:
		var line []byte
		if line, err = Object(a.Fields()).MarshalJSON(); err == nil {
			_, err = fmt.Fprintf(w, "%s\n", line)
		}
	case TSV:
		_, err = fmt.Fprintf(w, "%s\n", strings.Join(a.Row(), "\t"))
	default:
		note := ""
		if a.Cut() {
			note = ", truncated"
		}
		_, err = fmt.Fprintf(w, "%s%s\n", shown.Text(a.Text()), note)
	}
	if err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	return nil
}
