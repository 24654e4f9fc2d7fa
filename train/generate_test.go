package train

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// causal exports a causal language model of a configuration.
const causal = `import pathlib, sys
from gorbit_export.__main__ import main
out, config = sys.argv[1:]
path = pathlib.Path(out, "config.json")
path.write_text(config)
sys.exit(main(["causal", "--config", str(path), "--out", out + "/graph"]))
`

// TestGeneratesAsTransformers continues prompts with models of transformers, and compares ids and scores
// with what transformers makes of them (generate/testdata/models.py). The prompts are computed together,
// the longest one in two parts, in caches that hold few of them.
func TestGeneratesAsTransformers(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testkit.Root(), "generate", "testdata", "models.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string][]struct {
		Config json.RawMessage `json:"config"`
		Prompt []int32         `json:"prompt"`
		IDs    [][]int32       `json:"ids"`
		Scores []float64       `json:"scores"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpt2", "llama"} {
		t.Run(name, func(t *testing.T) {
			if len(cases[name]) < 30 {
				t.Fatalf("%d cases; expected 30 or more", len(cases[name]))
			}
			m, limits := openCausal(t, filepath.Join(testkit.Root(), "tools", "tests", "goldens", "causal", name))
			s, err := generate.New(limits)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range cases[name] {
				config := generate.Default()
				if err := json.Unmarshal(c.Config, &config); err != nil {
					t.Fatal(err)
				}
				if err := s.Add(generate.Request{ID: uint64(i), Prompt: c.Prompt, Config: config}); err != nil {
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
						t.Errorf("%s of %v: score %d is %v; expected %v", c.Config, c.Prompt, k, r.Score, c.Scores[k])
					}
				}
				if !slices.EqualFunc(ids, c.IDs, slices.Equal) {
					t.Errorf("%s of %v:\n got %v\nwant %v", c.Config, c.Prompt, ids, c.IDs)
				}
				return nil
			})
			if err != nil || finished != len(cases[name]) {
				t.Fatalf("%d of %d finished, %v", finished, len(cases[name]), err)
			}
		})
	}
}

// openCausal exports a model of transformers, whose config.json and weights are NAME.json and
// NAME.safetensors, and opens it with caches for generation.
func openCausal(t *testing.T, name string) (generate.Model, generate.Limits) {
	t.Helper()
	config, err := os.ReadFile(name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	export, err := graphs.Open(filepath.Join(testkit.Made(t, causal, string(config)), "graph"))
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
	var m strategy.Generator = on
	if err := m.MakeCaches(context.Background(), limits.Slots+1); err != nil {
		t.Fatal(err)
	}
	return nextTokens{m}, limits
}
