package train

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/runner"
)

// Write writes the report as text.
func (r *RunReport) Write(out io.Writer) error {
	tabs := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	steps := fmt.Sprint(r.Step)
	if r.Total > 0 {
		steps += fmt.Sprintf(" of %d", r.Total)
	}
	if r.StoppedEarly != "" {
		steps += ", stopped early: " + whyEarly(r.StoppedEarly)
	}
	graph := r.Graph
	if r.OwnGraph {
		graph += ", of which the run has a copy"
	}
	fmt.Fprintf(tabs, "  run folder\t%s\n  graph\t%s\n  step\t%s\n", r.Path, graph, steps)
	if b := r.Best; b != nil {
		fmt.Fprintf(tabs, "  best\t%s %.6g at step %d\n", b.Metric, b.Value, b.Step)
	}
	if r.Evaluated != nil {
		fmt.Fprintf(tabs, "  evaluated\tstep %d:", r.EvaluatedStep)
		for _, name := range slices.Sorted(maps.Keys(r.Evaluated)) {
			fmt.Fprintf(tabs, " %s %v", name, r.Evaluated[name])
		}
		fmt.Fprintln(tabs)
	}
	fmt.Fprintf(tabs, "\ncheckpoints\n")
	for _, c := range r.Checkpoints {
		best := ""
		if c.Best {
			best = "best"
		}
		fmt.Fprintf(tabs, "  %d\t%s\t%.1f MB\t%s\t%s\n", c.Step, c.Path, float64(c.Bytes)/1e6, c.Time.Format("2006-01-02 15:04:05"), best)
	}
	fmt.Fprintf(tabs, "\nparams that differ from the defaults\n")
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		fmt.Fprintf(tabs, "  %s\t%v\n", name, r.Params[name])
	}
	return tabs.Flush()
}

// drawnReport is a batch in the form of JSON.
type drawnReport struct {
	Step int64 `json:"step"`
	// Epoch counts from 0.
	Epoch     int64 `json:"epoch"`
	Examples  int   `json:"examples"`
	Labeled   int   `json:"labeled"`
	Truncated int   `json:"truncated"`
	Tokens    int   `json:"tokens,omitempty"`
	Rows      int   `json:"rows,omitempty"`
	RowLength int   `json:"row_length,omitempty"`
	// Padding is the share of the positions that hold no token.
	Padding   float64         `json:"padding"`
	Features  []featureReport `json:"features"`
	Sequences []shownSequence `json:"sequences,omitempty"`
	// Records are those of the examples, of batches without packed texts.
	Records []string `json:"records,omitempty"`
	// Texts are those of packed rows, in their order, if nothing says which record each is of.
	Texts []string `json:"texts,omitempty"`
}

// featureReport is a feature of a batch.
type featureReport struct {
	Name   string        `json:"name"`
	DType  dataset.DType `json:"dtype"`
	Shape  []int         `json:"shape"`
	Values any           `json:"values"`
}

// shownSequence is an example in a packed row, as text.
type shownSequence struct {
	Sequence
	Text  string `json:"text,omitempty"`
	Label string `json:"label,omitempty"`
}

// report returns the batch in the form of JSON.
func (d *Drawn) report() drawnReport {
	r := drawnReport{Step: d.Step, Epoch: d.Epoch, Examples: d.Examples, Labeled: d.Labeled, Truncated: d.Truncated,
		Tokens: d.Tokens, Rows: d.Rows, RowLength: d.RowLength}
	if cells := d.Rows * d.RowLength; cells > 0 {
		r.Padding = 1 - d.Density()
	}
	for i := range d.Features {
		f := &d.Features[i]
		one := featureReport{Name: f.Name, DType: f.DType(), Shape: f.Shape}
		switch one.DType {
		case dataset.Int32:
			one.Values = f.Int32
		case dataset.Int64:
			one.Values = f.Int64
		case dataset.Uint8:
			one.Values = fmt.Sprintf("%d values", len(f.Uint8))
		case dataset.Bool:
			one.Values = f.Bool
		default:
			// JSON has no number for what is not finite.
			numbers := make([]runner.Number, len(f.Float32))
			for i, x := range f.Float32 {
				numbers[i] = runner.Number(x)
			}
			one.Values = numbers
		}
		r.Features = append(r.Features, one)
	}
	for _, s := range d.Sequences() {
		shown := shownSequence{Sequence: s, Label: d.labelOf(s.Example)}
		if d.Tokenizer != nil {
			shown.Text = d.Tokenizer.Sentence(s.IDs, 200)
		}
		r.Sequences = append(r.Sequences, shown)
	}
	if r.Sequences == nil {
		for i := range d.Examples {
			r.Records = append(r.Records, d.Describe(i))
		}
		r.Texts = d.texts()
	}
	return r
}

// texts returns the texts of packed rows, with the tokens that are hidden.
func (d *Drawn) texts() (out []string) {
	ids, sequences := d.Feature(packed.InputIDs), d.Feature(packed.SequenceIDs)
	if d.Tokenizer == nil || ids == nil || sequences == nil || d.RowLength == 0 {
		return nil
	}
	for start := 0; start < len(sequences.Int32); {
		end := start + 1
		for end%d.RowLength != 0 && sequences.Int32[end] == sequences.Int32[start] {
			end++
		}
		if sequences.Int32[start] != 0 {
			out = append(out, d.Tokenizer.Sentence(ids.Int32[start:end], 200))
		}
		start = end
	}
	return out
}

// labelOf returns the label of an example as text; "" if it has no single one.
func (d *Drawn) labelOf(example int) string {
	f := d.Feature(packed.LabelIDs)
	if f == nil || len(f.Int32) <= example || len(f.Shape) != 1 {
		return ""
	}
	id := int(f.Int32[example])
	if d.Manifest != nil && id >= 0 && id < len(d.Manifest.Labels) {
		return d.Manifest.Labels[id]
	}
	return fmt.Sprint(id)
}

// MarshalJSON implements json.Marshaler.
func (d *Drawn) MarshalJSON() ([]byte, error) { return json.Marshal(d.report()) }

// Write writes the batch as text.
func (d *Drawn) Write(out io.Writer) error {
	r := d.report()
	tabs := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tabs, "  batch of step\t%d, in epoch %d\n  examples\t%d, %d with a label\n", r.Step, r.Epoch+1, r.Examples, r.Labeled)
	if r.Rows > 0 && r.RowLength > 0 {
		fmt.Fprintf(tabs, "  rows\t%d of %d positions: %d tokens, %.1f %% padding\n", r.Rows, r.RowLength, r.Tokens, 100*r.Padding)
	}
	if r.Truncated > 0 {
		fmt.Fprintf(tabs, "  truncated\t%d examples\n", r.Truncated)
	}
	fmt.Fprintf(tabs, "\nfeatures\n")
	for i, f := range r.Features {
		fmt.Fprintf(tabs, "  %s\t%s\t%s\t%s\n", f.Name, f.DType, strings.ReplaceAll(fmt.Sprint(f.Shape), " ", ","), firstValues(&d.Features[i]))
	}
	row := -1
	for _, s := range r.Sequences {
		if s.Row != row {
			row = s.Row
			fmt.Fprintf(tabs, "\nrow %d\n", row)
		}
		fmt.Fprintf(tabs, "  %d to %d\t%s\t%s\t%s\n", s.Start, s.Start+s.Tokens-1, s.Record, s.Label, s.Text)
	}
	if len(r.Texts) > 0 {
		fmt.Fprintf(tabs, "\ntexts\n  %s\n", strings.Join(r.Texts, "\n  "))
	}
	if len(r.Records) > 0 {
		fmt.Fprintf(tabs, "\nrecords\n  %s\n", strings.Join(r.Records, "\n  "))
	}
	return tabs.Flush()
}

// firstValues returns the first values of a feature as text.
func firstValues(f *dataset.Feature) string {
	const most = 8
	n := min(f.Len(), most)
	text := ""
	switch f.DType() {
	case dataset.Int32:
		text = fmt.Sprint(f.Int32[:n])
	case dataset.Int64:
		text = fmt.Sprint(f.Int64[:n])
	case dataset.Uint8:
		text = fmt.Sprint(f.Uint8[:n])
	case dataset.Bool:
		text = fmt.Sprint(f.Bool[:n])
	default:
		text = fmt.Sprint(f.Float32[:n])
	}
	if text = strings.Trim(text, "[]"); f.Len() > n {
		text += " ..."
	}
	return text
}
