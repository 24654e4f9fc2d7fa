package text

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Accents says whether accents are stripped.
type Accents int

const (
	// AccentsByCase strips accents where text is lowered: the default.
	AccentsByCase Accents = iota
	// StripAccents strips them whatever the case setting.
	StripAccents
	// KeepAccents keeps them whatever the case setting.
	KeepAccents
)

// DefaultMaxWordChars is the length from which on a word is [UNK] unread.
const DefaultMaxWordChars = 100

// Config holds the settings of a tokenizer. Its zero value is that of BERT's cased
// models; [Uncased] gives that of the others.
type Config struct {
	// Lowercase lowers the text, for uncased vocabularies.
	Lowercase bool
	// Accents says whether accents are stripped.
	Accents Accents
	// LiteralSpecials takes [CLS], [SEP], [MASK], [PAD] and [UNK] in a text as the
	// plain characters that they are. Otherwise they become the special tokens, as
	// in the tokenizers library: useful for text made on purpose, while text from
	// strangers can then hold a separator.
	LiteralSpecials bool
	// Unclean leaves control characters and odd white space in the text.
	Unclean bool
	// JoinIdeographs leaves CJK ideographs to join into words.
	JoinIdeographs bool
	// MaxWordChars is the most characters that a word may have, after the steps
	// before WordPiece, and not be [UNK]; 0 means DefaultMaxWordChars.
	MaxWordChars int
}

// Uncased returns the settings of BERT's uncased models.
func Uncased() Config { return Config{Lowercase: true} }

// Validate tells whether the settings make sense.
func (c Config) Validate() error {
	if c.MaxWordChars < 0 {
		return fmt.Errorf("text: MaxWordChars is %d; expected 0 or more", c.MaxWordChars)
	}
	if c.Accents < AccentsByCase || c.Accents > KeepAccents {
		return fmt.Errorf("text: Accents is %d; expected AccentsByCase, StripAccents or KeepAccents", c.Accents)
	}
	return nil
}

func (c Config) stripAccents() bool {
	return c.Accents == StripAccents || c.Accents == AccentsByCase && c.Lowercase
}

// Tokenizer cuts text into WordPiece tokens. It does not change once made, and is
// safe for concurrent use.
type Tokenizer struct {
	vocab    *Vocab
	trie     trie
	classes  *classes
	ascii    [256]byte  // what each byte is: one of the codes below, or the lowered letter
	single   [128]int32 // the ids of the ASCII punctuation marks
	specials []special  // those that the text may hold
	maxChars int

	unk, cls, sep int32
}

type special struct {
	text string
	id   int32
}

// What a byte of the text is, other than an ASCII character of a word.
const (
	byteWide  = 0xff // begins or continues a longer encoding
	byteSpace = 0xfe
	byteAlone = 0xfd // ASCII punctuation
	byteDrop  = 0xfc

	byteCodes = 0x80 // codes are from here on
)

// The Hangul syllables and their parts (The Unicode Standard, section 3.12).
const (
	hangulFirst = 0xac00
	hangulLast  = 0xd7a3
	hangulLead  = 0x1100
	hangulVowel = 0x1161
	hangulTail  = 0x11a7
	tailCount   = 28
	vowelCount  = 21
)

// NewTokenizer returns a tokenizer for a vocabulary.
func NewTokenizer(v *Vocab, cfg Config) (*Tokenizer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: v, trie: v.trie, classes: newClasses(cfg), maxChars: cfg.MaxWordChars}
	if t.maxChars == 0 {
		t.maxChars = DefaultMaxWordChars
	}
	t.unk, _ = v.ID(Unk)
	t.cls, _ = v.ID(Cls)
	t.sep, _ = v.ID(Sep)
	if !cfg.LiteralSpecials {
		for _, s := range []string{Pad, Unk, Cls, Sep, Mask} {
			if id, ok := v.ID(s); ok {
				t.specials = append(t.specials, special{s, id})
			}
		}
	}
	for c := range t.ascii {
		if c >= utf8.RuneSelf {
			t.ascii[c] = byteWide
			continue
		}
		switch e := t.classes.lookup(rune(c)); e.kind() {
		case kindSelf:
			t.ascii[c] = byte(c)
		case kindMap:
			t.ascii[c] = byte(e.rune())
		case kindSpace:
			t.ascii[c] = byteSpace
		case kindAlone:
			t.ascii[c] = byteAlone
			t.single[c] = t.unk
			if id := t.trie.find(string(rune(c))); id >= 0 {
				t.single[c] = id
			}
		case kindDrop:
			t.ascii[c] = byteDrop
		}
	}
	return t, nil
}

// Vocab returns the vocabulary of the tokenizer.
func (t *Tokenizer) Vocab() *Vocab { return t.vocab }

// AppendIDs appends the ids of a text to dst, without [CLS] and [SEP], and returns
// the extended slice. It allocates nothing but room in dst.
func (t *Tokenizer) AppendIDs(dst []int32, text string) []int32 {
	for i := 0; i < len(text); {
		switch c := text[i]; t.ascii[c] {
		case byteSpace, byteDrop:
			i++
		case byteAlone:
			if c == '[' {
				if s := t.specialAt(text[i:]); s != nil {
					dst = append(dst, s.id)
					i += len(s.text)
					continue
				}
			}
			dst = append(dst, t.single[c])
			i++
		case byteWide:
			dst, i = t.appendWide(dst, text, i)
		default:
			dst, i = t.appendWord(dst, text, i)
		}
	}
	return dst
}

// specialAt returns the special token that a text begins with, or nil.
func (t *Tokenizer) specialAt(text string) *special {
	for i := range t.specials {
		if strings.HasPrefix(text, t.specials[i].text) {
			return &t.specials[i]
		}
	}
	return nil
}

// appendWord appends the tokens of the word at text[i], reading it where it lies
// as long as it is ASCII, and returns where to go on.
func (t *Tokenizer) appendWord(dst []int32, text string, i int) ([]int32, int) {
	cells := t.trie.cells
	begin, mark := i, len(dst)
	node, id, end := int32(root), int32(-1), i // the last token that fits, and where it ends
	for {
		c := byte(byteSpace)
		if i < len(text) {
			c = t.ascii[text[i]]
		}
		if c < byteCodes {
			n := cells[node].base + int32(c)
			if next := &cells[n]; next.parent == node {
				i++
				node = n
				if next.id >= 0 {
					id, end = next.id, i
				}
				continue
			}
		} else if c == byteWide || c == byteDrop {
			return t.appendWide(dst[:mark], text, begin)
		}
		// No longer token fits: take the longest that did.
		if id < 0 || end-begin > t.maxChars {
			break
		}
		dst = append(dst, id)
		if end == i && c >= byteCodes {
			return dst, i
		}
		node, id, i = t.trie.inner, -1, end
	}
	// The word is unknown, unless what follows it shows that it is not ASCII alone.
	for ; i < len(text); i++ {
		if c := t.ascii[text[i]]; c == byteWide || c == byteDrop {
			return t.appendWide(dst[:mark], text, begin)
		} else if c >= byteCodes {
			break
		}
	}
	return append(dst[:mark], t.unk), i
}

// appendWide appends the tokens of text from text[i], where a word or a code point
// outside words begins, to the next ASCII byte between words, and returns where
// that is.
func (t *Tokenizer) appendWide(dst []int32, text string, i int) ([]int32, int) {
	var room [512]byte
	w := word{chars: room[:0]}
	for i < len(text) {
		if c := t.ascii[text[i]]; c < byteCodes {
			w = w.add(t, rune(c), 0)
			i++
			continue
		} else if c == byteDrop {
			i++
			continue
		} else if c != byteWide {
			break
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		switch e := t.classes.lookup(r); e.kind() {
		case kindSelf:
			w = w.add(t, r, 0)
		case kindMap:
			w = w.add(t, e.rune(), 0)
		case kindSpace:
			w, dst = w.flush(t, dst)
		case kindAlone:
			w, dst = w.alone(t, dst, r)
		case kindAloneMap:
			w, dst = w.alone(t, dst, e.rune())
		case kindDrop:
		case kindBreak:
			w.run = len(w.chars)
		case kindHangul:
			s := r - hangulFirst
			w = w.add(t, hangulLead+s/(vowelCount*tailCount), 0)
			w = w.add(t, hangulVowel+s%(vowelCount*tailCount)/tailCount, 0)
			if s%tailCount != 0 {
				w = w.add(t, hangulTail+s%tailCount, 0)
			}
		case kindParts:
			for _, p := range t.classes.parts[e.rune()] {
				switch p.kind {
				case kindSelf:
					w = w.add(t, p.r, p.class)
				case kindSpace:
					w, dst = w.flush(t, dst)
				case kindAlone:
					w, dst = w.alone(t, dst, p.r)
				case kindBreak:
					w.run = len(w.chars)
				}
			}
		}
	}
	_, dst = w.flush(t, dst)
	return dst, i
}

// word is a word as it takes shape: cleaned, decomposed, lowered. Its methods return
// what it becomes rather than change it, so that its bytes may lie on the stack.
type word struct {
	chars []byte
	count int // characters, also those not kept because there are too many
	run   int // where the run of combining marks at the end begins
}

// add appends a character. Combining marks are brought into canonical order: by
// class within a run, those of one class as they came.
func (w word) add(t *Tokenizer, r rune, class uint8) word {
	if w.count++; w.count > t.maxChars {
		return w
	}
	if class == 0 {
		w.chars = utf8.AppendRune(w.chars, r)
		w.run = len(w.chars)
		return w
	}
	at := len(w.chars)
	for at > w.run {
		before, size := utf8.DecodeLastRune(w.chars[:at])
		if combiningClass(before) <= class {
			break
		}
		at -= size
	}
	var enc [utf8.UTFMax]byte
	w.chars = slices.Insert(w.chars, at, enc[:utf8.EncodeRune(enc[:], r)]...)
	return w
}

// alone ends the word, if there is one, and appends a word of one character.
func (w word) alone(t *Tokenizer, dst []int32, r rune) (word, []int32) {
	w, dst = w.flush(t, dst)
	return w.add(t, r, 0).flush(t, dst)
}

// flush appends the tokens of the word and empties it.
func (w word) flush(t *Tokenizer, dst []int32) (word, []int32) {
	if w.count > t.maxChars {
		dst = append(dst, t.unk)
	} else if w.count > 0 {
		dst = t.appendPieces(dst, w.chars)
	}
	return word{chars: w.chars[:0]}, dst
}

// appendPieces appends the tokens of a word that needs nothing done to it.
func (t *Tokenizer) appendPieces(dst []int32, word []byte) []int32 {
	cells := t.trie.cells
	mark := len(dst)
	node, id, end := int32(root), int32(-1), 0
	for i := 0; ; {
		if i < len(word) {
			n := cells[node].base + int32(word[i])
			if next := &cells[n]; next.parent == node {
				i++
				node = n
				if next.id >= 0 {
					id, end = next.id, i
				}
				continue
			}
		}
		if id < 0 {
			return append(dst[:mark], t.unk)
		}
		dst = append(dst, id)
		if end == len(word) {
			return dst
		}
		node, id, i = t.trie.inner, -1, end
	}
}
