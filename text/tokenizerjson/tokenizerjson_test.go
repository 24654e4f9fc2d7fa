package tokenizerjson_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// golden is what the tokenizers library makes of a text.
type golden struct {
	Text    string
	IDs     []int32
	Offsets [][2]int  // of characters
	Texts   [2]string // decoded, with and without special tokens
	Pair    []int32   // of the text with itself, cut to 20 ids
	Types   []int32
}

func goldens(t testing.TB) (all map[string][]golden) {
	t.Helper()
	data, err := os.ReadFile("testdata/goldens.json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func load(t testing.TB, name string) *text.Tokenizer {
	t.Helper()
	tok, err := tokenizerjson.Load("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// Ids, spans, decoded text, pairs and truncation are those of the Python library.
func TestLibraryAgrees(t *testing.T) {
	for name, texts := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			tok := load(t, name)
			for _, want := range texts {
				tokens, _ := tok.AppendTokens(nil, want.Text, math.MaxInt)
				got := golden{Text: want.Text, IDs: tok.AppendIDs([]int32{}, want.Text), Offsets: [][2]int{}}
				for i, token := range tokens {
					if token.ID != want.IDs[i] {
						t.Fatalf("%q: token %d is %d with its span, want %d", want.Text, i, token.ID, want.IDs[i])
					}
					got.Offsets = append(got.Offsets, [2]int{utf8.RuneCountInString(want.Text[:token.Start]), utf8.RuneCountInString(want.Text[:token.End])})
				}
				got.Texts = [2]string{tok.Decode(got.IDs, true), tok.Decode(got.IDs, false)}
				e := tok.Encode(want.Text, want.Text, 20)
				got.Pair, got.Types = e.IDs, e.TypeIDs
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%q:\n got %+v\nwant %+v", want.Text, got, want)
				}
			}
		})
	}
}

// An id far above the number of tokens is refused, because every id takes memory.
func TestFarIDs(t *testing.T) {
	for _, c := range []struct{ tokens, model, want string }{
		{`{"id":65541,"content":"x"}`, `{"type":"BPE","vocab":{"a":1},"merges":[]}`, `added token "x" has the id 65541; expected one from 0 to 65540`},
		{``, `{"type":"WordPiece","vocab":{"[UNK]":1,"a":65541}}`, `WordPiece: token "a" has the id 65541; expected one from 0 to 65540 in a vocabulary of 2 tokens`},
		{``, `{"type":"BPE","vocab":{"a":-1},"merges":[]}`, `BPE: token "a" has the id -1; expected one from 0 to 65538 in a vocabulary of 1 tokens`},
		{``, `{"type":"BPE","vocab":{"a":7,"b":7},"merges":[]}`, `BPE: tokens "a" and "b" have the id 7`},
	} {
		_, err := tokenizerjson.Parse([]byte(`{"added_tokens":[`+c.tokens+`],"model":`+c.model+`}`), "x.json")
		if want := "tokenizer x.json: " + c.want; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A prefix that the vocabulary lacks is dropped, as the library drops what has no token.
func TestPrefixWithoutToken(t *testing.T) {
	tok, err := tokenizerjson.Parse([]byte(`{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
		"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}`), "x.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.AppendIDs(nil, "ab"); !slices.Equal(got, []int32{0, 1}) {
		t.Errorf("got %v, want 0 and 1", got)
	}
}

// Digits are separated from each other if the file says so, also where the model could join them. The ids are
// those of tokenizers 0.23.3.
func TestDigits(t *testing.T) {
	for individual, want := range map[bool][]int32{true: {2, 0, 1, 2}, false: {2, 3, 2}} {
		tok, err := tokenizerjson.Parse(fmt.Appendf(nil, `{"pre_tokenizer":{"type":"Digits","individual_digits":%v},
			"model":{"type":"BPE","vocab":{"1":0,"2":1,"a":2,"12":3},"merges":["1 2"]}}`, individual), "x.json")
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.AppendIDs(nil, "a12a"); !slices.Equal(got, want) {
			t.Errorf("individual %v: got %v, want %v", individual, got, want)
		}
	}
}
