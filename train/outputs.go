package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// output is an output of a graph's function predict.
type output struct {
	predict.OutputSpec
	axes []string
	// shape has the length of each axis, -1 where it is open.
	shape []int64
	// padded means that the second axis is that of padded features, of which an example has a part.
	padded bool
}

// outputsOf lists the outputs of a graph: those that the contract describes, in its order, and then
// the others. classes names the classes of a label.
func outputsOf(e *graphs.Export, classes func(label string) []string) []output {
	var out []output
	f := e.Functions["predict"]
	for _, o := range e.Contract.Outputs {
		if i := f.Output(o.Name); i >= 0 {
			spec := predict.OutputSpec{Name: o.Name, Kind: predict.Kind(o.Kind), Of: o.Of, Classes: classes(o.Of)}
			out = append(out, output{spec, o.Axes, f.Outputs[i].Shape, e.Contract.Padded(o)})
		}
	}
	for _, a := range f.Outputs {
		if slices.ContainsFunc(out, func(o output) bool { return o.Name == a.Name }) {
			continue
		}
		kind := predict.ManyValues
		if len(a.Shape) <= 1 {
			kind = predict.OneValue
		}
		out = append(out, output{predict.OutputSpec{Name: a.Name, Kind: kind}, nil, a.Shape, false})
	}
	return out
}

// specs returns what a Renderer needs to know of outputs.
func specs(all []output) []predict.OutputSpec {
	out := make([]predict.OutputSpec, len(all))
	for i, o := range all {
		out[i] = o.OutputSpec
	}
	return out
}

// outputs lists the outputs of the run's graph.
func (r *Run) outputs() []output {
	return outputsOf(r.Export, r.Classes)
}

// Classes returns the names of the classes of a label of the run's graph, or nil if the data does not
// name them.
func (r *Run) Classes(label string) []string {
	return prepare.ClassesOf(r.Export.Contract, label, r.recordName(label), r.Manifest)
}

// recordName returns the name in the records of a feature of the run's graph.
func (r *Run) recordName(feature string) string {
	return cmp.Or(r.Params.Data.Features[feature], feature)
}

// Renderer returns what makes answers of the outputs of the run's graph.
func (r *Run) Renderer() (predict.Renderer, error) {
	return predict.NewRenderer(r.Export.Contract.Task, specs(r.outputs()))
}

// place is where the values of an example are: its number among the examples of a batch and, for
// outputs with values of tokens, its first token in the flat rows and the number of its tokens. Of
// padded examples, tokens is the length; 0 if nothing is padded.
type place struct {
	example, start, tokens int
	// masked are the numbers of its masked tokens among those of the batch.
	masked []int
}

// results returns the outputs of a call for each place of a batch with as many examples, and with
// rows that hold so many tokens in all.
func results(all []output, values map[string][]float64, examples, tokens int, places []place) ([]predict.Result, error) {
	out := make([]predict.Result, len(places))
	for i := range out {
		out[i] = make(predict.Result, len(all))
	}
	for k, o := range all {
		flat := values[o.Name]
		if len(o.axes) > 0 && o.axes[0] == prepare.AxisPredictions {
			if err := o.predictions(flat, k, places, out); err != nil {
				return nil, err
			}
			continue
		}
		perToken := len(o.axes) > 0 && o.axes[0] == prepare.AxisRows
		units, skip := examples, 1
		if perToken {
			units, skip = tokens, 2
		}
		if units == 0 || len(flat) == 0 || len(flat)%units != 0 {
			return nil, fmt.Errorf("predict returned %d values of %s for %d; expected as many for each", len(flat), o.Name, units)
		}
		n := len(flat) / units
		shape, err := o.each(n, skip)
		if err != nil {
			return nil, err
		}
		for i, p := range places {
			v := predict.Values{Shape: shape, Data: flat[p.example*n : (p.example+1)*n]}
			switch {
			case o.padded && len(shape) > 0 && p.tokens > 0 && p.tokens <= shape[0]:
				v = v.First(p.tokens)
			case perToken:
				v = predict.Values{Shape: append([]int{p.tokens}, shape...), Data: flat[p.start*n : (p.start+p.tokens)*n]}
			}
			out[i][k] = v
		}
	}
	return out, nil
}

// predictions gives each place the values of its masked tokens, as output k. The last axis has a fixed
// length.
func (o output) predictions(flat []float64, k int, places []place, out []predict.Result) error {
	n := 0
	if len(o.shape) == 2 {
		n = int(o.shape[1])
	}
	if n <= 0 || len(flat)%n != 0 {
		return fmt.Errorf("predict returned %d values of %s; expected the shape %v", len(flat), o.Name, o.shape)
	}
	for i, p := range places {
		data := make([]float64, 0, n*len(p.masked))
		for _, m := range p.masked {
			if (m+1)*n > len(flat) {
				return fmt.Errorf("predict returned %d values of %s; expected those of %d masked tokens or more", len(flat), o.Name, m+1)
			}
			data = append(data, flat[m*n:(m+1)*n]...)
		}
		out[i][k] = predict.Values{Shape: []int{len(p.masked), n}, Data: data}
	}
	return nil
}

// each returns the shape of the n values that an output has for one example, or token. It leaves out
// the first axes. One axis may be open.
func (o output) each(n, skip int) ([]int, error) {
	if len(o.shape) < skip {
		return []int{n}, nil // the graph does not say more
	}
	shape, open, known := []int{}, -1, 1
	for _, d := range o.shape[skip:] {
		if d < 0 && open < 0 {
			open = len(shape)
		} else {
			known *= int(max(d, 1))
		}
		shape = append(shape, int(d))
	}
	if open >= 0 {
		shape[open] = n / max(known, 1)
		known *= shape[open]
	}
	if known != n {
		return nil, fmt.Errorf("predict returned %d values of %s for each; expected the shape %v", n, o.Name, o.shape)
	}
	return shape, nil
}
