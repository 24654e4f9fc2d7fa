package predict

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/chat"
)

// Chat says how conversations are continued.
type Chat struct {
	Template *chat.Template
	// EndTokens end what the assistant says: EndTokens, the eos_token of the template's model, and the special
	// token that the template puts after a message of the assistant.
	EndTokens []int32
}

// NewChat returns how conversations are continued by a template. Its end tokens are those of the tokenizer.
func NewChat(t *text.Tokenizer, f chat.Format) (*Chat, error) {
	template, err := chat.New(f)
	if err != nil {
		return nil, err
	}
	c := &Chat{template, EndTokens(t)}
	add := func(id int32) {
		if !slices.Contains(c.EndTokens, id) {
			c.EndTokens = append(c.EndTokens, id)
		}
	}
	if id, ok := t.Vocab().ID(f.Tokens["eos_token"]); ok {
		add(id)
	}
	const answer = "ANSWER"
	said, spans, err := template.Answers([]chat.Message{{Role: "user", Content: "QUESTION"}, {Role: chat.Assistant, Content: answer}})
	if err != nil || len(spans) != 1 {
		return c, nil // what a conversation may not be; the eos_token ends it
	}
	if _, after, ok := strings.Cut(said[spans[0].From:spans[0].To], answer); ok {
		for _, id := range t.AppendIDs(nil, after) {
			if t.Decode([]int32{id}, false) == "" && t.Decode([]int32{id}, true) != "" {
				add(id)
				break
			}
		}
	}
	return c, nil
}

// With returns the chat with more values of its template, as chat.Template.With does.
func (c *Chat) With(values map[string]json.RawMessage) (*Chat, error) {
	t, err := c.Template.With(values)
	return &Chat{t, c.EndTokens}, err
}

// Prompt returns the tokens after which the assistant answers. Special tokens are those that the template
// writes. It returns an error unless they are less than most, which a model takes.
func (c *Chat) Prompt(t *text.Tokenizer, messages []chat.Message, most int) ([]int32, error) {
	rendered, err := c.Template.Render(messages, true)
	if err != nil {
		return nil, err
	}
	ids, more := t.AppendFirst(nil, rendered, most)
	switch n := len(ids) + more; {
	case n == 0:
		return nil, errors.New("the chat template writes nothing")
	case n >= most:
		return nil, fmt.Errorf("the conversation has %d tokens; expected less than the %d that the model takes", n, most)
	}
	return ids, nil
}
