package tokenizers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// The files of Hugging Face's transformers that say how a tokenizer is used.
const (
	configFile  = "tokenizer_config.json"
	specialFile = "special_tokens_map.json"
	addedFile   = "added_tokens.json" // of older releases: ids by token
	modelFile   = "config.json"
)

// maxSettings is the maximum size of one of them.
const maxSettings = 16 << 20

// settings is what the files beside a tokenizer say of it.
type settings struct {
	folder    string
	values    map[string]any // of tokenizer_config.json and special_tokens_map.json
	added     map[string]int // of added_tokens.json
	modelType string         // of config.json
}

// readSettings reads what a folder says of its tokenizer; nil if that is nothing.
func readSettings(folder string) (*settings, error) {
	s := &settings{folder: folder, values: map[string]any{}}
	found := false
	for _, name := range []string{specialFile, configFile} { // the later one counts
		var values map[string]any
		ok, err := readObject(vfs.Join(folder, name), &values)
		if err != nil {
			return nil, err
		}
		found = found || ok
		maps.Copy(s.values, values)
	}
	ok, err := readObject(vfs.Join(folder, addedFile), &s.added)
	if err != nil {
		return nil, err
	}
	found = found || ok
	var model struct {
		Type string `json:"model_type"`
	}
	if ok, err = readObject(vfs.Join(folder, modelFile), &model); err != nil {
		return nil, err
	}
	if s.modelType = model.Type; !found && !(ok && s.modelType != "") {
		return nil, nil
	}
	return s, nil
}

// readObject reads a JSON object, and reports whether there is one.
func readObject(path string, to any) (bool, error) {
	data, err := vfs.ReadBounded(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return false, fault.Usagef("%s is not a JSON object: %w", path, err)
	}
	return true, nil
}

// ignored are the keys of tokenizer_config.json that no id depends on.
var ignored = []string{
	"backend", "chat_template", "clean_up_tokenization_spaces", "device_map", "errors", "from_slow", "full_tokenizer_file",
	"is_local", "local_files_only", "max_length", "merges_file", "model_input_names", "model_specific_special_tokens",
	"name_or_path", "pad_to_multiple_of", "pad_token_type_id", "padding", "padding_side", "processor_class", "revision",
	"spaces_between_special_tokens", "special_tokens_map_file", "stride", "tokenizer_class", "tokenizer_file",
	"transformers_version", "trim_offsets", "unk_id", "truncation", "truncation_strategy", "use_default_system_prompt", "use_fast", "vocab_file", "vocab_size", "vocab_type",
}

// The kinds of values.
const (
	aFlag   = "true or false"
	aNumber = "a number"
	aText   = "a string"
	aList   = "a list"
	anObj   = "an object"
)

// used are the keys that are read, with the kinds of their values.
var used = map[string]string{
	"add_bos_token": aFlag, "add_eos_token": aFlag, "legacy": aFlag, "add_prefix_space": aFlag, "split_by_punct": aFlag, "do_lower_case": aFlag, "keep_accents": aFlag,
	"strip_accents": aFlag, "tokenize_chinese_chars": aFlag, "extra_ids": aNumber, "model_max_length": aNumber,
	"added_tokens_decoder": anObj, "additional_special_tokens": aList, "extra_special_tokens": aList + " or " + anObj,
}

// maxExtra is the maximum of extra_ids: every id takes memory.
const maxExtra = 1 << 16

// kind returns the kind of a value.
func kind(v any) string {
	switch v.(type) {
	case bool:
		return aFlag
	case float64:
		return aNumber
	case string:
		return aText
	case []any:
		return aList
	}
	return anObj
}

// plain are the keys that may have one value, that of which nothing changes.
var plain = map[string]any{"do_basic_tokenize": true, "remove_space": true, "truncation_side": "right", "split_special_tokens": false}

// errorf returns an error of what the settings say.
func (s *settings) errorf(format string, args ...any) error {
	return fault.Usagef("folder %s says %s", s.folder, fmt.Sprintf(format, args...))
}

// known refuses settings that are not known, and values that are not done here.
func (s *settings) known() error {
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		value := s.values[key]
		want, isPlain := plain[key]
		kinds, isUsed := used[key]
		if !isUsed && strings.HasSuffix(key, "_token") {
			kinds, isUsed = aText+" or "+anObj, true
		}
		extra, _ := value.(float64)
		empty := value == nil || !isUsed && (value == "" || fmt.Sprint(value) == "map[]" || fmt.Sprint(value) == "[]")
		switch {
		case empty || slices.Contains(ignored, key):
		case isUsed && !strings.Contains(kinds, kind(value)):
			return s.errorf("%s is %#v; expected %s", key, value, kinds)
		case key == "extra_ids" && (extra < 0 || extra > maxExtra || extra != math.Trunc(extra)):
			return s.errorf("%s is %v; expected a number from 0 to %d", key, value, maxExtra)
		case isUsed:
		case isPlain && value == want:
		case isPlain:
			return s.errorf("%s is %v, which is not done here; expected %v", key, value, want)
		default:
			return s.errorf("%s is %v, and what that changes is not known here; name the file of the tokenizer, to take it without its settings", key, value)
		}
	}
	return nil
}

// text, number and flag return a value, or what holds without one.
func (s *settings) text(key string) string {
	v, _ := s.values[key].(string)
	return v
}

func (s *settings) number(key string, otherwise int) int {
	if v, ok := s.values[key].(float64); ok && v >= 0 && v <= math.MaxInt32 {
		return int(v)
	}
	return otherwise
}

func (s *settings) flag(key string, otherwise bool) bool {
	if v, ok := s.values[key].(bool); ok {
		return v
	}
	return otherwise
}

// maxLength is the most tokens of a text, 0 if that is not said. Very large numbers mean that.
func (s *settings) maxLength() int {
	if v, ok := s.values["model_max_length"].(float64); ok && v >= 1 && v < 1e9 {
		return int(v)
	}
	return 0
}

// added is a token that settings tell of: its name, or an object.
type added struct {
	tokenizerjson.AddedToken
	flags bool // they are given
}

func addedOf(v any) (a added, ok bool) {
	if a.Content, ok = v.(string); ok {
		return a, true
	}
	m, ok := v.(map[string]any)
	if !ok {
		return a, false
	}
	a.Content, ok = m["content"].(string)
	if _, a.flags = m["lstrip"]; a.flags {
		is := func(key string) bool { v, _ := m[key].(bool); return v }
		a.SingleWord, a.LStrip, a.RStrip, a.Normalized = is("single_word"), is("lstrip"), is("rstrip"), is("normalized")
		a.Special = is("special")
	}
	return a, ok
}

// tokens calls each with the tokens of the settings and the key that has them; id is -1 if that is not
// said.
func (s *settings) tokens(each func(key string, a added, id int) error) error {
	var all []func() error
	add := func(key string, v any, id int) {
		all = append(all, func() error {
			a, ok := addedOf(v)
			if !ok {
				return s.errorf("%s is %v; expected a token", key, v)
			}
			return each(key, a, id)
		})
	}
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		switch v := s.values[key].(type) {
		case map[string]any:
			if strings.HasSuffix(key, "_token") {
				add(key, v, -1)
			}
			for _, inner := range slices.Sorted(maps.Keys(v)) {
				if key == "added_tokens_decoder" {
					id, err := strconv.Atoi(inner)
					if err != nil || id < 0 {
						return s.errorf("%s has the id %q; expected a number", key, inner)
					}
					add(key, v[inner], id)
				} else if key == "extra_special_tokens" {
					add(key, v[inner], -1)
				}
			}
		case []any:
			for _, token := range v {
				if key == "additional_special_tokens" || key == "extra_special_tokens" {
					add(key, token, -1)
				}
			}
		case string:
			if strings.HasSuffix(key, "_token") {
				add(key, v, -1)
			}
		}
	}
	for _, token := range slices.Sorted(maps.Keys(s.added)) {
		if s.added[token] < 0 {
			return fault.Usagef("%s has the id %d for %q; expected 0 or more", vfs.Join(s.folder, addedFile), s.added[token], token)
		}
		add(addedFile, token, s.added[token])
	}
	for _, do := range all {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// flags returns the tokens of which the settings have flags.
func (s *settings) flags() map[string]added {
	all := map[string]added{}
	_ = s.tokens(func(_ string, a added, _ int) error { // check returns the error
		if a.flags {
			all[a.Content] = a
		}
		return nil
	})
	return all
}

// bert applies settings to those of a vocab.txt. BERT's tokenizer lowers case unless it says otherwise.
func (s *settings) bert(cfg text.Config) (text.Config, error) {
	if class := strings.TrimSuffix(s.text("tokenizer_class"), "Fast"); class != "" && !slices.Contains([]string{"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "PreTrainedTokenizer"}, class) {
		return cfg, s.errorf("that the tokenizer is a %s, whose vocab.txt is not read as BERT's; expected a tokenizer.json, which transformers' save_pretrained writes", class)
	}
	lower := s.flag("do_lower_case", true)
	if lower && !cfg.Lowercase {
		return cfg, s.errorf("that case is lowered, as BERT does unless " + configFile + " has do_lower_case false, and --cased or the data say that it is kept; expected the same")
	}
	strips := s.flag("strip_accents", lower)
	if was := cfg.Accents == text.StripAccents || cfg.Accents == text.AccentsByCase && lower; was != strips {
		cfg.Accents = text.KeepAccents
		if strips {
			cfg.Accents = text.StripAccents
		}
	}
	cfg.Lowercase = lower
	cfg.JoinIdeographs = !s.flag("tokenize_chinese_chars", true)
	return cfg, nil
}

// check refuses a tokenizer that does not do what the settings say.
func (s *settings) check(f *File, defaults map[string]string) error {
	vocab, name := f.Tokenizer.Vocab(), path.Base(f.Path)
	flags := map[string]tokenizerjson.AddedToken{}
	if file, err := tokenizerjson.ReadFile(f.Content); f.Name == JSON && err == nil {
		for _, t := range file.AddedTokens {
			flags[t.Content] = t
		}
	}
	err := s.tokens(func(key string, a added, id int) error {
		if want, ok := defaults[key]; ok && a.Content != want {
			return s.errorf("that %s is %q; expected %q, as models of this kind have it", key, a.Content, want)
		}
		is, ok := vocab.ID(a.Content)
		switch {
		case !ok:
			return s.errorf("%s %q, which %s has not; expected a tokenizer with all its tokens", key, a.Content, name)
		case id >= 0 && int(is) != id:
			return s.errorf("%s %q with the id %d; in %s it has %d", key, a.Content, id, name, is)
		}
		t, ok := flags[a.Content]
		if f.Name == Vocab {
			t, ok = tokenizerjson.AddedToken{}, slices.Contains([]string{text.Pad, text.Unk, text.Cls, text.Sep, text.Mask}, a.Content)
		}
		if a.flags && (!ok || [4]bool{a.SingleWord, a.LStrip, a.RStrip, a.Normalized} != [4]bool{t.SingleWord, t.LStrip, t.RStrip, t.Normalized}) {
			return s.errorf("of token %q other single_word, lstrip, rstrip or normalized than %s; expected the same", a.Content, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if f.Name == Vocab {
		return nil // bert applied the others
	}
	return s.behaves(f.Tokenizer, name, bytes.Contains(f.Content, []byte(`"Precompiled"`)))
}

// behaves refuses a tokenizer that treats texts otherwise than the settings say. A table of normalization may
// change letters, whatever they say.
func (s *settings) behaves(t *text.Tokenizer, name string, table bool) error {
	unk := t.Roles().Unk
	same := func(a, b string) bool { return slices.Equal(t.AppendIDs(nil, a), t.AppendIDs(nil, b)) }
	begins := func(marks ...string) bool { // a text that has no space before it
		ids := t.AppendIDs(nil, "a")
		return len(ids) > 0 && slices.ContainsFunc(marks, func(m string) bool { return strings.HasPrefix(t.Vocab().Token(ids[0]), m) })
	}
	knows := func(a string) bool { return !slices.Contains(t.AppendIDs(nil, a), unk) }
	for _, c := range []struct {
		key, a, b string
	}{{"do_lower_case", "a", "A"}, {"strip_accents", "e", "\u00e9"}, {"add_prefix_space", "a", " a"}, {"tokenize_chinese_chars", "\u4e2d \u6587", "\u4e2d\u6587"}} {
		says, ok := s.values[c.key].(bool)
		does := same(c.a, c.b)
		switch {
		case c.key == "add_prefix_space" && says:
			does = does || begins("\u2581", "\u0120")
		case c.key == "add_prefix_space": // many tokenizers pass over spaces, whatever it is
			does = begins("\u0120")
		case !says && table:
			continue
		}
		if ok && does != says && (says || knows(c.b)) {
			return s.errorf("that %s is %v, and %s does not do so; mend one of them, or name the file, to take it without its settings", c.key, says, name)
		}
	}
	frame := t.Template().Single
	for _, c := range []struct {
		key, token string
		specials   []text.Special
	}{{"add_bos_token", "bos_token", frame.Before}, {"add_eos_token", "eos_token", frame.After}} {
		says, ok := s.values[c.key].(bool)
		a, _ := addedOf(s.values[c.token])
		id, _ := t.Vocab().ID(a.Content)
		does := slices.ContainsFunc(c.specials, func(p text.Special) bool { return p.ID == id })
		if ok && does != says {
			return s.errorf("that %s is %v, and %s does not do so; mend one of them, or name the file, to take it without its settings", c.key, says, name)
		}
	}
	return nil
}
