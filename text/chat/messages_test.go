package chat_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text/chat"
)

// FuzzParse checks that messages which are read are those of the JSON.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`[{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": null}]`,
		`[{"role": "assistant", "tool_calls": [{"type": "function", "id": "a", "function": {"name": "f", "arguments": "{\"x\": [1]}"}}]}, {"role": "tool", "content": "b", "tool_call_id": "a"}]`,
		`[{"from": "human", "value": "a\u00fc"}, {"from": "gpt", "value": "b"}]`, `[]`, `[null]`, `{"role": "user"}`, `[{"role": 1, "content": []}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		messages, err := chat.Parse(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(messages)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := chat.Parse(again); err != nil || len(got) == 0 || !reflect.DeepEqual(got, messages) {
			t.Errorf("%q: %v, then %v, error %v", data, messages, got, err)
		}
	})
}

// TestParseToolCalls reads calls of tools in a conversation.
func TestParseToolCalls(t *testing.T) {
	const call = `{"id": "a", "type": "function", "function": {"name": "f", "arguments": %}}`
	for _, tt := range []struct{ calls, want string }{
		{"[" + strings.Replace(call, "%", `{"b": "<", "a": 1}`, 1) + "]", `[{"id":"a","type":"function","function":{"name":"f","arguments":{"b":"<","a":1}}}]`},
		{"[" + strings.Replace(call, "%", `"{\"b\": 1.5}"`, 1) + "]", `[{"id":"a","type":"function","function":{"name":"f","arguments":{"b":1.5}}}]`},
		{`[{"index": 0, "function": {"name": "f", "arguments": {}}}]`, `[{"type":"function","function":{"name":"f","arguments":{}}}]`},
		{"[" + strings.Replace(call, "%", `"{"`, 1) + "]", "message 1 has call 1 of a tool with arguments {; expected an object, or its JSON in a text"},
		{"[" + strings.Replace(call, "%", `""`, 1) + "]", `message 1 has call 1 of a tool with arguments ""; expected an object`},
		{"[" + strings.Replace(call, "%", `[1]`, 1) + "]", "message 1 has call 1 of a tool with arguments [1]; expected an object"},
		{`[{"function": {"name": "f"}}]`, "message 1 has call 1 of a tool with arguments ; expected an object"},
		{`[{"type": "code", "function": {"name": "f", "arguments": {}}}]`, `message 1 has call 1 of a tool, of type "code" and name "f"; expected type function and a name`},
		{`[{"name": "f", "arguments": {}}]`, "message 1 has tool_calls [{\"name\": \"f\", \"arguments\": {}}]; expected a list of objects with id, type and function"},
		{`{}`, "message 1 has tool_calls {}; expected a list"},
		{`[]`, ``},
	} {
		messages, err := chat.Parse([]byte(`[{"role": "assistant", "content": "", "tool_calls": ` + tt.calls + `}]`))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = string(messages[0].ToolCalls)
		}
		if err != nil && !strings.HasPrefix(got, tt.want) || err == nil && got != tt.want {
			t.Errorf("%s: %s; expected %s", tt.calls, got, tt.want)
		}
	}
	deaf, err := chat.New(chat.Format{Template: "{% for m in messages %}{{ m.content }}{% endfor %}"})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := chat.Parse([]byte("[" + `{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [` + strings.Replace(call, "%", "{}", 1) + "]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := deaf.Render(messages, false); err == nil || !strings.Contains(err.Error(), "message 2 has tool_calls, and the chat template does not ask for them") {
		t.Errorf("%q, %v", text, err)
	}
}
