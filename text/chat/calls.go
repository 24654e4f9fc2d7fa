package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// Call is a call of a tool that an answer asks for.
type Call struct {
	Name      string
	Arguments json.RawMessage // a JSON object
}

// ParseToolCalls reads the calls of tools of a message in OpenAI's form: objects with id, type and function, which
// has name and arguments, an object or the JSON of one in a text. It returns them as templates take them, with the
// arguments as objects, or nil if there are none: an empty list, null, or no data.
func ParseToolCalls(data json.RawMessage) (json.RawMessage, error) {
	type function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	var calls []struct {
		Index    *int     `json:"index,omitempty"` // as events of a stream have it
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type,omitempty"`
		Function function `json:"function"`
	}
	if len(data) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&calls); err != nil {
		return nil, fmt.Errorf("has tool_calls %s; expected a list of objects with id, type and function", words.Clip(string(data), 60))
	}
	if len(calls) == 0 {
		return nil, nil
	}
	for i := range calls {
		c := &calls[i]
		if c.Type != "" && c.Type != "function" || c.Function.Name == "" {
			return nil, fmt.Errorf("has call %d of a tool, of type %.60q and name %.60q; expected type function and a name", i+1, c.Type, c.Function.Name)
		}
		var text string
		if json.Unmarshal(c.Function.Arguments, &text) == nil && text != "" {
			c.Function.Arguments = json.RawMessage(text)
		}
		if !json.Valid(c.Function.Arguments) || bytes.TrimSpace(c.Function.Arguments)[0] != '{' { // valid JSON is not empty
			return nil, fmt.Errorf("has call %d of a tool with arguments %s; expected an object, or its JSON in a text", i+1, words.Clip(string(c.Function.Arguments), 60))
		}
		c.Index, c.Type = nil, "function"
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(calls)
	return bytes.TrimSpace(out.Bytes()), err
}

// Marks around a call in the answers of Qwen, Hermes and their like, each a JSON object with name and
// arguments.
const (
	callBegin = "<tool_call>"
	callEnd   = "</tool_call>"
)

// inJSON is what templates of Llama 3 tell the model of its calls: the answer is a JSON object.
const inJSON = `{"name": function name, "parameters": dictionary of argument name and its value}`

// marked and plain report how the template says that calls of tools are written.
func (t *Template) marked() bool { return strings.Contains(t.format.Template, callBegin) }
func (t *Template) plain() bool  { return strings.Contains(t.format.Template, inJSON) }

// Calls returns the calls of tools that an answer asks for in the form that the template tells the model, and
// the text before them. An answer that has anything else, such as a call that is cut, asks for none and is a
// text.
func (t *Template) Calls(answer string) (text string, calls []Call) {
	switch {
	case t.marked():
		before, rest, _ := strings.Cut(answer, callBegin)
		for rest != "" {
			inner, after, ok := strings.Cut(rest, callEnd)
			c, good := callOf(inner, "arguments")
			if after = strings.TrimSpace(after); !ok || !good || after != "" && !strings.HasPrefix(after, callBegin) {
				return answer, nil
			}
			calls = append(calls, c)
			rest = strings.TrimPrefix(after, callBegin)
		}
		if len(calls) > 0 {
			return strings.TrimRight(before, " \n"), calls
		}
	case t.plain():
		if c, ok := callOf(answer, "parameters"); ok {
			return "", []Call{c}
		}
	}
	return answer, nil
}

// Certain returns the beginning of an unfinished answer that is no part of a call, whatever follows.
func (t *Template) Certain(answer string) string {
	switch {
	case t.marked():
		before, _, found := strings.Cut(answer, callBegin)
		for n := min(len(callBegin)-1, len(before)); n > 0 && !found; n-- {
			if strings.HasSuffix(before, callBegin[:n]) {
				before, found = before[:len(before)-n], true
			}
		}
		return strings.TrimRight(before, " \n")
	case t.plain() && strings.HasPrefix(strings.TrimSpace(answer)+"{", "{"):
		return ""
	}
	return answer
}

// callOf reads a JSON object of a name and an object of arguments, which has the given key, and nothing else.
func callOf(text, key string) (Call, bool) {
	var members map[string]json.RawMessage
	d := json.NewDecoder(strings.NewReader(text))
	if d.Decode(&members) != nil {
		return Call{}, false
	}
	if _, err := d.Token(); err != io.EOF {
		return Call{}, false
	}
	var c Call
	kind := "function"
	for name, value := range members {
		switch name {
		case "name":
			if json.Unmarshal(value, &c.Name) != nil {
				return Call{}, false
			}
		case "type":
			if json.Unmarshal(value, &kind) != nil {
				return Call{}, false
			}
		case key:
			if !bytes.HasPrefix(value, []byte("{")) {
				return Call{}, false
			}
			var compact bytes.Buffer
			if json.Compact(&compact, value) != nil {
				return Call{}, false
			}
			c.Arguments = compact.Bytes()
		default:
			return Call{}, false
		}
	}
	return c, c.Name != "" && c.Arguments != nil && kind == "function"
}
