package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/text/chat"
)

// conversation is the body of POST /v1/chat/completions.
type conversation struct {
	sampling
	Messages            []message `json:"messages"`
	MaxCompletionTokens *int      `json:"max_completion_tokens"`
	// Tools and the values of ChatTemplateKwargs are the template's.
	Tools              []json.RawMessage          `json:"tools"`
	ChatTemplateKwargs map[string]json.RawMessage `json:"chat_template_kwargs"`

	// These are refused unless they ask for nothing.
	Logprobs          bool `json:"logprobs"`
	TopLogprobs       int  `json:"top_logprobs"`
	ToolChoice        any  `json:"tool_choice"`
	ParallelToolCalls any  `json:"parallel_tool_calls"` // of no meaning without tools
	ResponseFormat    *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

// message is a message of a conversation. The last fields are refused unless they are empty.
type message struct {
	Role       string          `json:"role"`
	Content    *content        `json:"content"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`

	Name        string            `json:"name"`
	Refusal     string            `json:"refusal"`
	Audio       any               `json:"audio"`
	Annotations []json.RawMessage `json:"annotations"`
}

// content is a text, or a list of parts that are texts, which stand on lines of their own.
type content string

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(data []byte) error {
	var parts []struct{ Type, Text string }
	switch {
	case string(data) != "null" && json.Unmarshal(data, (*string)(c)) == nil:
		return nil
	case json.Unmarshal(data, &parts) == nil && len(parts) > 0:
		texts := make([]string, len(parts))
		for i, p := range parts {
			if p.Type != "text" {
				return fmt.Errorf("content has a part of type %.60q; expected parts of type text", p.Type)
			}
			texts[i] = p.Text
		}
		*c = content(strings.Join(texts, "\n"))
		return nil
	}
	return fmt.Errorf("content is %.60s; expected a text, or a list of parts of type text", data)
}

// said is what the assistant says, or a piece of it.
type said struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// toolCall is a call of a tool that an answer asks for. Its arguments are JSON in a text.
type toolCall struct {
	Index    *int   `json:"index,omitempty"` // in a stream
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// asks returns an answer of a request that asks for calls of tools, or the event of a stream that does.
func asks(text string, calls []chat.Call, index int, id string, stream, first bool) answered {
	out := said{ToolCalls: make([]toolCall, len(calls))}
	if text != "" {
		out.Content = &text
	}
	if first {
		out.Role = chat.Assistant
	}
	for i, c := range calls {
		t := toolCall{ID: fmt.Sprintf("call_%s_%d_%d", strings.TrimPrefix(id, conversations.id), index, i), Type: "function"}
		if stream {
			t.Index = &i
		}
		t.Function.Name, t.Function.Arguments = c.Name, string(c.Arguments)
		out.ToolCalls[i] = t
	}
	finish := "tool_calls"
	if stream {
		return answered{Index: index, Delta: &out, FinishReason: &finish}
	}
	return answered{Index: index, Message: &out, FinishReason: &finish}
}

// answered is an answer to a conversation, or an event of one that is streamed.
type answered struct {
	Index        int     `json:"index"`
	Message      *said   `json:"message,omitempty"`
	Delta        *said   `json:"delta,omitempty"`
	Logprobs     any     `json:"logprobs"` // null
	FinishReason *string `json:"finish_reason"`
}

var conversations = endpoint{
	verb: "chat_completions", body: func() body { return &conversation{} }, id: "chatcmpl-",
	whole: "chat.completion", chunk: "chat.completion.chunk",
	choice: func(text string, index int, finish *string) any {
		return answered{Index: index, Message: &said{Role: chat.Assistant, Content: &text}, FinishReason: finish}
	},
	piece: func(text string, index int, finish *string, first bool) any {
		delta := &said{}
		if first {
			delta.Role = chat.Assistant
		}
		if text != "" || first {
			delta.Content = &text
		}
		return answered{Index: index, Delta: delta, FinishReason: finish}
	},
}

// extras implements body.
func (in *conversation) extras() []extra {
	none := in.ToolChoice == nil || in.ToolChoice == "none" || in.ToolChoice == "auto"
	all := append(in.sampling.extras(),
		extra{"max_completion_tokens beside another max_tokens", in.MaxTokens != nil && in.MaxCompletionTokens != nil && *in.MaxTokens != *in.MaxCompletionTokens},
		extra{"logprobs", in.Logprobs}, extra{"top_logprobs", in.TopLogprobs != 0},
		extra{"tool_choice", !none}, extra{"parallel_tool_calls", in.ParallelToolCalls == false && in.usesTools()},
		extra{"response_format", in.ResponseFormat != nil && in.ResponseFormat.Type != "text"})
	for i, m := range in.Messages {
		for _, e := range []extra{
			{"name", m.Name != ""}, {"refusal", m.Refusal != ""}, {"audio", m.Audio != nil}, {"annotations", len(m.Annotations) > 0},
		} {
			all = append(all, extra{fmt.Sprintf("messages[%d].%s", i, e.name), e.asked})
		}
	}
	return all
}

// prompts implements body.
func (in *conversation) prompts(m *served, _ int) ([]generate.Request, []int32, error) {
	c := m.Generates.Chat
	if c == nil {
		return nil, nil, badf("model %s has no chat template; expected a run whose data were made with a tokenizer that has one, or /v1/completions", m.Name)
	}
	c, err := c.With(in.values())
	if err != nil {
		return nil, nil, badf("%v", err)
	}
	if len(in.Messages) == 0 {
		return nil, nil, badf("messages has no message; expected one or more")
	}
	messages := make([]chat.Message, len(in.Messages))
	for i, m := range in.Messages {
		calls, err := chat.ParseToolCalls(m.ToolCalls)
		if err != nil {
			return nil, nil, badf("messages[%d] %v", i, err)
		}
		if m.Role == "" || m.Content == nil && calls == nil {
			return nil, nil, badf("messages[%d] lacks its role or its content; expected both, the role being system, user, assistant or tool", i)
		}
		messages[i] = chat.Message{Role: m.Role, ToolCalls: calls, ToolCallID: m.ToolCallID}
		if m.Content != nil {
			messages[i].Content = string(*m.Content)
		}
	}
	ids, err := c.Prompt(m.Generates.Tokenizer, messages, m.Generates.Limits.MaxLength)
	if err != nil {
		return nil, nil, badf("%v", err)
	}
	return []generate.Request{m.Generates.OfTokens(ids)}, c.EndTokens, nil
}

// usesTools reports whether the model is told of tools.
func (in *conversation) usesTools() bool { return len(in.Tools) > 0 && in.ToolChoice != "none" }

// values returns what the template is given in addition to the messages.
func (in *conversation) values() map[string]json.RawMessage {
	out := maps.Clone(in.ChatTemplateKwargs)
	if in.usesTools() {
		if out == nil {
			out = make(map[string]json.RawMessage)
		}
		out["tools"], _ = json.Marshal(in.Tools) // which were JSON
	}
	return out
}

// common implements body: max_completion_tokens is the newer name of max_tokens.
func (in *conversation) common() *sampling {
	if in.MaxTokens == nil {
		in.MaxTokens = in.MaxCompletionTokens
	}
	return &in.sampling
}
