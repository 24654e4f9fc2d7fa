package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// best returns the number of the most probable class.
func best(probabilities []float32) int {
	at := 0
	for i, p := range probabilities {
		if p > probabilities[at] {
			at = i
		}
	}
	return at
}

// oneLine keeps a text within its field of a line.
var oneLine = strings.NewReplacer("\t", " ", "\n", " ", "\r", " ")

func writeText(w io.Writer, e example, labels []string, probabilities []float32) error {
	at := best(probabilities)
	line := fmt.Sprintf("%s\t%.4f\t%s", labels[at], probabilities[at], oneLine.Replace(e.text))
	if e.pair != "" {
		line += "\t" + oneLine.Replace(e.pair)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

func writeJSON(w io.Writer, e example, labels []string, probabilities []float32) error {
	answer := struct {
		Text          string             `json:"text"`
		Pair          string             `json:"text_pair,omitempty"`
		Label         string             `json:"label"`
		Probabilities map[string]float32 `json:"probabilities"`
	}{e.text, e.pair, labels[best(probabilities)], make(map[string]float32, len(labels))}
	for i, p := range probabilities {
		answer.Probabilities[labels[i]] = p
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}
