package predict

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// tokenizers returns all small tokenizers, by their files.
func tokenizers(t *testing.T) map[string]*text.Tokenizer {
	t.Helper()
	files, err := filepath.Glob("../../text/tokenizerjson/testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*text.Tokenizer)
	for _, file := range files {
		if name := filepath.Base(file); name != "goldens.json" && name != "patterns.json" {
			if all[name], err = tokenizerjson.Load(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d tokenizers; expected 10 or more", len(all))
	}
	return all
}

// The text of tokens that come one by one is that of all of them, and few are decoded again.
func TestGrowingIsTheWholeText(t *testing.T) {
	const one = "The cats, dogs and \u00e9 don't, won't ; \"stop\" ( here ) \U0001f600\U0001f468\u200d\U0001f469 \u6f22\u5b57 more . 12 345 \u0434\u043e\u043c\n\n  two  spaces\tand"
	for name, tokenizer := range tokenizers(t) {
		ids := tokenizer.AppendIDs(nil, strings.Repeat(one+" ", 12))
		prompt, ids := ids[:5], ids[5:]
		whole, decoded := Continued(tokenizer, prompt), 0
		growing := generate.NewGrowing(func(ids []int32) string {
			decoded += len(ids)
			return whole(ids)
		})
		for n, id := range ids {
			growing.Add(id)
			if got, want := growing.Text(), whole(ids[:n+1]); got != want {
				t.Errorf("%s: after %d tokens the text is %q; expected %q", name, n+1, got, want)
				break
			}
			if want := whole(ids[:n+1]); !strings.HasSuffix(want, growing.Last(9)) || len(growing.Last(9)) < min(9, len(want)) {
				t.Errorf("%s: after %d tokens the last bytes are %q of %q", name, n+1, growing.Last(9), want)
				break
			}
		}
		if decoded > 100*len(ids) {
			t.Errorf("%s: %d tokens were decoded for %d; expected fewer than a hundred for each", name, decoded, len(ids))
		}
	}
}

// A sequence of any tokens, also of characters that are cut, ends where its whole text has a stop string first.
func TestGrowingEndsWhereTheWholeTextDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, tokenizer := range tokenizers(t) {
		for range 20 {
			ids := make([]int32, 250)
			for i := range ids {
				ids[i] = random.Int32N(int32(tokenizer.Vocab().Size()))
			}
			whole := Continued(tokenizer, ids[:3])
			ids = ids[3:]
			all := []rune(strings.ReplaceAll(whole(ids), "\ufffd", ""))
			if len(all) < 100 {
				continue
			}
			var stops []string
			for range 3 {
				at := len(all)/2 + random.IntN(len(all)/2-8)
				stops = append(stops, string(all[at:at+2+random.IntN(6)]))
			}
			longest := max(len(stops[0]), len(stops[1]), len(stops[2]))
			growing := generate.NewGrowing(whole)
			for n, id := range ids {
				growing.Add(id)
				_, want := generate.CutStop(whole(ids[:n+1]), stops)
				_, got := generate.CutStop(growing.Last(longest), stops)
				if got != "" {
					_, got = generate.CutStop(whole(ids[:n+1]), stops)
				}
				if got != want {
					t.Errorf("%s: after %d tokens the stop string is %q; expected %q", name, n+1, got, want)
				}
				if want != "" {
					break
				}
			}
		}
	}
}
