// Package chat renders conversations as the chat template of a language model says: the text that
// transformers' apply_chat_template gives.
//
// A template is a program of its model, in Jinja. What is not known of that language is refused by its
// name, and a template can do no harm but be wrong: it reaches nothing outside of the conversation, and
// its work is limited.
package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/data/jinja"
)

// Message is a turn of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user, assistant or tool, in most templates
	Content string `json:"content"`
	// ToolCalls are the calls of tools that an assistant asked for, as ParseToolCalls returns them, or nil.
	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
	// ToolCallID is which of them the content of a tool answers, or "".
	ToolCallID string `json:"tool_call_id,omitempty"`
}

// Assistant is the role whose turns a model learns and writes.
const Assistant = "assistant"

// Format is a chat template as a model's files have it. Datasets and runs keep it in their manifests.
type Format struct {
	Template string `json:"template"`
	// Tokens are the texts of special tokens by their names in templates, such as bos_token.
	Tokens map[string]string `json:"tokens,omitempty"`
}

// Template renders conversations. Any number of goroutines may use it.
type Template struct {
	format Format
	parsed *jinja.Template
	more   map[string]jinja.JSON // values by their names, of With
	// Now is the time that a template may ask for, by strftime_now.
	Now func() time.Time
}

// New reads a template.
func New(f Format) (*Template, error) {
	parsed, err := jinja.Parse(f.Template)
	if err != nil {
		return nil, err
	}
	return &Template{format: f, parsed: parsed, Now: time.Now}, nil
}

// own are the names of the values that every rendering has.
var own = []string{"messages", "add_generation_prompt"}

// With returns the template with more values, in JSON, by their names: tools, documents, or what else it asks
// for, such as enable_thinking. A name that is nowhere in the template is an error, because nothing would come of
// it.
func (t *Template) With(values map[string]json.RawMessage) (*Template, error) {
	out := *t
	out.more = make(map[string]jinja.JSON)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(own, name) {
			return nil, fmt.Errorf("%s is given as a value of the chat template, which has it from the conversation; leave it out", name)
		}
		if !t.asks(name) {
			return nil, fmt.Errorf("the chat template does not ask for %.60s, so that nothing would come of it; leave it out", name)
		}
		v, err := jinja.ParseJSON(values[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out.more[name] = v
	}
	return &out, nil
}

// asks reports whether a name is somewhere in the template.
func (t *Template) asks(name string) bool {
	found, err := regexp.MatchString(`\b`+regexp.QuoteMeta(name)+`\b`, t.format.Template)
	return err == nil && found
}

// Render returns the text of a conversation. With prompt it ends with what an answer of the assistant begins
// with.
func (t *Template) Render(messages []Message, prompt bool) (string, error) {
	text, _, err := t.render(messages, prompt, t.Now())
	return text, err
}

// Span is a part of a text, from a byte to the one after its last.
type Span struct{ From, To int }

func (t *Template) render(messages []Message, prompt bool, now time.Time) (string, []Span, error) {
	list := make([]jinja.Object, len(messages))
	for i, m := range messages {
		list[i] = jinja.Object{{Key: "role", Value: m.Role}, {Key: "content", Value: m.Content}}
		if m.ToolCalls != nil {
			if !t.asks("tool_calls") {
				return "", nil, fmt.Errorf("message %d has tool_calls, and the chat template does not ask for them; leave them out", i+1)
			}
			calls, err := jinja.ParseJSON(m.ToolCalls)
			if err != nil {
				return "", nil, fmt.Errorf("tool_calls of message %d: %w", i+1, err)
			}
			list[i] = append(list[i], jinja.Field{Key: "tool_calls", Value: calls})
		}
		if m.ToolCallID != "" {
			list[i] = append(list[i], jinja.Field{Key: "tool_call_id", Value: m.ToolCallID})
		}
	}
	values := map[string]any{"messages": list, "tools": nil, "documents": nil, "add_generation_prompt": prompt}
	for name, token := range t.format.Tokens {
		values[name] = token
	}
	for name, v := range t.more {
		values[name] = v
	}
	text, found, err := t.parsed.Render(values, now)
	var spans []Span
	for _, s := range found {
		spans = append(spans, Span(s))
	}
	return text, spans, err
}

// Answers returns the text of a conversation and the spans of it that the assistant writes, in order.
//
// Those are what a template has in {% generation %}. Without that they are what each turn of the
// assistant adds to the text up to it and the beginning of an answer. That needs a template which does not
// change what it wrote before because of what follows; one that does is refused.
func (t *Template) Answers(messages []Message) (string, []Span, error) {
	now := t.Now()
	text, spans, err := t.render(messages, false, now)
	if err != nil || len(spans) > 0 {
		return text, spans, err
	}
	for i, m := range messages {
		if m.Role != Assistant {
			continue
		}
		before, _, err := t.render(messages[:i], true, now)
		if err != nil {
			return "", nil, fmt.Errorf("the messages before message %d, alone: %w", i+1, err)
		}
		after, _, err := t.render(messages[:i+1], false, now)
		if err != nil {
			return "", nil, fmt.Errorf("the messages up to message %d, alone: %w", i+1, err)
		}
		if !strings.HasPrefix(after, before) || !strings.HasPrefix(text, after) {
			return "", nil, fmt.Errorf("the chat template writes message %d otherwise when others follow, so that what the assistant wrote cannot be found in the text; expected a template with {%% generation %%} around it", i+1)
		}
		spans = append(spans, Span{From: len(before), To: len(after)})
	}
	return text, spans, nil
}
