package predict

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text/chat"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// TestChat checks the tokens of a conversation, and those that end an answer: the tokenizer's, the model's, and
// what the template puts after one.
func TestChat(t *testing.T) {
	tokenizer, err := tokenizerjson.Load("../../text/tokenizerjson/testdata/smollm.json")
	if err != nil {
		t.Fatal(err)
	}
	const chatml = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
	for name, c := range map[string]struct {
		format chat.Format
		ends   string
	}{
		"by the template":  {chat.Format{Template: chatml}, "[0 2]"},
		"by the eos_token": {chat.Format{Template: "{{ messages[0].content }}", Tokens: map[string]string{"eos_token": "<|im_start|>"}}, "[0 1]"},
		"by both":          {chat.Format{Template: chatml, Tokens: map[string]string{"eos_token": "<|im_end|>"}}, "[0 2]"},
		"by neither":       {chat.Format{Template: "{{ messages[0].content }}", Tokens: map[string]string{"eos_token": "</s>"}}, "[0]"},
		"after a space":    {chat.Format{Template: strings.ReplaceAll(chatml, "<|im_end|>\n", "\n <|im_end|>")}, "[0 2]"},
	} {
		got, err := NewChat(tokenizer, c.format)
		if err != nil || fmt.Sprint(got.EndTokens) != c.ends {
			t.Errorf("%s: %v, error %v; expected %s", name, got.EndTokens, err, c.ends)
		}
	}
	c, err := NewChat(tokenizer, chat.Format{Template: chatml})
	if err != nil {
		t.Fatal(err)
	}
	messages := []chat.Message{{Role: "user", Content: "who?"}}
	want := tokenizer.AppendIDs(nil, "<|im_start|>user\nwho?<|im_end|>\n<|im_start|>assistant\n")
	if got, err := c.Prompt(tokenizer, messages, 100); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, error %v; expected %v", got, err, want)
	}
	if _, err := c.Prompt(tokenizer, messages, len(want)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the conversation has %d tokens; expected less than the %d that the model takes", len(want), len(want))) {
		t.Error(err)
	}
	if _, err := NewChat(tokenizer, chat.Format{Template: "{% x %}"}); err == nil {
		t.Error("a template that is none")
	}
}
