package tokenizers

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/jinja"
	"github.com/gorbit-ml/gorbit/text/chat"
)

// chatFile is the file of a chat template of its own, which counts before that of tokenizer_config.json.
const chatFile = "chat_template.jinja"

// specials are the special tokens that a template may name.
var specials = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

var ofSpecial = regexp.MustCompile(`\b(?:` + strings.Join(specials, "|") + `)\b`)

// readChat returns the chat template of a folder, or nil if it has none. s may be nil.
func readChat(folder string, s *settings) (*chat.Format, error) {
	if s == nil {
		s = &settings{folder: folder}
	}
	f := &chat.Format{Tokens: map[string]string{}}
	data, err := vfs.ReadBounded(vfs.Join(folder, chatFile), jinja.MaxSource)
	switch {
	case err == nil:
		f.Template = string(data)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	default:
		if f.Template, err = s.chat(); err != nil || f.Template == "" {
			return nil, err
		}
	}
	for _, name := range specials {
		if a, ok := addedOf(s.values[name]); ok {
			f.Tokens[name] = a.Content
		}
	}
	for _, name := range ofSpecial.FindAllString(f.Template, -1) {
		if _, given := s.values[name]; !given {
			return nil, s.errorf("nothing of %s, which its chat template names; expected it in %s, null for none", name, configFile)
		}
	}
	return f, checkChat(folder, f)
}

// chat returns the chat template of tokenizer_config.json, or "". Of several it is that which transformers
// takes for conversations without tools.
func (s *settings) chat() (string, error) {
	switch v := s.values["chat_template"].(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []any:
		for _, one := range v {
			m, _ := one.(map[string]any)
			if template, ok := m["template"].(string); ok && m["name"] == "default" {
				return template, nil
			}
		}
		return "", s.errorf("chat templates of which none is named default; expected one")
	default:
		return "", s.errorf("chat_template is %.60v; expected a template", v)
	}
}

// chatOfGGUF returns the chat template of the metadata of a file, or nil.
func chatOfGGUF(path string, values map[string]any) (*chat.Format, error) {
	const at = "tokenizer."
	template, _ := values[at+"chat_template"].(string)
	if template == "" {
		return nil, nil
	}
	f := &chat.Format{Template: template, Tokens: map[string]string{}}
	tokens, _ := values[at+"ggml.tokens"].([]string)
	for name, key := range map[string]string{"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "sep_token": "seperator", "pad_token": "padding", "cls_token": "cls", "mask_token": "mask"} {
		if id, ok := values[at+"ggml."+key+"_token_id"].(int64); ok && id >= 0 && id < int64(len(tokens)) {
			f.Tokens[name] = tokens[id]
		}
	}
	return f, checkChat(path, f)
}

func checkChat(path string, f *chat.Format) error {
	if _, err := chat.New(*f); err != nil {
		return fault.Usagef("%s: %w", path, fmt.Errorf("its chat template is not known here: %w", err))
	}
	return nil
}
