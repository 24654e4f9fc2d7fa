package convert

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/chat"
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

// chats is the maker of records of LanguageModel with a column of conversations, of which only what the
// assistant says is to be learned.
type chats struct {
	cfg       *Config
	tokenizer *text.Tokenizer
	template  *chat.Template
}

func newChats(c *conversion) (*chats, error) {
	switch {
	case c.vocab.ChatErr != nil:
		return nil, fmt.Errorf("convert: %w", c.vocab.ChatErr)
	case c.vocab.Chat == nil:
		return nil, fault.Usagef("convert: conversations are given, and the tokenizer %s has no chat template; expected a folder with a chat_template.jinja or a tokenizer_config.json that has one, or a GGUF (--tokenizer)", c.cfg.Vocab)
	}
	template, err := chat.New(*c.vocab.Chat)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	c.manifest.Columns = Columns{Chat: c.cfg.ChatColumn}
	return &chats{c.cfg, c.tokenizer, template}, nil
}

func (c *chats) chunkRows() int { return chunkRows }

func (c *chats) columns(Input) []table.Column {
	return []table.Column{{Name: c.cfg.ChatColumn, Lists: true, Flag: "--chat-column"}}
}

func (c *chats) worker(f *inputFile) func(*chunk, *row, []table.Field) {
	var e encoder
	return func(k *chunk, r *row, fields []table.Field) {
		ids, learned, cut, err := c.encode(fields[0].Text)
		if err != nil {
			r.bad = &RowError{f.Path, r.line, fmt.Sprintf("column %q: %v", c.cfg.ChatColumn, err)}
			return
		}
		k.data = tfrecord.AppendRecord(k.data, e.recorder.example(f.number+r.number, ids, 0, answer{form: weighted, starts: learned}))
		r.length, r.content, r.truncated = len(ids), e.hash(ids), cut
	}
}

func (c *chats) count(s *Split, _ *chunk, r *row) { s.addTokens(r.length, r.truncated) }

func (c *chats) finish(s *Split) { s.meanLength() }

// encode returns the tokens of a conversation, which of them are learned, and whether its end is cut.
func (c *chats) encode(conversation string) (ids []int32, learned []byte, cut bool, err error) {
	messages, err := chat.Parse([]byte(conversation))
	if err != nil {
		return nil, nil, false, err
	}
	rendered, answers, err := c.template.Answers(messages)
	if err != nil {
		return nil, nil, false, err
	}
	if len(answers) == 0 {
		return nil, nil, false, fmt.Errorf("has no message of the %s, which is learned", chat.Assistant)
	}
	tokens, more := c.tokenizer.AppendTokens(nil, rendered, c.cfg.MaxLength)
	any, at := false, 0
	for _, t := range tokens {
		for at < len(answers) && answers[at].To <= t.Start {
			at++
		}
		var one byte
		if at < len(answers) && t.End > answers[at].From && t.End > t.Start {
			one = 1
		}
		any = any || one == 1 && len(ids) > 0
		ids, learned = append(ids, t.ID), append(learned, one)
	}
	if !any {
		return nil, nil, false, fmt.Errorf("has no token of an answer among the first %d, the maximum length; expected fewer before it (--max-length)", c.cfg.MaxLength)
	}
	return ids, learned, more > 0, nil
}
