package text

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The ids of the words of a text are those of the text.
func TestWordsLaws(t *testing.T) {
	v, err := ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\n##b\né\ne\n##e\n.\n日\n本\n,\n##́"), "vocab")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(4, 4))
	alphabet := []string{"a", "b", "A", " ", "\t", ".", ",", "é", "e\u0301", "\u0301", "日", "本", "\u00a0", "\u200b", "€", "\x00", "\xff", "ﬁ", "İ", "가", "“", "\u3000", "[SEP]", "[MASK]", "[", "]", "SEP"}
	for _, cfg := range []Config{{}, {Lowercase: true}, {JoinIdeographs: true, Lowercase: true}, {Unclean: true}, {LiteralSpecials: true}} {
		tok, err := NewTokenizer(v, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range 2000 {
			s := ""
			for range r.IntN(12) {
				s += alphabet[r.IntN(len(alphabet))]
			}
			var got []int32
			at := 0
			tokens, _ := tok.AppendTokens(nil, s, math.MaxInt)
			for _, token := range tokens {
				if w := token.Span; w.Start >= at && w.End > w.Start {
					at = w.End
					got = tok.AppendIDs(got, s[w.Start:w.End])
				} else if w.End != at {
					t.Fatalf("%q: word %v follows %d", s, w, at)
				}
			}
			if want := tok.AppendIDs(nil, s); !slices.Equal(got, want) {
				t.Fatalf("%+v: the words of %q have the ids %v, want %v", cfg, s, got, want)
			}
		}
	}
}
