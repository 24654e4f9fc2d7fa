package train

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// generating exports a model that generates, by a command, of a configuration.
const generating = `import pathlib, sys
from gorbit_export.__main__ import main
out, command, config = sys.argv[1:]
path = pathlib.Path(out, "config.json")
path.write_text(config)
sys.exit(main([command, "--config", str(path), "--out", out + "/graph"]))
`

// TestGeneratesAsTransformers continues prompts, and sources, with models of transformers, and compares ids
// and scores with what transformers makes of them (generate/testdata/models.py). The prompts are computed
// together, the longest one in two parts, in caches that hold few of them.
func TestGeneratesAsTransformers(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testkit.Root(), "generate", "testdata", "models.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string][]struct {
		Config json.RawMessage `json:"config"`
		Prompt []int32         `json:"prompt"`
		Source []int32         `json:"source"`
		IDs    [][]int32       `json:"ids"`
		Scores []float64       `json:"scores"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{"t5": "seq2seq", "t5-gated": "seq2seq", "bart": "seq2seq", "marian": "seq2seq"}
	for _, name := range []string{
		"gpt2", "llama", "llama-scaled", "mistral-window", "qwen2-window", "qwen3", "smollm3", "gemma", "gemma2", "gemma3",
	} {
		commands[name] = "causal"
	}
	for name, command := range commands {
		t.Run(name, func(t *testing.T) {
			if len(cases[name]) < 30 {
				t.Fatalf("%d cases; expected 30 or more", len(cases[name]))
			}
			m, limits := openGenerating(t, command, name)
			s, err := generate.New(limits)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range cases[name] {
				config := generate.Default()
				if err := json.Unmarshal(c.Config, &config); err != nil {
					t.Fatal(err)
				}
				if err := s.Add(generate.Request{ID: uint64(i), Prompt: c.Prompt, Source: c.Source, Config: config}); err != nil {
					t.Fatal(err)
				}
			}
			finished := 0
			err = generate.Run(t.Context(), s, m, func(u generate.Update) error {
				if u.Results == nil {
					return u.Err
				}
				finished++
				c := cases[name][u.ID]
				var ids [][]int32
				for k, r := range u.Results {
					ids = append(ids, r.IDs)
					if c.Scores != nil && math.Abs(r.Score-c.Scores[k]) > 1e-4 {
						t.Errorf("%s of %v %v: score %d is %v; expected %v", c.Config, c.Prompt, c.Source, k, r.Score, c.Scores[k])
					}
				}
				if !slices.EqualFunc(ids, c.IDs, slices.Equal) {
					t.Errorf("%s of %v %v:\n got %v\nwant %v", c.Config, c.Prompt, c.Source, ids, c.IDs)
				}
				return nil
			})
			if err != nil || finished != len(cases[name]) {
				t.Fatalf("%d of %d finished, %v", finished, len(cases[name]), err)
			}
		})
	}
}

// TestSpecial checks which special tokens generation has.
func TestSpecial(t *testing.T) {
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"), "vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		t.Fatal(err)
	}
	first, last := int32(5), int32(6)
	own := graphs.Generation{EOSTokenIDs: []int32{7, 8}, ForcedBOSTokenID: &first, ForcedEOSTokenID: &last, BadWordsIDs: [][]int32{{9}}}
	for _, tt := range []struct {
		g    graphs.Generation
		want string
	}{{own, "[7 8] 5 6 [[9]]"}, {graphs.Generation{}, "[3] -1 -1 []"}} {
		c := maker(&tt.g, nil).Generation(tokenizer, generate.Limits{}, slog.New(slog.DiscardHandler))
		if got := fmt.Sprint(c.EOSTokenIDs, c.ForcedBOSTokenID, c.ForcedEOSTokenID, c.BadWordsIDs); got != tt.want {
			t.Errorf("%+v: %s; expected %s", tt.g, got, tt.want)
		}
	}
}

// openGenerating exports a model of transformers by a command, whose config.json and weights are NAME.json
// and NAME.safetensors in a folder of the command's name, and opens it with caches for generation.
func openGenerating(t *testing.T, command, name string) (generate.Model, generate.Limits) {
	t.Helper()
	name = filepath.Join(testkit.Root(), "tools", "tests", "goldens", command, name)
	config, err := os.ReadFile(name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	export, err := graphs.Open(filepath.Join(testkit.Made(t, generating, command, string(config)), "graph"))
	if err != nil {
		t.Fatal(err)
	}
	on, err := strategy.NewOneDevice(t.Context(), export, "/device:CPU:0", strategy.Config{Functions: strategy.FunctionsEvaluate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { on.Close() })
	if _, err := loop.Initialize(t.Context(), on, export, loop.Init{From: name + ".safetensors", Strict: true}); err != nil {
		t.Fatal(err)
	}
	g := export.Contract.Generation
	limits := generate.Limits{VocabSize: g.VocabSize, MaxLength: g.MaxLength, Slots: 120, Rows: 9, PromptTokens: 8}
	if g.Source != nil {
		limits.SourceLength, limits.SourceSlots, limits.SharesSources = g.Source.MaxLength, 40, g.Source.Shared
	}
	m, err := openGenerator(t.Context(), on, limits)
	if err != nil {
		t.Fatal(err)
	}
	return m, limits
}
