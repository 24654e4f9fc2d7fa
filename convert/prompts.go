package convert

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// prompts is the maker of records of LanguageModel with a pair column: a text and what follows it, of which
// only the second is to be learned.
type prompts struct {
	cfg           *Config
	tokenizer     *text.Tokenizer
	before, after []int32
}

func newPrompts(c *conversion) *prompts {
	p := &prompts{cfg: c.cfg, tokenizer: c.tokenizer}
	p.before, p.after = c.around()
	c.manifest.Columns = Columns{Text: c.cfg.TextColumn, Pair: c.cfg.PairColumn}
	return p
}

func (p *prompts) chunkRows() int { return chunkRows }

func (p *prompts) columns(Input) []table.Column {
	return []table.Column{
		{Name: p.cfg.TextColumn, Words: true, Flag: "--text-column"},
		{Name: p.cfg.PairColumn, Words: true, Flag: "--pair-column"},
	}
}

func (p *prompts) worker(f *inputFile) func(*chunk, *row, []table.Field) {
	var e encoder
	var ids []int32
	var learned []byte
	return func(k *chunk, r *row, fields []table.Field) {
		fail := func(format string, args ...any) { r.bad = &RowError{f.Path, r.line, fmt.Sprintf(format, args...)} }
		ids = p.tokenizer.AppendIDs(append(ids[:0], p.before...), fields[0].Text)
		prompt := len(ids)
		if prompt == len(p.before) {
			fail("column %q has no text", p.cfg.TextColumn)
			return
		}
		if ids = p.tokenizer.AppendIDs(ids, fields[1].Text); len(ids) == prompt {
			fail("column %q has no text", p.cfg.PairColumn)
			return
		}
		ids = append(ids, p.after...)
		if r.truncated = len(ids) > p.cfg.MaxLength; r.truncated {
			ids = ids[:p.cfg.MaxLength]
		}
		if prompt >= len(ids) {
			fail("column %q takes %d tokens, which leaves no place for column %q; expected fewer than the maximum length, %d (--max-length)", p.cfg.TextColumn, prompt, p.cfg.PairColumn, p.cfg.MaxLength)
			return
		}
		learned = learned[:0]
		for i := range ids {
			var one byte
			if i >= prompt {
				one = 1
			}
			learned = append(learned, one)
		}
		k.data = tfrecord.AppendRecord(k.data, e.recorder.example(f.number+r.number, ids, 0, answer{form: weighted, starts: learned}))
		r.length, r.content = len(ids), e.hash(ids)
	}
}

func (p *prompts) count(s *Split, _ *chunk, r *row) { s.addTokens(r.length, r.truncated) }

func (p *prompts) finish(s *Split) { s.meanLength() }
