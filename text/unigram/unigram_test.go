package unigram

import (
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text"
)

// golden is a model, and words as the tokenizers library splits them; see testdata/gen_goldens.py.
type golden struct {
	Pieces   []Piece
	Unknown  int
	Fallback bool
	Words    []struct {
		Word   string
		Tokens [][3]int32
	}
}

func goldens(t testing.TB) ([]golden, []*Model) {
	data, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	var models []*Model
	for _, g := range all {
		m, err := New(Config{Pieces: g.Pieces, Unk: g.Unknown, ByteFallback: g.Fallback})
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	return all, models
}

// spans returns the tokens of a word with their bytes.
func spans(s text.Splitter, word string) [][3]int32 {
	out := [][3]int32{}
	at := int32(0)
	for _, p := range s.Append(nil, word) {
		if p.Len < 0 {
			at, p.Len = at+p.Len, -p.Len
		}
		out = append(out, [3]int32{p.ID, at, at + p.Len})
		at += p.Len
	}
	return out
}

// Scores are those that the library reads, to the last bit.
func TestScores(t *testing.T) {
	data, err := os.ReadFile("testdata/scores.txt")
	if err != nil {
		t.Fatal(err)
	}
	exact := 0
	for line := range strings.Lines(string(data)) {
		number, hex, _ := strings.Cut(strings.TrimSpace(line), " ")
		want, err := strconv.ParseFloat(hex, 64)
		if err != nil {
			t.Fatal(err)
		}
		var p Piece
		if err := json.Unmarshal([]byte(`["a", `+number+`]`), &p); err != nil {
			t.Fatal(err)
		}
		if math.Float64bits(p.Score) != math.Float64bits(want) {
			t.Errorf("%s is %v, want %v", number, p.Score, want)
		}
		if nearest, _ := strconv.ParseFloat(number, 64); nearest == want {
			exact++
		}
	}
	if exact == 0 || exact == strings.Count(string(data), "\n") {
		t.Errorf("%d numbers are the nearest ones; expected some, and not all", exact)
	}
}

func TestGoldens(t *testing.T) {
	all, models := goldens(t)
	for i, g := range all {
		s := models[i].NewSplitter()
		for _, w := range g.Words {
			ids := []int32{}
			for _, k := range w.Tokens {
				ids = append(ids, k[0])
			}
			for range 2 { // the second time from the cache
				if got := spans(s, w.Word); !reflect.DeepEqual(got, w.Tokens) {
					t.Fatalf("model %d, %q:\ngot      %v\nexpected %v", i, w.Word, got, w.Tokens)
				}
				if got := s.AppendIDs([]int32{}, w.Word); !reflect.DeepEqual(got, ids) {
					t.Fatalf("model %d, %q: got %v, expected %v", i, w.Word, got, ids)
				}
			}
		}
	}
}

// FuzzAppend checks that the tokens of any bytes cover them in order.
func FuzzAppend(f *testing.F) {
	_, models := goldens(f)
	for _, s := range []string{"", "abcab", "\xff\xfe", "a\xe4\xb8", strings.Repeat("ab\xf0", 100), "<unk>é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		for i, m := range models {
			last := [3]int32{}
			for _, k := range spans(m.NewSplitter(), word) {
				again := k[1] == last[1] && k[2] == last[2] && m.fallback
				if k[1] != last[2] && !again || k[2] <= k[1] || k[0] < 0 || int(k[0]) >= len(m.tokens) {
					t.Fatalf("model %d, %q: token %v after %v", i, word, k, last)
				}
				if piece := word[k[1]:k[2]]; utf8.ValidString(word) && !utf8.ValidString(piece) {
					t.Fatalf("model %d, %q: token %v cuts a character", i, word, k)
				}
				last = k
			}
			if int(last[2]) != len(word) {
				t.Fatalf("model %d, %q: the tokens end at byte %d", i, word, last[2])
			}
		}
	})
}

func TestWrongPieces(t *testing.T) {
	for _, tt := range []struct {
		pieces  []Piece
		unknown int
		want    string
	}{
		{nil, 0, "model Unigram: unk_id is 0; expected one of the 0 pieces"},
		{[]Piece{{"a", 0}}, -1, "model Unigram: unk_id is -1; expected one of the 1 pieces"},
		{[]Piece{{"\xff", 0}}, 0, `model Unigram: piece 0 ("\xff") is not valid UTF-8`},
	} {
		if _, err := New(Config{Pieces: tt.pieces, Unk: tt.unknown}); err == nil || err.Error() != tt.want {
			t.Errorf("%v, %d: got %v, expected %s", tt.pieces, tt.unknown, err, tt.want)
		}
	}
}
