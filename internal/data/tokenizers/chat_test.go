package tokenizers

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/chat"
)

// TestChat checks where the chat template of a folder comes from, and with which special tokens.
func TestChat(t *testing.T) {
	tokens := map[string]string{"sep_token": "[SEP]"}
	for name, c := range map[string]struct {
		files map[string]string
		want  *chat.Format
		err   string
	}{
		"settings":       {map[string]string{configFile: `{"chat_template": "a{{ sep_token }}", "sep_token": "[SEP]"}`}, &chat.Format{Template: "a{{ sep_token }}", Tokens: tokens}, ""},
		"another file":   {map[string]string{configFile: `{"chat_template": "a", "sep_token": {"content": "[SEP]"}}`, chatFile: "b\n"}, &chat.Format{Template: "b\n", Tokens: tokens}, ""},
		"alone":          {map[string]string{chatFile: "b"}, &chat.Format{Template: "b", Tokens: map[string]string{}}, ""},
		"null":           {map[string]string{configFile: `{"chat_template": "{{ bos_token }}", "bos_token": null}`}, &chat.Format{Template: "{{ bos_token }}", Tokens: map[string]string{}}, ""},
		"named":          {map[string]string{configFile: `{"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "b"}]}`}, &chat.Format{Template: "b", Tokens: map[string]string{}}, ""},
		"none":           {map[string]string{configFile: `{"sep_token": "[SEP]"}`}, nil, ""},
		"no default":     {map[string]string{configFile: `{"chat_template": [{"name": "tool_use", "template": "x"}]}`}, nil, "chat templates of which none is named default"},
		"no template":    {map[string]string{configFile: `{"chat_template": 3}`}, nil, "chat_template is 3; expected a template"},
		"unknown token":  {map[string]string{configFile: `{"chat_template": "{{ eos_token }}"}`}, nil, "nothing of eos_token, which its chat template names; expected it in tokenizer_config.json, null for none"},
		"unknown syntax": {map[string]string{chatFile: "a\n{% import 'x' %}"}, nil, `its chat template is not known here: line 2 of the chat template: the statement "import" is not known here`},
		"too large":      {map[string]string{chatFile: strings.Repeat("x", 1<<20+1)}, nil, "1048576"},
	} {
		dir := t.TempDir()
		files := map[string][]byte{Vocab: []byte("[UNK]\n[CLS]\n[SEP]\na\n")}
		for n, content := range c.files {
			files[n] = []byte(content)
		}
		write(t, dir, files)
		f, err := Open(dir, text.Uncased())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if (f.ChatErr != nil) != (c.err != "") || f.ChatErr != nil && !strings.Contains(f.ChatErr.Error(), c.err) {
			t.Errorf("%s: error %v; expected %q", name, f.ChatErr, c.err)
		}
		if f.ChatErr == nil && !reflect.DeepEqual(f.Chat, c.want) {
			t.Errorf("%s: %+v; expected %+v", name, f.Chat, c.want)
		}
	}
}

// TestChatOfGGUF checks the names of special tokens in the metadata of llama.cpp.
func TestChatOfGGUF(t *testing.T) {
	values := map[string]any{
		"tokenizer.chat_template": "{{ bos_token }}", "tokenizer.ggml.tokens": []string{"<s>", "</s>", "a"},
		"tokenizer.ggml.bos_token_id": int64(0), "tokenizer.ggml.eos_token_id": int64(1), "tokenizer.ggml.padding_token_id": int64(3),
	}
	want := &chat.Format{Template: "{{ bos_token }}", Tokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
	if got, err := chatOfGGUF("x.gguf", values); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, error %v; expected %+v", got, err, want)
	}
	values["tokenizer.chat_template"] = "{% nothing %}"
	if _, err := chatOfGGUF("x.gguf", values); err == nil || !strings.Contains(err.Error(), `x.gguf: its chat template is not known here`) {
		t.Error(err)
	}
	delete(values, "tokenizer.chat_template")
	if got, err := chatOfGGUF("x.gguf", values); got != nil || err != nil {
		t.Errorf("%+v, error %v; expected none", got, err)
	}
}
