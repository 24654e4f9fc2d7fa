package tokenizerjson

import (
	"encoding/json"
	"slices"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/bpe"
	"github.com/gorbit-ml/gorbit/text/unigram"
	"github.com/gorbit-ml/gorbit/text/wordpiece"
)

// models has for the type of each model in a tokenizer.json what reads it. bytes says that the
// pre-tokenizer ByteLevel is the last, so that a model may take the bytes of words.
var models = map[string]func(raw json.RawMessage, bytes bool) (text.Model, error){
	"BPE":       func(raw json.RawMessage, bytes bool) (text.Model, error) { return bpe.Read(raw, bytes) },
	"Unigram":   func(raw json.RawMessage, _ bool) (text.Model, error) { return unigram.Read(raw) },
	"WordPiece": func(raw json.RawMessage, _ bool) (text.Model, error) { return wordpiece.Read(raw) },
}

// bertOf returns a tokenizer that gives the same ids faster, if the file is that of a BERT model.
func (p *pipeline) bertOf(f *File) *text.Tokenizer {
	m, ok := p.model.(*wordpiece.Model)
	normalizer, errN := typeOf(f.Normalizer, "")
	split, errS := typeOf(f.PreTokenizer, "")
	if !ok || errN != nil || errS != nil || normalizer != "BertNormalizer" || split != "BertPreTokenizer" {
		return nil
	}
	c := m.Config()
	if c.Unk != text.Unk || c.Continuation != text.Continuation || c.MaxChars < 1 {
		return nil
	}
	specials := []string{text.Pad, text.Unk, text.Cls, text.Sep, text.Mask}
	found := 0
	for _, t := range f.AddedTokens {
		if t != (AddedToken{ID: t.ID, Content: t.Content, Special: true}) || !slices.Contains(specials, t.Content) {
			return nil
		}
		found++
	}
	for _, s := range specials {
		if _, ok := p.vocab.ID(s); ok {
			found--
		}
	}
	n := bertOptions()
	if found != 0 || options(f.Normalizer, &n) != nil {
		return nil
	}
	cfg := text.Config{Lowercase: n.Lowercase, Accents: text.KeepAccents, Unclean: !n.Clean, JoinIdeographs: !n.Ideographs, MaxWordChars: c.MaxChars}
	if n.strips() {
		cfg.Accents = text.StripAccents
	}
	t, err := text.NewTokenizer(p.vocab, cfg)
	if err != nil {
		return nil
	}
	return t
}
