package convert

import (
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Documents says which texts make a document, for MaskedLM and LanguageModel.
type Documents string

// What is a document.
const (
	EachText   Documents = ""            // each text by itself
	BlankLines Documents = "blank-lines" // the texts up to an empty one, or to the end of the file
	// Headings begins a document at each heading of WikiText's first level, a text of the form
	// = Title =, and at the beginning of a file.
	Headings Documents = "headings"
)

// Blocks says how documents are cut into blocks, for MaskedLM and LanguageModel.
type Blocks string

// How blocks are cut. The tokens before and after a text are [CLS] and [SEP], or those of the
// tokenizer, of which there may be none. Blocks of LanguageModel have no tokens of their own: each document begins
// and ends as a text of the tokenizer does, or ends with its end-of-text token if it has one and a text
// does not end with another.
const (
	// JoinDocuments joins the documents, with a [SEP] after each, and cuts them into blocks, each after
	// a [CLS] and before a [SEP]. A block that would end with the [SEP] of a document has one.
	JoinDocuments Blocks = ""
	// KeepDocuments cuts each document by itself, so that no block has two.
	KeepDocuments Blocks = "keep"
	// GroupDocuments joins the documents, each with its own [CLS] and [SEP], and cuts them anywhere, as
	// group_texts of Hugging Face's run_mlm does.
	GroupDocuments Blocks = "group"
)

// blocks is the maker of records for MaskedLM and LanguageModel: blocks of at most the maximum length.
// Only the last one of a split, or with KeepDocuments of a document, may be shorter.
type blocks struct {
	cfg       *Config
	tokenizer *text.Tokenizer
	// opens and closes are the tokens before and after a text, such as [CLS] and [SEP]. before and after are
	// those of a document, and framed says that each block has opens and closes.
	opens, closes []int32
	before, after []int32
	framed        bool
	least         int    // tokens of a block
	continues     []bool // whether an id continues a word
	left          map[string]*remainder
}

// remainder is what no block of a split has yet.
type remainder struct {
	empty int64 // texts without tokens, but for those between documents
	ids   []int32
	open  bool  // whether the last of ids are of a document that has not ended
	line  int64 // of the last text, and its number in its file
	text  int64
	count int64 // blocks written
	rec   recorder
	frame []byte
	block []int32
	start []byte
}

// specialIDs returns the ids of special tokens.
func specialIDs(specials []text.Special) (ids []int32) {
	for _, s := range specials {
		ids = append(ids, s.ID)
	}
	return ids
}

// newBlocks returns the maker of records for texts without answers, and describes it in the manifest.
func newBlocks(c *conversion) (*blocks, error) {
	v := c.tokenizer.Vocab()
	b := &blocks{cfg: c.cfg, tokenizer: c.tokenizer, left: map[string]*remainder{}, continues: make([]bool, v.Size())}
	frame := c.tokenizer.Template().Single
	b.opens, b.closes = specialIDs(frame.Before), specialIDs(frame.After)
	b.least = 1
	switch {
	case c.cfg.task().kind == LanguageModel:
		b.before, b.after = c.around()
		b.least = 2 // one that follows another
	case c.cfg.Blocks == GroupDocuments:
		b.before, b.after = b.opens, b.closes
	case c.cfg.Blocks == KeepDocuments:
		b.framed = true
	default:
		b.framed, b.after = true, b.closes
	}
	for id := range b.continues {
		b.continues[id] = c.tokenizer.Continues(int32(id))
	}
	c.manifest.Columns = Columns{Text: b.column()}
	c.manifest.WordStarts = c.cfg.WordStarts
	c.manifest.Documents, c.manifest.Blocks = c.cfg.Documents, c.cfg.Blocks
	return b, nil
}

// around returns the tokens before and after a document of LanguageModel, and says what they are.
func (c *conversion) around() (before, after []int32) {
	single, end := c.tokenizer.Template().Single, c.tokenizer.Roles().Sep
	before, after = specialIDs(single.Before), specialIDs(single.After)
	if len(after) == 0 && end >= 0 {
		after = []int32{end}
	}
	names := func(ids []int32) (out []string) {
		for _, id := range ids {
			out = append(out, c.tokenizer.Vocab().Token(id))
		}
		return out
	}
	c.log.Info("documents", "begin with", names(before), "end with", names(after))
	if len(after) == 0 {
		c.log.Warn("the tokenizer has no token that ends a text, so the model does not learn where texts end", "tokenizer", c.vocab.Path)
	}
	return before, after
}

func (b *blocks) column() string {
	if b.cfg.TextColumn == "" {
		return table.TextField
	}
	return b.cfg.TextColumn
}

func (b *blocks) chunkRows() int { return chunkRows }

func (b *blocks) columns(Input) []table.Column {
	return []table.Column{{Name: b.column(), Words: true, Flag: b.cfg.flagOf("--text-column")}}
}

func (b *blocks) worker(*inputFile) func(*chunk, *row, []table.Field) {
	return func(k *chunk, r *row, fields []table.Field) {
		start := len(k.ids)
		k.ids = b.tokenizer.AppendIDs(k.ids, fields[0].Text)
		r.answer.labels = k.ids[start:len(k.ids):len(k.ids)]
		switch b.cfg.Documents {
		case BlankLines:
			r.parts = strings.TrimSpace(fields[0].Text) == ""
		case Headings:
			r.parts = isHeading(fields[0].Text)
		}
	}
}

// isHeading reports whether a text is a heading of WikiText's first level. Those of the second are
// = = Title = =.
func isHeading(text string) bool {
	title, begins := strings.CutPrefix(strings.TrimSpace(text), "= ")
	title, ends := strings.CutSuffix(title, " =")
	return begins && ends && title != "" && !strings.HasPrefix(title, "=") && !strings.HasSuffix(title, "=")
}

// count is not called, because rows are no records.
func (b *blocks) count(*Split, *chunk, *row) {}

func (b *blocks) finish(s *Split) { s.meanLength() }

// join adds a text to what is left, and writes the blocks that are full. A text of which the tokenizer
// leaves nothing is passed over.
func (b *blocks) join(w *splitWriter, _ *chunk, r *row) error {
	m := b.of(w)
	if b.begins(m, r) {
		if err := b.endDocument(w, m); err != nil {
			return err
		}
	}
	m.line, m.text = r.line, r.number
	if len(r.answer.labels) == 0 {
		if !r.parts {
			m.empty++
		}
		return nil
	}
	if !m.open {
		m.ids = append(m.ids, b.before...)
	}
	m.ids, m.open = append(m.ids, r.answer.labels...), true
	return b.cut(w, m)
}

// begins reports whether a document begins with a text: at the beginning of a file, and after a text
// that was passed over, too. Of files with a text per line, empty ones are no rows: lines have a gap.
func (b *blocks) begins(m *remainder, r *row) bool {
	switch next := r.number == m.text+1; b.cfg.Documents {
	case BlankLines:
		return !next || r.parts || b.cfg.TextColumn == "" && r.line != m.line+1
	case Headings:
		return !next || r.parts
	}
	return true
}

// endDocument puts what ends a document after it, if there is one.
func (b *blocks) endDocument(w *splitWriter, m *remainder) error {
	if !m.open {
		return nil
	}
	m.open, m.ids = false, append(m.ids, b.after...)
	if err := b.cut(w, m); err != nil || b.cfg.Blocks != KeepDocuments {
		return err
	}
	ids := m.ids
	m.ids = m.ids[:0]
	return b.write(w, m, ids)
}

// cut writes the blocks that are full. At least one token is left, so that what ends with it can be told.
func (b *blocks) cut(w *splitWriter, m *remainder) error {
	size, at := b.cfg.MaxLength, 0
	if b.framed {
		size -= len(b.opens) + len(b.closes)
	}
	for ; len(m.ids)-at > size; at += size {
		if err := b.write(w, m, m.ids[at:at+size]); err != nil {
			return err
		}
	}
	m.ids = append(m.ids[:0], m.ids[at:]...)
	return nil
}

// end writes the last block.
func (b *blocks) end(w *splitWriter) error {
	m := b.of(w)
	if err := b.endDocument(w, m); err != nil {
		return err
	}
	if len(m.ids) == 0 || slices.Equal(m.ids, b.closes) {
		return nil
	}
	return b.write(w, m, m.ids)
}

func (b *blocks) of(w *splitWriter) *remainder {
	if b.left[w.name] == nil {
		b.left[w.name] = &remainder{text: -1}
	}
	return b.left[w.name]
}

func (b *blocks) write(w *splitWriter, m *remainder, ids []int32) error {
	if len(ids) < b.least {
		return nil
	}
	if !b.framed {
		m.block = append(m.block[:0], ids...)
	} else {
		if n := len(ids) - len(b.closes); n >= 0 && slices.Equal(ids[n:], b.closes) {
			ids = ids[:n]
		}
		m.block = append(append(append(m.block[:0], b.opens...), ids...), b.closes...)
	}
	var a answer
	if b.cfg.WordStarts {
		m.start = m.start[:0]
		for _, id := range m.block {
			first := byte(1)
			if b.continues[id] {
				first = 0
			}
			m.start = append(m.start, first)
		}
		a = answer{form: started, starts: m.start}
	}
	m.frame = tfrecord.AppendRecord(m.frame[:0], m.rec.example(m.count, m.block, 0, a))
	m.count++
	w.info.Records++
	w.info.addTokens(len(m.block), false)
	return w.add(m.frame)
}
