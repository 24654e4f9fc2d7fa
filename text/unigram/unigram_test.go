package unigram

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// golden is a model, and words as the tokenizers library splits them; see testdata/gen_goldens.py.
type golden struct {
	Pieces   [][2]any
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
		var pieces []Piece
		for _, p := range g.Pieces {
			pieces = append(pieces, Piece{p[0].(string), p[1].(float64)})
		}
		m, err := New(pieces, g.Unknown, g.Fallback)
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	return all, models
}

func TestGoldens(t *testing.T) {
	all, models := goldens(t)
	for i, g := range all {
		for _, w := range g.Words {
			want := []Token{}
			for _, k := range w.Tokens {
				want = append(want, Token{k[0], k[1], k[2]})
			}
			for range 2 { // the second time from the cache
				if got := models[i].Append([]Token{}, w.Word); !reflect.DeepEqual(got, want) {
					t.Fatalf("model %d, %q:\ngot      %v\nexpected %v", i, w.Word, got, want)
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
			last := Token{}
			for _, k := range m.Append(nil, word) {
				again := k.Start == last.Start && k.End == last.End && m.fallback
				if k.Start != last.End && !again || k.End <= k.Start || k.ID < 0 || int(k.ID) >= len(m.pieces) {
					t.Fatalf("model %d, %q: token %v after %v", i, word, k, last)
				}
				if piece := word[k.Start:k.End]; utf8.ValidString(word) && !utf8.ValidString(piece) {
					t.Fatalf("model %d, %q: token %v cuts a character", i, word, k)
				}
				last = k
			}
			if int(last.End) != len(word) {
				t.Fatalf("model %d, %q: the tokens end at byte %d", i, word, last.End)
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
		{nil, 0, "unigram: the unknown token has the id 0; expected one of the 0 pieces"},
		{[]Piece{{"a", 0}}, -1, "unigram: the unknown token has the id -1; expected one of the 1 pieces"},
		{[]Piece{{"\xff", 0}}, 0, `unigram: piece 0 ("\xff") is not valid UTF-8`},
	} {
		if _, err := New(tt.pieces, tt.unknown, false); err == nil || err.Error() != tt.want {
			t.Errorf("%v, %d: got %v, expected %s", tt.pieces, tt.unknown, err, tt.want)
		}
	}
}
