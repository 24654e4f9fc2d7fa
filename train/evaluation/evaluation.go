// Package evaluation is the file that an evaluation leaves in a run: what was evaluated, the
// metrics, a table of the classes, the confusion matrix and the examples of the highest loss.
// docs/reference/evaluation.md describes the format.
package evaluation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/runner"
)

// The format of a file.
const (
	Format  = "gorbit-evaluation"
	Version = 1
)

// Who wrote a file.
const (
	ByTrain    = "train"
	ByEvaluate = "evaluate"
)

// Evaluation is the result of an evaluation: the content of a file.
type Evaluation struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// By is ByTrain or ByEvaluate.
	By string `json:"by"`
	// Task is that of the contract, such as classification; "" if it names none.
	Task  string `json:"task"`
	Split string `json:"split"`
	// Step is the number of updates that the evaluated variables had.
	Step int64 `json:"step"`
	// Checkpoint is the name of the checkpoint that was evaluated, such as ckpt-40; "" for an
	// evaluation during training.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Examples is the number of examples that were evaluated, and Records the number of records of
	// the split, 0 if it is not known. Fewer examples mean that the evaluation was of eval.steps
	// batches, or that damaged records were skipped.
	Examples int64 `json:"examples"`
	Records  int64 `json:"records,omitempty"`
	// Metrics are the metrics by name. Some may be NaN.
	Metrics runner.Outputs `json:"metrics"`
	Detail
	// Errors describes prediction - label of a regression; nil if there are no single predictions.
	Errors *Errors `json:"errors,omitempty"`
	// Worst are the examples of the highest loss, the highest first.
	Worst []Row `json:"worst,omitempty"`
}

// Detail is what a task makes of the sums of an evaluation, in addition to metrics.
type Detail struct {
	// Classes is nil if the task has no classes.
	Classes *Classes `json:"classes,omitempty"`
	// Confusion is nil if an example has no class, or more than one.
	Confusion *Confusion `json:"confusion,omitempty"`
}

// Classes is a table of classes. Values are those of scikit-learn's
// precision_recall_fscore_support with zero_division=0, weighted by the examples.
type Classes struct {
	// Of says what a class is: OfLabel, OfTokenLabel or OfEntity.
	Of string `json:"of"`
	// Each has the classes in the order of their numbers.
	Each []Class `json:"each"`
	// Averages are those named Micro, Macro and Weighted, in this order. Macro is over the classes
	// that occur as label or prediction.
	Averages []Class `json:"averages"`
}

// Values of Classes.Of.
const (
	OfLabel      = "label"
	OfTokenLabel = "label of a token"
	OfEntity     = "type of entity"
)

// Names of averages.
const (
	Micro    = "micro avg"
	Macro    = "macro avg"
	Weighted = "weighted avg"
)

// Class is a class, or an average, against the rest.
type Class struct {
	Name      string  `json:"name"`
	Precision float64 `json:"precision"` // Right / Predicted, or 0
	Recall    float64 `json:"recall"`    // Right / Support, or 0
	F1        float64 `json:"f1"`        // 2 Right / (Predicted + Support), or 0
	// Support is the weight of the examples, tokens or entities of the class, Predicted of what is
	// predicted to be, and Right of both. An average has the sums.
	Support   float64 `json:"support"`
	Predicted float64 `json:"predicted"`
	Right     float64 `json:"right"`
}

// Confusion is a confusion matrix of weights of examples.
type Confusion struct {
	// Labels are the names of the classes.
	Labels []string `json:"labels"`
	// Counts has a row for each label and a column for each prediction. It is nil if there are more
	// than MostInMatrix classes.
	Counts [][]float64 `json:"counts,omitempty"`
	// Confused lists the cells outside the diagonal that are not 0, the largest first, at most
	// MostConfused.
	Confused []Cell `json:"confused"`
}

// Cell is a cell of a confusion matrix.
type Cell struct {
	Label      string  `json:"label"`
	Prediction string  `json:"prediction"`
	Count      float64 `json:"count"`
}

// Limits of what is kept of a confusion matrix.
const (
	MostInMatrix = 128
	MostConfused = 100
)

// NewConfusion returns the confusion matrix of n*n counts, row by row. names may be nil.
func NewConfusion(flat []float64, n int, names []string) *Confusion {
	c := &Confusion{Confused: []Cell{}}
	for i := range n {
		c.Labels = append(c.Labels, ClassName(names, i))
	}
	for i := range n {
		row := flat[i*n : (i+1)*n]
		if n <= MostInMatrix {
			c.Counts = append(c.Counts, slices.Clone(row))
		}
		for j, v := range row {
			if i != j && v != 0 {
				c.Confused = append(c.Confused, Cell{c.Labels[i], c.Labels[j], v})
			}
		}
	}
	slices.SortStableFunc(c.Confused, func(a, b Cell) int { return cmp.Compare(b.Count, a.Count) })
	c.Confused = c.Confused[:min(len(c.Confused), MostConfused)]
	return c
}

// ClassName returns the name of a class, or its number where it has none.
func ClassName(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprint(i)
}

// Errors describes prediction - label of the examples of a regression.
type Errors struct {
	Mean runner.Number `json:"mean"`
	// Quantiles are those of 0, 0.05, 0.25, 0.5, 0.75, 0.95 and 1, as numpy.quantile computes them.
	Quantiles []Quantile `json:"quantiles"`
	// AbsoluteQuantiles are those of the error's absolute value.
	AbsoluteQuantiles []Quantile `json:"absolute_quantiles"`
}

// Quantile is a value that the share At of all values does not exceed.
type Quantile struct {
	At    float64       `json:"at"`
	Value runner.Number `json:"value"`
}

// Row is an example with its prediction.
type Row struct {
	// Record names the record, such as dev-00000-of-00001.tfrecord:17, whose number is from 0.
	Record string `json:"record"`
	// ID is the example's number or name in the source; nil if the record does not say it.
	ID any `json:"id,omitempty"`
	// File and Line are where the record comes from, Line from 1; "" and 0 if the data do not say
	// it.
	File string `json:"file,omitempty"`
	Line int64  `json:"line,omitempty"`
	// Text and TextPair are the texts; "" if the example has none. Several choices are a JSON array.
	Text     string `json:"text,omitempty"`
	TextPair string `json:"text_pair,omitempty"`
	// Decoded says that the texts are those of the tokens, as the data do not keep them.
	Decoded bool `json:"decoded,omitempty"`
	// Inputs are what a model is given that takes no texts; of the worst rows alone.
	Inputs []Input `json:"inputs,omitempty"`
	// Label and Prediction are a string, a number, a list of strings or numbers or, of several labels
	// or outputs, an object with these by name; nil if there is none.
	Label      any `json:"label,omitempty"`
	Prediction any `json:"prediction,omitempty"`
	// Choice is the text of the choice that is predicted; "" if an example has no choices of its own.
	Choice string `json:"choice,omitempty"`
	// Probabilities are those of the labels, by name.
	Probabilities runner.Outputs `json:"probabilities,omitempty"`
	// Generated is the text that the model generates, and what it should be; nil if none was asked for.
	Generated *Generated `json:"generated,omitempty"`
	// Loss is the example's own, without its weight.
	Loss runner.Number `json:"loss"`
	// Weight is 1 if the record has none.
	Weight float64 `json:"weight"`
}

// Generated is a text that a model generates for a prompt.
type Generated struct {
	// Source is the prompt, and Reference the text that should follow.
	Source    string `json:"source"`
	Reference string `json:"reference"`
	Text      string `json:"text"`
	// Scores are the text's own, by their names.
	Scores runner.Outputs `json:"scores"`
}

// Input is a feature that a model is given: its first values in words or, of an image, a small picture.
type Input struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	PNG   []byte `json:"png,omitempty"`
}

// Source returns where a row comes from, as FILE:LINE, or else its record.
func (r Row) Source() string {
	if r.File == "" || r.Line == 0 {
		return r.Record
	}
	return fmt.Sprintf("%s:%d", r.File, r.Line)
}

// Answer returns a Label or Prediction in one line.
func Answer(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []string:
		return strings.Join(v, " ")
	case []any:
		all := make([]string, len(v))
		for i, e := range v {
			all[i] = Answer(e)
		}
		return strings.Join(all, " ")
	case map[string]any:
		var all []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = append(all, name+"="+Answer(v[name]))
		}
		return strings.Join(all, " ")
	case runner.Number:
		return Answer(float64(v))
	case float64:
		return fmt.Sprintf("%.6g", v)
	default:
		return fmt.Sprint(v)
	}
}
