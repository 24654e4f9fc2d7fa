package bpe_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/bpe"
)

func ExampleNew() {
	m, err := bpe.New(bpe.Config{
		Vocab:  map[string]int32{"l": 0, "o": 1, "w": 2, "lo": 3, "low": 4},
		Merges: [][2]string{{"l", "o"}, {"lo", "w"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.NewSplitter().AppendIDs(nil, "lowlo"))
	// Output: [4 3]
}

// model is one of random merges over some letters.
func model(t testing.TB, r *rand.Rand, merges int, letters string) *bpe.Model {
	t.Helper()
	cfg := bpe.Config{Vocab: map[string]int32{}}
	tokens := strings.Split(letters, "")
	for i, s := range tokens {
		cfg.Vocab[s] = int32(i)
	}
	for len(cfg.Merges) < merges {
		a, b := tokens[r.IntN(len(tokens))], tokens[r.IntN(len(tokens))]
		if slices.Contains(cfg.Merges, [2]string{a, b}) || len(a+b) > 9 {
			continue
		}
		cfg.Merges = append(cfg.Merges, [2]string{a, b})
		if _, ok := cfg.Vocab[a+b]; !ok {
			cfg.Vocab[a+b] = int32(len(tokens))
			tokens = append(tokens, a+b)
		}
	}
	m, err := bpe.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Words of any length are split as the definition says: of all pairs the one of the lowest rank is joined, the
// leftmost first, until none is left. So are words with marks, at which they are divided first.
func TestDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		letters := []string{"a", "b", "▁"}[:2+i%2]
		cfg := model(t, r, 1+r.IntN(12), strings.Join(letters, ""))
		s := cfg.NewSplitter()
		for range 20 {
			var word strings.Builder
			for range 1 + r.IntN(120) {
				word.WriteString(letters[r.IntN(len(letters))])
			}
			want := slow(cfg, word.String())
			var got []string
			at := 0
			for _, p := range s.Append(nil, word.String()) {
				got = append(got, word.String()[at:at+int(p.Len)])
				at += int(p.Len)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: got %v, want %v", word.String(), got, want)
			}
			ids := s.AppendIDs(nil, word.String())
			if again := s.AppendIDs(nil, word.String()); !slices.Equal(ids, again) || len(ids) != len(want) {
				t.Fatalf("%s: got %v, then %v", word.String(), ids, again)
			}
		}
	}
}

func slow(m *bpe.Model, word string) []string {
	parts := strings.Split(word, "")
	for {
		best, at := len(m.Config().Merges), -1
		for i := 1; i < len(parts); i++ {
			if rank := slices.Index(m.Config().Merges, [2]string{parts[i-1], parts[i]}); rank >= 0 && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			return parts
		}
		parts[at-1] += parts[at]
		parts = slices.Delete(parts, at, at+1)
	}
}

// A word of a megabyte takes about as long per byte as a short one.
func TestLongWordIsSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	word := make([]byte, 1<<20)
	for i := range word {
		word[i] = "ab"[r.IntN(2)]
	}
	var pieces []text.Piece
	done := make(chan bool)
	go func() {
		pieces = model(t, r, 40, "ab").NewSplitter().Append(nil, string(word))
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute): // where pairs are searched for one by one it takes hours
		t.Fatal("a word of a megabyte is not split within a minute")
	}
	total := 0
	for _, p := range pieces {
		total += int(p.Len)
	}
	if total != len(word) {
		t.Errorf("the pieces have %d bytes, want %d", total, len(word))
	}
}
