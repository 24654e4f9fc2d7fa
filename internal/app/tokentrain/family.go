package tokentrain

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/gorbit-ml/gorbit/text/learn"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
	"github.com/gorbit-ml/gorbit/text/unigram"
)

// template is the special tokens of a family of models: by id, and where they go.
type template struct {
	name     string
	specials []string
	unknown  string
	mask     string // it takes the space before it
	single   []any
	pair     []any
}

// templates are the templates that can be chosen.
var templates = []template{
	{
		name: "bert", specials: []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}, unknown: "[UNK]",
		single: []any{token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0)},
		pair:   []any{token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0), sequence("B", 1), token("[SEP]", 1)},
	},
	{
		name: "roberta", specials: []string{"<s>", "<pad>", "</s>", "<unk>", "<mask>"}, unknown: "<unk>", mask: "<mask>",
		single: []any{token("<s>", 0), sequence("A", 0), token("</s>", 0)},
		pair:   []any{token("<s>", 0), sequence("A", 0), token("</s>", 0), token("</s>", 0), sequence("B", 0), token("</s>", 0)},
	},
	{
		name: "t5", specials: []string{"<pad>", "</s>", "<unk>"}, unknown: "<unk>",
		single: []any{sequence("A", 0), token("</s>", 0)},
		pair:   []any{sequence("A", 0), token("</s>", 0), sequence("B", 0), token("</s>", 0)},
	},
}

// Templates returns the names of the templates.
func Templates() []string {
	var names []string
	for _, t := range templates {
		names = append(names, t.name)
	}
	return names
}

type object map[string]any

func token(name string, typ int) object {
	return object{"SpecialToken": object{"id": name, "type_id": typ}}
}

func sequence(name string, typ int) object {
	return object{"Sequence": object{"id": name, "type_id": typ}}
}

// raw returns a part of a tokenizer.json.
func raw(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings and numbers
	}
	return b.Bytes()
}

// space is what Unigram models have in place of a space.
const space = "▁"

// family is all of a tokenizer but its model: the parts of its type, and the special tokens of its
// template.
type family struct {
	template                                       string
	specials                                       []string
	unknown                                        string
	bytes                                          bool // words are bytes
	normalizer, preTokenizer, decoder, postProcess json.RawMessage
	added                                          []tokenizerjson.AddedToken
}

// newFamily returns the family of a configuration that is valid.
func newFamily(c *Config) *family {
	name := cmp.Or(c.Template, map[string]string{Unigram: "roberta", BPE: "roberta", WordPiece: "bert"}[c.Type])
	f := &family{template: name}
	post := object{"type": "TemplateProcessing"}
	for _, t := range templates {
		if t.name != name {
			continue
		}
		f.specials, f.unknown = t.specials, t.unknown
		used := object{}
		for id, s := range t.specials {
			f.added = append(f.added, tokenizerjson.AddedToken{ID: int32(id), Content: s, Special: true, LStrip: s == t.mask})
			used[s] = object{"id": s, "ids": []int{id}, "tokens": []string{s}}
		}
		post["single"], post["pair"], post["special_tokens"] = t.single, t.pair, used
	}
	f.postProcess = raw(post)
	switch c.Type {
	case Unigram:
		f.normalizer = raw(object{"type": "Sequence", "normalizers": []object{
			{"type": "Nmt"}, {"type": "NFKC"}, {"type": "Replace", "pattern": object{"Regex": " {2,}"}, "content": " "},
			{"type": "Strip", "strip_left": true, "strip_right": true},
		}})
		meta := object{"type": "Metaspace", "replacement": space, "prepend_scheme": "always", "split": true}
		f.preTokenizer, f.decoder = raw(meta), raw(meta)
	case BPE:
		level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
		f.preTokenizer, f.decoder, f.bytes = raw(level), raw(level), true
		f.postProcess = raw(object{"type": "Sequence", "processors": []object{level, post}})
	case WordPiece:
		f.normalizer = raw(object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": nil, "lowercase": !c.Cased})
		f.preTokenizer = raw(object{"type": "BertPreTokenizer"})
		f.decoder = raw(object{"type": "WordPiece", "prefix": "##", "cleanup": true})
	}
	return f
}

// file returns the tokenizer.json with a model.
func (f *family) file(model json.RawMessage) *tokenizerjson.File {
	return &tokenizerjson.File{AddedTokens: f.added, Normalizer: f.normalizer, PreTokenizer: f.preTokenizer,
		PostProcessor: f.postProcess, Decoder: f.decoder, Model: model}
}

func unigramModel(pieces []unigram.Piece, f *family) json.RawMessage {
	unknown := 0
	for i, p := range pieces[:len(f.specials)] {
		if p.Text == f.unknown {
			unknown = i
		}
	}
	return raw(object{"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": false})
}

func bpeModel(m *learn.Merges) json.RawMessage {
	merges := m.Pairs
	if merges == nil {
		merges = [][2]string{}
	}
	return raw(object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": ordered(m.Tokens), "merges": merges})
}

func wordPieceModel(tokens []string, f *family) json.RawMessage {
	return raw(object{"type": "WordPiece", "unk_token": f.unknown, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": ordered(tokens)})
}

// ordered is the vocabulary of tokens, whose ids are their positions, in the order of the ids.
func ordered(tokens []string) json.RawMessage {
	var b bytes.Buffer
	for id, t := range tokens {
		b.WriteByte("{,"[min(id, 1)])
		b.Write(bytes.TrimSpace(raw(t)))
		b.WriteByte(':')
		b.Write(bytes.TrimSpace(raw(id)))
	}
	b.WriteByte('}')
	return b.Bytes()
}
