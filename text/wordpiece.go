package text

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
	"github.com/gorbit-ml/gorbit/internal/data/trie"
)

// Accents says whether accents are stripped.
type Accents int

const (
	// AccentsByCase strips accents if text is lowered. It is the default.
	AccentsByCase Accents = iota
	// StripAccents always strips accents.
	StripAccents
	// KeepAccents always keeps accents.
	KeepAccents
)

// DefaultMaxWordChars is the maximum length of a word; longer words are [UNK].
const DefaultMaxWordChars = 100

// Config holds the settings of a tokenizer. The zero value is for BERT's cased models,
// and [Uncased] for the uncased ones.
type Config struct {
	// Lowercase lowers the text, for uncased vocabularies.
	Lowercase bool
	// Accents says whether accents are stripped.
	Accents Accents
	// LiteralSpecials treats [CLS], [SEP], [MASK], [PAD] and [UNK] in a text as plain
	// characters. Otherwise they become the special tokens, as in the tokenizers
	// library. This is useful for text made on purpose, but it lets untrusted text
	// contain separators.
	LiteralSpecials bool
	// Unclean leaves control characters and odd white space in the text.
	Unclean bool
	// JoinIdeographs lets CJK ideographs form words together.
	JoinIdeographs bool
	// MaxWordChars is the maximum number of characters of a word after the steps
	// before WordPiece; longer words are [UNK]. 0 means DefaultMaxWordChars.
	MaxWordChars int
}

// Uncased returns the settings of BERT's uncased models.
func Uncased() Config { return Config{Lowercase: true} }

// Validate returns an error if a setting is invalid.
func (c Config) Validate() error {
	if c.MaxWordChars < 0 {
		return fmt.Errorf("text: MaxWordChars is %d; expected 0 or more", c.MaxWordChars)
	}
	if c.Accents < AccentsByCase || c.Accents > KeepAccents {
		return fmt.Errorf("text: Accents is %d; expected AccentsByCase, StripAccents or KeepAccents", c.Accents)
	}
	return nil
}

// StripsAccents reports whether accents are stripped.
func (c Config) StripsAccents() bool {
	return c.Accents == StripAccents || c.Accents == AccentsByCase && c.Lowercase
}

// wordPiece is the Algorithm of BERT's vocabularies.
type wordPiece struct {
	vocab    *Vocab
	trie     trie.Trie
	inner    int32 // the node of tokens that continue a word
	classes  *classes
	ascii    [256]byte  // for each byte one of the codes below, or the lowered letter
	single   [128]int32 // the ids of the ASCII punctuation marks
	specials []special  // special tokens that the text may contain
	maxChars int

	unk int32
}

type special struct {
	text string
	id   int32
}

// The codes of bytes that are not ASCII characters of a word.
const (
	byteWide  = 0xff // begins or continues a longer encoding
	byteSpace = 0xfe
	byteAlone = 0xfd // ASCII punctuation
	byteDrop  = 0xfc

	byteCodes = 0x80 // codes start here
)

// NewTokenizer returns a tokenizer for a WordPiece vocabulary.
func NewTokenizer(v *Vocab, cfg Config) (*Tokenizer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	roles := NoRoles()
	for _, r := range []struct {
		to   *int32
		name string
	}{{&roles.Pad, Pad}, {&roles.Unk, Unk}, {&roles.Cls, Cls}, {&roles.Sep, Sep}, {&roles.Mask, Mask}} {
		if id, ok := v.ID(r.name); ok {
			*r.to = id
		}
	}
	return New(Parts{
		Algorithm: newWordPiece(v, cfg),
		Vocab:     v,
		Template:  BertTemplate(roles.Cls, roles.Sep),
		Roles:     roles,
		ByWords:   true,
	}), nil
}

func newWordPiece(v *Vocab, cfg Config) *wordPiece {
	t := &wordPiece{vocab: v, trie: v.trie, inner: v.trie.Walk(Continuation), classes: newClasses(cfg), maxChars: cfg.MaxWordChars}
	if t.maxChars == 0 {
		t.maxChars = DefaultMaxWordChars
	}
	t.unk, _ = v.ID(Unk)
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
			if id := t.trie.Find(string(rune(c))); id >= 0 {
				t.single[c] = id
			}
		case kindDrop:
			t.ascii[c] = byteDrop
		}
	}
	return t
}

// AppendFirst implements Algorithm.
func (t *wordPiece) AppendFirst(dst []int32, text string, most int) (ids []int32, more int) {
	begin := len(dst)
	for i := 0; i < len(text); {
		if n := len(dst) - begin - most; n > 0 {
			dst, more = dst[:begin+most], more+n
		}
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
	if n := len(dst) - begin - most; n > 0 {
		dst, more = dst[:begin+most], more+n
	}
	return dst, more
}

// AppendWord implements Algorithm.
func (t *wordPiece) AppendWord(dst []int32, word string) []int32 {
	dst, _ = t.AppendFirst(dst, word, math.MaxInt)
	return dst
}

// specialAt returns the special token that a text begins with, or nil.
func (t *wordPiece) specialAt(text string) *special {
	for i := range t.specials {
		if strings.HasPrefix(text, t.specials[i].text) {
			return &t.specials[i]
		}
	}
	return nil
}

// appendWord appends the tokens of the word at text[i], and returns the position after
// it. It reads the word in place as long as it is ASCII.
func (t *wordPiece) appendWord(dst []int32, text string, i int) ([]int32, int) {
	cells := t.trie.Cells
	begin, mark := i, len(dst)
	node, id, end := int32(trie.Root), int32(-1), i // the last token that fits, and where it ends
	for {
		c := byte(byteSpace)
		if i < len(text) {
			c = t.ascii[text[i]]
		}
		if c < byteCodes {
			n := cells[node].Base + int32(c)
			if next := &cells[n]; next.Parent == node {
				i++
				node = n
				if next.ID >= 0 {
					id, end = next.ID, i
				}
				continue
			}
		} else if c == byteWide || c == byteDrop {
			return t.appendWide(dst[:mark], text, begin)
		}
		// No longer token fits, so take the longest one that did.
		if id < 0 || end-begin > t.maxChars {
			break
		}
		dst = append(dst, id)
		if end == i && c >= byteCodes {
			return dst, i
		}
		node, id, i = t.inner, -1, end
	}
	// The word is unknown, unless the next bytes show that it is not all ASCII.
	for ; i < len(text); i++ {
		if c := t.ascii[text[i]]; c == byteWide || c == byteDrop {
			return t.appendWide(dst[:mark], text, begin)
		} else if c >= byteCodes {
			break
		}
	}
	return append(dst[:mark], t.unk), i
}

// appendWide appends the tokens of text from text[i], the start of a word or of a code
// point outside words, up to the next ASCII byte between words. It returns the position
// of that byte.
func (t *wordPiece) appendWide(dst []int32, text string, i int) ([]int32, int) {
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
			var jamo [3]rune
			for _, part := range chars.AppendDecomposed(jamo[:0], r, norm.NFD) {
				w = w.add(t, part, 0)
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

// word is a word under construction: cleaned, decomposed and lowered. Its methods
// return the new word instead of changing it, so that its bytes can be on the stack.
type word struct {
	chars []byte
	count int // characters, including those dropped because there are too many
	run   int // start of the run of combining marks at the end
}

// add appends a character. Combining marks are put in canonical order: a run is sorted
// by class, and marks of the same class keep their order.
func (w word) add(t *wordPiece, r rune, class uint8) word {
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
		if chars.CombiningClass(before) <= class {
			break
		}
		at -= size
	}
	var enc [utf8.UTFMax]byte
	w.chars = slices.Insert(w.chars, at, enc[:utf8.EncodeRune(enc[:], r)]...)
	return w
}

// alone ends the current word, if any, and appends a word of one character.
func (w word) alone(t *wordPiece, dst []int32, r rune) (word, []int32) {
	w, dst = w.flush(t, dst)
	return w.add(t, r, 0).flush(t, dst)
}

// flush appends the tokens of the word and empties it.
func (w word) flush(t *wordPiece, dst []int32) (word, []int32) {
	if w.count > t.maxChars {
		dst = append(dst, t.unk)
	} else if w.count > 0 {
		dst = t.appendPieces(dst, w.chars)
	}
	return word{chars: w.chars[:0]}, dst
}

// appendPieces appends the tokens of a word that needs no further processing.
func (t *wordPiece) appendPieces(dst []int32, word []byte) []int32 {
	cells := t.trie.Cells
	mark := len(dst)
	node, id, end := int32(trie.Root), int32(-1), 0
	for i := 0; ; {
		if i < len(word) {
			n := cells[node].Base + int32(word[i])
			if next := &cells[n]; next.Parent == node {
				i++
				node = n
				if next.ID >= 0 {
					id, end = next.ID, i
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
		node, id, i = t.inner, -1, end
	}
}
