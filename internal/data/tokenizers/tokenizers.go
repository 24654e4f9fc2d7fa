// Package tokenizers opens the file of a tokenizer, of whatever kind: a vocab.txt of WordPiece, a
// tokenizer.json, or a folder that has one of them.
package tokenizers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// The names of the files, also of the copies in datasets, runs and models.
const (
	Vocab = "vocab.txt"
	JSON  = "tokenizer.json"
)

// MaxBytes is the maximum size of a file, far above that of any real one.
const MaxBytes = tokenizerjson.MaxBytes

// File is a tokenizer with the file that it comes from.
type File struct {
	Path string
	// Name is the name of a copy, Vocab or JSON.
	Name      string
	Content   []byte
	Tokenizer *text.Tokenizer
}

// Open reads a tokenizer. Of a folder it takes the tokenizer.json, or else the vocab.txt. cfg is how
// text is prepared for a vocab.txt; a tokenizer.json says that itself.
func Open(path string, cfg text.Config) (*File, error) {
	path, err := Find(path)
	if err != nil {
		return nil, err
	}
	content, err := vfs.ReadBounded(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("vocabulary: %w", err)
	}
	f := &File{Path: path, Name: NameOf(content), Content: content}
	f.Tokenizer, err = Parse(content, path, cfg)
	return f, err
}

// Find returns the file of a tokenizer, given that file or its folder.
func Find(path string) (string, error) {
	if info, err := vfs.Stat(path); err != nil || !info.IsDir() {
		return path, nil // reading it says what is wrong
	}
	for _, name := range []string{JSON, Vocab} {
		file := vfs.Join(path, name)
		_, err := vfs.Stat(file)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("vocabulary: %w", err)
		}
	}
	return "", fault.Usagef("folder %s has no tokenizer; expected a %s or a %s in it", path, JSON, Vocab)
}

// IsJSON reports whether a path is that of a tokenizer.json, or of a folder with one. It is false for what
// cannot be read.
func IsJSON(path string) bool {
	path, err := Find(path)
	if err != nil || !exists(path) {
		return false
	}
	content, err := vfs.ReadBounded(path, MaxBytes)
	return err == nil && NameOf(content) == JSON
}

// Exists returns the file of a tokenizer in a folder, and "" if there is none.
func Exists(folder string) string {
	for _, name := range []string{JSON, Vocab} {
		if path := vfs.Join(folder, name); exists(path) {
			return path
		}
	}
	return ""
}

// exists reports whether there is a file. One that the machine cannot look at now may be there.
func exists(path string) bool {
	_, err := vfs.Stat(path)
	return err == nil || fault.OfMachine(err)
}

// Usage returns the error of Open as one of what the user gave, if the content of the file is wrong.
func Usage(err error) error {
	if errors.As(err, new(*text.VocabError)) || errors.As(err, new(*tokenizerjson.Error)) {
		return fault.Usagef("%w", err)
	}
	return err
}

// NameOf returns the name of a copy of a file with this content.
func NameOf(content []byte) string {
	if bytes.HasPrefix(bytes.TrimLeft(content, "\ufeff \t\r\n"), []byte("{")) && bytes.Contains(content, []byte(`"model"`)) {
		return JSON
	}
	return Vocab
}

// Parse returns the tokenizer of a file's content; path names it in errors. cfg is as for Open.
func Parse(content []byte, path string, cfg text.Config) (*text.Tokenizer, error) {
	if NameOf(content) == JSON {
		return tokenizerjson.Parse(content, path)
	}
	if strings.HasSuffix(path, ".model") {
		return nil, fault.Usagef("tokenizer %s is a model of SentencePiece, which data and runs do not take yet; expected its tokenizer.json, which Hugging Face's transformers makes of it", path)
	}
	if strings.HasSuffix(path, ".json") {
		return nil, fault.Usagef("tokenizer %s is not a tokenizer.json: it has no \"model\"", path)
	}
	v, err := text.ParseVocab(content, path)
	if err != nil {
		return nil, err
	}
	return text.NewTokenizer(v, cfg)
}

// Difference says in which parts two files differ that have the same tokens, and "" if in none. A
// vocab.txt has no other parts.
func Difference(a, b *File) string {
	if a.Name != JSON || b.Name != JSON {
		return ""
	}
	var parts [2]map[string]any
	for i, f := range []*File{a, b} {
		if err := json.Unmarshal(f.Content, &parts[i]); err != nil {
			return ""
		}
	}
	for _, name := range []string{"normalizer", "pre_tokenizer", "model", "post_processor", "added_tokens"} {
		if !reflect.DeepEqual(parts[0][name], parts[1][name]) {
			return fmt.Sprintf("another %s of its %s there and here", name, JSON)
		}
	}
	return ""
}
