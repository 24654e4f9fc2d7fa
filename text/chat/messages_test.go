package chat_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/text/chat"
)

// FuzzParse checks that messages which are read are those of the JSON.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`[{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": null}]`,
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
		if got, err := chat.Parse(again); err != nil || len(got) == 0 || !slices.Equal(got, messages) {
			t.Errorf("%q: %v, then %v, error %v", data, messages, got, err)
		}
	})
}
