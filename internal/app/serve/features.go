package serve

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// parse reads a request whose examples are rows of a table, or objects with a value for each feature or,
// for a model of one feature, its values.
func (f *Features) parse(form form, body []byte, l limits) (*request, error) {
	maker, err := f.maker()
	if err != nil {
		return nil, err
	}
	defer f.makers.Put(maker)
	maker.room = l.images
	rows, form, err := rowsOf(form, body, l.examples, maker.fields)
	if err != nil {
		return nil, err
	}
	check := f.Layout.Assemblers()()
	r := &request{form: form, raw: form == instances || form == inputs, examples: make([]example, len(rows))}
	for i, row := range rows {
		e, err := f.example(maker, row, i)
		if err != nil {
			return nil, err
		}
		check.Reset() // or it would keep the values of all
		if bad := check.Add(dataset.RecordID{}, e.record); bad != nil {
			return nil, badf("example %d: %s %s", i+1, bad.Feature, bad.Reason)
		}
		if e.cut && l.refuseLong {
			return nil, badf("example %d has a text that is too long, and this server does not cut texts", i+1)
		}
		r.examples[i] = e
	}
	return r, nil
}

// example makes the record of an example, which may not be as the model expects it.
func (f *Features) example(maker *rowMaker, row row, number int) (example, error) {
	e := example{cost: 1}
	specs := maker.given
	var fields map[string][]byte
	if kind := kindOf(row.value); row.fields == nil && len(specs) == 1 && (kind != '{' || isBytes(row.value)) {
		fields = map[string][]byte{specs[0].Name: row.value}
	} else {
		var err error
		if fields, err = row.object(number, maker.fields); err != nil {
			return e, err
		}
		if maker.isRow(fields) {
			e.record, e.cut, err = maker.record(fields, number)
			e.key = f.lengths(e.record)
			return e, err
		}
		for name := range fields {
			if err := maker.features.check(number, name); err != nil {
				return e, err
			}
		}
	}
	features := make([]tfrecord.Feature, len(specs))
	for k, s := range specs {
		raw := fields[s.Name]
		if raw == nil {
			return e, badf("example %d has no field %q", number+1, s.Name)
		}
		scaled, err := maker.scaled(s.Names()[0], raw, &features[k])
		length := ""
		if err == nil && !scaled {
			length, err = featureOf(s, raw, &features[k])
		}
		if err != nil {
			return e, badf("example %d: %s %v", number+1, s.Name, err)
		}
		e.key += length
	}
	var err error
	if e.record, err = tfrecord.AppendExample(nil, features...); err != nil {
		return e, badf("example %d: %v", number+1, err)
	}
	return e, nil
}

// lengths returns the number of values of each feature of a record that has an open axis, as examples of
// one batch must have in common.
func (f *Features) lengths(record []byte) (key string) {
	var open []string
	for _, s := range f.Specs {
		if s.Make == "" && s.Open() >= 0 {
			open = append(open, s.Names()[0])
		}
	}
	var values tfrecord.Values
	if len(open) == 0 || tfrecord.NewDecoder(open...).Decode(record, &values) != nil {
		return ""
	}
	for i := range open {
		v := values.At(i)
		n := len(v.Int64s) + len(v.Floats)
		for _, b := range v.Bytes {
			n += len(b)
		}
		key += fmt.Sprint(n, ";")
	}
	return key
}

// bytesField is the only field of an object that stands for bytes.
const bytesField = "b64"

// codedFields are the fields of an object that stands for bytes.
var codedFields = fieldNames{known: []string{bytesField}}

// isBytes reports whether a value stands for bytes, as in TensorFlow Serving's API.
func isBytes(raw []byte) bool {
	if kindOf(raw) != '{' {
		return false
	}
	fields, err := row{value: raw}.object(0, codedFields)
	return err == nil && fields[bytesField] != nil
}

// bytesOf returns the bytes that an object stands for.
func bytesOf(raw []byte, expected string) ([]byte, error) {
	var coded struct {
		Bytes *string `json:"b64"`
	}
	if !isBytes(raw) || json.Unmarshal(raw, &coded) != nil || coded.Bytes == nil {
		return nil, badf("is %s; expected %s", clip(raw), expected)
	}
	data, err := base64.StdEncoding.DecodeString(*coded.Bytes)
	if err != nil {
		return nil, badf("is not base64: %v", err)
	}
	return data, nil
}

// featureOf reads the value of a feature, and returns its length on the open axis. Examples of different
// lengths are not in one batch, so that none is padded.
func featureOf(s dataset.Spec, raw []byte, to *tfrecord.Feature) (length string, err error) {
	name := s.Names()[0]
	if kindOf(raw) == '{' {
		data, err := bytesOf(raw, fmt.Sprintf("numbers, or an object with %q", bytesField))
		if err != nil {
			return "", err
		}
		*to = tfrecord.BytesFeature(name, data)
		if s.Open() >= 0 {
			length = fmt.Sprint(len(data), ";")
		}
		return length, nil
	}
	shape, err := shapeOf(raw)
	if err != nil {
		return "", err
	}
	fits := len(shape) == len(s.Shape)
	for i := 0; fits && i < len(shape); i++ {
		if fits = s.Shape[i] < 0 || s.Shape[i] == shape[i]; s.Shape[i] < 0 {
			length = fmt.Sprint(shape[i], ";")
		}
	}
	if !fits {
		return "", fmt.Errorf("has the shape %v; expected %v", shape, s.Shape)
	}
	if s.DType == dataset.Float32 {
		values, err := flatten(raw, shape, func(token string) (float32, error) {
			v, err := strconv.ParseFloat(token, 32)
			if err != nil {
				err = fmt.Errorf("has the value %s; expected numbers of float32", words.Clip(token, 60))
			}
			return float32(v), err
		})
		*to = tfrecord.FloatFeature(name, values...)
		return length, err
	}
	values, err := flatten(raw, shape, func(token string) (int64, error) { return integer(token, s.DType) })
	*to = tfrecord.Int64Feature(name, values...)
	return length, err
}

// integer returns the value of a whole number or a boolean.
func integer(token string, d dataset.DType) (int64, error) {
	switch {
	case d == dataset.Bool && token == "true":
		return 1, nil
	case d == dataset.Bool && token == "false":
		return 0, nil
	}
	v, err := strconv.ParseInt(token, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("has the value %s; expected values of %s", words.Clip(token, 60), d)
	}
	return v, nil
}
