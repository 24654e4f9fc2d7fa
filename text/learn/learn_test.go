package learn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

var specials = []string{"<unk>", "<mask>"}

// golden is what the tokenizers library trains on words; see testdata/gen_goldens.py.
type golden struct {
	Kind   string
	Size   int
	Words  map[string]int64
	Vocab  json.RawMessage
	Merges [][2]string
}

func counted(counts map[string]int64) []Word {
	var c Counter
	c.Add(counts)
	return c.Words()
}

func TestGoldens(t *testing.T) {
	data, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for i, g := range all {
		t.Run(fmt.Sprintf("%d-%s", i, g.Kind), func(t *testing.T) {
			words := counted(g.Words)
			var first string
			for _, threads := range []int{1, 2, 7} {
				cfg := Config{Size: g.Size, Specials: specials, Threads: threads}
				got := g.compare(t, words, cfg)
				if first == "" {
					first = got
				} else if got != first {
					t.Errorf("%d threads give another result than one", threads)
				}
			}
		})
	}
}

// compare compares what is trained with what the library trained, and returns it.
func (g *golden) compare(t *testing.T, words []Word, cfg Config) string {
	if g.Kind == "unigram" {
		pieces, err := Unigram(t.Context(), words, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var want [][2]any
		if err := json.Unmarshal(g.Vocab, &want); err != nil {
			t.Fatal(err)
		}
		scores := map[string]float64{}
		for _, p := range want {
			scores[p[0].(string)] = p[1].(float64)
		}
		for i, p := range pieces {
			score, ok := scores[p.Text]
			if !ok || math.Abs(score-p.Score) > 1e-9 || i > len(specials) && p.Score > pieces[i-1].Score {
				t.Errorf("piece %d is %q with %v; expected %v", i, p.Text, p.Score, score)
			}
		}
		if len(pieces) != len(want) || pieces[0].Text != specials[0] {
			t.Errorf("got %d pieces and first %v, expected %d", len(pieces), pieces[0], len(want))
		}
		return fmt.Sprint(pieces)
	}
	var want []string
	if err := json.Unmarshal(g.Vocab, &want); err != nil {
		t.Fatal(err)
	}
	if g.Kind == "wordpiece" {
		tokens, err := WordPiece(t.Context(), words, cfg)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Clone(tokens)
		begin := len(specials) + len(characters(words, nil)) // then those of characters with ##, in any order
		end := begin
		for end < len(got) && strings.HasPrefix(got[end], "##") && len([]rune(got[end])) == 3 {
			end++
		}
		slices.Sort(got[begin:end])
		slices.Sort(want[begin:end])
		if !slices.Equal(got, want) {
			t.Errorf("got      %q\nexpected %q", got, want)
		}
		return fmt.Sprint(tokens)
	}
	m, err := BPE(t.Context(), words, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.Tokens, want) || !slices.Equal(m.Pairs, g.Merges) {
		t.Errorf("got      %q %q\nexpected %q %q", m.Tokens, m.Pairs, want, g.Merges)
	}
	return fmt.Sprint(m)
}

// TestSeeds compares the pieces that training begins with with those that are found by looking at every
// string.
func TestSeeds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	counts := map[string]int64{strings.Repeat("ab", 40): 3, "x": 1, "nul\x00nul": 2}
	for range 80 {
		w := []rune{}
		for range rng.IntN(25) {
			w = append(w, []rune("aab▁文")[rng.IntN(5)])
		}
		counts[string(w)]++
	}
	words := slices.DeleteFunc(counted(counts), func(w Word) bool { return w.Text == "" })
	want := map[string]float64{}
	next := map[string]map[rune]bool{} // what follows a string
	for _, w := range words {
		text := append([]rune(w.Text), 0)
		for i, r := range text[:len(text)-1] {
			if r != 0 {
				want[string(r)] += float64(w.Count)
			}
			for k := i + 2; k < len(text) && k <= i+maxPiece; k++ {
				s := string(text[i:k])
				if strings.ContainsRune(s, 0) {
					break
				}
				if next[s] == nil {
					next[s] = map[rune]bool{}
				}
				next[s][text[k]] = true
				want[s] += float64(k - i)
			}
		}
	}
	maps.DeleteFunc(want, func(s string, _ float64) bool { return len([]rune(s)) > 1 && len(next[s]) < 2 })
	texts, scores, err := seed(t.Context(), words, 3)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for i, s := range texts {
		got[s] = scores[i]
	}
	if !reflect.DeepEqual(got, want) || len(texts) != len(want) {
		t.Errorf("got %v\nexpected %v", got, want)
	}
}

// TestExpectedOfLongWords compares sums of probabilities with sums of their logarithms, which take over
// for words that are too long.
func TestExpectedOfLongWords(t *testing.T) {
	p := newPieces([]string{"", "a", "b", "ab", "aba"}, []float64{0, -4, -4.5, -3, -5})
	for _, word := range []string{"abac", strings.Repeat("abac", 400)} {
		var l lattice
		got, want := make([]float64, 5), make([]float64, 5)
		l.fill(p, word, -1)
		l.expect(p, 2, got)
		l.expectLogs(p, 2, want)
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-9*want[i] || !(want[i] > 0) {
				t.Errorf("%.10s: piece %d is expected %v times, expected %v", word, i, got[i], want[i])
			}
		}
	}
}

func TestWrongSizes(t *testing.T) {
	words := counted(map[string]int64{"▁hello": 10, "▁help": 5, "▁held": 5})
	three := []string{"a", "b", "c"}
	for _, tt := range []struct {
		words []Word
		size  int
		want  string
	}{
		{nil, 100, "there are no words to train on"},
		{words, 5, "a vocabulary of 5 tokens cannot hold the special tokens and every character of the corpus; expected 10 or more"},
		{words, 100, "the corpus gives only 17 tokens; expected a vocabulary of at most that many, not of 100, or more text"},
	} {
		_, err := BPE(t.Context(), tt.words, Config{Size: tt.size, Specials: three})
		if err == nil || err.Error() != tt.want || fault.Of(err) != fault.Usage {
			t.Errorf("BPE of %d: got %v, expected %s", tt.size, err, tt.want)
		}
		_, err = Unigram(t.Context(), tt.words, Config{Size: tt.size, Specials: three})
		if err == nil || fault.Of(err) != fault.Usage {
			t.Errorf("Unigram of %d: got %v, expected an error", tt.size, err)
		}
	}
	stopped, stop := context.WithCancelCause(t.Context())
	reason := errors.New("stopped")
	stop(reason)
	if _, err := Unigram(stopped, words, Config{Size: 12}); !errors.Is(err, reason) {
		t.Errorf("got %v, expected %v", err, reason)
	}
}
