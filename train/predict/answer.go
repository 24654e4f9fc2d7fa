package predict

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Scores are what a model gives for an example: probabilities, which sum to 1 over the
// labels, and logits, as many.
type Scores struct {
	Probabilities, Logits []float64
}

// Answer is the answer on one example.
type Answer struct {
	// Label is the likeliest label: its name, or its number where it has none. Index is
	// its number.
	Label string `json:"label"`
	Index int    `json:"index"`
	// Score is its probability; Probabilities are those of all labels.
	Score         float64   `json:"score"`
	Probabilities []float64 `json:"probabilities"`
	Logits        []float64 `json:"logits"`
	// Truncated says that the text was longer than the model takes, and that the answer
	// is on the beginning of it only.
	Truncated bool `json:"truncated,omitempty"`
}

// newAnswer picks the likeliest label, the first of equals.
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

// Format is how answers are written, a line each.
type Format string

// The formats.
const (
	Text Format = "text" // label, probability in percent, and "truncated" where it is so
	TSV  Format = "tsv"  // label, tab, probability
	JSON Format = "json" // the Answer as an object
)

// Validate returns an error for a format that there is not.
func (f Format) Validate() error {
	if f != Text && f != TSV && f != JSON {
		return fmt.Errorf("format %q is unknown, expected %s, %s or %s", string(f), Text, TSV, JSON)
	}
	return nil
}

// Write writes an answer.
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
		return fmt.Errorf("write the answers: %w", err)
	}
	return nil
}
