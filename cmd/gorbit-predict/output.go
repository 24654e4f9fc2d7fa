package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// answer is what the model says of an example, as gorbit predict prints it.
type answer struct {
	Label         string    `json:"label"`
	Index         int       `json:"index"`
	Score         float64   `json:"score"`
	Probabilities []float64 `json:"probabilities"`
	Logits        []float64 `json:"logits"`
}

func newAnswer(labels []string, probabilities, logits []float32) answer {
	a := answer{Probabilities: widen(probabilities), Logits: widen(logits)}
	for i, p := range a.Probabilities {
		if p > a.Probabilities[a.Index] {
			a.Index = i
		}
	}
	a.Label, a.Score = labels[a.Index], a.Probabilities[a.Index]
	return a
}

func widen(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}

// printers write an answer, by the names of the formats.
var printers = map[string]func(io.Writer, answer) error{
	"text": func(w io.Writer, a answer) error {
		_, err := fmt.Fprintf(w, "%s (%.1f %%)\n", a.Label, 100*a.Score)
		return err
	},
	"tsv": func(w io.Writer, a answer) error {
		_, err := fmt.Fprintf(w, "%s\t%.6f\n", a.Label, a.Score)
		return err
	},
	"json": func(w io.Writer, a answer) error {
		line, err := json.Marshal(a)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", line)
		return err
	},
}
