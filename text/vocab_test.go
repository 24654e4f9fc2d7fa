package text

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const specialLines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

func TestParseVocab(t *testing.T) {
	tests := []struct {
		name, file string
		tokens     []string // after the special tokens
		ids        map[string]int32
	}{
		{"plain", specialLines + "a\n##b\n", []string{"a", "##b"}, map[string]int32{"a": 5, "##b": 6, "[PAD]": 0}},
		{"no final line feed", specialLines + "a\nb", []string{"a", "b"}, map[string]int32{"b": 6}},
		{"CRLF", strings.ReplaceAll(specialLines+"a\nb\n", "\n", "\r\n"), []string{"a", "b"}, map[string]int32{"b": 6, "[UNK]": 1}},
		{"byte order mark", "\ufeff" + specialLines + "a\n", []string{"a"}, map[string]int32{"[PAD]": 0, "a": 5}},
		{"space after tokens", specialLines + "a \nb\t\u3000\n", []string{"a", "b"}, map[string]int32{"a": 5, "b": 6}},
		{"empty lines at the end", specialLines + "a\n\n\r\n\n", []string{"a"}, map[string]int32{"a": 5}},
		{"empty line between", specialLines + "a\n\nb\n", []string{"a", "", "b"}, map[string]int32{"a": 5, "b": 7}},
		{"blank token at the end", specialLines + "a\n\u2028\n", []string{"a", ""}, map[string]int32{"a": 5}},
		{"twice", specialLines + "a\nb\na\n", []string{"a", "b", "a"}, map[string]int32{"a": 7, "b": 6}},
		{"space before tokens", specialLines + " a\n", []string{" a"}, map[string]int32{" a": 5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := ParseVocab([]byte(tt.file), "v")
			if err != nil {
				t.Fatal(err)
			}
			if v.Size() != 5+len(tt.tokens) {
				t.Errorf("size %d, expected %d", v.Size(), 5+len(tt.tokens))
			}
			for i, want := range tt.tokens {
				if got := v.Token(int32(5 + i)); got != want {
					t.Errorf("token %d is %q, expected %q", 5+i, got, want)
				}
			}
			for s, want := range tt.ids {
				if id, ok := v.ID(s); !ok || id != want {
					t.Errorf("%q has id %d (%v), expected %d", s, id, ok, want)
				}
			}
			for _, s := range []string{"", "#", "[", "zz", "a\x00"} {
				if id, ok := v.ID(s); ok {
					t.Errorf("%q has id %d", s, id)
				}
			}
			if v.Token(-1) != "" || v.Token(int32(v.Size())) != "" {
				t.Error("ids out of range have tokens")
			}
		})
	}
}

func TestParseVocabErrors(t *testing.T) {
	tests := []struct{ file, want string }{
		{"", "vocabulary v: the file is empty"},
		{"\ufeff\r\n\n", "vocabulary v: the file is empty"},
		{"[CLS]\n[SEP]\na\n", "vocabulary v: has no [UNK]; expected a BERT vocab.txt with one token per line"},
		{"[UNK]\n[SEP]\n", "vocabulary v: has no [CLS]; expected a BERT vocab.txt with one token per line"},
		{"[UNK]\n[CLS]\n", "vocabulary v: has no [SEP]; expected a BERT vocab.txt with one token per line"},
		{specialLines + "a\nb\xff\nc", "vocabulary v:7: not valid UTF-8"},
	}
	for _, tt := range tests {
		_, err := ParseVocab([]byte(tt.file), "v")
		var ve *VocabError
		if !errors.As(err, &ve) || err.Error() != tt.want {
			t.Errorf("%q: got %v, expected %s", tt.file, err, tt.want)
		}
	}
}

func TestLoadVocabMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vocab.txt")
	if _, err := LoadVocab(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// Every token is found under its own id, and a vocabulary of all bytes that can
// follow each other builds as any other.
func TestVocabRoundTrip(t *testing.T) {
	_, v := readGoldens(t)
	wide := []string{}
	for i := range 3000 {
		wide = append(wide, fmt.Sprintf("%c%c", rune(0x100+i%0xff0), rune(0x4e00+7*i)))
	}
	for _, v := range []*Vocab{v, parse(t, wide...)} {
		for id, s := range v.tokens {
			if got, ok := v.ID(s); !ok || int(got) != id {
				t.Fatalf("%q has id %d (%v), expected %d", s, got, ok, id)
			}
		}
	}
}

func TestBERTVocab(t *testing.T) {
	v := bertVocab(t)
	if v.Size() != 30522 {
		t.Fatalf("size %d", v.Size())
	}
	for id, s := range v.tokens {
		if got, ok := v.ID(s); !ok || int(got) != id {
			t.Fatalf("%q has id %d (%v), expected %d", s, got, ok, id)
		}
	}
}

func FuzzParseVocab(f *testing.F) {
	f.Add([]byte(specialLines + "a\n##b\n"))
	f.Add([]byte("\ufeff" + specialLines + "\r\n\n\na\r\r\na"))
	f.Add([]byte(specialLines + "\x00\n\x00\x01\n##\n#\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseVocab(data, "fuzz")
		if err != nil {
			return
		}
		for id, s := range v.tokens {
			if s == "" {
				continue
			}
			got, ok := v.ID(s)
			if !ok || int(got) < id || v.tokens[got] != s {
				t.Fatalf("%q of line %d has id %d (%v)", s, id+1, got, ok)
			}
			if last := len(v.tokens) - 1 - slices.Index(reversed(v.tokens), s); int(got) != last {
				t.Fatalf("%q has id %d, its last line is %d", s, got, last+1)
			}
		}
		tok := newTokenizer(t, v, Config{Unclean: true, LiteralSpecials: true})
		for _, id := range tok.AppendIDs(nil, string(data)) {
			if id < 0 || int(id) >= v.Size() {
				t.Fatalf("id %d of %d", id, v.Size())
			}
		}
	})
}

func reversed(s []string) []string {
	r := slices.Clone(s)
	slices.Reverse(r)
	return r
}
