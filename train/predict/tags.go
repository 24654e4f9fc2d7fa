package predict

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
)

// tagger is the Renderer of models with a label for each word.
type tagger struct {
	output    int // that of the probabilities
	names     []string
	tokenizer *text.Tokenizer // nil where examples are not given as texts
}

func newTagger(outputs []OutputSpec) (Renderer, error) {
	i := slices.IndexFunc(outputs, func(o OutputSpec) bool { return o.Kind == Probabilities })
	if i < 0 {
		return nil, errors.New("the model has no output with probabilities; expected one for each token and label")
	}
	return tagger{output: i, names: outputs[i].Classes}, nil
}

// withTokenizer is a Renderer whose answers need the tokenizer of the texts.
type withTokenizer interface {
	with(*text.Tokenizer) Renderer
}

func (t tagger) with(tokenizer *text.Tokenizer) Renderer {
	t.tokenizer = tokenizer
	return t
}

// Render implements Renderer. The label of a word is that of its first token. Without a text, each
// token between those that begin and end a text, such as [CLS] and [SEP], counts as a word.
func (t tagger) Render(e Example, r Result) (Answer, error) {
	if t.output >= len(r) || len(r[t.output].Shape) != 2 || r[t.output].Shape[0] != len(e.Encoding.IDs) {
		return nil, fmt.Errorf("unexpected outputs of the model; expected probabilities for each of %d tokens and each label", len(e.Encoding.IDs))
	}
	a := Tags{Truncated: e.Encoding.Truncated}
	p, labels := r[t.output].Data, r[t.output].Shape[1]
	frame := text.BertTemplate(0, 0).Single
	if t.tokenizer != nil {
		frame = t.tokenizer.Template().Single
	}
	token, end := len(frame.Before), len(e.Encoding.IDs)-len(frame.After)
	add := func(token int, word string) {
		best := 0
		mine := p[token*labels : (token+1)*labels]
		for i, v := range mine {
			if v > mine[best] {
				best = i
			}
		}
		a.Tags, a.Scores = append(a.Tags, nameOf(t.names, best)), append(a.Scores, mine[best])
		if word != "" {
			a.Words = append(a.Words, word)
		}
	}
	if e.Text == nil || t.tokenizer == nil {
		for ; token < end; token++ {
			add(token, "")
		}
		return a, nil
	}
	if e.Text.B != "" {
		return nil, fault.Usagef("the text is a pair; expected a single text, whose words get labels")
	}
	var ids []int32
	for _, word := range wordsOf(e.Text.A) {
		if ids = t.tokenizer.AppendWord(ids[:0], word); len(ids) == 0 {
			continue
		}
		if token >= end {
			break // the rest was cut
		}
		add(token, word)
		token += len(ids)
	}
	return a, nil
}

// Encode encodes texts as the renderer's model takes them: the words one by one, if each gets a label, and
// a tokenizer may give a word other tokens within a text.
func Encode(r Renderer, t *text.Tokenizer, texts []text.Pair, most int) []text.Encoding {
	if _, ok := r.(tagger); !ok || t.ByWords() {
		return t.EncodeBatch(texts, most)
	}
	out := make([]text.Encoding, len(texts))
	for i, one := range texts {
		words := wordsOf(one.A)
		words = slices.DeleteFunc(words, func(w string) bool { return len(t.AppendWord(nil, w)) == 0 })
		ids, ends := t.EncodeWords(nil, nil, words, most)
		out[i] = text.Encoding{IDs: ids, TypeIDs: make([]int32, len(ids)), Truncated: len(ends) < len(words)}
	}
	return out
}

// wordsOf splits a text at spaces, and separates punctuation at the ends of a word from it, one character
// each.
func wordsOf(s string) []string {
	var out []string
	for _, word := range strings.Fields(s) {
		for len(word) > 0 {
			r, size := utf8.DecodeRuneInString(word)
			if !punctuation(r) || word == text.Mask {
				break
			}
			out, word = append(out, word[:size]), word[size:]
		}
		from := len(out)
		for len(word) > 0 {
			r, size := utf8.DecodeLastRuneInString(word)
			if !punctuation(r) {
				break
			}
			out, word = slices.Insert(out, from, word[len(word)-size:]), word[:len(word)-size]
		}
		if word != "" {
			out = slices.Insert(out, from, word)
		}
	}
	return out
}

// punctuation reports whether tokenizers such as BERT's separate a character from words: not an emoji, or a
// sign beyond ASCII.
func punctuation(r rune) bool {
	return unicode.IsPunct(r) || r < utf8.RuneSelf && unicode.IsSymbol(r)
}

// Names implements Renderer.
func (t tagger) Names() []string { return []string{"tags", "truncated"} }

// Tags is the Answer of a model that labels words.
type Tags struct {
	// Words are the words of the text; nil if the example was not given as a text.
	Words []string
	// Tags are the labels of the words, or of the tokens without Words, and Scores their
	// probabilities.
	Tags   []string
	Scores []float64
	// Truncated reports that the text was longer than the model's limit and was cut, so that the last
	// words have no label.
	Truncated bool
}

var _ Answer = Tags{}

// Fields implements Answer.
func (a Tags) Fields() []Field {
	var f []Field
	if a.Words != nil {
		f = append(f, Field{Name: "words", Value: a.Words})
	}
	f = append(f, Field{Name: "tags", Value: a.Tags}, Field{Name: "scores", Value: a.Scores})
	if a.Truncated {
		f = append(f, Field{Name: "truncated", Value: true})
	}
	return f
}

// MarshalJSON implements json.Marshaler.
func (a Tags) MarshalJSON() ([]byte, error) { return Object(a.Fields()).MarshalJSON() }

// Columns implements Answer.
func (a Tags) Columns() []Field {
	return []Field{{Name: "tags", Value: a.Text()}, {Name: "truncated", Value: a.Truncated}}
}

// Text implements Answer: word/label, or the labels alone, separated by spaces.
func (a Tags) Text() string {
	parts := slices.Clone(a.Tags)
	for i, word := range a.Words {
		parts[i] = word + "/" + parts[i]
	}
	return strings.Join(parts, " ")
}

// Row implements Answer.
func (a Tags) Row() []string { return []string{a.Text()} }

// Cut implements Answer.
func (a Tags) Cut() bool { return a.Truncated }
