package convert

import (
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// validateSides checks the settings of Seq2Seq, which no other kind has.
func (c *Config) validateSides(fail func(format string, args ...any)) {
	if c.task().kind != Seq2Seq {
		if c.SourceColumn != "" || c.TargetColumn != "" || c.Prefix != "" || c.MaxTargetLength != 0 {
			fail("a source column, target column, prefix or maximum length of targets is given; they are only for task %s", Seq2Seq)
		}
		return
	}
	switch {
	case c.SourceColumn == "" || c.TargetColumn == "":
		fail("task %s makes one text of another; expected the columns of both (--source-column and --target-column)", Seq2Seq)
	case c.MaxTargetLength != 0 && (c.MaxTargetLength < 2 || c.MaxTargetLength > maxMaxLength):
		fail("maximum length of targets is %d; expected 2 to %d", c.MaxTargetLength, maxMaxLength)
	case c.TextColumn != "" || c.PairColumn != "" || c.ChatColumn != "" || c.NegativeColumn != "" || c.ScoreMax != 0 || c.LabelColumn != "" || len(c.Labels) > 0 || c.LabelThreshold != nil || c.LabelSeparator != "":
		fail("task %s has a source column and a target column; leave out other columns and labels", Seq2Seq)
	case c.AllPieces || c.WordStarts || c.DocStride != 0 || c.Documents != EachText || c.Blocks != JoinDocuments:
		fail("task %s makes a record of each row; leave out what is for other tasks: all pieces, word starts, windows, documents and blocks", Seq2Seq)
	case slices.Contains([]Format{PlainLines, CoNLL, Brown, SQuAD}, c.Format):
		fail("format is %s; expected %s for task %s", c.Format, Seq2Seq.formats(), Seq2Seq)
	}
}

// sides is the maker of records of Seq2Seq: a source and its target.
type sides struct {
	cfg       *Config
	tokenizer *text.Tokenizer
	before    []int32 // the tokens before a text, and after a source and a target
	after     [2][]int32
}

func newSides(c *conversion) (*sides, error) {
	single := c.tokenizer.Template().Single
	s := &sides{cfg: c.cfg, tokenizer: c.tokenizer, before: specialIDs(single.Before)}
	s.after = [2][]int32{specialIDs(single.After), specialIDs(single.After)}
	if end := c.tokenizer.Roles().Sep; len(s.after[1]) == 0 {
		if end < 0 {
			return nil, fault.Usagef("convert: tokenizer %s has no token that ends a text, without which a model would not learn where targets end; expected one with an end token, such as </s>", c.vocab.Path)
		}
		s.after[1] = []int32{end}
	}
	c.manifest.Columns = Columns{Text: c.cfg.SourceColumn, Target: c.cfg.TargetColumn}
	end := s.after[1][len(s.after[1])-1]
	c.manifest.MaxTargetLength, c.manifest.Prefix, c.manifest.TargetEnd = c.cfg.MaxTargetLength, c.cfg.Prefix, &end
	return s, nil
}

func (s *sides) chunkRows() int { return chunkRows }

func (s *sides) columns(Input) []table.Column {
	return []table.Column{
		{Name: s.cfg.SourceColumn, Words: true, Flag: "--source-column"},
		{Name: s.cfg.TargetColumn, Words: true, Flag: "--target-column"},
	}
}

func (s *sides) worker(f *inputFile) func(*chunk, *row, []table.Field) {
	var e encoder
	var ids [2][]int32
	return func(k *chunk, r *row, fields []table.Field) {
		r.truncated, r.cutTarget = false, false
		for side, column := range []struct {
			name, prefix string
			most         int
		}{{s.cfg.SourceColumn, s.cfg.Prefix, s.cfg.MaxLength}, {s.cfg.TargetColumn, "", s.cfg.MaxTargetLength}} {
			words := fields[side].Text
			empty := column.prefix != "" && len(s.tokenizer.AppendIDs(ids[side][:0], words)) == 0
			all := s.tokenizer.AppendIDs(append(ids[side][:0], s.before...), column.prefix+words)
			if empty || len(all) == len(s.before) {
				r.bad = &RowError{f.Path, r.line, fmt.Sprintf("column %q has no text", column.name)}
				return
			}
			if room := column.most - len(s.after[side]); len(all) > room {
				all, r.truncated, r.cutTarget = all[:room], true, side == 1
			}
			ids[side] = append(all, s.after[side]...)
		}
		k.data = tfrecord.AppendRecord(k.data, e.recorder.sides(f.number+r.number, ids[0], ids[1]))
		r.length, r.target, r.content = len(ids[0]), len(ids[1]), e.hash(ids[0])
	}
}

func (s *sides) count(split *Split, _ *chunk, r *row) {
	split.addTokens(r.length, r.truncated)
	split.TargetTokens += int64(r.target)
	if r.cutTarget {
		split.TruncatedTargets++
	}
	split.TargetLengths.add(r.target, split.Records == 1)
}

func (s *sides) finish(split *Split) {
	split.meanLength()
	if split.Records > 0 {
		split.TargetLengths.Mean = float64(split.TargetTokens) / float64(split.Records)
	}
}
