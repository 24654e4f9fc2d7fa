package tokenizers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text/sentencepiece"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
	"github.com/gorbit-ml/gorbit/text/unigram"
)

// family is what models of a kind put around a model of SentencePiece, as Hugging Face's transformers has
// it: none of it is in the file.
type family struct {
	class string   // of transformers
	types []string // model_type; of byte pairs a class has several families by it
	// tokens are the special tokens, by their name in tokenizer_config.json.
	tokens       map[string]string
	single, pair string // templates, of tokens with their types
	// first are the tokens that take the place of the first pieces, as many as dropped, and last come after
	// all pieces.
	first   []unigram.Piece
	dropped int
	last    []string
	// extra is set if last has <extra_id_99> to <extra_id_0>.
	extra bool
	// cases is set if quotes, accents and case are changed before, and digits never have a comma.
	cases bool
	// maskLeft is set if the mask takes the spaces before it.
	maskLeft bool
	// plain is set if the model's table is not used: spaces are joined, and the text is made NFC.
	plain bool
	// pairs says that the model is of byte pairs.
	pairs *pairs
}

var families = []family{
	{
		class: "AlbertTokenizer", types: []string{"albert"}, cases: true,
		tokens: map[string]string{"bos_token": "[CLS]", "eos_token": "[SEP]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "[MASK]"},
		single: "[CLS] $A [SEP]", pair: "[CLS] $A [SEP] $B:1 [SEP]:1",
	},
	{
		class: "XLMRobertaTokenizer", types: []string{"xlm-roberta", "xlm-roberta-xl"},
		tokens: robertaTokens,
		single: "<s> $A </s>", pair: "<s> $A </s> </s> $B </s>",
		first: []unigram.Piece{{Text: "<s>"}, {Text: "<pad>"}, {Text: "</s>"}, {Text: "<unk>"}}, dropped: 3, last: []string{"<mask>"},
	},
	{
		class: "CamembertTokenizer", types: []string{"camembert"}, maskLeft: true,
		tokens: robertaTokens,
		single: "<s> $A </s>", pair: "<s> $A </s> </s> $B </s>",
		first:   []unigram.Piece{{Text: "<s>NOTUSED"}, {Text: "<pad>"}, {Text: "</s>NOTUSED"}, {Text: "<unk>"}, {Text: "<unk>NOTUSED", Score: -100}},
		dropped: 1, last: []string{"<mask>"},
	},
	{
		class: "DebertaV2Tokenizer", types: []string{"deberta-v2"}, plain: true,
		tokens: map[string]string{"bos_token": "[CLS]", "eos_token": "[SEP]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"},
		single: "[CLS] $A [SEP]", pair: "[CLS] $A [SEP] $B:1 [SEP]:1", last: []string{"[MASK]"},
	},
	{
		class: "T5Tokenizer", types: []string{"t5", "mt5", "umt5"}, extra: true,
		tokens: map[string]string{"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
		single: "$A </s>", pair: "$A </s> $B </s>",
	},
	{
		class: "LlamaTokenizer", types: []string{"llama"}, pairs: &pairs{},
		tokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
	},
	{
		class: "LlamaTokenizer", types: []string{"mistral", "mixtral"}, pairs: &pairs{unknown: true, always: true},
		tokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
	},
	{
		class: "GemmaTokenizer", types: []string{"gemma", "gemma2", "gemma3", "gemma3_text"}, pairs: &pairs{unknown: true, noPrefix: true},
		tokens: map[string]string{"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"},
	},
}

var robertaTokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}

// familyOf returns the family that settings name.
func familyOf(s *settings) (*family, error) {
	class := strings.TrimSuffix(s.text("tokenizer_class"), "Fast")
	if class == "MT5Tokenizer" {
		class = "T5Tokenizer"
	}
	var known []string
	for i := range families {
		f := &families[i]
		ofType := slices.Contains(f.types, s.modelType)
		switch {
		case f.pairs != nil && (ofType || s.modelType == "") && (class == f.class || class == ""), f.pairs == nil && (class == f.class || class == "" && ofType):
			return f, nil
		}
		known = append(known, f.types[0])
	}
	what := class
	if what == "" {
		what = "a model_type " + strconv.Quote(s.modelType)
	}
	return nil, fault.Usagef("folder %s has a SentencePiece model and says %s, whose special tokens are not known here; expected %s, or a tokenizer.json, which transformers' save_pretrained writes; the .model file by itself is read as the sentencepiece library does",
		s.folder, what, strings.Join(known, ", "))
}

// HasFamily reports whether models of a model_type have more around a model of SentencePiece than its file
// says. Those of byte pairs have the ids of the file.
func HasFamily(modelType string) bool {
	return slices.ContainsFunc(families, func(f family) bool { return f.pairs == nil && slices.Contains(f.types, modelType) })
}

// object is a part of a tokenizer.json.
type object map[string]any

// convert returns the tokenizer.json of a model of SentencePiece.
func (f *family) convert(m *sentencepiece.Model, s *settings) ([]byte, error) {
	f, err := f.of(m, s)
	if err != nil {
		return nil, err
	}
	pieces, special := f.pieces(m, s)
	ids := make(map[string]int32, len(pieces))
	for id, p := range pieces {
		if _, ok := ids[p.Text]; !ok {
			ids[p.Text] = int32(id)
		}
	}
	for _, token := range slices.Sorted(maps.Values(f.tokens)) {
		if _, ok := ids[token]; !ok {
			return nil, fmt.Errorf("it has no piece %s, as those of %s have", token, f.types[0])
		}
		special[token] = true
	}
	out := tokenizerjson.File{
		Normalizer:   part(f.normalizer(m, s)),
		PreTokenizer: part(object{"type": "Sequence", "pretokenizers": f.preTokenizers(s)}),
		Decoder:      part(f.metaspace(s)),
		Model:        part(object{"type": "Unigram", "unk_id": ids[f.tokens["unk_token"]], "vocab": pieces, "byte_fallback": false}),
	}
	forms := [2]string{f.single, f.pair}
	if f.pairs != nil {
		forms = f.fill(&out, pieces, ids, s)
	}
	single, pair := map[string]object{}, map[string]object{}
	processor := object{"type": "TemplateProcessing", "single": template(forms[0], ids, single), "pair": template(forms[1], ids, pair)}
	processor["special_tokens"] = pair // those of single are among them
	out.PostProcessor = part(processor)
	for token, isSpecial := range special {
		out.AddedTokens = append(out.AddedTokens, tokenizerjson.AddedToken{
			ID: ids[token], Content: token, Special: isSpecial, LStrip: f.maskLeft && token == f.tokens["mask_token"],
		})
	}
	slices.SortFunc(out.AddedTokens, func(a, b tokenizerjson.AddedToken) int { return int(a.ID) - int(b.ID) })
	flags := s.flags()
	for i := range out.AddedTokens {
		t := &out.AddedTokens[i]
		if a, ok := flags[t.Content]; ok {
			t.SingleWord, t.LStrip, t.RStrip, t.Normalized = a.SingleWord, a.LStrip, a.RStrip, a.Normalized
		}
	}
	return out.Bytes()
}

// pieces returns the pieces by id, and those that are found in a text as they are, true for special tokens.
func (f *family) pieces(m *sentencepiece.Model, s *settings) (pieces []unigram.Piece, special map[string]bool) {
	special = map[string]bool{}
	pieces = append(pieces, f.first...)
	for i, p := range m.Pieces() {
		if i < f.dropped {
			continue
		}
		score := float64(p.Score)
		if n := len(p.Text); f.cases && n > 1 && p.Text[n-1] == ',' && p.Text[n-2] >= '0' && p.Text[n-2] <= '9' {
			score -= 100
		}
		pieces = append(pieces, unigram.Piece{Text: p.Text, Score: score})
		if p.Control || p.UserDefined {
			special[p.Text] = p.Control
		}
	}
	for _, token := range f.last {
		if !slices.ContainsFunc(pieces, func(p unigram.Piece) bool { return p.Text == token }) {
			pieces = append(pieces, unigram.Piece{Text: token})
		}
	}
	if f.pairs != nil {
		return later(pieces, special, s), special
	}
	if f.extra {
		for i := s.number("extra_ids", 100) - 1; i >= 0; i-- {
			token := fmt.Sprintf("<extra_id_%d>", i)
			pieces, special[token] = append(pieces, unigram.Piece{Text: token}), true
		}
	}
	return pieces, special
}

// normalizer returns what is done to a text before it is split.
func (f *family) normalizer(m *sentencepiece.Model, s *settings) any {
	var parts []object
	if f.cases {
		for _, quote := range []string{"``", "''"} {
			parts = append(parts, object{"type": "Replace", "pattern": object{"String": quote}, "content": `"`})
		}
		if !s.flag("keep_accents", false) {
			parts = append(parts, object{"type": "NFKD"}, object{"type": "StripAccents"})
		}
		if s.flag("do_lower_case", true) {
			parts = append(parts, object{"type": "Lowercase"})
		}
	}
	if f.plain {
		if s.flag("do_lower_case", false) {
			parts = append(parts, object{"type": "Lowercase"})
		}
		return object{"type": "Sequence", "normalizers": append(parts, object{"type": "Replace", "pattern": object{"Regex": `\s{2,}|[\n\r\t]`}, "content": " "},
			object{"type": "NFC"}, object{"type": "Strip", "strip_left": false, "strip_right": true})}
	}
	if table := m.Table(); len(table) > 0 {
		parts = append(parts, object{"type": "Precompiled", "precompiled_charsmap": table})
	}
	if len(parts) == 0 {
		return nil
	}
	return object{"type": "Sequence", "normalizers": parts}
}

// preTokenizers returns how a text is split before the model.
func (f *family) preTokenizers(s *settings) []object {
	var out []object
	switch {
	case !f.plain:
		out = append(out, object{"type": "WhitespaceSplit"})
	case s.flag("split_by_punct", false):
		out = append(out, object{"type": "Punctuation", "behavior": "Isolated"})
	}
	return append(out, f.metaspace(s))
}

// metaspace returns how words begin.
func (f *family) metaspace(s *settings) object {
	scheme := "always"
	if !f.extra && !s.flag("add_prefix_space", true) {
		if scheme = "never"; f.plain {
			scheme = "first"
		}
	}
	return object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true}
}

// template returns the parts of a template, and adds its special tokens.
func template(s string, ids map[string]int32, specials map[string]object) []object {
	var out []object
	for _, field := range strings.Fields(s) {
		name, typ, _ := strings.Cut(field, ":")
		n, _ := strconv.Atoi(typ)
		if text, ok := strings.CutPrefix(name, "$"); ok {
			out = append(out, object{"Sequence": object{"id": text, "type_id": n}})
			continue
		}
		specials[name] = object{"id": name, "ids": []int32{ids[name]}, "tokens": []string{name}}
		out = append(out, object{"SpecialToken": object{"id": name, "type_id": n}})
	}
	return out
}

// part returns a part of a tokenizer.json.
func part(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings and numbers
	}
	return b.Bytes()
}
