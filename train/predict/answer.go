package predict

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Scores is the output of a model for one example: one probability per label, which sum to 1, and
// one logit per label.
type Scores struct {
	Probabilities, Logits []float64
}

// Answer is the result for one example.
type Answer struct {
	// Label is the name of the most probable label, or its index if it has no name. Index is its
	// index.
	Label string `json:"label"`
	Index int    `json:"index"`
	// Score is the probability of Label; Probabilities holds those of all labels.
	Score         float64   `json:"score"`
	Probabilities []float64 `json:"probabilities"`
	Logits        []float64 `json:"logits"`
	// Truncated reports that the text was longer than the model's limit and was cut, so that the
	// answer uses only its beginning.
	Truncated bool `json:"truncated,omitempty"`
}

// newAnswer picks the most probable label, or the first of several with equal probability.
func newAnswer(s Scores, labels []string, truncated bool) Answer {
	a := Answer{Probabilities: s.Probabilities, Logits: s.Logits, Truncated: truncated}
	for i, p := range a.Probabilities {
		if p > a.Probabilities[a.Index] {
			a.Index = i
		}
	}
	a.Score, a.Label = a.Probabilities[a.Index], strconv.Itoa(a.Index)
	if a.Index < len(labels) {
		a.Label = labels[a.Index]
	}
	return a
}

// Format is an output format of answers, one line per answer.
type Format string

// The formats.
const (
	Text Format = "text" // label, probability in percent, and "truncated" for a text that was cut
	TSV  Format = "tsv"  // label, tab, probability
	JSON Format = "json" // the Answer as an object
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
		if line, err = json.Marshal(a); err == nil {
			_, err = fmt.Fprintf(w, "%s\n", line)
		}
	case TSV:
		_, err = fmt.Fprintf(w, "%s\t%.6f\n", a.Label, a.Score)
	default:
		note := ""
		if a.Truncated {
			note = ", truncated"
		}
		_, err = fmt.Fprintf(w, "%s (%.1f %%)%s\n", a.Label, 100*a.Score, note)
	}
	if err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	return nil
}
