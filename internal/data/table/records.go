package table

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// recordRows are the tf.train.Examples of a TFRecord file. Rows are JSON objects of the selected features: a
// number or a text, or a list of them where a feature has not one value.
type recordRows struct {
	jsonRows
	in *tfrecord.Reader
	at int64
}

func newRecordRows(in io.Reader, path string) (*recordRows, error) {
	r, err := tfrecord.NewReader(in, path)
	if err != nil {
		return nil, err
	}
	return &recordRows{jsonRows: jsonRows{lines: lines{path: path}}, in: r}, nil
}

// next implements rowReader. The line of a row is its number, from 1.
func (r *recordRows) next() ([]byte, int64, error) {
	data, err := r.in.Next()
	if err != nil {
		return nil, 0, err
	}
	r.at++
	features, err := tfrecord.ParseExample(data)
	if err != nil {
		return nil, 0, &Error{r.path, r.at, "is " + err.Error()}
	}
	object := make(map[string]json.RawMessage, len(features))
	for _, f := range features {
		if !slices.ContainsFunc(r.columns, func(c Column) bool { return c.Name == f.Name }) {
			object[f.Name] = json.RawMessage("null") // for the list of those that there are
			continue
		}
		text, reason := valuesText(&f.Value)
		if reason != "" {
			return nil, 0, &Error{r.path, r.at, fmt.Sprintf("feature %q %s", f.Name, reason)}
		}
		object[f.Name] = text
	}
	row, err := json.Marshal(object)
	return row, r.at, err
}

// valuesText returns the values of a feature as JSON, or the reason why they cannot be in a table.
func valuesText(v *tfrecord.Value) (text json.RawMessage, reason string) {
	if v.Len() != 1 {
		text = append(text, '[')
	}
	for i := range v.Len() {
		if i > 0 {
			text = append(text, ',')
		}
		switch v.Kind {
		case tfrecord.KindInt64:
			text = strconv.AppendInt(text, v.Int64s[i], 10)
		case tfrecord.KindFloat:
			x := float64(v.Floats[i])
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return nil, fmt.Sprintf("has the value %v; expected finite numbers", x)
			}
			text = strconv.AppendFloat(text, x, 'g', -1, 32)
		default:
			if !utf8.Valid(v.Bytes[i]) {
				return nil, "has bytes that are no text, as those of an image; expected numbers or text; gorbit train reads such records as they are"
			}
			quoted, _ := json.Marshal(string(v.Bytes[i])) // a text can always be written
			text = append(text, quoted...)
		}
	}
	if v.Len() != 1 {
		text = append(text, ']')
	}
	return text, ""
}
