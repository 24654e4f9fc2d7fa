package convert

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// mostChoices limits the choices of a question.
const mostChoices = 64

// validateChoices checks the settings of Choices.
func (c *Config) validateChoices(fail func(format string, args ...any)) {
	if c.task().kind != Choices {
		if len(c.ChoiceColumns) > 0 {
			fail("columns of choices are given; they are only for task %s", Choices)
		}
		return
	}
	switch n := len(c.ChoiceColumns); {
	case n == 0:
		fail("task %s has a text and choices; expected their columns (--choice-columns), or the one that has a list of them", Choices)
	case slices.Contains(c.ChoiceColumns, ""):
		fail("a column of choices has no name; expected names with commas between them")
	case n > mostChoices:
		fail("%d columns of choices are given; expected at most %d", n, mostChoices)
	case n > 1 && len(c.Labels) > 0 && len(c.Labels) != n:
		fail("%d labels and %d columns of choices are given; expected a label for each, in their order", len(c.Labels), n)
	}
}

// choices is the maker of records of Choices: a sequence of the text with each of the choices, one after
// the other. A label is the number of a choice.
type choices struct {
	texts
	list bool // a column has all choices
}

func newChoices(ctx context.Context, c *conversion, guess bool) (*choices, error) {
	made, err := newTexts(ctx, c, guess)
	if err != nil {
		return nil, err
	}
	given := c.cfg.ChoiceColumns
	out := &choices{texts: *made, list: len(given) == 1}
	c.manifest.Columns = Columns{Text: c.cfg.TextColumn, Label: c.cfg.LabelColumn, Stem: c.cfg.PairColumn}
	if out.list {
		c.manifest.Columns.Pair = given[0]
	} else {
		c.manifest.Columns.Choices = given
	}
	switch n := len(made.labels.names); {
	case c.cfg.LabelColumn == "" && out.list:
		return nil, fault.Usagef("convert: no label column is given, and column %q has any number of choices; name the column of the right choice's number (--label-column)", given[0])
	case c.cfg.LabelColumn == "":
		for i := range given {
			c.manifest.Labels = append(c.manifest.Labels, fmt.Sprint(i))
		}
	case n > mostChoices:
		return nil, fault.Usagef("convert: column %q has %d different labels; expected at most %d, the numbers of choices", c.cfg.LabelColumn, n, mostChoices)
	case !out.list && n != len(given):
		return nil, fault.Usagef("convert: column %q has the labels %s, and there are %d columns of choices; expected a label for each; name all in the order of the columns with --labels, such as --labels %s",
			c.cfg.LabelColumn, table.List(made.labels.names), len(given), numbers(len(given)))
	}
	return out, nil
}

// numbers returns the numbers below n with commas between them.
func numbers(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(i)
	}
	return strings.Join(out, ",")
}

func (c *choices) columns(in Input) []table.Column {
	out := []table.Column{
		{Name: c.cfg.TextColumn, Words: true, Flag: "--text-column"},
		{Name: c.cfg.PairColumn, Words: true, Optional: c.cfg.PairColumn == "", Flag: "--pair-column"},
		{Name: c.cfg.LabelColumn, Optional: c.cfg.LabelColumn == "" || !needsLabels(in.Split), Flag: "--label-column"},
	}
	for _, name := range c.cfg.ChoiceColumns {
		out = append(out, table.Column{Name: name, Words: true, Lists: c.list, Flag: "--choice-columns"})
	}
	return out
}

func (c *choices) worker(f *inputFile) func(*chunk, *row, []table.Field) {
	var e encoder
	return func(k *chunk, r *row, fields []table.Field) {
		if reason := c.encode(&e, k, r, fields, f); reason != "" {
			r.bad = &RowError{f.Path, r.line, reason}
		}
	}
}

// encode encodes a question as a record and appends it to the chunk's data, or returns why it cannot.
func (c *choices) encode(e *encoder, k *chunk, r *row, fields []table.Field, f *inputFile) string {
	var all []string
	if c.list {
		var reason string
		if all, reason = list(fields[3].Text); reason != "" {
			return fmt.Sprintf("column %q %s", c.cfg.ChoiceColumns[0], reason)
		}
		if most := len(c.labels.names); len(all) < 2 || len(all) > most {
			return fmt.Sprintf("column %q has %s; expected 2 to %d, as there are labels (%s); name those of all choices in their order with --labels",
				c.cfg.ChoiceColumns[0], table.Count(len(all), "choice"), most, table.List(c.labels.names))
		}
	} else {
		for _, field := range fields[3 : 3+len(c.cfg.ChoiceColumns)] {
			all = append(all, field.Text)
		}
	}
	label, a := fields[2], answer{}
	if c.cfg.LabelColumn != "" && (label.OK || f.labelled) {
		var reason string
		if a, reason = c.labels.answer(Classification, e, label); reason != "" {
			r.newLabel = c.labels.guessed && strings.TrimSpace(label.Text) != ""
			return reason
		}
		if right := int(a.labels[0]); right >= len(all) {
			return fmt.Sprintf("label is %q, choice %d from 0; expected one of the row's %d choices", strings.TrimSpace(label.Text), right, len(all))
		}
	}
	stem, alone := "", 0 // and its tokens
	if c.cfg.PairColumn != "" {
		stem = fields[1].Text + " "
		alone = len(c.tokenizer.AppendIDs(nil, stem))
	}
	var q question
	r.truncated = false
	for i, choice := range all {
		lengths := c.tokenizer.EncodeInto(&e.encoding, fields[0].Text, stem+choice, c.cfg.MaxLength)
		if lengths.A == 0 {
			return fmt.Sprintf("column %q has no text", c.cfg.TextColumn)
		}
		// A choice that adds nothing to what stands before it may have no text.
		if lengths.B <= alone && len(c.tokenizer.AppendIDs(nil, choice)) == 0 {
			return fmt.Sprintf("choice %d of %d has no text", i+1, len(all))
		}
		r.truncated = r.truncated || e.encoding.Truncated
		q.starts = append(q.starts, int32(len(q.ids)))
		q.ids, q.types = append(q.ids, e.encoding.IDs...), append(q.types, e.encoding.TypeIDs...)
	}
	k.data = tfrecord.AppendRecord(k.data, e.recorder.choices(f.number+r.number, q, a))
	r.length, r.answer, r.content = len(q.ids), k.keep(a), e.hash(q.ids)
	return ""
}

// question is the tokens of a text with each of several choices, their segments, and the number of the
// first one of each.
type question struct{ ids, types, starts []int32 }

// ParseChoices returns the choices of a JSON array of texts, as task Choices takes them, of which there
// are at least two.
func ParseChoices(s string) ([]string, error) {
	if s == "" {
		return nil, fault.Usagef("a single text is given; expected a pair: a text, and its choices as the second text, a JSON array such as [\"He left.\", \"He sang.\"]")
	}
	var all []string
	if err := json.Unmarshal([]byte(s), &all); err != nil || len(all) < 2 || len(all) > mostChoices {
		return nil, fault.Usagef("the choices are %s; expected a JSON array of 2 to %d texts, such as [\"He left.\", \"He sang.\"]", table.Clip(s), mostChoices)
	}
	return all, nil
}
