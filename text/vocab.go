package text

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/trie"
)

// The special tokens of a BERT vocabulary.
const (
	Pad  = "[PAD]"
	Unk  = "[UNK]"
	Cls  = "[CLS]"
	Sep  = "[SEP]"
	Mask = "[MASK]"
)

// Continuation is what the tokens begin with that continue a word.
const Continuation = "##"

// MaxVocabBytes is the maximum size of a vocabulary file, far above that of any real one.
const MaxVocabBytes = 128 << 20

// maxVocab is the maximum number of entries of a vocabulary. It is far above that of any
// real one, and low enough for ids, trie cells and their offsets to fit in 32 bits.
const maxVocab = 1 << 24

// Vocab is the tokens of a model by id. In a vocab.txt the id of a token is its line, from 0. It
// is immutable and safe for concurrent use.
type Vocab struct {
	tokens []string
	trie   trie.Trie
}

// VocabError reports what is wrong with a vocabulary file, and where. Line counts from
// 1, and is 0 if the error concerns the whole file.
type VocabError struct {
	Path   string
	Line   int
	Reason string
}

func (e *VocabError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("vocabulary %s: %s", e.Path, e.Reason)
	}
	return fmt.Sprintf("vocabulary %s:%d: %s", e.Path, e.Line, e.Reason)
}

// LoadVocab reads a vocab.txt: UTF-8, one token per line, at most MaxVocabBytes. See
// [ParseVocab].
func LoadVocab(path string) (*Vocab, error) {
	data, err := vfs.ReadBounded(path, MaxVocabBytes)
	if err != nil {
		return nil, fmt.Errorf("vocabulary: %w", err)
	}
	return ParseVocab(data, path)
}

// ParseVocab reads a vocabulary from the bytes of a vocab.txt; name is the name of the
// file in errors.
//
// It drops a byte order mark at the start, carriage returns and white space after a
// token, and empty lines at the end. An empty line elsewhere uses up an id that no text
// gets, so that the ids of the tokens after it do not change. If a token occurs twice,
// its last line counts. A vocabulary without [UNK], [CLS] or [SEP] is an error.
func ParseVocab(data []byte, name string) (*Vocab, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	data = bytes.TrimRight(data, "\r\n")
	if len(data) == 0 {
		return nil, &VocabError{Path: name, Reason: "the file is empty"}
	}
	if n := bytes.Count(data, []byte("\n")) + 1; n > maxVocab {
		return nil, &VocabError{Path: name, Reason: fmt.Sprintf("has %d lines; expected at most %d", n, maxVocab)}
	}
	v := &Vocab{}
	for line := range bytes.Lines(data) {
		if !utf8.Valid(line) {
			return nil, &VocabError{Path: name, Line: len(v.tokens) + 1, Reason: "not valid UTF-8"}
		}
		v.tokens = append(v.tokens, string(bytes.TrimRightFunc(line, unicode.IsSpace)))
	}
	v = NewVocab(v.tokens)
	for _, s := range []string{Unk, Cls, Sep} {
		if _, ok := v.ID(s); !ok {
			return nil, &VocabError{Path: name, Reason: "has no " + s + "; expected a BERT vocab.txt with one token per line"}
		}
	}
	return v, nil
}

// MaxID returns the highest id of a vocabulary of n tokens. There may be ids without a token, but not many
// more than tokens: every id takes memory.
func MaxID(n int) int32 { return int32(min(2*n+1<<16, maxVocab-1)) }

// ByID returns the tokens of a vocabulary by id, "" for an id without one. Two tokens of one id are an
// error, and so is an id above MaxID.
func ByID(vocab map[string]int32) ([]string, error) {
	most := int32(-1)
	for token, id := range vocab {
		if id < 0 || id > MaxID(len(vocab)) {
			return nil, fmt.Errorf("token %q has the id %d; expected one from 0 to %d in a vocabulary of %d tokens", token, id, MaxID(len(vocab)), len(vocab))
		}
		most = max(most, id)
	}
	tokens := make([]string, most+1)
	for token, id := range vocab {
		if had := tokens[id]; had != "" {
			return nil, fmt.Errorf("tokens %q and %q have the id %d", min(had, token), max(had, token), id)
		}
		tokens[id] = token
	}
	return tokens, nil
}

// NewVocab returns the vocabulary of tokens whose ids are their positions. An id without a token has "".
func NewVocab(tokens []string) *Vocab {
	return &Vocab{tokens: tokens, trie: trie.New(tokens)}
}

// Size returns the number of ids: every id is below it. The embedding table of a model
// must have that many rows.
func (v *Vocab) Size() int { return len(v.tokens) }

// Token returns the token of an id, and "" for an id out of range.
func (v *Vocab) Token(id int32) string {
	if id < 0 || int(id) >= len(v.tokens) {
		return ""
	}
	return v.tokens[id]
}

// ID returns the id of a token.
func (v *Vocab) ID(token string) (int32, bool) {
	if token == "" {
		return 0, false
	}
	id := v.trie.Find(token)
	return id, id >= 0
}

// Tokens returns the tokens of ids, separated by spaces, for people to read.
func (v *Vocab) Tokens(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(v.Token(id))
	}
	return b.String()
}

// Sentence returns the tokens of ids with the pieces of words joined, for people to read. It ends with
// " ..." once it has more than most bytes. An id out of range is a question mark.
func (v *Vocab) Sentence(ids []int32, most int) string {
	var b strings.Builder
	for _, id := range ids {
		token := "?"
		if id >= 0 && int(id) < len(v.tokens) {
			token = v.tokens[id]
		}
		if piece, ok := strings.CutPrefix(token, "##"); ok && b.Len() > 0 {
			b.WriteString(piece)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(token)
		if b.Len() > most {
			b.WriteString(" ...")
			break
		}
	}
	return b.String()
}
