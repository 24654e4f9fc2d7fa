package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// answer is the answer of a record.
type answer struct {
	form   form
	labels []int32 // numbers of labels
	value  float32
	starts []byte // 1 for each id that begins a word, or that is to be learned
}

// form is how a record says its answer.
type form byte

const (
	unanswered form = iota
	labelled        // by label_ids
	valued          // by label
	started         // by word_starts
	weighted        // by token_weights
)

// keep returns the answer with its labels in the chunk's memory.
func (k *chunk) keep(a answer) answer {
	start := len(k.ids)
	k.ids = append(k.ids, a.labels...)
	a.labels = k.ids[start:len(k.ids):len(k.ids)]
	return a
}

// answer returns the answer in a field, valid until the next call with the same encoder, or the reason
// why it is invalid.
func (l *labels) answer(kind Kind, e *encoder, f table.Field) (a answer, reason string) {
	e.labels = e.labels[:0]
	switch kind {
	case Regression:
		a.form = valued
		a.value, reason = number(f.Text)
		return a, reason
	case MultiLabel:
		names, reason := split(f.Text, l.separator)
		if reason != "" {
			return a, reason
		}
		for _, name := range names {
			id, reason := l.id(name)
			if reason != "" {
				return a, reason
			}
			e.labels = append(e.labels, int32(id))
		}
		slices.Sort(e.labels)
		e.labels = slices.Compact(e.labels)
	default:
		id, reason := l.id(f.Text)
		if reason != "" {
			return a, reason
		}
		e.labels = append(e.labels, int32(id))
	}
	return answer{form: labelled, labels: e.labels}, ""
}

// number returns the number that a text is, or the reason why it is none.
func number(s string) (float32, string) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, "the number is empty"
	}
	v, err := strconv.ParseFloat(s, 32)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Sprintf("number is %q; expected a finite number", table.Clip(s))
	}
	return float32(v), ""
}

// labelsIn returns the labels of a field of the label column, which may be empty.
func (c *Config) labelsIn(text string) ([]string, string) {
	if c.task().kind == MultiLabel {
		return split(text, c.separator())
	}
	return []string{strings.TrimSpace(text)}, ""
}

// split returns the parts of a field: those between separators, or the elements of a JSON array.
func split(s, separator string) (parts []string, reason string) {
	if strings.HasPrefix(s, "[") {
		return list(s)
	}
	for part := range strings.SplitSeq(s, separator) {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts, ""
}

// list returns the elements of a JSON array of texts, numbers, true and false.
func list(s string) ([]string, string) {
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(s), &raw); err != nil {
		return nil, fmt.Sprintf("is %q; expected a JSON array of texts", table.Clip(s))
	}
	out := make([]string, len(raw))
	for i, r := range raw {
		switch {
		case r[0] == '"':
			if err := json.Unmarshal(r, &out[i]); err != nil {
				return nil, err.Error()
			}
		case r[0] == '[' || r[0] == '{' || bytes.Equal(r, []byte("null")):
			return nil, fmt.Sprintf("has the element %s; expected a text", table.Clip(string(r)))
		default:
			out[i] = string(r)
		}
	}
	return out, ""
}

// Values describes the numbers that are the answers of a split.
type Values struct {
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// count counts an answer.
func (l *labels) count(s *Split, a answer) {
	l.finish(s)
	switch a.form {
	case labelled:
		for _, id := range a.labels {
			if id >= 0 {
				s.LabelCounts[id]++
			}
		}
	case valued:
		if s.Values == nil {
			s.Values = &Values{Min: math.Inf(1), Max: math.Inf(-1)}
		}
		v := float64(a.value)
		s.Values.Min, s.Values.Max = min(s.Values.Min, v), max(s.Values.Max, v)
		s.Values.Mean += (v - s.Values.Mean) / float64(s.Answered+1)
	}
	if a.form == valued || a.form == labelled && l.many {
		s.Answered++
	}
}

// finish gives a split without records the counts of its labels.
func (l *labels) finish(s *Split) {
	if s.LabelCounts == nil && len(l.names) > 0 {
		s.LabelCounts = make([]int64, len(l.names))
	}
}
