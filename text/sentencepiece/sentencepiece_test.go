package sentencepiece

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// golden is a model, and texts as the sentencepiece library splits them; see testdata/gen_goldens.py.
type golden struct {
	Model []byte
	Texts []struct {
		Text    string
		Tokens  [][3]int
		Decoded string
	}
	Decoded []struct {
		IDs  []int32
		Text string
	}
}

func goldens(t testing.TB) ([]golden, []*Model) {
	file, err := os.Open("testdata/goldens.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	var models []*Model
	for _, g := range all {
		m, err := Parse(g.Model)
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
		m := models[i]
		for _, c := range g.Texts {
			want, ids := []Token{}, []int32{}
			for _, k := range c.Tokens {
				want = append(want, Token{int32(k[0]), k[1], k[2]})
				ids = append(ids, int32(k[0]))
			}
			if got := m.Append([]Token{}, c.Text); !reflect.DeepEqual(got, want) {
				t.Errorf("model %d, %q:\ngot      %v\nexpected %v", i, c.Text, got, want)
			}
			if got := m.AppendIDs([]int32{}, c.Text); !reflect.DeepEqual(got, ids) {
				t.Errorf("model %d, %q: got the ids %v, expected %v", i, c.Text, got, ids)
			}
			if got := m.Decode(ids); got != c.Decoded {
				t.Errorf("model %d: %v is %q, expected %q", i, ids, got, c.Decoded)
			}
		}
		for _, c := range g.Decoded {
			if got := m.Decode(c.IDs); got != c.Text {
				t.Errorf("model %d: %v is %q, expected %q", i, c.IDs, got, c.Text)
			}
		}
	}
}

// TestTokenizer checks the special tokens around texts, as the control symbols of a model give them.
func TestTokenizer(t *testing.T) {
	_, models := goldens(t)
	for i, want := range map[int]string{0: "<s> ▁cat </s> ▁a </s>", 4: "▁cat </s> ▁a </s>"} {
		tok := models[i].Tokenizer()
		e := tok.Encode("cat", "a", 0)
		if got := tok.Vocab().Tokens(e.IDs); got != want {
			t.Errorf("model %d: got %s, expected %s", i, got, want)
		}
		whole := tok.AppendIDs(nil, "the cat unhappy")
		first, more := tok.AppendFirst(nil, "the cat unhappy", 2)
		if len(first) != 2 || more != len(whole)-2 || tok.Decode(whole, false) != "the cat unhappy" {
			t.Errorf("model %d: got %v and %d more of %v, %q", i, first, more, whole, tok.Decode(whole, false))
		}
	}
}

// FuzzParse checks that neither a damaged model nor invalid text does harm.
func FuzzParse(f *testing.F) {
	all, _ := goldens(f)
	for _, g := range all[1:] {
		f.Add(g.Model, "the un\xffhappy  cat")
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		m, err := Parse(data)
		if err != nil {
			return
		}
		at := 0
		for _, k := range m.Append(nil, text) {
			if k.Start < at || k.End < k.Start || k.End > len(text) || k.ID < 0 || int(k.ID) >= m.Size() {
				t.Fatalf("%q: token %v after byte %d", text, k, at)
			}
			at = k.Start
		}
		if s := m.Decode(m.AppendIDs(nil, text)); !utf8.ValidString(s) && utf8.ValidString(m.proto.unknownSurface) {
			t.Fatalf("%q is decoded to %q", text, s)
		}
	})
}

func TestWrongModels(t *testing.T) {
	one := func(text string, kind byte) string {
		p := "\x0a" + string(rune(len(text))) + text + "\x18" + string(rune(kind))
		return "\x0a" + string(rune(len(p))) + p
	}
	const specs = "\x12\x00\x1a\x00" // of the trainer and of normalization
	for _, tt := range []struct{ data, want string }{
		{"", "it has no pieces; expected a SentencePiece model"},
		{one("a", 2) + one("b", 1), "it ends after 2 pieces, without its trainer_spec and normalizer_spec; expected a whole"},
		{"[PAD]\n[UNK]\n", "it cannot be read as a SentencePiece model (a protobuf message): "},
		{one("a", 1) + specs, "it has 0 pieces for what is unknown; expected one"},
		{one("a", 2) + one("a", 1) + specs, `piece 1, "a", is there twice`},
		{one("a", 2) + one("<0x4>", 6) + specs, `piece 1, "<0x4>", is of a byte; expected a name like <0x0A>`},
		{one("a", 2) + one("<0x41>", 6) + specs, "it has 1 pieces for bytes; expected 0"},
		{one("a", 2) + "\x12\x02\x18\x04", "the model is of type char; expected unigram or bpe"},
		{one("a", 2) + "\x12\x00\x1a\x05\x12\x03abc", "its table of normalization has 3 bytes; expected 4 or more"},
		{one("a", 2) + "\x12\x00\x1a\x07\x12\x05\x08\x00\x00\x00a", "its table of normalization has a trie of 8 bytes in 1"},
	} {
		if _, err := Parse([]byte(tt.data)); err == nil || !strings.HasPrefix(err.Error(), tt.want) || fault.Of(err) != fault.Usage {
			t.Errorf("%q: got %v, expected %s", tt.data, err, tt.want)
		}
	}
}
