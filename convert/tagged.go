package convert

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// The columns of words and of their labels in JSON, unless others are named.
const (
	wordsColumn = "words"
	tagsColumn  = "tags"
)

// Uncounted is the label of tokens that are not counted: special tokens, and all but the first of a
// word.
const Uncounted = -1

// tagged is the maker of records with a label per word.
type tagged struct {
	cfg    *Config
	words  *text.Tokenizer
	labels *labels
}

// newTagged returns the maker of records for Tokens, and describes it in the manifest.
func newTagged(ctx context.Context, c *conversion) (*tagged, error) {
	l, err := newLabels(ctx, c.cfg, false)
	if err != nil {
		return nil, err
	}
	t := c.cfg.task()
	c.manifest.Columns = Columns{Text: t.text, Label: t.label}
	c.manifest.Labels = append(c.manifest.Labels, l.names...)
	return &tagged{cfg: c.cfg, words: c.tokenizer, labels: l}, nil
}

func (c *tagged) chunkRows() int { return chunkRows }

// columns returns the columns of the words and of their labels. In formats without columns both are
// in one.
func (c *tagged) columns(in Input) []table.Column {
	if f, err := c.cfg.formatOf(in.Path); err == nil && !table.Format(f).Objects() {
		return []table.Column{{Name: table.TextField}, {Name: table.TextField}}
	}
	t := c.cfg.task()
	return []table.Column{
		{Name: t.text, Lists: true, Flag: c.cfg.flagOf("--text-column")},
		{Name: t.label, Lists: true, Optional: !needsLabels(in.Split), Flag: c.cfg.flagOf("--label-column")},
	}
}

func (c *tagged) worker(f *inputFile) func(*chunk, *row, []table.Field) {
	var e encoder
	format, _ := c.cfg.formatOf(f.Path)
	return func(k *chunk, r *row, fields []table.Field) {
		if reason := c.encode(&e, k, r, fields, f, format); reason != "" {
			r.bad = &RowError{f.Path, r.line, reason}
		}
	}
}

func (c *tagged) count(s *Split, _ *chunk, r *row) {
	s.addTokens(r.length, r.truncated)
	c.labels.count(s, r.answer)
}

func (c *tagged) finish(s *Split) {
	s.meanLength()
	c.labels.finish(s)
}

// encode encodes a sentence as a record and appends it to the chunk's data, or returns why it cannot.
func (c *tagged) encode(e *encoder, k *chunk, r *row, fields []table.Field, f *inputFile, format Format) string {
	s, reason := c.cfg.sentence(format, fields[0], fields[1])
	switch {
	case reason != "":
		return reason
	case len(s.words) == 0:
		return "has no words"
	case s.tags == nil && f.labelled:
		return "has no labels"
	case s.tags != nil && len(s.tags) != len(s.words):
		return fmt.Sprintf("has %s and %s; expected as many", table.Count(len(s.words), "word"), table.Count(len(s.tags), "label"))
	}
	e.encoding.IDs, e.wordEnds = c.words.EncodeWords(e.encoding.IDs[:0], e.wordEnds[:0], s.words, c.cfg.MaxLength)
	ids, labels := e.encoding.IDs, e.labels[:0]
	frame := c.words.Template().Single
	for range frame.Before {
		labels = append(labels, Uncounted)
	}
	r.truncated = len(e.wordEnds) < len(s.words)
	for i, end := range e.wordEnds {
		if s.tags == nil {
			break
		}
		id, reason := c.labels.id(s.tags[i])
		if reason != "" {
			return fmt.Sprintf("word %d: %s", i+1, reason)
		}
		for len(labels) < end {
			labels = append(labels, int32(id))
			if !c.cfg.AllPieces {
				id = Uncounted
			}
		}
	}
	for range frame.After {
		labels = append(labels, Uncounted)
	}
	e.labels = labels
	switch {
	case len(ids) > frame.Specials():
	case !r.truncated:
		return "has no words of which the tokenizer leaves a token"
	default:
		return fmt.Sprintf("has the first word %q of more tokens than fit into %d; raise the maximum length", table.Clip(s.words[len(e.wordEnds)]), c.cfg.MaxLength)
	}
	var a answer
	if s.tags != nil {
		a = answer{form: labelled, labels: labels}
	}
	k.data = tfrecord.AppendRecord(k.data, e.recorder.example(f.number+r.number, ids, 0, a))
	r.length, r.answer, r.content = len(ids), k.keep(a), e.hash(ids)
	return ""
}

// sentence is words and their labels; there may be no labels.
type sentence struct{ words, tags []string }

// sentence takes a sentence out of fields. first and second are the same in formats without columns.
func (c *Config) sentence(format Format, first, second table.Field) (s sentence, reason string) {
	switch format {
	case CoNLL:
		return c.conll(first.Text)
	case Brown:
		return brown(first.Text)
	}
	if s.words, reason = list(first.Text); reason != "" {
		return s, "words: " + reason
	}
	if second.OK {
		if s.tags, reason = list(second.Text); reason != "" {
			return s, "labels: " + reason
		}
	}
	return s, ""
}

// conll takes a sentence out of lines of columns between tabs or spaces. A line that begins with # and a
// space is passed over.
func (c *Config) conll(lines string) (s sentence, reason string) {
	words, tags, reason := c.conllColumns()
	if reason != "" {
		return s, reason
	}
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line)
		if strings.Contains(line, "\t") {
			fields = strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		}
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "# "):
			continue
		case max(words, tags) >= len(fields):
			return s, fmt.Sprintf("line %q has %s; expected column %d", table.Clip(strings.TrimSpace(line)), table.Count(len(fields), "column"), max(words, tags)+1)
		}
		at := tags
		if at < 0 {
			at = len(fields) - 1
		}
		if at == words {
			return s, fmt.Sprintf("line %q has one column; expected a word and its label", table.Clip(strings.TrimSpace(line)))
		}
		s.words, s.tags = append(s.words, fields[words]), append(s.tags, fields[at])
	}
	if len(s.words) == 0 {
		return s, "has no words"
	}
	return s, ""
}

// conllColumns returns the indices of the words' and the labels' columns; the last one is -1.
func (c *Config) conllColumns() (words, tags int, reason string) {
	index := func(name string, otherwise int) int {
		if name == "" {
			return otherwise
		}
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 {
			reason = fmt.Sprintf("column is %q; expected a number from 1, because the format conll has no header", name)
		}
		return n - 1
	}
	return index(c.TextColumn, 0), index(c.LabelColumn, -1), reason
}

// brown takes a sentence out of words with a slash and a label after them, as in the Brown corpus.
func brown(line string) (s sentence, reason string) {
	for word := range strings.FieldsSeq(line) {
		i := strings.LastIndexByte(word, '/')
		if i <= 0 || i == len(word)-1 {
			return s, fmt.Sprintf("word %q has no label; expected word/label", table.Clip(word))
		}
		s.words, s.tags = append(s.words, word[:i]), append(s.tags, word[i+1:])
	}
	return s, ""
}

// tagsIn returns the labels of a sentence's fields, sorted.
func (c *Config) tagsIn(format Format, f table.Field) (tags []string, reason string) {
	if table.Format(format).Objects() {
		if tags, reason = list(f.Text); reason != "" {
			reason = "labels: " + reason
		}
	} else {
		var s sentence
		s, reason = c.sentence(format, f, f)
		tags = s.tags
	}
	slices.Sort(tags)
	return slices.Compact(tags), reason
}
