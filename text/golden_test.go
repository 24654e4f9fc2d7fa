package text

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// goldens is testdata/goldens.json, which testdata/gen_goldens.py writes.
type goldens struct {
	Texts []string
	Sets  []struct {
		Config Config
		Cases  []int // indices of texts
		IDs    [][]int32
	}
	Word string   // a token, for texts of so many tokens
	Kept [][5]int // tokens of a and of b (-1: no b), limit, tokens kept of a and of b
}

func readGoldens(t testing.TB) (*goldens, *Vocab) {
	t.Helper()
	data, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	g := &goldens{}
	if err := json.Unmarshal(data, g); err != nil {
		t.Fatal(err)
	}
	v, err := LoadVocab("testdata/vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	return g, v
}

func TestGoldens(t *testing.T) {
	g, v := readGoldens(t)
	if len(g.Sets) != 48 || len(g.Texts) < 300 {
		t.Fatalf("%d sets of %d texts", len(g.Sets), len(g.Texts))
	}
	for _, set := range g.Sets {
		tok := newTokenizer(t, v, set.Config)
		for i, k := range set.Cases {
			got := tok.AppendIDs(nil, g.Texts[k])
			if !slices.Equal(got, set.IDs[i]) {
				t.Errorf("%+v: %+q:\n got %+q\nwant %+q", set.Config, g.Texts[k], v.Tokens(got), v.Tokens(set.IDs[i]))
			}
		}
	}
}

// A text's tokens do not depend on what stands before and after it, once space
// parts them; nor does a tokenizer keep anything between calls.
func TestTextsPartedBySpace(t *testing.T) {
	g, v := readGoldens(t)
	for _, set := range g.Sets {
		tok := newTokenizer(t, v, set.Config)
		var parts, got []int32
		var all strings.Builder
		for _, k := range set.Cases {
			parts = tok.AppendIDs(parts, g.Texts[k])
			all.WriteString(g.Texts[k])
			all.WriteByte(' ')
		}
		if got = tok.AppendIDs(got, all.String()); !slices.Equal(got, parts) {
			t.Errorf("%+v: the joined texts have other tokens than the texts", set.Config)
		}
	}
}

func TestTruncationGoldens(t *testing.T) {
	g, v := readGoldens(t)
	tok := newTokenizer(t, v, Uncased())
	if len(g.Kept) < 1000 {
		t.Fatalf("%d cases", len(g.Kept))
	}
	for _, c := range g.Kept {
		a, b := strings.Repeat(g.Word+" ", c[0]), ""
		if c[1] >= 0 {
			b = " " + strings.Repeat(g.Word+" ", c[1])
		}
		e := tok.Encode(a, b, c[2])
		keptA, keptB := slices.Index(e.IDs, tok.roles.Sep)-1, -1
		if b != "" {
			keptB = len(e.IDs) - keptA - 3
		}
		if keptA != c[3] || keptB != c[4] {
			t.Errorf("texts of %d and %d tokens within %d: kept %d and %d, expected %d and %d", c[0], c[1], c[2], keptA, keptB, c[3], c[4])
		}
		whole := c[0] == c[3] && c[1] == c[4]
		if e.Truncated == whole {
			t.Errorf("texts of %d and %d tokens within %d: Truncated is %v", c[0], c[1], c[2], e.Truncated)
		}
	}
}
