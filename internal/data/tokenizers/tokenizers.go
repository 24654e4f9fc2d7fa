// Package tokenizers opens the file of a tokenizer, of whatever kind: a tokenizer.json, a vocab.txt of
// WordPiece, a .model of SentencePiece, the metadata of a GGUF
// (gguf.go), or a folder that has one of the first three.
//
// Of a folder, what the files of Hugging Face's transformers beside it say counts, too, or is refused
// (settings.go). With them a .model becomes the tokenizer.json that transformers makes of it (family.go).
package tokenizers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/gguf"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/chat"
	"github.com/gorbit-ml/gorbit/text/sentencepiece"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// The names of the files, also of the copies in datasets, runs and models.
const (
	Vocab = "vocab.txt"
	JSON  = "tokenizer.json"
	Model = "tokenizer.model"
)

// Names are all of them, in the order in which they are looked for.
var Names = []string{JSON, Model, Vocab}

// modelSuffix is what the names of SentencePiece's models end with.
const modelSuffix = ".model"

// expected is what a tokenizer is.
const expected = "a tokenizer.json, a .model of SentencePiece or a vocab.txt"

// MaxBytes is the maximum size of a file, far above that of any real one.
const MaxBytes = tokenizerjson.MaxBytes

// File is a tokenizer with the file that it comes from.
type File struct {
	Path string
	// Name is the name of a copy: Vocab, JSON or Model. Content is that of the copy.
	Name      string
	Content   []byte
	Tokenizer *text.Tokenizer
	// Config is how text is prepared for a vocab.txt: as the caller said, or the folder of the file.
	Config text.Config
	// MaxLength is the most tokens of a text, as the folder of the file says it; 0 if it does not.
	MaxLength int
	// Chat is the chat template of the folder or of the GGUF; nil if there is none. ChatErr is why there is
	// none that can be used, which matters to conversations alone.
	Chat    *chat.Format
	ChatErr error
}

// Open reads a tokenizer. cfg is how text is prepared for a vocab.txt; other files say that themselves. Of a
// folder it takes the tokenizer.json, the .model or the vocab.txt; there may be more of them if they have
// the same tokens.
func Open(path string, cfg text.Config) (*File, error) {
	files, err := find(path)
	if err != nil {
		return nil, err
	}
	f, err := openFile(files[0], cfg)
	if err != nil || len(files) == 1 && files[0] == path {
		return f, err
	}
	s, err := readSettings(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if s != nil {
		if f, err = s.apply(f, cfg); err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
	}
	f.Chat, f.ChatErr = readChat(path, s)
	for _, other := range files[1:] {
		if err := agree(f, other); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// openFile reads the file of a tokenizer.
func openFile(path string, cfg text.Config) (*File, error) {
	if gguf.Looks(path) {
		return openGGUF(path)
	}
	content, err := vfs.ReadBounded(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("vocabulary: %w", err)
	}
	f := &File{Path: path, Name: nameOf(content, path), Content: content, Config: cfg}
	f.Tokenizer, err = Parse(content, path, cfg)
	return f, err
}

// apply returns a tokenizer as the settings say that it is used.
func (s *settings) apply(f *File, cfg text.Config) (*File, error) {
	if err := s.known(); err != nil {
		return nil, err
	}
	var defaults map[string]string
	var err error
	switch f.Name {
	case Model:
		family, err := familyOf(s)
		if err != nil {
			return nil, err
		}
		if family.pairs == nil {
			defaults = family.tokens
		}
		m, err := sentencepiece.Parse(f.Content)
		if err != nil {
			return nil, err
		}
		content, err := family.convert(m, s)
		if err != nil {
			return nil, fault.Usagef("%s: %w", f.Path, err)
		}
		f = &File{Path: f.Path, Name: JSON, Content: content}
		if f.Tokenizer, err = tokenizerjson.Parse(content, f.Path); err != nil {
			return nil, err
		}
	case Vocab:
		if cfg, err = s.bert(cfg); err != nil {
			return nil, err
		}
		if f.Tokenizer, err = text.NewTokenizer(f.Tokenizer.Vocab(), cfg); err != nil {
			return nil, err
		}
		f.Config = cfg
	}
	f.MaxLength = s.maxLength()
	return f, s.check(f, defaults)
}

// agree refuses a folder whose other file has other tokens than the one that is taken.
func agree(f *File, other string) error {
	content, err := vfs.ReadBounded(other, MaxBytes)
	if err != nil {
		return fmt.Errorf("vocabulary: %w", err)
	}
	differ := func(id int32, token string) error {
		return fault.Usagef("a folder has two tokenizers that differ: token %d of %s is %q, which is not that of %s; expected one of them: name the file", id, other, token, f.Path)
	}
	a, name := f.Tokenizer.Vocab(), nameOf(content, other)
	switch {
	case name == Model && !sentencepiece.Looks(content):
		return nil // another program's
	case name == Vocab:
		return agreeLines(a, content, differ)
	}
	t, err := Parse(content, other, text.Config{})
	if err != nil {
		return err
	}
	for id := range int32(t.Vocab().Size()) {
		token := t.Vocab().Token(id)
		if _, ok := a.ID(token); token != "" && !ok {
			return differ(id, token)
		}
	}
	return nil
}

// agreeLines holds a vocab.txt against a vocabulary. Of a token that occurs twice the last line counts.
func agreeLines(v *text.Vocab, content []byte, differ func(id int32, token string) error) error {
	later := map[int32]string{} // what lines to come must have
	id := int32(0)
	for line := range bytes.Lines(bytes.TrimPrefix(content, []byte("\ufeff"))) {
		token := string(bytes.TrimRightFunc(line, unicode.IsSpace))
		switch is, ok := v.ID(token); {
		case token == "":
		case !ok || is < id:
			return differ(id, token)
		case is > id:
			later[is] = token
		default:
			delete(later, id)
		}
		id++
	}
	for id, token := range later {
		return differ(id, token)
	}
	return nil
}

// Find returns the file of a tokenizer, given that file or its folder.
func Find(path string) (string, error) {
	files, err := find(path)
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// find returns the files of tokenizers, the one to take first, given a file or a folder.
func find(path string) ([]string, error) {
	if info, err := vfs.Stat(path); err != nil || !info.IsDir() {
		return []string{path}, nil // reading it says what is wrong
	}
	entries, err := vfs.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("vocabulary: %w", err)
	}
	byName := map[string][]string{}
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == JSON || name == Vocab:
			byName[name] = append(byName[name], vfs.Join(path, name))
		case strings.HasSuffix(name, modelSuffix) && !e.IsDir():
			byName[Model] = append(byName[Model], vfs.Join(path, name))
		}
	}
	var files []string
	for _, name := range Names {
		files = append(files, byName[name]...)
	}
	switch {
	case len(files) == 0:
		return nil, fault.Usagef("folder %s has no tokenizer; expected %s in it", path, expected)
	case len(byName[Model]) > 1:
		return nil, fault.Usagef("folder %s has two tokenizers, %s and %s; expected one: name the file", path, byName[Model][0], byName[Model][1])
	case byName[JSON] == nil && len(files) > 1:
		return nil, fault.Usagef("folder %s has two tokenizers, %s and %s; expected one: name the file", path, files[0], files[1])
	}
	return files, nil
}

// SaysCase reports whether a path is that of a file that says itself whether case is kept, or of a folder
// with one. It is false for what cannot be read.
func SaysCase(path string) bool {
	path, err := Find(path)
	if err != nil || !exists(path) {
		return false
	}
	if gguf.Looks(path) {
		return true
	}
	content, err := vfs.ReadBounded(path, MaxBytes)
	return err == nil && nameOf(content, path) != Vocab
}

// Exists returns the file of a tokenizer in a folder, under the name of a copy, and "" if there is none.
func Exists(folder string) string {
	for _, name := range Names {
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
func NameOf(content []byte) string { return nameOf(content, "") }

// nameOf is NameOf, if the name of the file says more than its content.
func nameOf(content []byte, path string) string {
	switch {
	case bytes.HasPrefix(bytes.TrimLeft(content, "\ufeff \t\r\n"), []byte("{")) && bytes.Contains(content, []byte(`"model"`)):
		return JSON
	case strings.HasSuffix(path, modelSuffix) || sentencepiece.Looks(content):
		return Model
	}
	return Vocab
}

// Parse returns the tokenizer of a file's content; path names it in errors. cfg is as for Open.
func Parse(content []byte, path string, cfg text.Config) (*text.Tokenizer, error) {
	switch nameOf(content, path) {
	case JSON:
		return tokenizerjson.Parse(content, path)
	case Model:
		m, err := sentencepiece.Parse(content)
		if err != nil {
			return nil, fmt.Errorf("tokenizer %s: %w", path, err)
		}
		return m.Tokenizer(), nil
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

// Difference says in what two tokenizers differ: their tokens, or other parts of the same kind of file. It is
// "" if they do not. A vocab.txt has no other parts.
func Difference(a, b *File) string {
	va, vb := a.Tokenizer.Vocab(), b.Tokenizer.Vocab()
	if va.Size() != vb.Size() {
		return fmt.Sprintf("%d tokens there and %d here", va.Size(), vb.Size())
	}
	for id := range int32(va.Size()) {
		if va.Token(id) != vb.Token(id) {
			return fmt.Sprintf("token %d is %q there and %q here", id, va.Token(id), vb.Token(id))
		}
	}
	switch {
	case a.Name == Model && b.Name == Model && !bytes.Equal(a.Content, b.Content):
		return "scores, normalization or kinds of tokens of another SentencePiece model there and here"
	case a.Name != b.Name && (a.Name == Model || b.Name == Model):
		return fmt.Sprintf("a %s there and a %s here", a.Name, b.Name)
	case a.Name != JSON || b.Name != JSON:
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
