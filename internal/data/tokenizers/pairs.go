package tokenizers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/text/sentencepiece"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
	"github.com/gorbit-ml/gorbit/text/unigram"
)

// pairs is what a family of byte pairs does to texts.
type pairs struct {
	noPrefix bool // no space is put before a text
	always   bool // a space is put before a text that begins with one, too, and after a special token
	unknown  bool // what has no bytes is unk_token, and not left out
}

// of returns the family with the special tokens that settings name, for byte pairs, whose settings get those that
// they do not name. It refuses a model that is not of the family's type.
func (f *family) of(m *sentencepiece.Model, s *settings) (*family, error) {
	switch {
	case f.pairs == nil && !m.IsUnigram():
		return nil, fmt.Errorf("it is not of the type unigram without pieces for bytes, as those of %s are", f.types[0])
	case f.pairs == nil:
		return f, nil
	case !m.IsBPE():
		return nil, fmt.Errorf("it is not of the type bpe, as those of %s are", f.types[0])
	case len(m.Table()) > 0:
		return nil, fmt.Errorf("it has a table of normalization, which those of %s have not; expected one that was trained with normalization_rule_name=identity", f.types[0])
	}
	if _, ok := s.values["add_bos_token"].(bool); !ok {
		return nil, fmt.Errorf("%s does not say whether texts begin with %s, and releases of transformers differ in it; expected add_bos_token there, true as a rule", configFile, f.tokens["bos_token"])
	}
	out := *f
	out.tokens = maps.Clone(f.tokens)
	for name, token := range f.tokens {
		switch v, given := s.values[name]; {
		case !given:
			s.values[name] = token
		case v == nil && name == "pad_token":
			delete(out.tokens, name)
		case v == nil:
			return nil, fmt.Errorf("%s has no %s; expected one, such as %s", configFile, name, token)
		default:
			a, _ := addedOf(v) // check returns the error
			out.tokens[name] = a.Content
		}
	}
	return &out, nil
}

// fill sets the parts of a tokenizer of byte pairs, and returns the templates of a text and of two.
func (f *family) fill(out *tokenizerjson.File, pieces []unigram.Piece, ids map[string]int32, s *settings) [2]string {
	spaces := object{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "}
	decoders := []object{spaces, {"type": "ByteFallback"}, {"type": "Fuse"}}
	model := object{"type": "BPE", "vocab": ids, "merges": merges(pieces, ids), "fuse_unk": true, "byte_fallback": true}
	marks := object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"}
	strip := object{"type": "Strip", "content": " ", "start": 1, "stop": 0}
	out.Normalizer, out.PreTokenizer = nil, nil
	switch {
	case f.pairs.noPrefix:
		out.Normalizer = part(marks)
	case f.pairs.always:
		out.Normalizer = part(object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": "▁"}, marks}})
		decoders = append(decoders, strip)
	default:
		scheme := "never"
		if s.flag("add_prefix_space", true) {
			if scheme = "first"; s.flag("legacy", false) {
				scheme = "always"
			}
			decoders = append(decoders, strip)
		}
		out.PreTokenizer = part(object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false})
	}
	if f.pairs.unknown {
		model["unk_token"] = f.tokens["unk_token"]
	}
	out.Decoder = part(object{"type": "Sequence", "decoders": decoders})
	out.Model = part(model)
	around := func(text, number string) string {
		parts := []string{text + number}
		if s.flag("add_bos_token", false) {
			parts = slices.Insert(parts, 0, f.tokens["bos_token"]+number)
		}
		if s.flag("add_eos_token", false) {
			parts = append(parts, f.tokens["eos_token"]+number)
		}
		return strings.Join(parts, " ")
	}
	return [2]string{around("$A", ""), around("$A", "") + " " + around("$B", ":1")}
}

// later appends the tokens that the settings have after the pieces, with the ids that follow, and adds which of
// them are special.
func later(pieces []unigram.Piece, special map[string]bool, s *settings) []unigram.Piece {
	named, ids := map[string]bool{}, map[int]added{}
	_ = s.tokens(func(key string, a added, id int) error { // check returns the error
		if id < 0 {
			named[a.Content] = true
		} else if _, ok := ids[id]; !ok || a.flags {
			ids[id] = a
		}
		return nil
	})
	for a, ok := ids[len(pieces)]; ok; a, ok = ids[len(pieces)] {
		special[a.Content] = a.Special || named[a.Content]
		pieces = append(pieces, unigram.Piece{Text: a.Content})
	}
	return pieces
}

// merges returns the pairs of pieces that make a piece, in the order in which they are joined: that of the
// pieces that they make, and of those for the same one the pair with the shorter first half.
func merges(pieces []unigram.Piece, ids map[string]int32) (out [][2]string) {
	for _, p := range pieces {
		for i := range p.Text {
			_, left := ids[p.Text[:i]]
			if _, right := ids[p.Text[i:]]; left && right {
				out = append(out, [2]string{p.Text[:i], p.Text[i:]})
			}
		}
	}
	return out
}
