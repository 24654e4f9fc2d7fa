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

// parse returns the examples of rows: objects with a value for each feature or, for a model of one
// feature, its values.
func (f *Features) parse(rows []json.RawMessage) ([]example, error) {
	var specs []dataset.Spec
	var expected []string
	for _, s := range f.Specs {
		if s.Make == "" {
			specs, expected = append(specs, s), append(expected, s.Name)
		}
	}
	check := f.Layout.Assemblers()()
	check.Reset()
	maker, err := f.maker()
	if err != nil {
		return nil, err
	}
	defer f.makers.Put(maker)
	out := make([]example, len(rows))
	for i, row := range rows {
		if record, cut, ok, err := maker.record(row, i); ok {
			if err != nil {
				return nil, err
			}
			if bad := check.Add(dataset.RecordID{}, record); bad != nil {
				return nil, badf("example %d: %s %s", i+1, bad.Feature, bad.Reason)
			}
			out[i] = example{cost: 1, record: record, cut: cut, key: f.lengths(record)}
			continue
		}
		var fields map[string]json.RawMessage
		if kind := kindOf(row); len(specs) == 1 && (kind != '{' || isBytes(row)) {
			fields = map[string]json.RawMessage{specs[0].Name: row}
		} else {
			var err error
			if fields, err = fieldsOf(row, i, expected...); err != nil {
				return nil, err
			}
		}
		e := example{cost: 1}
		features := make([]tfrecord.Feature, len(specs))
		for k, s := range specs {
			raw := fields[s.Name]
			if raw == nil {
				return nil, badf("example %d has no field %q", i+1, s.Name)
			}
			scaled, err := maker.scaled(s.Names()[0], raw, &features[k])
			length := ""
			if err == nil && !scaled {
				length, err = featureOf(s, raw, &features[k])
			}
			if err != nil {
				return nil, badf("example %d: %s %v", i+1, s.Name, err)
			}
			e.key += length
		}
		var err error
		if e.record, err = tfrecord.AppendExample(nil, features...); err != nil {
			return nil, badf("example %d: %v", i+1, err)
		}
		if bad := check.Add(dataset.RecordID{}, e.record); bad != nil {
			return nil, badf("example %d: %s %s", i+1, bad.Feature, bad.Reason)
		}
		out[i] = e
	}
	return out, nil
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

// isBytes reports whether a value stands for bytes, as in TensorFlow Serving's API.
func isBytes(raw json.RawMessage) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(raw, &fields) == nil && len(fields) == 1 && fields[bytesField] != nil
}

// featureOf reads the value of a feature, and returns its length on the open axis. Examples of different
// lengths are not in one batch, so that none is padded.
func featureOf(s dataset.Spec, raw json.RawMessage, to *tfrecord.Feature) (length string, err error) {
	name := s.Names()[0]
	if kindOf(raw) == '{' {
		var coded struct {
			Bytes *string `json:"b64"`
		}
		if err := json.Unmarshal(raw, &coded); err != nil || !isBytes(raw) || coded.Bytes == nil {
			return "", fmt.Errorf("is %s; expected numbers, or an object with %q", words.Clip(string(raw), 60), bytesField)
		}
		data, err := base64.StdEncoding.DecodeString(*coded.Bytes)
		if err != nil {
			return "", fmt.Errorf("is not base64: %w", err)
		}
		*to = tfrecord.BytesFeature(name, data)
		if s.Open() >= 0 {
			length = fmt.Sprint(len(data), ";")
		}
		return length, nil
	}
	var shape []int
	if s.DType == dataset.Float32 {
		var values []float32
		shape, err = flatten(raw, func(token []byte) error {
			v, err := strconv.ParseFloat(string(token), 32)
			if err != nil {
				return fmt.Errorf("has the value %s; expected numbers of float32", words.Clip(string(token), 60))
			}
			values = append(values, float32(v))
			return nil
		})
		*to = tfrecord.FloatFeature(name, values...)
	} else {
		var values []int64
		shape, err = flatten(raw, func(token []byte) error {
			v, err := integer(string(token), s.DType)
			values = append(values, v)
			return err
		})
		*to = tfrecord.Int64Feature(name, values...)
	}
	if err != nil {
		return "", err
	}
	if len(shape) != len(s.Shape) {
		return "", fmt.Errorf("has the shape %v; expected %v", shape, s.Shape)
	}
	for i, d := range s.Shape {
		switch {
		case d < 0:
			length = fmt.Sprint(shape[i], ";")
		case shape[i] != d:
			return "", fmt.Errorf("has the shape %v; expected %v", shape, s.Shape)
		}
	}
	return length, nil
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
