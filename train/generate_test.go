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
	"github.com/gorbit-ml/gorbit/train/predict"
)

// generating exports a model that generates, by a command, of a configuration.
const generating = `import pathlib, sys
from gorbit_export.__main__ import main
out, command, config, *flags = sys.argv[1:]
path = pathlib.Path(out, "config.json")
path.write_text(config)
sys.exit(main([command, "--config", str(path), "--out", out + "/graph", *flags]))
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

// TestNarrowMatrices holds the logits of models in bf16 by our kernels, which read copies of the matrices in
// bfloat16, against those by TensorFlow's operations and against those in float32.
func TestNarrowMatrices(t *testing.T) {
	for name, command := range map[string]string{"llama": "causal", "gpt2": "causal", "qwen2": "causal", "t5-gated": "seq2seq"} {
		t.Run(name, func(t *testing.T) {
			request := generate.Request{Prompt: []int32{5, 9, 3, 7, 11}, Config: generate.Default()}
			request.Config.MaxNewTokens = 4
			logits := func(c strategy.Config, flags ...string) (all []float32) {
				m, limits := openGeneratingWith(t, command, name, c, flags...)
				if limits.SourceLength > 0 {
					request.Source, request.Prompt = []int32{5, 9, 3, 7, 11}, []int32{0}
				}
				s, err := generate.New(limits)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Add(request); err != nil {
					t.Fatal(err)
				}
				b, _ := s.Next()
				got, err := m.Compute(t.Context(), b)
				if err != nil {
					t.Fatal(err)
				}
				return slices.Clone(got)
			}
			own, standard := logits(strategy.Config{}, "--precision", "bf16"), logits(strategy.Config{StandardOps: true}, "--precision", "bf16")
			limit := 1e-5
			if command == "seq2seq" {
				limit = 0.02 // encoders round to bfloat16 what they compute
			}
			if d := furthest(own, standard); !(d < limit) {
				t.Errorf("our kernels' logits are up to %v from those of TensorFlow's operations", d)
			}
			if d := furthest(own, logits(strategy.Config{})); !(d > 1e-6 && d < 0.03) {
				t.Errorf("logits are up to %v from those in float32; expected more than nothing, as matrices are rounded, and less than 0.03", d)
			}
		})
	}
}

// furthest returns the greatest distance of two vectors' numbers, as a share of the greatest number.
func furthest(a, b []float32) float64 {
	most, size := 0.0, 0.0
	for i, x := range a {
		most, size = max(most, math.Abs(float64(x-b[i]))), max(size, math.Abs(float64(x)))
	}
	return most / size
}

// openGenerating exports a model of transformers by a command, whose config.json and weights are NAME.json
// and NAME.safetensors in a folder of the command's name, and opens it with caches for generation.
func openGenerating(t *testing.T, command, name string) (generate.Model, generate.Limits) {
	t.Helper()
	return openGeneratingWith(t, command, name, strategy.Config{})
}

// openGeneratingWith is openGenerating with a configuration, and flags for the export.
func openGeneratingWith(t *testing.T, command, name string, c strategy.Config, flags ...string) (generate.Model, generate.Limits) {
	t.Helper()
	c.Functions = strategy.FunctionsEvaluate
	name = filepath.Join(testkit.Root(), "tools", "tests", "goldens", command, name)
	config, err := os.ReadFile(name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	export, err := graphs.Open(filepath.Join(testkit.Made(t, generating, append([]string{command, string(config)}, flags...)...), "graph"))
	if err != nil {
		t.Fatal(err)
	}
	on, err := strategy.NewOneDevice(t.Context(), export, "/device:CPU:0", c)
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

// TestSequencesOfEvaluations has as many sequences together as have small caches.
func TestSequencesOfEvaluations(t *testing.T) {
	for _, c := range []struct {
		slot, rows, beams int
	}{{1 << 10, 64, 1}, {16 << 10, 32, 1}, {1 << 20, 16, 1}, {1 << 20, 40, 40}, {1, 100, 100}} {
		m := predict.Maker{MaxLength: 512, VocabSize: 9, SlotBytes: int64(c.slot)}
		if l := limitsOf(m, generate.Config{NumBeams: c.beams}); l.Rows != c.rows {
			t.Errorf("%d bytes a token, %d beams: %d sequences; expected %d", c.slot, c.beams, l.Rows, c.rows)
		}
	}
}
