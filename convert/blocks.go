package convert

import (
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// blocks is the maker of records for MaskedLM. The documents of a split, each ending with [SEP], are
// joined and cut into blocks of the maximum length, each after a [CLS] and before a [SEP]; only the
// last block of a split may be shorter. A block that would end with the [SEP] of a document has one.
type blocks struct {
	cfg       *Config
	tokenizer *text.Tokenizer
	cls, sep  int32
	continues []bool // whether an id continues a word
	left      map[string]*remainder
}

// remainder is what no block of a split has yet.
type remainder struct {
	empty int64 // documents without tokens
	ids   []int32
	count int64 // blocks written
	rec   recorder
	frame []byte
	block []int32
	start []byte
}

// newBlocks returns the maker of records for MaskedLM, and describes it in the manifest.
func newBlocks(c *conversion) (*blocks, error) {
	v := c.tokenizer.Vocab()
	b := &blocks{cfg: c.cfg, tokenizer: c.tokenizer, left: map[string]*remainder{}, continues: make([]bool, v.Size())}
	b.cls, b.sep = c.tokenizer.Roles().Cls, c.tokenizer.Roles().Sep
	for id := range b.continues {
		b.continues[id] = c.tokenizer.Continues(int32(id))
	}
	c.manifest.Columns = Columns{Text: b.column()}
	c.manifest.WordStarts = c.cfg.WordStarts
	return b, nil
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
	}
}

// count is not called, because rows are no records.
func (b *blocks) count(*Split, *chunk, *row) {}

func (b *blocks) finish(s *Split) { s.meanLength() }

// join adds a document to what is left, and writes the blocks that are full. A document of which the
// tokenizer leaves nothing is passed over.
func (b *blocks) join(w *splitWriter, _ *chunk, r *row) error {
	m := b.of(w)
	if len(r.answer.labels) == 0 {
		m.empty++
		return nil
	}
	m.ids = append(append(m.ids, r.answer.labels...), b.sep)
	size, at := b.cfg.MaxLength-2, 0
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
	if len(m.ids) <= 1 { // at most a [SEP]
		return nil
	}
	return b.write(w, m, m.ids)
}

func (b *blocks) of(w *splitWriter) *remainder {
	if b.left[w.name] == nil {
		b.left[w.name] = new(remainder)
	}
	return b.left[w.name]
}

func (b *blocks) write(w *splitWriter, m *remainder, ids []int32) error {
	if ids[len(ids)-1] == b.sep {
		ids = ids[:len(ids)-1]
	}
	m.block = append(append(append(m.block[:0], b.cls), ids...), b.sep)
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
