package convert

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// texts is the maker of records with one or two texts, and a label, labels or a number.
type texts struct {
	cfg       *Config
	task      task
	tokenizer *text.Tokenizer
	labels    *labels
}

// newTexts returns the maker for the conversion's task, and describes it in the manifest.
func newTexts(ctx context.Context, c *conversion, guess bool) (*texts, error) {
	l, err := newLabels(ctx, c.cfg, guess)
	if err != nil {
		return nil, err
	}
	t := c.cfg.task()
	c.manifest.Columns = Columns{Text: t.text, Pair: t.pair, Label: t.label}
	c.manifest.Labels = append(c.manifest.Labels, l.names...)
	c.manifest.LabelThreshold = c.cfg.LabelThreshold
	return &texts{c.cfg, t, c.tokenizer, l}, nil
}

func (c *texts) chunkRows() int { return chunkRows }

// columns returns the columns of the text, the second text and the label. Unused ones have no name
// and are in no file.
func (c *texts) columns(in Input) []table.Column {
	t := c.task
	return []table.Column{
		{Name: t.text, Words: true, Flag: c.cfg.flagOf("--text-column")},
		{Name: t.pair, Words: true, Optional: t.pair == "", Flag: c.cfg.flagOf("--pair-column")},
		{Name: t.label, Optional: t.label == "" || !needsLabels(in.Split), Lists: t.kind == MultiLabel, Flag: c.cfg.flagOf("--label-column")},
	}
}

func (c *texts) worker(f *inputFile) func(*chunk, *row, []table.Field) {
	var e encoder
	return func(k *chunk, r *row, fields []table.Field) { c.encode(&e, k, r, fields, f) }
}

func (c *texts) count(s *Split, _ *chunk, r *row) {
	s.addTokens(r.length, r.truncated)
	c.labels.count(s, r.answer)
}

func (c *texts) finish(s *Split) {
	s.meanLength()
	c.labels.finish(s)
}

// encoder is the working space of a goroutine that makes records.
type encoder struct {
	encoding text.Encoding
	recorder recorder
	bytes    []byte // of the ids
	labels   []int32
	wordEnds []int // numbers of ids
}

// encode encodes a row as a record and appends it to the chunk's data.
func (c *texts) encode(e *encoder, k *chunk, r *row, fields []table.Field, f *inputFile) {
	fail := func(format string, args ...any) {
		r.bad = &RowError{f.Path, r.line, fmt.Sprintf(format, args...)}
	}
	a, b, label := fields[0], fields[1], fields[2]
	lengths := c.tokenizer.EncodeInto(&e.encoding, a.Text, b.Text, c.cfg.MaxLength)
	if lengths.A == 0 {
		fail("column %q has no text", c.task.text)
		return
	}
	if c.task.pair != "" && lengths.B == 0 {
		fail("column %q has no text", c.task.pair)
		return
	}
	var answer answer
	if c.task.label != "" && (label.OK || f.labelled) {
		var reason string
		if answer, reason = c.labels.answer(c.task.kind, e, label); reason != "" {
			fail("%s", reason)
			r.newLabel = c.labels.guessed && strings.TrimSpace(label.Text) != ""
			return
		}
	}
	ids := e.encoding.IDs
	k.data = tfrecord.AppendRecord(k.data, e.recorder.example(f.number+r.number, ids, e.second(), answer))
	r.length, r.truncated, r.answer = len(ids), e.encoding.Truncated, k.keep(answer)
	r.content = e.hash(ids)
}

// hash returns the hash of ids.
func (e *encoder) hash(ids []int32) uint64 {
	e.bytes = e.bytes[:0]
	for _, id := range ids {
		e.bytes = binary.LittleEndian.AppendUint32(e.bytes, uint32(id))
	}
	return xxhash.Sum64(e.bytes)
}

// second returns the number of tokens of the second segment.
func (e *encoder) second() (n int) {
	types := e.encoding.TypeIDs
	for n < len(types) && types[len(types)-1-n] == 1 {
		n++
	}
	return n
}
