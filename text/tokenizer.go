package text

import (
	"math"
	"strings"
	"unicode/utf8"
)

// Tokenizer turns texts into the tokens of a model, and back. It is immutable and safe for concurrent
// use. [NewTokenizer] returns one of a WordPiece vocabulary, and package tokenizerjson one of any
// tokenizer.json.
type Tokenizer struct {
	algorithm Algorithm
	vocab     *Vocab
	template  Template
	roles     Roles
	byWords   bool
}

// Parts are what a Tokenizer consists of.
type Parts struct {
	Algorithm Algorithm
	Vocab     *Vocab
	Template  Template
	Roles     Roles
	// ByWords says that the ids of a text are those of its words, one after the other.
	ByWords bool
}

// Algorithm is how texts become tokens, without the special tokens of a [Template]. Its methods may be
// called by several goroutines at once.
type Algorithm interface {
	// AppendFirst appends the ids of the first tokens of a text, at most some, and returns how many
	// more the text has.
	AppendFirst(dst []int32, text string, most int) (ids []int32, more int)
	// AppendTokens is AppendFirst with the part of the text that each token is of.
	AppendTokens(dst []Token, text string, most int) (tokens []Token, more int)
	// AppendWord appends the ids of a word that follows others.
	AppendWord(dst []int32, word string) []int32
	// Continues reports whether a token continues a word, as far as its name shows it.
	Continues(token string) bool
	// Decode returns the text of ids. Ids without a token are passed over, and so are special tokens
	// unless specials says otherwise.
	Decode(ids []int32, specials bool) string
}

// Span is a part of a text, as offsets of bytes.
type Span struct{ Start, End int }

// Token is an id, and the part of the text that it stands for. Of a vocab.txt that part is the token's
// word; of a tokenizer.json it is what the tokenizers library says.
type Token struct {
	ID int32
	Span
}

// Roles are the ids of the special tokens, -1 where a vocabulary has none. Cls begins a text (bos or
// <s> in other models), and Sep ends it (eos or </s>).
type Roles struct {
	Pad  int32 `json:"pad"`
	Unk  int32 `json:"unk"`
	Cls  int32 `json:"cls"`
	Sep  int32 `json:"sep"`
	Mask int32 `json:"mask"`
}

// NoRoles returns roles of which no token has any.
func NoRoles() Roles { return Roles{-1, -1, -1, -1, -1} }

// Template is what special tokens go around a text, and around a pair.
type Template struct{ Single, Pair Frame }

// Frame is the special tokens before, between and after the texts, and the types of the texts' tokens.
// Of a single text Between is empty.
type Frame struct {
	Before, Between, After []Special
	TypeA, TypeB           int32
}

// Special is a special token of a template.
type Special struct{ ID, Type int32 }

// Specials returns the number of special tokens.
func (f *Frame) Specials() int { return len(f.Before) + len(f.Between) + len(f.After) }

// BertTemplate is [CLS] a [SEP] and [CLS] a [SEP] b [SEP], where b and its [SEP] are of type 1.
func BertTemplate(cls, sep int32) Template {
	begin, end := []Special{{cls, 0}}, []Special{{sep, 0}}
	return Template{
		Single: Frame{Before: begin, After: end},
		Pair:   Frame{Before: begin, Between: end, After: []Special{{sep, 1}}, TypeB: 1},
	}
}

// New returns the tokenizer of its parts.
func New(p Parts) *Tokenizer {
	return &Tokenizer{p.Algorithm, p.Vocab, p.Template, p.Roles, p.ByWords}
}

// Vocab returns the vocabulary.
func (t *Tokenizer) Vocab() *Vocab { return t.vocab }

// Template returns the special tokens around texts.
func (t *Tokenizer) Template() Template { return t.template }

// Roles returns the ids of the special tokens.
func (t *Tokenizer) Roles() Roles { return t.roles }

// AppendIDs appends the ids of a text to dst, without special tokens around it, and returns the extended
// slice.
func (t *Tokenizer) AppendIDs(dst []int32, text string) []int32 {
	dst, _ = t.algorithm.AppendFirst(dst, text, math.MaxInt)
	return dst
}

// AppendFirst is AppendIDs of the first ids of a text, at most some. It returns how many more the text
// has, which take no memory.
func (t *Tokenizer) AppendFirst(dst []int32, text string, most int) (ids []int32, more int) {
	return t.algorithm.AppendFirst(dst, text, most)
}

// AppendTokens is AppendFirst with the part of the text that each token is of.
func (t *Tokenizer) AppendTokens(dst []Token, text string, most int) (tokens []Token, more int) {
	return t.algorithm.AppendTokens(dst, text, most)
}

// AppendWord appends the ids of a word, as it has them after a space in a text.
func (t *Tokenizer) AppendWord(dst []int32, word string) []int32 {
	return t.algorithm.AppendWord(dst, word)
}

// EncodeWords appends the tokens that begin a text, the ids of the first words that fit, and the tokens that
// end it, at most a given number in all, and to ends the number of ids up to the end of each of those
// words. A word of which nothing is left, such as a control character, has none, and ends where the word
// before it does.
func (t *Tokenizer) EncodeWords(ids []int32, ends []int, words []string, most int) ([]int32, []int) {
	frame := &t.template.Single
	ids = appendSpecials(ids, frame.Before)
	for _, word := range words {
		start := len(ids)
		if ids = t.AppendWord(ids, word); len(ids)+len(frame.After) > most {
			ids = ids[:start]
			break
		}
		ends = append(ends, len(ids))
	}
	return appendSpecials(ids, frame.After), ends
}

// ByWords reports whether the ids of a text are those of its words, one after the other.
func (t *Tokenizer) ByWords() bool { return t.byWords }

// Show returns a token for people to read: as it is in a vocab.txt, and otherwise its text.
func (t *Tokenizer) Show(id int32) string {
	name := t.vocab.Token(id)
	if !t.byWords {
		if s := t.Decode([]int32{id}, true); s != "" && utf8.ValidString(s) && !strings.Contains(s, "\ufffd") {
			return s
		}
	}
	return name
}

// Sentence returns the tokens of ids for people to read. It ends with " ..." once it has more than most
// bytes.
func (t *Tokenizer) Sentence(ids []int32, most int) string {
	if t.byWords {
		return t.vocab.Sentence(ids, most)
	}
	s := t.Decode(ids[:min(len(ids), most+1)], true)
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + " ..."
	}
	return s
}

// Continues reports whether a token continues the word of the token before it.
func (t *Tokenizer) Continues(id int32) bool { return t.algorithm.Continues(t.vocab.Token(id)) }

// Decode returns the text of ids, without special tokens unless specials is set. Ids without a token are
// passed over.
func (t *Tokenizer) Decode(ids []int32, specials bool) string {
	return t.algorithm.Decode(ids, specials)
}

// MaskToken returns the token that a text has in place of a hidden one, and "" if there is none.
func (t *Tokenizer) MaskToken() string { return t.vocab.Token(t.roles.Mask) }
