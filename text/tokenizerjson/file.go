package tokenizerjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/text"
)

// MaxBytes is the maximum size of a tokenizer.json, far above that of any real one.
const MaxBytes = 256 << 20

// File is a tokenizer.json. Its parts are JSON objects with a type; null means that there is none.
type File struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []AddedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// AddedToken is a token that is found in a text before the model splits it.
type AddedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no letter or digit is next to it
	LStrip     bool   `json:"lstrip"`      // with the white space before it
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"` // looked for in the normalized text
	Special    bool   `json:"special"`    // left out of decoded text
}

// Error reports what is wrong with a tokenizer.json, or not known.
type Error struct {
	Path   string
	Reason error
}

func (e *Error) Error() string { return fmt.Sprintf("tokenizer %s: %v", e.Path, e.Reason) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Reason }

// Load reads a tokenizer.json of at most MaxBytes.
func Load(path string) (*text.Tokenizer, error) {
	data, err := vfs.ReadBounded(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return Parse(data, path)
}

// Parse returns the tokenizer of the bytes of a tokenizer.json; name is that of the file in errors. The
// error is an [Error].
func Parse(data []byte, name string) (*text.Tokenizer, error) {
	f, err := ReadFile(data)
	if err != nil {
		return nil, &Error{name, err}
	}
	t, err := f.Tokenizer()
	if err != nil {
		return nil, &Error{name, err}
	}
	return t, nil
}

// ReadFile returns the parts of a tokenizer.json, which are not checked.
func ReadFile(data []byte) (*File, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8; expected a tokenizer.json")
	}
	var f File
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if len(f.Model) == 0 || string(f.Model) == "null" {
		return nil, errors.New(`no "model"; expected a tokenizer.json`)
	}
	if f.Version != "" && f.Version != "1.0" {
		return nil, fmt.Errorf("version %q; expected 1.0", f.Version)
	}
	return &f, nil
}

// Bytes returns the file as the library writes it.
func (f *File) Bytes() ([]byte, error) {
	out := *f
	if out.Version == "" {
		out.Version = "1.0"
	}
	if out.AddedTokens == nil {
		out.AddedTokens = []AddedToken{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(out); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// typeOf returns the type of a part, and "" if there is none.
func typeOf(raw json.RawMessage, what string) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var t struct{ Type string }
	if err := json.Unmarshal(raw, &t); err != nil || t.Type == "" {
		return "", fmt.Errorf(`%s is not an object with a "type"`, what)
	}
	return t.Type, nil
}

// options reads the options of a part. One that is not known is an error.
func options(raw json.RawMessage, to any) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	var name string
	_ = json.Unmarshal(fields["type"], &name)
	delete(fields, "type")
	rest, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(rest))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func unknown(what, name string) error {
	return fmt.Errorf("%s %q is not known; expected one that docs/reference/tokenizers.md lists", what, name)
}
