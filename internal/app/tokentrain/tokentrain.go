// Package tokentrain trains the tokenizer of a corpus and writes it as a folder with a tokenizer.json.
package tokentrain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/text/bpe"
	"github.com/gorbit-ml/gorbit/text/learn"
)

// The types of tokenizers.
const (
	Unigram   = "unigram"
	BPE       = "bpe"
	WordPiece = "wordpiece"
)

// Types are the types of tokenizers.
func Types() []string { return []string{Unigram, BPE, WordPiece} }

// Name is the name of the file in the folder.
const Name = "tokenizer.json"

// Config says what to train, and on what.
type Config struct {
	Type     string
	Size     int    // number of tokens, with the special ones
	Template string // one of Templates; "" for that of the type
	Cased    bool   // of WordPiece: keep case and accents
	Corpus   Corpus
	Threads  int // 0: one per core
	// Progress, if it is not nil, is called with how much of a phase is done.
	Progress func(phase string, done, total, rows int64)
}

// Result says what was trained.
type Result struct {
	Template string
	Texts    int64
	Bytes    int64 // of the files, as they are on the disk
	Words    int   // different ones
}

// Validate returns an error of class fault.Usage for a setting that makes no sense.
func (c *Config) Validate() error {
	switch {
	case !slices.Contains(Types(), c.Type):
		return fault.Usagef("the type is %q; expected one of %s", c.Type, strings.Join(Types(), ", "))
	case c.Size < 1:
		return fault.Usagef("the size of the vocabulary is %d; expected 1 or more", c.Size)
	case c.Size > maxSize:
		return fault.Usagef("the size of the vocabulary is %d; expected at most %d", c.Size, maxSize)
	case c.Template != "" && !slices.Contains(Templates(), c.Template):
		return fault.Usagef("the template is %q; expected one of %s", c.Template, strings.Join(Templates(), ", "))
	case c.Cased && c.Type != WordPiece:
		return fault.Usagef("type %s always keeps case and accents; leave out --cased", c.Type)
	case c.Threads < 0:
		return fault.Usagef("%d threads; expected 0 or more", c.Threads)
	}
	return c.Corpus.validate()
}

// maxSize is far above the size of any real vocabulary.
const maxSize = 1 << 22

// Free returns an error of class fault.Usage for a folder that is there and not empty.
func Free(dir string) error {
	vfs.RemoveLeftovers(dir)
	entries, err := vfs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Usagef("%w; expected a folder that is empty or does not exist", err)
	}
	if len(entries) > 0 {
		return fault.Usagef("folder %s is not empty (it has %s); expected one that is empty or does not exist", dir, entries[0].Name())
	}
	return nil
}

// Train trains a tokenizer and writes it to the folder out, which must be free. The tokenizer.json is
// written whole.
func Train(ctx context.Context, cfg Config, out string, log *slog.Logger) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := Free(out); err != nil {
		return nil, err
	}
	family := newFamily(&cfg)
	words, result, err := cfg.count(ctx, family)
	if err != nil {
		return nil, err
	}
	log.Info("words counted", "texts", result.Texts, "words", len(words))
	model, err := cfg.train(ctx, family, words)
	if err != nil {
		return nil, err
	}
	data, err := family.file(model).Bytes()
	if err != nil {
		return nil, err
	}
	result.Template, result.Words = family.template, len(words)
	if err := vfs.MkdirAll(out, 0o777); err != nil {
		return nil, err
	}
	return result, vfs.ReplaceFile(vfs.Join(out, Name), data)
}

// train returns the model of the tokenizer.json.
func (c *Config) train(ctx context.Context, family *family, words []learn.Word) (json.RawMessage, error) {
	cfg := learn.Config{Size: c.Size, Specials: family.specials, Threads: c.Threads, Progress: func(done, total int64) { c.report("train", done, total, 0) }}
	switch c.Type {
	case Unigram:
		pieces, err := learn.Unigram(ctx, words, cfg)
		if err != nil {
			return nil, err
		}
		return unigramModel(pieces, family), nil
	case BPE:
		for b := range 256 {
			cfg.Alphabet = append(cfg.Alphabet, bpe.Char(byte(b)))
		}
		merges, err := learn.BPE(ctx, words, cfg)
		if err != nil {
			return nil, err
		}
		return bpeModel(merges), nil
	}
	tokens, err := learn.WordPiece(ctx, words, cfg)
	if err != nil {
		return nil, err
	}
	return wordPieceModel(tokens, family), nil
}

func (c *Config) report(phase string, done, total, rows int64) {
	if c.Progress != nil {
		c.Progress(phase, done, total, rows)
	}
}

// unreadable says which file cannot be used.
func unreadable(path, format string, args ...any) error {
	return fault.Usagef("%s %s", path, fmt.Sprintf(format, args...))
}
