package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// The names of the parts of a message, as transformers and ShareGPT have them, and the roles of ShareGPT.
var (
	messageForms = [][2]string{{"role", "content"}, {"from", "value"}}
	shareRoles   = map[string]string{"human": "user", "gpt": Assistant, "system": "system"}
)

// Parse reads a list of messages in JSON: objects with role and content, or as ShareGPT has them, with from (human,
// gpt or system) and value. Messages with role may have tool_calls, and then no content, and tool_call_id.
// A member that is not known may change what is said, so that it is refused unless it is null.
func Parse(data []byte) ([]Message, error) {
	var all []map[string]*json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || len(all) == 0 {
		return nil, fmt.Errorf("is %s; expected a list of messages", words.Clip(string(data), 60))
	}
	out := make([]Message, len(all))
	for i, m := range all {
		maps.DeleteFunc(m, func(_ string, v *json.RawMessage) bool { return v == nil })
		form := messageForms[0]
		if _, share := m[messageForms[1][0]]; share {
			form = messageForms[1]
		}
		if calls := m["tool_calls"]; calls != nil && form == messageForms[0] {
			var err error
			if out[i].ToolCalls, err = ParseToolCalls(*calls); err != nil {
				return nil, fmt.Errorf("message %d %w", i+1, err)
			}
			delete(m, "tool_calls")
			if out[i].ToolCalls != nil && m["content"] == nil {
				empty := json.RawMessage(`""`)
				m["content"] = &empty
			}
		}
		if id := m["tool_call_id"]; id != nil && form == messageForms[0] && json.Unmarshal(*id, &out[i].ToolCallID) == nil {
			delete(m, "tool_call_id")
		}
		for j, to := range []*string{&out[i].Role, &out[i].Content} {
			raw := m[form[j]]
			if raw == nil || json.Unmarshal(*raw, to) != nil {
				return nil, fmt.Errorf("message %d has no text %q; expected an object with the texts role and content, or from and value", i+1, form[j])
			}
			delete(m, form[j])
		}
		if len(m) > 0 {
			return nil, fmt.Errorf("message %d has %s, which is not known here; expected %s and %s alone", i+1, strings.Join(slices.Sorted(maps.Keys(m)), ", "), form[0], form[1])
		}
		if form == messageForms[1] {
			role, ok := shareRoles[out[i].Role]
			if !ok {
				return nil, fmt.Errorf("message %d is from %q; expected human, gpt or system", i+1, out[i].Role)
			}
			out[i].Role = role
		}
	}
	return out, nil
}
