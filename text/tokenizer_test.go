package text

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func parse(t testing.TB, tokens ...string) *Vocab {
	t.Helper()
	v, err := ParseVocab([]byte(strings.Join(append([]string{Pad, Unk, Cls, Sep, Mask}, tokens...), "\n")), "test")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWordPiece(t *testing.T) {
	v := parse(t, "un", "##aff", "##able", "##a", "want", "##want", "runn", "##ing", ",", "é", "##é", "e", "##x", "中", "a\u0301")
	tests := []struct {
		cfg        Config
		text, want string
	}{
		{Uncased(), "unaffable", "un ##aff ##able"},
		{Uncased(), "UNwanted running", "[UNK] runn ##ing"},
		{Uncased(), "unwanta", "un ##want ##a"},
		{Uncased(), "want,want", "want , want"},
		{Uncased(), "é", "e"},
		{Config{}, "é", "é"},
		{Config{Lowercase: true, Accents: KeepAccents}, "É", "é"},
		{Config{Accents: StripAccents}, "é E", "e [UNK]"},
		{Uncased(), "e中e", "e 中 e"},
		{Config{JoinIdeographs: true}, "e中e", "[UNK]"},
		{Uncased(), "e\xffx \xe4\xb8", "e ##x"},
		{Config{Unclean: true}, "ex e\xffx", "e ##x [UNK]"},
		{Uncased(), "e[SEP]e", "e [SEP] e"},
		{Config{LiteralSpecials: true}, "e[SEP]e", "e [UNK] [UNK] [UNK] e"},
		{Config{MaxWordChars: 3}, "exx exxx ééé", "e ##x ##x [UNK] é ##é ##é"},
		{Config{MaxWordChars: 3}, "éééé e\u200bxxx e\u200bxx", "[UNK] [UNK] e ##x ##x"},
	}
	for _, tt := range tests {
		tok := newTokenizer(t, v, tt.cfg)
		if got := v.Tokens(tok.AppendIDs(nil, tt.text)); got != tt.want {
			t.Errorf("%+v: %q: got %s, expected %s", tt.cfg, tt.text, got, tt.want)
		}
	}
}

func TestNoContinuationsInVocabulary(t *testing.T) {
	v := parse(t, "a", "#")
	tok := newTokenizer(t, v, Uncased())
	if got, want := v.Tokens(tok.AppendIDs(nil, "a aa ## aé")), "a [UNK] # # [UNK]"; got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
}

func TestEncode(t *testing.T) {
	v := parse(t, "a", "b", "c", "d", "e")
	tok := newTokenizer(t, v, Uncased())
	tests := []struct {
		a, b      string
		maxLen    int
		want      string
		types     []int32
		truncated bool
	}{
		{"a b", "", 0, "[CLS] a b [SEP]", []int32{0, 0, 0, 0}, false},
		{"a b", "c d e", 0, "[CLS] a b [SEP] c d e [SEP]", []int32{0, 0, 0, 0, 1, 1, 1, 1}, false},
		{"a b", "c d e", 8, "[CLS] a b [SEP] c d e [SEP]", []int32{0, 0, 0, 0, 1, 1, 1, 1}, false},
		{"a b", "c d e", 7, "[CLS] a b [SEP] c d [SEP]", []int32{0, 0, 0, 0, 1, 1, 1}, true},
		{"a b c", "c d e", 8, "[CLS] a b [SEP] c d e [SEP]", []int32{0, 0, 0, 0, 1, 1, 1, 1}, true},
		{"a b c d", "c d e", 8, "[CLS] a b c [SEP] c d [SEP]", []int32{0, 0, 0, 0, 0, 1, 1, 1}, true},
		{"a b c d", "e", -1, "[CLS] a b c d [SEP] e [SEP]", []int32{0, 0, 0, 0, 0, 0, 1, 1}, false},
		{"a b", "\u200b", 0, "[CLS] a b [SEP] [SEP]", []int32{0, 0, 0, 0, 1}, false},
		{"", "", 0, "[CLS] [SEP]", []int32{0, 0}, false},
		{"a b", "c", 2, "[CLS] [SEP] [SEP]", []int32{0, 0, 1}, true},
		{"a b", "", 1, "[CLS] [SEP]", []int32{0, 0}, true},
		{"a b", "", 3, "[CLS] a [SEP]", []int32{0, 0, 0}, true},
	}
	var reused Encoding
	for _, tt := range tests {
		e := tok.Encode(tt.a, tt.b, tt.maxLen)
		if v.Tokens(e.IDs) != tt.want || !slices.Equal(e.TypeIDs, tt.types) || e.Truncated != tt.truncated {
			t.Errorf("Encode(%q, %q, %d) = %s %v %v", tt.a, tt.b, tt.maxLen, v.Tokens(e.IDs), e.TypeIDs, e.Truncated)
		}
		tok.EncodeInto(&reused, tt.a, tt.b, tt.maxLen)
		if !slices.Equal(reused.IDs, e.IDs) || !slices.Equal(reused.TypeIDs, e.TypeIDs) || reused.Truncated != e.Truncated {
			t.Errorf("EncodeInto(%q, %q, %d) = %+v, Encode gives %+v", tt.a, tt.b, tt.maxLen, reused, e)
		}
	}
}

func TestEncodeBatchKeepsOrder(t *testing.T) {
	g, v := readGoldens(t)
	tok := newTokenizer(t, v, Uncased())
	pairs := make([]Pair, 1000)
	for i := range pairs {
		pairs[i] = Pair{A: g.Texts[i%len(g.Texts)], B: g.Texts[i*7%len(g.Texts)]}
	}
	got := tok.EncodeBatch(pairs, 20)
	for i, p := range pairs {
		if want := tok.Encode(p.A, p.B, 20); !slices.Equal(got[i].IDs, want.IDs) || !slices.Equal(got[i].TypeIDs, want.TypeIDs) {
			t.Fatalf("text %d: got %v, expected %v", i, got[i], want)
		}
	}
	if got := tok.EncodeBatch(nil, 20); len(got) != 0 {
		t.Errorf("an empty batch gives %v", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	g, v := readGoldens(t)
	tok := newTokenizer(t, v, Uncased())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var ids []int32
			for i, k := range g.Sets[0].Cases {
				if ids = tok.AppendIDs(ids[:0], g.Texts[k]); !slices.Equal(ids, g.Sets[0].IDs[i]) {
					t.Errorf("%+q: other tokens than alone", g.Texts[k])
				}
			}
		})
	}
	wg.Wait()
}

func TestNoAllocation(t *testing.T) {
	g, v := readGoldens(t)
	tok := newTokenizer(t, v, Uncased())
	all := strings.Join(g.Texts, " ")
	var e Encoding
	tok.EncodeInto(&e, all, all, 0)
	if n := testing.AllocsPerRun(10, func() { tok.EncodeInto(&e, all, all, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestConfigValidate(t *testing.T) {
	v := parse(t)
	for _, cfg := range []Config{{MaxWordChars: -1}, {Accents: 3}, {Accents: -1}} {
		if _, err := NewTokenizer(v, cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

// A tokenizer that follows the description step by step, slowly: the fast one must
// agree with it on any text.
func slowIDs(t *Tokenizer, text string) []int32 {
	var ids []int32
	word := []rune{}
	end := func() {
		if len(word) == 0 {
			return
		}
		ids = append(ids, slowPieces(t, word)...)
		word = word[:0]
	}
	for _, r := range text {
		if r < utf8.RuneSelf {
			switch c := t.algorithm.(*wordPiece).ascii[r]; {
			case c == byteSpace:
				end()
			case c == byteAlone:
				end()
				ids = append(ids, slowPieces(t, []rune{r})...)
			case c < byteCodes:
				word = append(word, rune(c))
			}
		}
	}
	end()
	return ids
}

func slowPieces(t *Tokenizer, word []rune) []int32 {
	if len(word) > t.algorithm.(*wordPiece).maxChars {
		return []int32{t.roles.Unk}
	}
	var ids []int32
	for start := 0; start < len(word); {
		stop := len(word)
		for ; stop > start; stop-- {
			s := string(word[start:stop])
			if start > 0 {
				s = Continuation + s
			}
			if id, ok := t.vocab.ID(s); ok {
				ids = append(ids, id)
				break
			}
		}
		if stop == start {
			return []int32{t.roles.Unk}
		}
		start = stop
	}
	return ids
}

// Small alphabets make many pieces overlap, which is where greedy matching backs up.
func TestLongestMatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(alphabet string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[rng.IntN(len(alphabet))]
		}
		return string(b)
	}
	for range 200 {
		var tokens []string
		for range rng.IntN(30) {
			s := random("abc", 1+rng.IntN(5))
			if rng.IntN(2) == 0 {
				s = Continuation + s
			}
			tokens = append(tokens, s)
		}
		tok := newTokenizer(t, parse(t, tokens...), Config{MaxWordChars: 1 + rng.IntN(12)})
		for range 50 {
			s := random("aaabbbc .\x01", 1+rng.IntN(40))
			if got, want := tok.AppendIDs(nil, s), slowIDs(tok, s); !slices.Equal(got, want) {
				t.Fatalf("tokens %q, text %q:\n got %s\nwant %s", tokens, s, tok.vocab.Tokens(got), tok.vocab.Tokens(want))
			}
		}
	}
}

func FuzzTokenizer(f *testing.F) {
	g, v := readGoldens(f)
	for i, s := range g.Texts[:60] {
		f.Add(s, g.Texts[i+1], byte(i), 8)
	}
	f.Add("\xff\xc3", "\xf4\x90\x80\x80", byte(3), 1)
	toks := make([]*Tokenizer, len(g.Sets))
	for i := range g.Sets {
		toks[i] = newTokenizer(f, v, g.Sets[i].Config)
	}
	f.Fuzz(func(t *testing.T, a, b string, set byte, maxLen int) {
		tok := toks[int(set)%len(toks)]
		e := tok.Encode(a, b, maxLen)
		if len(e.IDs) != len(e.TypeIDs) || e.IDs[0] != tok.roles.Cls || e.IDs[len(e.IDs)-1] != tok.roles.Sep {
			t.Fatalf("%q, %q within %d: %+v", a, b, maxLen, e)
		}
		if maxLen >= 3 && len(e.IDs) > maxLen {
			t.Fatalf("%q, %q within %d: %d ids", a, b, maxLen, len(e.IDs))
		}
		for _, id := range e.IDs {
			if id < 0 || int(id) >= v.Size() {
				t.Fatalf("%q, %q: id %d", a, b, id)
			}
		}
		// Bytes that are no UTF-8 count as U+FFFD, each.
		if got, want := tok.AppendIDs(nil, a), tok.AppendIDs(nil, string([]rune(a))); !slices.Equal(got, want) {
			t.Fatalf("%q: got %v, and %v as runes", a, got, want)
		}
	})
}

func BenchmarkAppendIDs(b *testing.B) {
	g, v := readGoldens(b)
	english := strings.Repeat("The quick brown fox jumps over the lazy dog, doesn't it? ", 40)
	for _, bm := range []struct {
		name, text string
		vocab      *Vocab
	}{{"english", english, nil}, {"odd", strings.Join(g.Texts, " "), v}} {
		b.Run(bm.name, func(b *testing.B) {
			if bm.vocab == nil {
				bm.vocab = bertVocab(b)
			}
			tok := newTokenizer(b, bm.vocab, Uncased())
			var ids []int32
			b.SetBytes(int64(len(bm.text)))
			b.ReportAllocs()
			for b.Loop() {
				ids = tok.AppendIDs(ids[:0], bm.text)
			}
		})
	}
}

func BenchmarkNewTokenizer(b *testing.B) {
	v := bertVocab(b)
	for b.Loop() {
		newTokenizer(b, v, Uncased())
	}
}
