package text

import "math"

// Tokenizer turns texts into the tokens of a model, and back. It is immutable and safe for concurrent
// use. [NewTokenizer] returns one of a WordPiece vocabulary, and package tokenizerjson one of any
// tokenizer.json.
type Tokenizer struct {
	algorithm Algorithm
	vocab     *Vocab
	template  Template
	roles     Roles
}

// Parts are what a Tokenizer consists of.
type Parts struct {
	Algorithm Algorithm
	Vocab     *Vocab
	Template  Template
	Roles     Roles
}

// Algorithm is how texts become tokens, without the special tokens of a [Template]. Its methods may be
// called by several goroutines at once.
type Algorithm interface {
	// AppendFirst appends the ids of the first tokens of a text, at most some, and returns how many
	// more the text has.
	AppendFirst(dst []int32, text string, most int) (ids []int32, more int)
	// AppendTokens is AppendFirst with the part of the text that each token is of.
	AppendTokens(dst []Token, text string, most int) (tokens []Token, more int)
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
type Roles struct{ Pad, Unk, Cls, Sep, Mask int32 }

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

func (f *Frame) specials() int { return len(f.Before) + len(f.Between) + len(f.After) }

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
	return &Tokenizer{p.Algorithm, p.Vocab, p.Template, p.Roles}
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

// Continues reports whether a token continues the word of the token before it.
func (t *Tokenizer) Continues(id int32) bool { return t.algorithm.Continues(t.vocab.Token(id)) }

// Decode returns the text of ids, without special tokens unless specials is set. Ids without a token are
// passed over.
func (t *Tokenizer) Decode(ids []int32, specials bool) string {
	return t.algorithm.Decode(ids, specials)
}

// MaskToken returns the token that a text has in place of a hidden one, and "" if there is none.
func (t *Tokenizer) MaskToken() string { return t.vocab.Token(t.roles.Mask) }
