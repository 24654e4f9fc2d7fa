package tokenizerjson_test

import (
	"math"
	"os"
	"testing"

	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// A file that is read gives tokens with the same ids with and without spans, all within the text.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"clip", "odd", "bytes_lacking"} {
		data, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "the cat\xff e\u0301 \u1100\u1161 [MASK]<s> 12")
	}
	f.Fuzz(func(t *testing.T, data []byte, s string) {
		tok, err := tokenizerjson.Parse(data, "fuzz")
		if err != nil {
			return
		}
		ids := tok.AppendIDs(nil, s)
		tokens, more := tok.AppendTokens(nil, s, math.MaxInt)
		if more != 0 || len(tokens) != len(ids) {
			t.Fatalf("%q: %d ids and %d tokens, %d more", s, len(ids), len(tokens), more)
		}
		for i, token := range tokens {
			if token.ID != ids[i] || token.ID < 0 || int(token.ID) >= tok.Vocab().Size() || token.Start < 0 || token.End > len(s) {
				t.Fatalf("%q: token %d is %+v, and the id %d", s, i, token, ids[i])
			}
		}
		tok.Decode(ids, true)
	})
}
