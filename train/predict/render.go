package predict

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/text"
)

// Kind says what the values of an output are.
type Kind string

// The kinds of outputs. Unknown kinds are as ManyValues.
const (
	Probabilities Kind = "probabilities" // of classes, which sum to 1; or one, of the second of two classes
	Logits        Kind = "logits"        // of classes
	OneValue      Kind = "value"         // a number
	ManyValues    Kind = "values"        // numbers
	Tokens        Kind = "tokens"        // one for each token
	Spans         Kind = "spans"         // logits of first and last tokens
)

// OutputSpec describes an output of a model.
type OutputSpec struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Of is the label that it is about; "" if that is not known.
	Of string `json:"of,omitempty"`
	// Classes are the names of the label's classes; nil if they have none.
	Classes []string `json:"classes,omitempty"`
}

// Values are the values of an output for one example, row-major.
type Values struct {
	Shape []int
	Data  []float64
}

// First returns the values of the first n of the first axis.
func (v Values) First(n int) Values {
	shape := slices.Clone(v.Shape)
	shape[0] = n
	return Values{shape, v.Data[:len(v.Data)/v.Shape[0]*n]}
}

// Result holds the outputs of a model for one example, in the order of its OutputSpecs.
type Result []Values

// Example is what an answer is about.
type Example struct {
	// Encoding is the text as the model gets it.
	Encoding text.Encoding
	// Text is the text; nil if the example was not given as a text.
	Text *text.Pair
}

// Renderer makes answers of a model's outputs.
type Renderer interface {
	// Render returns the answer for an example.
	Render(e Example, r Result) (Answer, error)
	// Names are the names of the columns of answers in a table. One that ends in an asterisk stands
	// for all names that begin so.
	Names() []string
}

// Divider is a Renderer whose examples may be several for the model, such as the windows of a long
// context. Predictor does it itself; it is for those who call models on their own.
type Divider interface {
	Renderer
	// Divide divides a text, into at most a given number of parts. A text that cannot be answered is
	// an error of class fault.Usage.
	Divide(p text.Pair, most int) (Division, error)
}

// Division is what the model gets for one text.
type Division struct {
	Parts []text.Encoding
	// Cut reports that something of the text was left out.
	Cut bool
	// Unite returns the answer for the text, given the outputs for each part.
	Unite func([]Result) (Answer, error)
}

// NewRenderer returns the Renderer of a task, given the outputs of the model. A task that is unknown
// is answered by the kinds of the outputs.
func NewRenderer(task string, outputs []OutputSpec) (Renderer, error) {
	if len(outputs) == 0 {
		return nil, errors.New("the model has no outputs")
	}
	switch task {
	case "multilabel":
		return newMultilabel(outputs)
	case "tokens":
		return newTagger(outputs)
	case "qa":
		return newSpanner(outputs)
	case "choices":
		return newChooser(outputs)
	case "mlm":
		return newFiller(outputs)
	case "embed":
		return newEmbedder(outputs)
	default:
		return newByKind(outputs), nil
	}
}

// Classifier returns the Renderer of a model whose outputs are probabilities and logits.
func Classifier(labels []string) Renderer {
	return newByKind([]OutputSpec{{Name: "probabilities", Kind: Probabilities, Classes: labels}, {Name: "logits", Kind: Logits, Classes: labels}})
}

// byKind answers by the kinds of outputs. If exactly one output has probabilities, and the others
// are its logits, the answer is a Label; otherwise it has a field for each output.
type byKind struct {
	outputs       []OutputSpec
	probabilities int // the only output with probabilities, or -1
	logits        int // its logits, or -1
}

func newByKind(outputs []OutputSpec) byKind {
	b := byKind{outputs: outputs, probabilities: -1, logits: -1}
	for i, o := range outputs {
		switch {
		case o.Kind == Probabilities && b.probabilities < 0:
			b.probabilities = i
		case o.Kind == Logits && b.logits < 0:
			b.logits = i
		default:
			return byKind{outputs, -1, -1}
		}
	}
	if b.probabilities < 0 || b.logits >= 0 && outputs[b.logits].Of != outputs[b.probabilities].Of {
		return byKind{outputs, -1, -1}
	}
	return b
}

// Render implements Renderer.
func (b byKind) Render(e Example, r Result) (Answer, error) {
	if len(r) != len(b.outputs) {
		return nil, fmt.Errorf("the model returned %d outputs; expected %d", len(r), len(b.outputs))
	}
	if b.probabilities < 0 {
		f := &Fields{truncated: e.Encoding.Truncated, text: e.Text != nil}
		for i, o := range b.outputs {
			f.add(o, r[i])
		}
		return f, nil
	}
	var logits []float64
	if b.logits >= 0 {
		logits = r[b.logits].Data
	}
	p := distribution(r[b.probabilities].Data)
	if len(p) == 0 {
		return nil, errors.New("the model returned an answer without probabilities; expected one per label")
	}
	return newLabel(p, logits, b.outputs[b.probabilities].Classes, e), nil
}

// Names implements Renderer.
func (b byKind) Names() []string {
	if b.probabilities >= 0 {
		return []string{"label", "score", "truncated", "probabilities", "probability_*"}
	}
	var names []string
	for _, o := range b.outputs {
		names = append(names, o.Name, o.Name+"_*")
	}
	return append(names, "truncated")
}

// distribution returns the probabilities of all classes: a single one is that of the second of two.
func distribution(p []float64) []float64 {
	if len(p) == 1 {
		return []float64{1 - p[0], p[0]}
	}
	return p
}

// Fields is the Answer of a model with any outputs: one field for each.
type Fields struct {
	fields, columns []Field
	text, truncated bool // the example was given as a text, and was cut
}

var _ Answer = (*Fields)(nil)

// add adds an output.
func (f *Fields) add(o OutputSpec, v Values) {
	scalar := len(v.Data) == 1 && !slices.ContainsFunc(v.Shape, func(d int) bool { return d != 1 })
	switch {
	case o.Kind == Probabilities && len(v.Shape) <= 1 && len(v.Data) > 0:
		l := newLabel(distribution(v.Data), nil, o.Classes, Example{})
		f.fields = append(f.fields, Field{Name: o.Name, Value: Object(l.Fields())})
		columns := l.Columns()
		columns[0].Name, columns[1].Name = o.Name+"_label", o.Name+"_score"
		columns[2].Name, columns[2].Each = o.Name, o.Name+"_"
		f.columns = append(f.columns, columns...)
	case scalar && (o.Kind == OneValue || o.Kind == Probabilities || len(v.Shape) == 0):
		f.field(Field{Name: o.Name, Value: v.Data[0]})
	case o.Kind == Tokens || len(v.Shape) > 1:
		f.field(Field{Name: o.Name, Value: nested(v.Shape, v.Data)})
	default:
		f.fields = append(f.fields, Field{Name: o.Name, Value: v.Data})
		each := make(Object, len(v.Data))
		for i, x := range v.Data {
			name := strconv.Itoa(i)
			if len(v.Data) == len(o.Classes) {
				name = o.Classes[i]
			}
			each[i] = Field{Name: name, Value: x}
		}
		f.columns = append(f.columns, Field{Name: o.Name, Value: each, Each: o.Name + "_"})
	}
}

func (f *Fields) field(v Field) {
	f.fields, f.columns = append(f.fields, v), append(f.columns, v)
}

// nested returns values as lists within lists, one for each axis.
func nested(shape []int, data []float64) any {
	if len(shape) <= 1 {
		return data
	}
	out := make([]any, shape[0])
	for i := range out {
		n := len(data) / len(out)
		out[i] = nested(shape[1:], data[i*n:(i+1)*n])
	}
	return out
}

// Fields implements Answer.
func (f *Fields) Fields() []Field {
	if !f.truncated {
		return f.fields
	}
	return append(slices.Clone(f.fields), Field{Name: "truncated", Value: true})
}

// MarshalJSON implements json.Marshaler.
func (f *Fields) MarshalJSON() ([]byte, error) { return Object(f.Fields()).MarshalJSON() }

// Columns implements Answer.
func (f *Fields) Columns() []Field {
	if !f.text {
		return f.columns
	}
	return append(slices.Clone(f.columns), Field{Name: "truncated", Value: f.truncated})
}

// Text implements Answer.
func (f *Fields) Text() string {
	parts := make([]string, len(f.fields))
	for i, v := range f.fields {
		parts[i] = textOf(v.Value)
		if len(f.fields) > 1 {
			parts[i] = v.Name + " " + parts[i]
		}
	}
	return strings.Join(parts, ", ")
}

// textOf returns a value for people.
func textOf(v any) string {
	switch v := v.(type) {
	case float64:
		return number(v)
	case []float64:
		return listOf(v)
	case []any:
		return listOf(v)
	case Object: // of a label
		return fmt.Sprintf("%v (%.1f %%)", v[0].Value, 100*v[2].Value.(float64))
	}
	return fmt.Sprint(v)
}

func listOf[T any](v []T) string {
	all := make([]string, len(v))
	for i, x := range v {
		all[i] = textOf(x)
	}
	return "[" + strings.Join(all, " ") + "]"
}

// Row implements Answer.
func (f *Fields) Row() []string {
	var out []string
	for _, c := range f.columns {
		out = append(out, cells(c)...)
	}
	return out
}

// Cut implements Answer.
func (f *Fields) Cut() bool { return f.truncated }

// listed is a list in JSON, and a text in a column.
type listed struct {
	list any
	text string
}

// MarshalJSON implements json.Marshaler.
func (l listed) MarshalJSON() ([]byte, error) { return json.Marshal(l.list) }

// cells returns the values of a column of an answer, as text.
func cells(c Field) []string {
	switch v := c.Value.(type) {
	case Object:
		var out []string
		for _, f := range v {
			out = append(out, cells(f)...)
		}
		return out
	case share:
		return []string{strconv.FormatFloat(float64(v), 'f', 6, 64)}
	case float64:
		return []string{number(v)}
	case string:
		return []string{v}
	case listed:
		return []string{v.text}
	}
	// Lists and the like.
	text, err := json.Marshal(c.Value)
	if err != nil {
		return []string{fmt.Sprint(c.Value)}
	}
	return []string{string(text)}
}

// heads returns the names of the columns that a column of an answer is in a file without objects.
func heads(c Field) []string {
	v, ok := c.Value.(Object)
	if !ok {
		return []string{c.Name}
	}
	var out []string
	for _, f := range v {
		out = append(out, c.Each+f.Name)
	}
	return out
}

// number returns the fewest digits that give the same float32, as models compute them.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 32) }
