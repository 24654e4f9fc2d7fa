package convert

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// validateEmbed checks the settings of Embed.
func (c *Config) validateEmbed(fail func(format string, args ...any)) {
	switch {
	case c.PairColumn == "":
		fail("task %s compares texts; expected the column of the second ones (--pair-column)", Embed)
	case c.NegativeColumn != "" && c.LabelColumn != "":
		fail("task %s has a negative column and a label column; expected one of them: a third text, or a score of two", Embed)
	case c.ScoreMax != 0 && c.LabelColumn == "":
		fail("the highest score is given, and no column of scores; expected --label-column, too")
	case c.ScoreMax < 0 || math.IsNaN(c.ScoreMax) || math.IsInf(c.ScoreMax, 0):
		fail("the highest score is %v; expected a number above 0", c.ScoreMax)
	}
}

// embeds is the maker of records of Embed: two or three texts, each with its special tokens, and a score of
// two.
type embeds struct {
	task      task
	columnsOf []table.Column // those of the texts
	most      int            // ids of a text
	tokenizer *text.Tokenizer
	highest   float64 // of the scores
	scores    labels  // which count them
}

func newEmbeds(c *conversion) *embeds {
	t := c.cfg.task()
	e := &embeds{task: t, most: c.cfg.MaxLength, tokenizer: c.tokenizer, highest: cmp.Or(c.cfg.ScoreMax, 1)}
	e.columnsOf = []table.Column{
		{Name: t.text, Words: true, Flag: c.cfg.flagOf("--text-column")},
		{Name: t.pair, Words: true, Flag: c.cfg.flagOf("--pair-column")},
	}
	if name := c.cfg.NegativeColumn; name != "" {
		e.columnsOf = append(e.columnsOf, table.Column{Name: name, Words: true, Flag: c.cfg.flagOf("--negative-column")})
	}
	c.manifest.Columns = Columns{Text: t.text, Pair: t.pair, Label: t.label, Negative: c.cfg.NegativeColumn}
	return e
}

func (c *embeds) chunkRows() int { return chunkRows }

// columns returns the columns of the texts and of the score. One that is not used has no name and is in no
// file.
func (c *embeds) columns(in Input) []table.Column {
	score := table.Column{Name: c.task.label, Optional: c.task.label == "" || !needsLabels(in.Split), Flag: "--label-column"}
	return append(c.columnsOf[:len(c.columnsOf):len(c.columnsOf)], score)
}

func (c *embeds) worker(f *inputFile) func(*chunk, *row, []table.Field) {
	var e encoder
	var ids, numbers []int32
	return func(k *chunk, r *row, fields []table.Field) {
		fail := func(format string, args ...any) {
			r.bad = &RowError{f.Path, r.line, fmt.Sprintf(format, args...)}
		}
		ids, numbers = ids[:0], numbers[:0]
		r.truncated, r.target = false, 0
		for i, column := range c.columnsOf {
			if c.tokenizer.EncodeInto(&e.encoding, fields[i].Text, "", c.most).A == 0 {
				fail("column %q has no text", column.Name)
				return
			}
			ids = append(ids, e.encoding.IDs...)
			for range e.encoding.IDs {
				numbers = append(numbers, int32(i))
			}
			r.truncated, r.target = r.truncated || e.encoding.Truncated, max(r.target, len(e.encoding.IDs))
		}
		var score answer
		if label := fields[len(c.columnsOf)]; c.task.label != "" && (label.OK || f.labelled) {
			v, reason := number(label.Text)
			if reason != "" {
				fail("%s", reason)
				return
			}
			score = answer{form: valued, value: float32(float64(v) / c.highest)}
			if score.value < -1 || score.value > 1 {
				fail("score is %v; expected -%v to %[2]v; --score-max names the score of texts that mean the same, such as 5", v, c.highest)
				return
			}
		}
		k.data = tfrecord.AppendRecord(k.data, e.recorder.texts(f.number+r.number, ids, numbers, score))
		r.length, r.answer, r.content = len(ids), k.keep(score), e.hash(ids)
	}
}

func (c *embeds) count(s *Split, _ *chunk, r *row) {
	s.addTokens(r.length, r.truncated)
	s.LongestText = max(s.LongestText, r.target)
	c.scores.count(s, r.answer)
}

func (c *embeds) finish(s *Split) { s.meanLength() }
