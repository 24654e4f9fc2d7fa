package strategy

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// generationModels exports small models that make texts.
const generationModels = `
import json
import sys
from gorbit_export import causal, causal_config, export, optimizers, seq2seq, seq2seq_config, seq2seq_task

def loaded(module, **fields):
    path = f"{sys.argv[1]}/config.json"
    with open(path, "w") as file:
        json.dump({"vocab_size": 30, **fields}, file)
    return module.load(path)

decoder = {"max_position_embeddings": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
decoder |= {"hidden_size": 32, "num_key_value_heads": 2, "intermediate_size": 48}
gemma = {"model_type": "gemma2", **decoder, "head_dim": 12, "sliding_window": 3, "query_pre_attn_scalar": 10}
for name, fields in {
    "gpt2": {"model_type": "gpt2", "n_embd": 42, "n_head": 3, "n_layer": 2, "n_positions": 64},
    "llama": {"model_type": "llama", **decoder},
    "qwen": {"model_type": "qwen2", **decoder},
    "window": {**gemma, "attn_logit_softcapping": None},
    "capped": {**gemma, "attn_logit_softcapping": 2.0},
}.items():
    build = causal.Build(loaded(causal_config, **fields))
    export.write(causal.LanguageModel(build), optimizers.AdamW(), f"{sys.argv[1]}/{name}/graph")

tokens = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
bart = {"model_type": "bart", "d_model": 36, "max_position_embeddings": 64, "activation_function": "gelu", "bos_token_id": 0}
for side in ("encoder", "decoder"):
    bart |= {f"{side}_layers": 1, f"{side}_attention_heads": 3, f"{side}_ffn_dim": 50}
t5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, "n_positions": 64}
for name, fields in (("bart", bart), ("t5", t5)):
    build = seq2seq.Build(loaded(seq2seq_config, **tokens, **fields))
    export.write(seq2seq_task.Seq2Seq(build), optimizers.AdamW(), f"{sys.argv[1]}/{name}/graph")
`

// TestGenerationKernelsEqualStandardOps holds next tokens that kernels compute against those of TensorFlow's
// operations: of prompts of several lengths, and of tokens after them.
func TestGenerationKernelsEqualStandardOps(t *testing.T) {
	if testing.Short() {
		t.Skip("exports several models")
	}
	dir := testkit.Made(t, generationModels)
	defer kernels.Use("")
	for model, ops := range map[string][]string{
		"gpt2":   {"NextMap", "NextMapAdd", "NextNorm", "NextCachedAttention", "NextProductTransposed"},
		"llama":  {"NextNormedProducts", "NextFeedForward", "NextCachedAttention"},
		"qwen":   {"NextMaps", "NextCachedAttention", "NextFeedForward"},
		"window": {"NextCachedAttention"},
		"capped": {"NextProductTransposed"},
		"bart":   {"NextMaps", "NextMap", "NextMapAdd", "NextMapTransposed", "NextNorm", "NextCachedAttention", "NextSourceAttention"},
		"t5":     {"NextCachedAttentionBiased", "NextSourceAttention", "RmsNorm"},
	} {
		export, err := graphs.Open(filepath.Join(dir, model, "graph"))
		if err != nil {
			t.Fatal(err)
		}
		var made [2]*Model
		for i := range made {
			if made[i], err = NewOneDevice(context.Background(), export, "", Config{StandardOps: i == 1, Generate: true}); err != nil {
				t.Fatal(err)
			}
			defer made[i].Close()
			def, err := made[i].GraphDef()
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range ops {
				if used := bytes.Contains(def, []byte("Gorbit"+op)); used == (i == 1) {
					t.Errorf("%s, standard operations %v: Gorbit%s is in the graph: %v", model, i == 1, op, used)
				}
			}
		}
		given(t, made[0], made[1], rand.New(rand.NewPCG(3, 5)))
		for _, instructions := range instructionSets(t) {
			t.Run(model+"/"+instructions, func(t *testing.T) {
				if err := kernels.Use(instructions); err != nil {
					t.Fatal(err)
				}
				nextEqual(t, made[0], made[1])
			})
		}
	}
}

// nextEqual compares the logits of four sequences, of which each two have a source if there are any.
func nextEqual(t *testing.T, own, standard *Model) {
	t.Helper()
	ctx, sources := context.Background(), own.export.Contract.Generation.Source != nil
	rng := rand.New(rand.NewPCG(7, 7))
	order := rng.Perm(39)
	taken := 0
	sequences := make([][]int32, 4) // the slots of each
	in := NewTokens{Rows: 4}
	source := Sources{Rows: 2, Tokens: 6}
	for i := range 12 {
		slot := int32(i + 1)
		if i >= 10 {
			slot = 0 // the second is shorter
		}
		source.InputIDs, source.PositionIDs, source.Slots = append(source.InputIDs, rng.Int32N(30)), append(source.PositionIDs, int32(i%6)), append(source.Slots, slot)
	}
	if sources {
		in.Sources, in.Source, in.SourceSlots = 2, 6, source.Slots
	}
	for _, m := range []*Model{own, standard} {
		if err := m.MakeCaches(ctx, 40, 40); err != nil {
			t.Fatal(err)
		}
		if !sources {
			continue
		}
		if err := m.Encode(ctx, source); err != nil {
			t.Fatal(err)
		}
	}
	for step, lengths := range [][]int{{5, 3, 1, 4}, {1, 1, 1, 1}, {1, 1, 1, 1}} {
		in.Tokens, in.Context = slices.Max(lengths), 0
		in.InputIDs, in.PositionIDs, in.Slots, in.ContextSlots, in.Last = nil, nil, nil, nil, nil
		for i, n := range lengths {
			for k := range in.Tokens {
				id, place, slot := rng.Int32N(30), int32(0), int32(0)
				if k < n {
					place, slot = int32(len(sequences[i])), int32(order[taken]+1)
					sequences[i] = append(sequences[i], slot)
					taken++
				}
				in.InputIDs, in.PositionIDs, in.Slots = append(in.InputIDs, id), append(in.PositionIDs, place), append(in.Slots, slot)
			}
			in.Last = append(in.Last, int32(n-1))
			in.Context = max(in.Context, len(sequences[i]))
		}
		for _, s := range sequences {
			in.ContextSlots = append(append(in.ContextSlots, s...), make([]int32, in.Context-len(s))...)
		}
		var logits [2][]float32
		for i, m := range []*Model{own, standard} {
			got, err := m.NextLogits(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			logits[i] = slices.Clone(got)
		}
		for i, x := range logits[0] {
			if want := logits[1][i]; !(math.Abs(float64(x-want)) < 1e-3*max(1, math.Abs(float64(want)))) {
				t.Fatalf("step %d, row %d, token %d: %v; TensorFlow's operations give %v", step, i/30, i%30, x, want)
			}
		}
	}
}
