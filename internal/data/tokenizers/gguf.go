package tokenizers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/gguf"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// splitting is how text is divided before byte pairs are merged, by the names that llama.cpp has for it
// (tokenizer.ggml.pre): what the tokenizer.json of the models of that name has.
type splitting struct {
	normalizer any
	// before are the pre-tokenizers before that of bytes, and words is whether the latter divides as GPT-2.
	before []object
	words  bool
	// whole takes a word that is a token as it is; begins puts the first token before a text unless the
	// file says otherwise.
	whole, begins bool
}

var (
	gpt2Splitting  = splitting{words: true}
	llama3Patterns = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Patterns  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splittings     = map[string]splitting{
		"gpt-2":     gpt2Splitting,
		"gpt2":      gpt2Splitting,
		"smollm":    {before: []object{{"type": "Digits", "individual_digits": true}}, words: true},
		"qwen2":     {before: []object{splitBy(qwen2Patterns)}, normalizer: object{"type": "NFC"}},
		"llama-bpe": {before: []object{splitBy(llama3Patterns)}, whole: true, begins: true},
	}
)

func splitBy(pattern string) object {
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

// The kinds of tokens in tokenizer.ggml.token_type that are found in a text as they are.
const (
	controlToken = 3
	userToken    = 4
)

// openGGUF returns the tokenizer of a model of llama.cpp as a tokenizer.json.
func openGGUF(path string) (_ *File, err error) {
	f, err := vfs.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	header, err := gguf.Parse(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", path, err)
	}
	content, err := fromGGUF(header.Values)
	if err != nil {
		return nil, fault.Usagef("tokenizer %s: %w", path, err)
	}
	t, err := tokenizerjson.Parse(content, path)
	if err != nil {
		return nil, err
	}
	out := &File{Path: path, Name: JSON, Content: content, Tokenizer: t}
	out.Chat, out.ChatErr = chatOfGGUF(path, header.Values)
	return out, nil
}

// fromGGUF makes a tokenizer.json of the metadata of a file.
func fromGGUF(values map[string]any) ([]byte, error) {
	const at = "tokenizer.ggml."
	if kind := values[at+"model"]; kind != "gpt2" {
		return nil, fmt.Errorf(`tokenizer.ggml.model is %q; expected "gpt2", byte pairs: name the tokenizer.json or the .model of SentencePiece that is with the model`, fmt.Sprint(kind))
	}
	pre, _ := values[at+"pre"].(string)
	how, ok := splittings[pre]
	if !ok {
		return nil, fmt.Errorf("tokenizer.ggml.pre is %q; expected one of %s: name the tokenizer.json that is with the model", pre, strings.Join(slices.Sorted(maps.Keys(splittings)), ", "))
	}
	tokens, _ := values[at+"tokens"].([]string)
	merges, _ := values[at+"merges"].([]string)
	kinds, _ := values[at+"token_type"].([]int64)
	if len(tokens) == 0 || len(kinds) != len(tokens) {
		return nil, fmt.Errorf("it has %d tokens and %d kinds of them; expected as many of both", len(tokens), len(kinds))
	}
	if space, _ := values[at+"add_space_prefix"].(bool); space {
		return nil, errors.New("tokenizer.ggml.add_space_prefix is true; expected false for byte pairs")
	}
	var out tokenizerjson.File
	ids := make(map[string]int, len(tokens))
	for id, token := range tokens {
		if first, twice := ids[token]; twice {
			return nil, fmt.Errorf("tokens %d and %d are both %q", first, id, token)
		}
		ids[token] = id
		if kinds[id] == controlToken || kinds[id] == userToken {
			out.AddedTokens = append(out.AddedTokens, tokenizerjson.AddedToken{ID: int32(id), Content: token, Special: kinds[id] == controlToken})
		}
	}
	bytesOf := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": how.words}
	out.Normalizer = part(how.normalizer)
	out.PreTokenizer = part(object{"type": "Sequence", "pretokenizers": append(slices.Clone(how.before), bytesOf)})
	out.Decoder = part(object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
	out.Model = part(object{"type": "BPE", "vocab": ids, "merges": merges, "ignore_merges": how.whole})
	begins, err := ends(values, tokens, at+"add_bos_token", at+"bos_token_id", how.begins)
	if err != nil {
		return nil, err
	}
	stops, err := ends(values, tokens, at+"add_eos_token", at+"eos_token_id", false)
	if err != nil {
		return nil, err
	}
	if begins+stops != "" {
		around := func(texts ...string) string {
			var parts []string
			for _, one := range texts {
				parts = append(parts, strings.Fields(begins+" "+one+" "+stops)...)
			}
			return strings.Join(parts, " ")
		}
		own := map[string]int32{}
		for _, token := range []string{begins, stops} {
			if token != "" {
				own[token] = int32(ids[token])
			}
		}
		special := map[string]object{}
		out.PostProcessor = part(object{
			"type": "TemplateProcessing", "single": template(around("$A"), own, special), "pair": template(around("$A", "$B:1"), own, special),
			"special_tokens": special,
		})
	}
	return out.Bytes()
}

// ends returns the token that is put at an end of a text, or "" for none.
func ends(values map[string]any, tokens []string, flag, key string, otherwise bool) (string, error) {
	add, given := values[flag].(bool)
	if !given && !otherwise || given && !add {
		return "", nil
	}
	id, ok := values[key].(int64)
	if !ok || id < 0 || id >= int64(len(tokens)) {
		return "", fmt.Errorf("%s is %.64s; expected a token, which %s needs", key, fmt.Sprint(values[key]), flag)
	}
	if token := tokens[id]; strings.ContainsAny(token, " \t\n$:") || token == "" {
		return "", fmt.Errorf("%s is %q; expected a token without spaces, dollars and colons", key, token)
	}
	return tokens[id], nil
}
