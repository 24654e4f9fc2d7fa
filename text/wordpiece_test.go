package text

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// bertVocab loads the uncased BERT vocabulary of 30,522 tokens, which the demo's
// set-up fetches.
func bertVocab(t testing.TB) *Vocab {
	t.Helper()
	for _, p := range []string{"demo/model/vocab.txt", ".cache/minilm/vocab.txt"} {
		if _, err := os.Stat(filepath.Join(testkit.Root(), p)); err == nil {
			v, err := LoadVocab(filepath.Join(testkit.Root(), p))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Skip("no BERT vocabulary in demo/model or .cache/minilm: the demo's set-up fetches it")
	return nil
}

func newTokenizer(t testing.TB, v *Vocab, cfg Config) *Tokenizer {
	t.Helper()
	tok, err := NewTokenizer(v, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestBERTGoldens holds ids against those of the tokenizers library, of texts of this package's
// and of many more where they lie next to the checkout.
func TestBERTGoldens(t *testing.T) {
	t.Run("own", func(t *testing.T) { holdGoldens(t, filepath.Join("testdata", "bert.json"), 16) })
	t.Run("many", func(t *testing.T) {
		holdGoldens(t, testkit.SharedData(t, "the case own", "goldens", "wordpiece.json"), 100)
	})
}

func holdGoldens(t *testing.T, path string, atLeast int) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var goldens struct {
		Cases []struct {
			A     string
			B     *string
			IDs   []int32
			Types []int32
		}
	}
	if err := json.Unmarshal(data, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens.Cases) < atLeast {
		t.Fatalf("%d cases", len(goldens.Cases))
	}
	tok := newTokenizer(t, bertVocab(t), Uncased())
	for _, c := range goldens.Cases {
		b := ""
		if c.B != nil {
			b = *c.B
		}
		e := tok.Encode(c.A, b, 0)
		if !slices.Equal(e.IDs, c.IDs) {
			t.Errorf("%q, %q:\n got %v\nwant %v", c.A, b, tok.vocab.Tokens(e.IDs), tok.vocab.Tokens(c.IDs))
		}
		if c.Types != nil && !slices.Equal(e.TypeIDs, c.Types) {
			t.Errorf("%q, %q: types %v, expected %v", c.A, b, e.TypeIDs, c.Types)
		}
	}
}
