package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/gorbit-ml/gorbit/train/predict"
)

// respond returns the body of the response to a request.
func (m *Model) respond(r *request, results []predict.Result) (body []byte, truncated int, err error) {
	if r.raw {
		body, err = m.tensors(r, results)
		return body, 0, err
	}
	all, err := m.render(r, results)
	if err != nil {
		return nil, 0, err
	}
	for _, a := range all {
		if a.Cut() {
			truncated++
		}
	}
	switch r.form {
	case classify:
		body, err = classified(all)
	case regress:
		body, err = m.regressed(results)
	case inputs:
		body, err = marshal(predict.Object{{Name: "outputs", Value: columns(all)}})
	default:
		objects := make([]predict.Object, len(all))
		for i, a := range all {
			objects[i] = a.Fields()
		}
		name := "predictions"
		var about predict.Object
		if r.form == answers {
			name, about = "answers", predict.Object{{Name: "model", Value: m.Name}, {Name: "version", Value: m.Version}}
		}
		body, err = marshal(append(about, predict.Field{Name: name, Value: objects}))
	}
	return body, truncated, err
}

// render returns the answers to the texts, or other examples, of a request.
func (m *Model) render(r *request, results []predict.Result) (all []predict.Answer, err error) {
	all = make([]predict.Answer, r.count())
	at := 0 // of the model's examples
	for i := range all {
		e, n := r.examples[at], 1
		if r.divided == nil {
			all[i], err = m.Renderer.Render(predict.Example{Encoding: e.encoding, Text: e.text}, results[at])
		} else {
			n = len(r.divided[i].Parts)
			all[i], err = r.divided[i].Unite(results[at : at+n])
		}
		if err != nil {
			return nil, fmt.Errorf("example %d: %w", i+1, err)
		}
		at += n
	}
	return all, nil
}

// count returns the number of texts, or other examples, of a request.
func (r *request) count() int {
	if r.divided != nil {
		return len(r.divided)
	}
	return len(r.examples)
}

func marshal(o predict.Object) ([]byte, error) {
	body, err := o.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("an answer cannot be written as JSON: %w", err)
	}
	return append(body, '\n'), nil
}

// columns returns the fields of answers as lists. Where an answer does not have a field that others
// have, such as truncated, the list has null.
func columns(all []predict.Answer) predict.Object {
	var out predict.Object
	at := make(map[string]int)
	for i, a := range all {
		for _, f := range a.Fields() {
			k, ok := at[f.Name]
			if !ok {
				k = len(out)
				at[f.Name] = k
				out = append(out, predict.Field{Name: f.Name, Value: make([]any, len(all))})
			}
			out[k].Value.([]any)[i] = f.Value
		}
	}
	return out
}

// classified returns the probabilities of answers as TensorFlow Serving's classify does.
func classified(all []predict.Answer) ([]byte, error) {
	results := make([][][2]any, len(all))
	for i, a := range all {
		for _, column := range a.Columns() {
			if each, ok := column.Value.(predict.Object); ok && column.Name == "probabilities" {
				for _, c := range each {
					results[i] = append(results[i], [2]any{c.Name, c.Value})
				}
			}
		}
		if results[i] == nil {
			return nil, badf("the model gives no probabilities of classes; use :predict")
		}
	}
	return marshal(predict.Object{{Name: "results", Value: results}})
}

// regressed returns the values of results as TensorFlow Serving's regress does.
func (m *Model) regressed(results []predict.Result) ([]byte, error) {
	values := make([]float64, len(results))
	for i, r := range results {
		if len(r) != 1 || len(r[0].Data) != 1 {
			return nil, badf("the model gives more than one number; use :predict")
		}
		values[i] = r[0].Data[0]
	}
	return marshal(predict.Object{{Name: "results", Value: values}})
}

// tensors returns the outputs of the model in TensorFlow Serving's rows or columns. An output without
// others has no name there.
func (m *Model) tensors(r *request, results []predict.Result) ([]byte, error) {
	for i := range results {
		if len(results[i]) != len(m.Outputs) {
			return nil, fmt.Errorf("the model returned %d outputs; expected %d", len(results[i]), len(m.Outputs))
		}
	}
	var b bytes.Buffer
	one := len(m.Outputs) == 1
	key := func(k int) {
		if k > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.Outputs[k].Name)
		b.Write(name)
		b.WriteByte(':')
	}
	column := func(k int) {
		b.WriteByte('[')
		for i := range results {
			if i > 0 {
				b.WriteByte(',')
			}
			v := results[i][k]
			nested(&b, m.Outputs[k], v.Shape, v.Data)
		}
		b.WriteByte(']')
	}
	switch {
	case r.form == inputs && one:
		b.WriteString(`{"outputs":`)
		column(0)
	case r.form == inputs:
		b.WriteString(`{"outputs":{`)
		for k := range m.Outputs {
			key(k)
			column(k)
		}
		b.WriteByte('}')
	case one:
		b.WriteString(`{"predictions":`)
		column(0)
	default:
		b.WriteString(`{"predictions":[`)
		for i, result := range results {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('{')
			for k, v := range result {
				key(k)
				nested(&b, m.Outputs[k], v.Shape, v.Data)
			}
			b.WriteByte('}')
		}
		b.WriteByte(']')
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// nested writes values as lists within lists, one for each axis.
func nested(b *bytes.Buffer, t Tensor, shape []int, data []float64) {
	if len(shape) == 0 {
		for _, v := range data { // one
			b.Write(number(b.AvailableBuffer(), t, v))
		}
		return
	}
	b.WriteByte('[')
	for i := range shape[0] {
		if i > 0 {
			b.WriteByte(',')
		}
		n := len(data) / shape[0]
		nested(b, t, shape[1:], data[i*n:(i+1)*n])
	}
	b.WriteByte(']')
}

// number appends a value in the fewest digits that give it back. Those that are not finite are written
// as TensorFlow Serving does, outside of JSON's standard.
func number(to []byte, t Tensor, v float64) []byte {
	switch {
	case t.DType == "bool":
		return strconv.AppendBool(to, v != 0)
	case math.IsNaN(v):
		return append(to, "NaN"...)
	case math.IsInf(v, 1):
		return append(to, "Infinity"...)
	case math.IsInf(v, -1):
		return append(to, "-Infinity"...)
	case t.DType == "float32":
		return strconv.AppendFloat(to, v, 'g', -1, 32)
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.AppendInt(to, int64(v), 10)
	}
	return strconv.AppendFloat(to, v, 'g', -1, 64)
}
