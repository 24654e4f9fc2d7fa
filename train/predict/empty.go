package predict

import "github.com/gorbit-ml/gorbit/text"

// emptier is a Renderer that knows the columns of its answers without an example, as far as their names
// do not depend on the model's outputs.
type emptier interface {
	// empty returns an answer for a text, or for another example.
	empty(isText bool) Answer
}

func (b byKind) empty(isText bool) Answer {
	if b.probabilities >= 0 {
		var e Example
		if isText {
			e.Encoding = text.Encoding{IDs: []int32{}}
		}
		l := newLabel([]float64{0}, nil, b.outputs[b.probabilities].Classes, e)
		l.Probabilities = make([]float64, len(l.names))
		return l
	}
	f := &Fields{}
	for _, o := range b.outputs {
		n := len(o.Classes)
		switch {
		case o.Kind == OneValue || n == 0:
			f.field(Field{Name: o.Name, Value: ""})
		default:
			f.add(o, Values{[]int{n}, make([]float64, n)})
		}
	}
	return f
}

func (m multilabel) empty(bool) Answer {
	return Labels{Probabilities: make([]float64, len(m.names)), names: m.names}
}

func (t tagger) empty(bool) Answer { return Tags{} }

func (s spanner) empty(bool) Answer { return Found{} }

func (f filler) empty(bool) Answer { return Filled{} }
