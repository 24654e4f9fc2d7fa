package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/chat"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// chats returns a model that continues conversations.
func chats(t testing.TB) Model {
	t.Helper()
	m := continues(t, counts{})
	c, err := predict.NewChat(m.Generates.Tokenizer, chat.Format{
		Template: "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('no ' ~ m.role) }}{% endif %}{{ m.content }} {% if m.tool_calls %}{{ m.tool_calls[0].function.arguments.x }} {% endif %}{% if m.role == 'assistant' %}[SEP]{% endif %}{% endfor %}{% if tools %}{{ tools[0].name }} {% endif %}{% if again %}{{ again }} {% endif %}",
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Generates.Chat = c
	return m
}

// TestChatCompletions asks for answers to conversations, whole and as streams.
func TestChatCompletions(t *testing.T) {
	s := start(t, config(), chats(t), features(t))
	for _, tt := range []struct{ fields, want string }{
		{`"messages": [{"role": "user", "content": "a"}]`, "0  b c stop | 1 3 4"},
		{`"messages": [{"role": "system", "content": "b"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}], "model": "words", "user": "me"`, "0  b c stop | 2 3 5"},
		{`"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "refusal": null, "tool_calls": null, "annotations": []}, {"role": "user", "content": "b"}]`, "0  c stop | 4 2 6"},
		{`"messages": [{"role": "user", "content": "a"}], "n": 2, "seed": 1`, "0  b c stop, 1  b c stop | 1 6 7"},
		{`"messages": [{"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "a"}]}]`, "0  b c stop | 2 3 5"},
		{`"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": \"b\"}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "b"}]`, "0  c stop | 4 2 6"},
		{`"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "b"}]`, "0  c stop | 2 2 4"},
		{`"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "b"}], "tool_choice": "none"`, "0  b c stop | 1 3 4"},
		{`"messages": [{"role": "user", "content": "b"}], "chat_template_kwargs": {"again": "a"}`, "0  b c stop | 2 3 5"},
		{`"messages": [{"role": "user", "content": "a"}], "max_tokens": 1`, "0  b length | 1 1 2"},
		{`"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 1, "temperature": 0`, "0  b length | 1 1 2"},
		{`"messages": [{"role": "user", "content": "a"}], "stop": ["c"], "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "logprobs": false, "frequency_penalty": 0, "parallel_tool_calls": true`, "0  b  stop | 1 2 3"},
	} {
		code, body := ask(s, "POST", "/v1/chat/completions", "{"+tt.fields+"}")
		var c completed[answered]
		if err := json.Unmarshal([]byte(body), &c); err != nil || code != http.StatusOK || c.Object != "chat.completion" || !strings.HasPrefix(c.ID, "chatcmpl-") {
			t.Fatalf("%s: %d %s", tt.fields, code, body)
		}
		var parts []string
		for _, o := range c.Choices {
			if o.Message.Role != "assistant" || o.Delta != nil {
				t.Errorf("%s: %s", tt.fields, body)
			}
			parts = append(parts, fmt.Sprint(o.Index, " ", *o.Message.Content, " ", *o.FinishReason))
		}
		got := fmt.Sprint(strings.Join(parts, ", "), " | ", c.Usage["prompt_tokens"], " ", c.Usage["completion_tokens"], " ", c.Usage["total_tokens"])
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.fields, got, tt.want)
		}
		if streamed := streamedChat(t, s, tt.fields, len(c.Choices)); streamed != strings.Join(parts, ", ") {
			t.Errorf("%s: as a stream %q, want %q", tt.fields, streamed, strings.Join(parts, ", "))
		}
	}
}

// TestToolCalls asks a model that calls a tool in every answer, whole and as a stream.
func TestToolCalls(t *testing.T) {
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb <tool_call>{\"name\": \"f\",\n\"arguments\": {\"x\": \"y\"}}</tool_call>\nx\n"), "vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := continues(t, counts{})
	if m.Generates.Tokenizer, err = text.NewTokenizer(vocab, text.Uncased()); err != nil {
		t.Fatal(err)
	}
	m.Generates.Chat, err = predict.NewChat(m.Generates.Tokenizer, chat.Format{
		Template: "{% for m in messages %}{{ m.content }} {% endfor %}{# {{ tools }} <tool_call> #}",
	})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, config(), m)
	const asked, tools = `"messages": [{"role": "user", "content": "a"}], "temperature": 0`, `, "tools": [{"type": "function"}]`
	const written = ` b <tool_call>{"name": "f", "arguments": {"x": "y"}}</tool_call>`
	for _, tt := range []struct{ fields, content, call, finish string }{
		{asked, written, "", "stop"},
		{asked + tools + `, "tool_choice": "none"`, written, "", "stop"},
		{asked + tools, " b", `function f {"x":"y"}`, "tool_calls"},
		{asked + tools + `, "max_tokens": 1`, ` b <tool_call>{"name": "f",`, "", "length"},
	} {
		for _, stream := range []bool{false, true} {
			content, call, finish := "", "", ""
			_, body := ask(s, "POST", "/v1/chat/completions", fmt.Sprintf(`{"stream": %v, %s}`, stream, tt.fields))
			for line := range strings.SplitSeq(body, "\n") {
				var event completed[answered]
				line = strings.TrimPrefix(line, "data: ")
				if line == "" || line == "[DONE]" {
					continue
				}
				if err := json.Unmarshal([]byte(line), &event); err != nil || len(event.Choices) != 1 {
					t.Fatalf("%s: %s", tt.fields, body)
				}
				said := event.Choices[0].Message
				if stream {
					said = event.Choices[0].Delta
				}
				if said.Content != nil {
					content += *said.Content
				}
				for _, c := range said.ToolCalls {
					call += c.Type + " " + c.Function.Name + " " + c.Function.Arguments
					if !strings.HasPrefix(c.ID, "call_") || (c.Index != nil) != stream {
						t.Errorf("%s: %s", tt.fields, line)
					}
				}
				if f := event.Choices[0].FinishReason; f != nil {
					finish = *f
				}
			}
			if content != tt.content || call != tt.call || finish != tt.finish {
				t.Errorf("%s, stream %v: %q, %q, %q; expected %q, %q, %q: %s", tt.fields, stream, content, call, finish, tt.content, tt.call, tt.finish, body)
			}
		}
	}
}

// streamedChat returns the answers of a stream, of whose events each index's first one has the role.
func streamedChat(t *testing.T, s *Server, fields string, n int) string {
	t.Helper()
	code, body := ask(s, "POST", "/v1/chat/completions", `{"stream": true, "stream_options": {"include_usage": true}, `+fields+"}")
	if code != http.StatusOK || !strings.HasSuffix(body, "data: [DONE]") {
		t.Fatalf("%s as a stream: %d %s", fields, code, body)
	}
	texts, ends := make([]string, n), make([]string, n)
	usage := false
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "data: [DONE]"), "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var event completed[answered]
		if err := json.Unmarshal([]byte(data), &event); err != nil || event.Object != "chat.completion.chunk" {
			t.Fatalf("%s as a stream: %q: %v", fields, data, err)
		}
		usage = event.Usage != nil
		for _, o := range event.Choices {
			if first := texts[o.Index] == "" && ends[o.Index] == ""; o.Message != nil || first != (o.Delta.Role == "assistant") {
				t.Errorf("%s as a stream: %s", fields, data)
			}
			if o.Delta.Content != nil {
				texts[o.Index] += *o.Delta.Content
			}
			if o.FinishReason != nil {
				ends[o.Index] = *o.FinishReason
			}
		}
	}
	if !usage {
		t.Errorf("%s as a stream: no usage at the end", fields)
	}
	var parts []string
	for i := range texts {
		parts = append(parts, fmt.Sprint(i, " ", texts[i], " ", ends[i]))
	}
	return strings.Join(parts, ", ")
}

// TestChatCompletionsRefuse has what is wrong with requests.
func TestChatCompletionsRefuse(t *testing.T) {
	const asked = `"messages": [{"role": "user", "content": "a"}]`
	s := start(t, config(), chats(t))
	for _, tt := range []struct{ body, want string }{
		{`{}`, "messages has no message; expected one or more"},
		{`{"messages": [{"role": "user"}]}`, "messages[0] lacks its role or its content; expected both"},
		{`{"messages": [{"content": "a"}]}`, "messages[0] lacks its role or its content"},
		{`{"messages": [{"role": "user", "content": 3}]}`, "content is 3; expected a text, or a list of parts of type text"},
		{`{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}`, `content has a part of type \"image_url\"; expected parts of type text`},
		{`{"messages": [{"role": "user", "content": []}]}`, "content is []; expected a text, or a list of parts of type text"},
		{`{` + asked + `, "chat_template_kwargs": {"thinking": true}}`, "the chat template does not ask for thinking, so that nothing would come of it; leave it out"},
		{`{` + asked + `, "chat_template_kwargs": {"messages": []}}`, "messages is given as a value of the chat template, which has it from the conversation"},
		{`{` + asked + `, "chat_template_kwargs": {"again": ` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + `}}`, "again: its lists and objects are more than 100 deep"},
		{`{"messages": [{"role": "critic", "content": "a"}]}`, "the chat template refuses the conversation: no critic"},
		{`{"messages": [{"role": "user", "content": "a", "name": "me"}]}`, "messages[0].name asks for what is not served here; leave it out"},
		{`{"messages": [{"role": "assistant", "content": "a", "tool_calls": [{}]}]}`, "messages[0] has call 1 of a tool, of type \\\"\\\" and name \\\"\\\"; expected type function and a name"},
		{`{"messages": [{"role": "user", "content": "a", "weight": 1}]}`, `unknown field \"weight\"`},
		{`{"messages": [{"role": "user", "content": "a a a a a a a a a a a a a"}]}`, "the conversation has 13 tokens; expected less than the 12 that the model takes"},
		{`{` + asked + `, "tool_choice": "required"}`, "tool_choice asks for what is not served here"},
		{`{` + asked + `, "tools": [{"name": "b"}], "parallel_tool_calls": false}`, "parallel_tool_calls asks for what is not served here"},
		{`{` + asked + `, "logprobs": true}`, "logprobs asks for what is not served here"},
		{`{` + asked + `, "response_format": {"type": "json_object"}}`, "response_format asks for what is not served here"},
		{`{` + asked + `, "max_tokens": 1, "max_completion_tokens": 2}`, "max_completion_tokens beside another max_tokens asks for"},
		{`{` + asked + `, "max_completion_tokens": 0}`, "max_tokens is 0; expected 1 or more"},
		{`{` + asked + `, "prompt": "a"}`, `unknown field \"prompt\"`},
		{`{` + asked + `, "temperature": -1}`, "temperature is -1; expected more than 0"},
	} {
		if code, body := ask(s, "POST", "/v1/chat/completions", tt.body); code != http.StatusBadRequest || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s; expected 400 %s", tt.body, code, body, tt.want)
		}
	}
	if code, body := ask(start(t, config(), continues(t, counts{})), "POST", "/v1/chat/completions", "{"+asked+"}"); code != http.StatusBadRequest || !strings.Contains(body, "model words has no chat template; expected a run whose data were made with a tokenizer that has one, or /v1/completions") {
		t.Errorf("without a template: %d %s", code, body)
	}
}

func FuzzChatCompletions(f *testing.F) {
	f.Add(`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "text", "text": "b"}]}], "max_tokens": 3, "stop": ["b"], "n": 2, "seed": 1}`)
	f.Add(`{"messages": [{"role": "system", "content": "{{ a }}"}], "temperature": 0, "tools": null, "response_format": {"type": "text"}, "tools": [{"name": "a", "n": [1, null, {"x": false}]}], "chat_template_kwargs": {"again": "b"}}`)
	s := start(f, config(), chats(f))
	f.Fuzz(func(t *testing.T, body string) {
		if code, answer := ask(s, "POST", "/v1/chat/completions", body); !json.Valid([]byte(answer)) && code != http.StatusOK {
			t.Errorf("%q: %d %s", body, code, answer)
		}
	})
}
