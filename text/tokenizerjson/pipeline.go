package tokenizerjson

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/bpe"
)

// pipeline is the text.Algorithm of a tokenizer.json.
type pipeline struct {
	vocab      *text.Vocab
	names      []string // of the tokens in decoded text
	special    []bool
	raw        *added // tokens that are not normalized
	normalized *added
	normalizer normalizer
	plain      *plain // what the normalizer leaves as it is, nil if that is not known
	split      preTokenizers
	direct     direct // gives the words of split faster where spans are not asked for, or nil
	exact      bool   // spans are needed to know where a text begins
	model      text.Model
	quick      text.Model // gives the ids of words that direct gives: model, or the same for bytes
	lacking    *[256]bool // bytes that quick has no token for; nil if there are none
	trims      []bool
	decoder    decoder
	bert       *text.Tokenizer // gives the same ids faster; nil if there is none

	mu   sync.Mutex
	free []*worker
}

// worker is what a goroutine needs to split texts.
type worker struct {
	splitter      text.Splitter
	quick         text.Splitter // of pipeline.quick
	chunks, other []chunk
	pieces        []text.Piece
	buf           []byte
	memos         []memo // of found.stages
}

func (p *pipeline) worker() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		w := p.free[n-1]
		p.free = p.free[:n-1]
		return w
	}
	w := &worker{splitter: p.model.NewSplitter()}
	if w.quick = w.splitter; p.quick != p.model {
		w.quick = p.quick.NewSplitter()
	}
	return w
}

func (p *pipeline) release(w *worker) {
	clear(w.chunks)
	clear(w.other)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, w)
}

// setSplit reads how texts become words.
func (p *pipeline) setSplit(f *File) error {
	var err error
	if p.normalizer, err = normalizerOf(f.Normalizer); err != nil {
		return err
	}
	if plain, ok := plainOf(p.normalizer); ok {
		p.plain = &plain
	}
	if err := p.split.read(f.PreTokenizer); err != nil {
		return err
	}
	if m, ok := p.split.direct().(*metaspace); ok {
		p.direct = m
	}
	return nil
}

// words divides a text into words and added tokens. Without track, texts are not divided into words if there
// is a direct way: its each does that.
func (p *pipeline) words(w *worker, s string, track bool) []chunk {
	if s == "" {
		return nil
	}
	now := p.raw.split(w.chunks[:0], whole(s, track || p.exact))
	next := w.other[:0]
	step := func(do func(dst []chunk, c chunk) []chunk) {
		next = next[:0]
		for _, c := range now {
			if c.id >= 0 {
				next = append(next, c)
				continue
			}
			from := len(next)
			next = do(next, c)
			kept := next[:from]
			for _, part := range next[from:] {
				if part.s != "" {
					kept = append(kept, part)
				}
			}
			next = kept
		}
		now, next = next, now
	}
	step(func(dst []chunk, c chunk) []chunk {
		if p.normalizer != nil && !p.plain.leave(c.s) {
			p.normalizer.apply(&c)
		}
		return p.normalized.split(dst, c)
	})
	for _, one := range p.split {
		if track || p.direct == nil {
			step(one.split)
		}
	}
	w.chunks, w.other = now, next
	return now
}

// AppendFirst implements text.Algorithm.
func (p *pipeline) AppendFirst(dst []int32, s string, most int) (ids []int32, more int) {
	if p.bert != nil {
		return p.bert.AppendFirst(dst, s, most)
	}
	w := p.worker()
	defer p.release(w)
	begin := len(dst)
	for _, c := range p.words(w, s, false) {
		switch {
		case c.id >= 0:
			dst = append(dst, c.id)
		case p.direct != nil && p.lacks(c.s):
			for _, part := range p.slow(c) {
				dst = w.splitter.AppendIDs(dst, part.s)
			}
		case p.direct != nil:
			p.direct.each(w, c.s, func(word string) { dst = w.quick.AppendIDs(dst, word) })
		default:
			dst = w.splitter.AppendIDs(dst, c.s)
		}
		if n := len(dst) - begin - most; n > 0 {
			dst, more = dst[:begin+most], more+n
		}
	}
	return dst, more
}

// AppendTokens implements text.Algorithm.
func (p *pipeline) AppendTokens(dst []text.Token, s string, most int) (tokens []text.Token, more int) {
	w := p.worker()
	defer p.release(w)
	begin := len(dst)
	for _, c := range p.words(w, s, true) {
		from := len(dst)
		if c.id >= 0 {
			dst = append(dst, text.Token{ID: c.id, Span: c.span(0, len(c.s))})
			p.trim(s, dst[from:], from == begin, func(int) string { return c.s })
		} else {
			w.pieces = w.splitter.Append(w.pieces[:0], c.s)
			at := 0
			for _, piece := range w.pieces {
				if piece.Len < 0 {
					at, piece.Len = at+int(piece.Len), -piece.Len
				}
				dst = append(dst, text.Token{ID: piece.ID, Span: c.span(at, at+int(piece.Len))})
				at += int(piece.Len)
			}
			p.trim(s, dst[from:], from == begin, func(i int) string { return p.vocab.Token(w.pieces[i].ID) })
		}
		if n := len(dst) - begin - most; n > 0 {
			dst, more = dst[:begin+most], more+n
		}
	}
	return dst, more
}

// trim takes white space off the spans of tokens.
func (p *pipeline) trim(s string, tokens []text.Token, first bool, name func(i int) string) {
	for _, prefix := range p.trims {
		for i := range tokens {
			blank := func(r rune) bool { return r == bpe.Space || chars.Is(r, chars.Space) }
			n := name(i)
			leading := utf8.RuneCountInString(n) - utf8.RuneCountInString(strings.TrimLeftFunc(n, blank))
			trailing := utf8.RuneCountInString(n) - utf8.RuneCountInString(strings.TrimRightFunc(n, blank))
			trim(s, &tokens[i], first && i == 0, prefix, leading, trailing)
		}
	}
}

// advance returns the byte that is n characters after byte i.
func advance(s string, i, n int) int {
	for ; n > 0 && i < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return i
}

// retreat returns the byte that is n characters before byte i, or i if there are not so many.
func retreat(s string, i, n int) int {
	at := i
	for range n {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		if size == 0 {
			return i
		}
		at -= size
	}
	return at
}

// AppendWord implements text.Algorithm. Where the file puts no space before a text, one is put before the
// word.
func (p *pipeline) AppendWord(dst []int32, word string) []int32 {
	for _, one := range p.split {
		switch s := one.(type) {
		case *byteLevel:
			word = " " + strings.TrimPrefix(word, " ")
		case *metaspace:
			if s.scheme == "never" {
				word = " " + word
			}
		}
	}
	dst, _ = p.AppendFirst(dst, word, math.MaxInt)
	return dst
}

// Continues implements text.Algorithm.
func (p *pipeline) Continues(token string) bool {
	switch {
	case slices.ContainsFunc(p.split, func(one preTokenizer) bool { _, is := one.(*byteLevel); return is }):
		return !strings.HasPrefix(token, string(bpe.Space))
	case p.meta() != "":
		return !strings.HasPrefix(token, p.meta())
	}
	return strings.HasPrefix(token, text.Continuation)
}

// meta returns the character that Metaspace has in place of spaces, or "".
func (p *pipeline) meta() string {
	for _, s := range p.split {
		if m, ok := s.(*metaspace); ok {
			return m.replacement
		}
	}
	return ""
}

// Decode implements text.Algorithm.
func (p *pipeline) Decode(ids []int32, specials bool) string {
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		if id < 0 || int(id) >= len(p.names) || p.names[id] == "" || p.special[id] && !specials {
			continue
		}
		tokens = append(tokens, p.names[id])
	}
	if p.decoder == nil {
		return strings.Join(tokens, " ")
	}
	return strings.Join(p.decoder(tokens), "")
}

// Tokenizer returns the tokenizer of the file.
func (f *File) Tokenizer() (*text.Tokenizer, error) {
	p := &pipeline{}
	if err := p.setSplit(f); err != nil {
		return nil, err
	}
	name, err := typeOf(f.Model, "model")
	if err != nil {
		return nil, err
	}
	read := models[name]
	if read == nil {
		return nil, unknown("model", name)
	}
	bytes := false
	if n := len(p.split); n > 0 {
		_, bytes = p.split[n-1].(*byteLevel)
	}
	if p.model, err = read(f.Model, bytes); err != nil {
		return nil, err
	}
	p.quick = p.model
	if err := p.setQuick(); err != nil {
		return nil, err
	}
	if p.decoder, err = decoderOf(f.Decoder); err != nil {
		return nil, err
	}
	for _, s := range p.split {
		if m, ok := s.(*metaspace); ok && m.scheme == "first" {
			p.exact = true
		}
	}
	if err := p.add(f.AddedTokens); err != nil {
		return nil, err
	}
	var post processor
	if err := post.read(f.PostProcessor, p.vocab); err != nil {
		return nil, err
	}
	if !post.framed {
		post.template.Pair.TypeB = 1
	}
	p.trims, p.bert = post.trims, p.bertOf(f)
	return text.New(text.Parts{Algorithm: p, Vocab: p.vocab, Template: post.template, Roles: p.roles(f, post.template), ByWords: p.bert != nil}), nil
}

// add puts the added tokens into the vocabulary.
func (p *pipeline) add(tokens []AddedToken) error {
	names := append([]string(nil), p.model.Tokens()...)
	ids := make(map[string]int32, len(names))
	for id, name := range names {
		if name != "" {
			ids[name] = int32(id)
		}
	}
	shown := map[int32]string{}
	var raw, normalized []AddedToken
	var rawTexts, normalizedTexts []string
	var special []int32
	for _, t := range tokens {
		if t.Content == "" {
			return errors.New("an added token is empty")
		}
		if id, ok := ids[t.Content]; ok && id != t.ID {
			return fmt.Errorf("added token %q has the id %d; in the vocabulary it has %d", t.Content, t.ID, id)
		}
		if most := text.MaxID(len(ids) + len(tokens)); t.ID < 0 || t.ID > most {
			return fmt.Errorf("added token %q has the id %d; expected one from 0 to %d", t.Content, t.ID, most)
		}
		for int(t.ID) >= len(names) {
			names = append(names, "")
		}
		if had := names[t.ID]; had != "" && had != t.Content {
			return fmt.Errorf("added token %q has the id %d, which %q has", t.Content, t.ID, had)
		}
		names[t.ID], ids[t.Content] = t.Content, t.ID
		if t.Special {
			special = append(special, t.ID)
		}
		if !t.Normalized {
			raw, rawTexts = append(raw, t), append(rawTexts, t.Content)
			continue
		}
		c := whole(t.Content, false)
		if p.normalizer != nil {
			p.normalizer.apply(&c)
		}
		normalized, normalizedTexts = append(normalized, t), append(normalizedTexts, c.s)
		shown[t.ID] = c.s
	}
	p.vocab = text.NewVocab(names)
	p.names = append([]string(nil), names...)
	for id, s := range shown {
		p.names[id] = s
	}
	p.special = make([]bool, len(names))
	for _, id := range special {
		p.special[id] = true
	}
	p.raw, p.normalized = newAdded(raw, rawTexts), newAdded(normalized, normalizedTexts)
	return nil
}

// roles finds out which token has which role: from the template, and by the names that models use.
func (p *pipeline) roles(f *File, t text.Template) text.Roles {
	r := text.NoRoles()
	named := func(names ...string) int32 {
		for _, name := range names {
			if id, ok := p.vocab.ID(name); ok {
				return id
			}
		}
		return -1
	}
	r.Pad = named("[PAD]", "<pad>", "<|padding|>", "<|pad|>")
	r.Unk = p.model.Unk()
	if r.Unk < 0 {
		r.Unk = named("[UNK]", "<unk>")
	}
	r.Cls = named("[CLS]", "<s>", "<cls>")
	r.Sep = named("[SEP]", "</s>", "<sep>", "<|endoftext|>")
	r.Mask = named("[MASK]", "<mask>", "<|mask|>")
	if b := t.Single.Before; len(b) > 0 {
		r.Cls = b[0].ID
	}
	if a := t.Single.After; len(a) > 0 {
		r.Sep = a[len(a)-1].ID
	}
	return r
}
