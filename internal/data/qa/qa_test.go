package qa

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
)

func tokenizer(t *testing.T) *text.Tokenizer {
	t.Helper()
	tokens := "[PAD] [UNK] [CLS] [SEP] [MASK] ann lives in ro ##me . , the café is old ? who where"
	v, err := text.ParseVocab([]byte(strings.ReplaceAll(tokens, " ", "\n")), "vocab")
	if err != nil {
		t.Fatal(err)
	}
	out, err := text.NewTokenizer(v, text.Config{Lowercase: true, Accents: text.KeepAccents})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestScoresAgainstGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Normalized map[string]string
		Pairs      []struct {
			Answer    string
			Truths    []string
			Exact, F1 float64
			First     float64 `json:"f1_1_1"`
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil || len(golden.Pairs) == 0 {
		t.Fatalf("%d pairs, %v", len(golden.Pairs), err)
	}
	for answer, want := range golden.Normalized {
		if got := Normalize(answer); got != want {
			t.Errorf("Normalize(%q) is %q, want %q", answer, got, want)
		}
	}
	for _, p := range golden.Pairs {
		if got := ExactMatch(p.Answer, p.Truths); got != p.Exact {
			t.Errorf("%q for %q: exact match is %v, want %v", p.Answer, p.Truths, got, p.Exact)
		}
		for _, f := range []struct {
			empty bool
			want  float64
		}{{true, p.F1}, {false, p.First}} {
			if got := F1(p.Answer, p.Truths, f.empty); math.Abs(got-f.want) > 1e-12 {
				t.Errorf("%q for %q, %v: f1 is %v, want %v", p.Answer, p.Truths, f.empty, got, f.want)
			}
		}
	}
	if ExactMatch("", nil) != 1 || F1("", nil, true) != 1 || F1("x", nil, true) != 0 {
		t.Error("a question without an answer")
	}
	if got := Truths([]string{"the", "x", "."}); !slices.Equal(got, []string{"x"}) {
		t.Errorf("truths are %q", got)
	}
}

// The characters of tokens are code points, also after those of several bytes.
func TestWindowsAndPlaces(t *testing.T) {
	tok := tokenizer(t)
	context := "“Café” 😀 is old. Ann lives in Rome."
	c := Tokenize(tok, context, math.MaxInt)
	var words []string
	for i := range c.IDs {
		words = append(words, Slice(context, int(c.Starts[i]), int(c.Ends[i])))
	}
	if got := strings.Join(words, "|"); got != "“|Café|”|😀|is|old|.|Ann|lives|in|Rome|Rome|." {
		t.Fatalf("tokens stand for %s", got)
	}
	q, cut := Question(tok, "Where is Ann?", 12)
	if cut || len(q) != 4 {
		t.Fatalf("the question is %v", q)
	}
	if long, cut := Question(tok, strings.Repeat("ann ", 99), 384); !cut || len(long) != MaxQuestion {
		t.Errorf("a long question has %d tokens", len(long))
	}
	windows := Windows(tok, q, c, 12, 2) // 5 tokens of the context, 2 of them shared
	if len(windows) != 4 {
		t.Fatalf("%d windows", len(windows))
	}
	start := strings.Index(context, "Rome")
	from := int32(len([]rune(context[:start])))
	for i, w := range windows {
		if len(w.IDs) > 12 || len(w.Starts) != len(w.IDs) || w.IDs[0] != 2 || w.IDs[5] != 3 || w.IDs[len(w.IDs)-1] != 3 {
			t.Errorf("window %d is %v", i, w)
		}
		e := w.Encoding()
		if n := slices.Index(e.TypeIDs, 1); n != 6 || slices.Contains(e.TypeIDs[n:], 0) {
			t.Errorf("window %d has types %v", i, e.TypeIDs)
		}
		first, last, fits, ok := w.Place(from, from+4)
		if has := i == 3; ok != has { // the one before has half of the word
			t.Errorf("window %d: the answer is at %d to %d, %v", i, first, last, ok)
		} else if ok && (!fits || Slice(context, int(w.Starts[first]), int(w.Ends[last])) != "Rome") {
			t.Errorf("window %d: the answer is at %d to %d", i, first, last)
		}
	}
	// Half a word is its word. What begins before the window is not in it.
	if first, last, fits, ok := windows[3].Place(from+1, from+2); !ok || fits || last < first {
		t.Errorf("half a word: %d to %d, %v, %v", first, last, fits, ok)
	}
	if _, _, _, ok := windows[3].Place(0, from+4); ok {
		t.Error("an answer that begins before the window is in it")
	}
	for most := 8; most < 40; most++ {
		for stride := range 20 {
			if got := Count(tok, len(q), len(c.IDs), most, stride); got != len(Windows(tok, q, c, most, stride)) {
				t.Errorf("%d windows of %d tokens, %d of them shared; expected %d", got, most, stride, len(Windows(tok, q, c, most, stride)))
			}
		}
	}
	if got := Windows(tok, q, c, 384, 128); len(got) != 1 || len(got[0].IDs) != len(c.IDs)+7 {
		t.Errorf("a short context has %d windows", len(got))
	}
	if got := Slice("😀b", 1, 9); got != "b" {
		t.Errorf("Slice gives %q", got)
	}
}

// Judge equals a search of all spans, and Join the search over both windows.
func TestJudgeLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		n := 3 + r.IntN(12)
		make1 := func() (s, e []float64, starts, ends []int32) {
			for i := range n {
				s, e = append(s, math.Round(8*r.NormFloat64())/8), append(e, math.Round(8*r.NormFloat64())/8)
				from, to := int32(0), int32(0)
				if i > 1 && i < n-1 {
					from = int32(i / 2 * 3)
					to = from + 2
				}
				starts, ends = append(starts, from), append(ends, to)
			}
			return
		}
		all := map[[2]int]float64{}
		null := math.Inf(1)
		var joined Candidates
		for k := range 2 {
			s, e, starts, ends := make1()
			null = min(null, s[0]+e[0])
			for i := range n {
				for j := i; j < min(n, i+4); j++ {
					key := [2]int{int(starts[i]), int(ends[j])}
					if ends[i] == 0 || ends[j] == 0 {
						continue
					}
					if old, ok := all[key]; !ok || s[i]+e[j] > old {
						all[key] = s[i] + e[j]
					}
				}
			}
			c := Judge(s, e, starts, ends, 5, 4)
			if k == 0 {
				joined = c
			} else {
				joined = joined.Join(c, 5)
			}
		}
		var scores []float64
		for _, v := range all {
			scores = append(scores, v)
		}
		slices.Sort(scores)
		slices.Reverse(scores)
		scores = scores[:min(5, len(scores))]
		if joined.Null != null || len(joined.Best) != len(scores) {
			t.Fatalf("got %v, want %v and %v", joined, null, scores)
		}
		for i, s := range joined.Best {
			if s.Score != scores[i] || all[[2]int{s.Start, s.End}] != s.Score {
				t.Fatalf("span %d is %v, want %v", i, s, scores[i])
			}
		}
		if len(scores) > 0 && (joined.NoAnswer(null-scores[0]) || !joined.NoAnswer(null-scores[0]-0.1)) {
			t.Error("the threshold does not count")
		}
	}
	if !(Candidates{}).NoAnswer(99) {
		t.Error("no span is an answer")
	}
}
