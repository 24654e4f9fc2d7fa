package chat_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text/chat"
)

// What templates tell models of their calls: of Qwen 2.5 and 3, and of Llama 3.1 to 3.3.
const (
	qwen  = `{{- "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>" }}`
	llama = `{{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}`
)

func TestCalls(t *testing.T) {
	for _, tt := range []struct{ template, answer, text, calls string }{
		{qwen, "Hello.", "Hello.", ""},
		{qwen, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Ulm\", \"n\": [1, 2.5]}}\n</tool_call>", "", `get {"city":"Ulm","n":[1,2.5]}`},
		{qwen, "I look.\n\n<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>\n<tool_call>{\"arguments\": {\"x\": null}, \"name\": \"b\"}</tool_call>\n", "I look.", `a {}; b {"x":null}`},
		{qwen, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"</tool", "", "-"},
		{qwen, "<tool_call>{\"name\": \"a\", \"arguments\": {}}", "", "-"},
		{qwen, "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call> and more", "", "-"},
		{qwen, "<tool_call>{\"name\": \"a\", \"arguments\": \"x\"}</tool_call>", "", "-"},
		{qwen, "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>", "", "-"},
		{qwen, "<tool_call>{\"name\": \"a\", \"arguments\": {}, \"id\": 3}</tool_call>", "", "-"},
		{qwen, "<tool_call><function=a></function></tool_call>", "", "-"},
		{qwen, "<tool_call></tool_call>", "", "-"},
		{qwen, `{"name": "a", "parameters": {}}`, "", "-"},
		{llama, ` {"name": "get", "parameters": {"city": "Ulm"}}`, "", `get {"city":"Ulm"}`},
		{llama, `{"type": "function", "name": "get", "parameters": {}}`, "", `get {}`},
		{llama, `{"name": "get", "parameters": {}} {"name": "get", "parameters": {}}`, "", "-"},
		{llama, `{"name": "get"}`, "", "-"},
		{llama, `["get"]`, "", "-"},
		{"{{ tools }}", "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>", "", "-"},
	} {
		template, err := chat.New(chat.Format{Template: tt.template})
		if err != nil {
			t.Fatal(err)
		}
		text, calls := template.Calls(tt.answer)
		var got []string
		for _, c := range calls {
			got = append(got, fmt.Sprintf("%s %s", c.Name, c.Arguments))
		}
		want := tt.text
		if tt.calls == "-" { // it stays a text
			want, tt.calls = tt.answer, ""
		}
		if text != want || strings.Join(got, "; ") != tt.calls {
			t.Errorf("%q: %q and calls %q; expected %q and %q", tt.answer, text, got, want, tt.calls)
		}
		// What is certain of a part of an answer stays so.
		for i := range tt.answer {
			if certain := template.Certain(tt.answer[:i]); !strings.HasPrefix(text, certain) {
				t.Errorf("%q: certain of %q is %q, and the text is %q", tt.answer, tt.answer[:i], certain, text)
			}
		}
	}
}

// The numbers of a call come back in the conversation that goes on as the model wrote them.
func TestNumbersOfCallsStay(t *testing.T) {
	const numbers = `{"a": 0.10, "b": -1.5e-07, "c": [1E+2, 3, 18446744073709551616], "d": {"e": -0.0}}`
	template, err := chat.New(chat.Format{Template: qwen + `{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }} {{ c.function.arguments.a }}{% endfor %}{% endfor %}`})
	if err != nil {
		t.Fatal(err)
	}
	_, calls := template.Calls(`<tool_call>{"name": "f", "arguments": ` + numbers + `}</tool_call>`)
	if len(calls) != 1 {
		t.Fatalf("%d calls; expected 1", len(calls))
	}
	sent, err := json.Marshal(string(calls[0].Arguments)) // as OpenAI's API writes it
	if err != nil {
		t.Fatal(err)
	}
	back, err := chat.ParseToolCalls(json.RawMessage(`[{"type": "function", "function": {"name": "f", "arguments": ` + string(sent) + `}}]`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := template.Render([]chat.Message{{Role: chat.Assistant, ToolCalls: back}}, false)
	if want := numbers + " 0.10"; err != nil || !strings.HasSuffix(text, want) {
		t.Errorf("%q, %v; expected %q at its end", text, err, want)
	}
}

func FuzzCalls(f *testing.F) {
	f.Add("a <tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>")
	f.Add(`{"name": "a", "parameters": {"x": [1]}}`)
	for _, source := range []string{qwen, llama} {
		if _, err := chat.New(chat.Format{Template: source}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, answer string) {
		for _, source := range []string{qwen, llama} {
			template, _ := chat.New(chat.Format{Template: source})
			text, calls := template.Calls(answer)
			if len(calls) == 0 && text != answer {
				t.Errorf("%q: no calls, and the text %q", answer, text)
			}
			for i := range answer {
				if certain := template.Certain(answer[:i]); !strings.HasPrefix(text, certain) {
					t.Errorf("%q: certain of %q is %q, and the text is %q", answer, answer[:i], certain, text)
				}
			}
			if certain := template.Certain(answer); !strings.HasPrefix(text, certain) {
				t.Errorf("%q: certain is %q of %q", answer, certain, text)
			}
		}
	})
}
