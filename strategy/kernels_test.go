package strategy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/exec/kernelops"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// kernelModels exports models whose sizes are and are not multiples of a vector's.
const kernelModels = `
import json
import sys
import tensorflow as tf
from gorbit_export import causal, causal_config, classifier, config, deberta_config, export
from gorbit_export import modernbert_config, optimizers, seq2seq, seq2seq_config, seq2seq_task

def loaded(module, **fields):
    path = f"{sys.argv[1]}/config.json"
    with open(path, "w") as file:
        json.dump({"vocab_size": 30, **fields}, file)
    return module.load(path)

decoder = {"max_position_embeddings": 1024, "num_hidden_layers": 2, "num_attention_heads": 4}
for name, fields in {
    "gpt2": {"model_type": "gpt2", "n_embd": 42, "n_head": 3, "n_layer": 2, "n_positions": 1024},
    "llama": {"model_type": "llama", **decoder, "hidden_size": 32, "num_key_value_heads": 2, "intermediate_size": 48},
    "gemma": {"model_type": "gemma2", **decoder, "hidden_size": 32, "num_key_value_heads": 2, "intermediate_size": 48,
              "head_dim": 12, "sliding_window": 9, "query_pre_attn_scalar": 10, "final_logit_softcapping": 5.0},
}.items():
    build = causal.Build(loaded(causal_config, **fields))
    export.write(causal.LanguageModel(build), optimizers.AdamW(), f"{sys.argv[1]}/{name}/graph")

bart = {"model_type": "bart", "d_model": 36, "max_position_embeddings": 1024, "activation_function": "gelu"}
for side in ("encoder", "decoder"):
    bart |= {f"{side}_layers": 1, f"{side}_attention_heads": 3, f"{side}_ffn_dim": 50}
bart |= {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
build = seq2seq.Build(loaded(seq2seq_config, **bart))
export.write(seq2seq_task.Seq2Seq(build), optimizers.AdamW(), f"{sys.argv[1]}/bart/graph")

for name, hidden, heads, inner, window in (("modern", 64, 2, 48, 16), ("modern odd", 42, 3, 25, 7)):
    c = modernbert_config.ModernBertConfig(hidden, 3, heads, inner, vocab_size=30, max_position_embeddings=1024, local_attention=window)
    export.write(classifier.Classification(c, 3, "mean"), optimizers.AdamW(), f"{sys.argv[1]}/{name}/graph")

c = deberta_config.DebertaConfig(42, 1, 3, 50, vocab_size=30, max_position_embeddings=64, position_buckets=8)
export.write(classifier.Classification(c, 3, "mean"), optimizers.AdamW(), f"{sys.argv[1]}/deberta/graph")

for name, hidden, heads, inner in (("even", 64, 2, 128), ("odd", 42, 3, 50), ("narrow", 12, 4, 9)):
    c = config.BertConfig(hidden, 1, heads, inner, vocab_size=30, max_position_embeddings=64)
    export.write(classifier.Classification(c, 3, "mean"), optimizers.AdamW(), f"{sys.argv[1]}/{name}/graph")
`

// layRows lays sequences into rows: each row lists sequence numbers, 0 is padding. It returns the features
// of a contract; those of targets are laid as those of sources.
func layRows(rng *rand.Rand, contract *graphs.Contract, rows [][]int32) []Feature {
	length := len(rows[0])
	ids, types, sequences, positions := Feature{Name: "input_ids"}, Feature{Name: "type_ids"},
		Feature{Name: "sequence_ids"}, Feature{Name: "position_ids"}
	examples, tokens := Feature{Name: "example_ids"}, Feature{Name: "token_weights"}
	cls, labels, weights := Feature{Name: "cls_positions"}, Feature{Name: "labels"}, Feature{Name: "example_weights"}
	for r, row := range rows {
		seen, example := make(map[int32]int32), make(map[int32]int32)
		for i, id := range row {
			if id != 0 && seen[id] == 0 {
				example[id] = int32(len(cls.Int32))
				cls.Int32 = append(cls.Int32, int32(r*length+i))
				labels.Int32 = append(labels.Int32, rng.Int32N(3))
				weights.Float32 = append(weights.Float32, 0.5+rng.Float32())
			}
			ids.Int32 = append(ids.Int32, rng.Int32N(30))
			types.Int32 = append(types.Int32, rng.Int32N(2))
			sequences.Int32 = append(sequences.Int32, id)
			examples.Int32 = append(examples.Int32, example[id])
			tokens.Float32 = append(tokens.Float32, float32(rng.IntN(3))/2)
			positions.Int32 = append(positions.Int32, seen[id])
			seen[id]++
		}
	}
	for i, row := range slices.Concat(rows...) { // padding has no example, and so no weight
		if row == 0 {
			examples.Int32[i] = int32(len(cls.Int32))
		}
	}
	known := make(map[string]Feature)
	for _, f := range []Feature{ids, types, sequences, positions, examples, tokens} {
		f.Shape = []int{len(rows), length}
		known[f.Name] = f
		known["target_"+strings.NewReplacer("input_", "", "token_", "").Replace(f.Name)] = f
	}
	for _, f := range []Feature{cls, labels, weights} {
		f.Shape = []int{len(cls.Int32)}
		known[f.Name] = f
	}
	var out []Feature
	for _, f := range contract.Features {
		feature := known[f.Name]
		feature.Name = f.Name
		out = append(out, feature)
	}
	return out
}

// run returns n numbers of a sequence, for layRows.
func run(n int, id int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = id
	}
	return out
}

func row(parts ...[]int32) []int32 {
	var out []int32
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// instructionSets are those of the kernels that this machine has.
func instructionSets(t *testing.T) []string {
	t.Helper()
	var have []string
	for _, name := range []string{"avx512", "avx2", "neon", "generic"} {
		if err := kernels.Use(name); err != nil {
			t.Run("without "+name, func(t *testing.T) { t.Skip(err) })
			continue
		}
		have = append(have, name)
	}
	if len(have) == 0 {
		t.Fatal("no instruction set can be used, not even generic")
	}
	return have
}

// textKernels returns the kernels that train each model that makes texts.
func textKernels() map[string][]string {
	some := []string{"GorbitTokenLosses", "GorbitResidualDropout", "GorbitResidualDropoutGradient"}
	causal := slices.Concat(some, []string{"GorbitCausalAttention", "GorbitCausalAttentionDropout", "GorbitCausalAttentionDropoutGradient"})
	return map[string][]string{
		"gpt2":  slices.Concat(causal, []string{"GorbitGeluTanh", "GorbitGeluTanhGradient", "GorbitScaleNorm", "GorbitScaleNormGradient"}),
		"llama": causal,
		"gemma": some, // has windows
		"bart":  slices.Concat(causal, []string{"GorbitAttention", "GorbitAttentionDropout", "GorbitAttentionDropoutGradient"}),
	}
}

// TestKernelsEqualStandardOps holds the kernels against TensorFlow's operations, under every
// instruction set that the machine has: gradients and updated variables of a step, sums of an
// evaluation, logits.
//
// Long: how a model is opened and checked stands where the models are listed.
func TestKernelsEqualStandardOps(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	dir := testkit.Made(t, kernelModels)
	layouts := map[string][][]int32{
		"packed":         {row(run(20, 1), run(13, 2), run(7, 0)), row(run(1, 1), run(39, 2)), run(40, 1)},
		"one token":      {{1}},
		"empty row":      {run(9, 0), row(run(8, 1), run(1, 0))},
		"padding first":  {row(run(5, 0), run(12, 3), run(1, 0), run(2, 1))},
		"interleaved":    {row(run(4, 1), run(5, 2), run(3, 1), run(2, 0), run(6, 2)), row(run(19, 1), run(1, 2))},
		"many rows":      {run(17, 1), run(17, 1), run(17, 1), run(17, 2), row(run(16, 1), run(1, 2))},
		"longer than 32": {run(63, 1), row(run(33, 1), run(30, 2))},
	}
	defer kernels.Use("")
	defer kernels.Threads(0, 0)
	sets := instructionSets(t)
	cases := 0
	trains := textKernels()
	long := maps.Clone(layouts)
	long["several tiles"] = [][]int32{row(run(700, 1), run(23, 2)), row(run(3, 1), run(520, 2), run(200, 3))}
	for _, model := range []string{"even", "odd", "narrow", "deberta", "modern", "modern odd", "gpt2", "llama", "gemma", "bart"} {
		layouts := layouts
		if strings.HasPrefix(model, "modern") || trains[model] != nil {
			layouts = long
		}
		export, err := graphs.Open(filepath.Join(dir, model, "graph"))
		if err != nil {
			t.Fatal(err)
		}
		saved, err := os.ReadFile(filepath.Join(export.Path, "saved_model.pb"))
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		open := func(standard bool) *Model {
			s, err := NewOneDevice(ctx, export, "", Config{StandardOps: standard})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			def, err := s.GraphDef()
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range kernelops.Ops() {
				update := len(op.Outputs) == 0
				if slices.ContainsFunc(slices.Concat(op.Inputs, op.Outputs), func(a graphs.Arg) bool { return a.DType == dtpb.DataType_DT_BFLOAT16 }) {
					continue // of another precision
				}
				if update && op.Implements != "gorbit."+export.Contract.Optimizer.Name {
					continue // of another optimizer
				}
				if !update && op.Name != kernels.Squares && !bytes.Contains(saved, []byte(op.Implements)) {
					continue // of another kind of model
				}
				used := bytes.Contains(def, []byte(op.Name))
				if !used && export.Contract.Generation != nil && !slices.Contains(trains[model], op.Name) {
					continue // of generation, which has a graph of its own
				}
				if used == standard {
					t.Fatalf("standard operations %v, but %s in the graph: %v", standard, op.Name, used)
				}
			}
			return s
		}
		own, standard := open(false), open(true)
		if rows, within := own.Runtime().LongRows, model != "deberta" && model != "gemma" && model != "bart"; rows > 0 != within {
			t.Errorf("%s has rows of %d tokens at no extra cost", model, rows)
		}
		for _, name := range slices.Sorted(maps.Keys(layouts)) {
			rows := layouts[name]
			if name == "one token" && model != "bart" && trains[model] != nil {
				continue // nothing follows it
			}
			for _, rate := range []float64{0, 0.3} {
				cases++
				for i, instructions := range sets {
					t.Run(fmt.Sprintf("%s/%s/%v/%s", model, name, rate, instructions), func(t *testing.T) {
						if err := kernels.Use(instructions); err != nil {
							t.Fatal(err)
						}
						kernels.Threads((cases+i)%4, (cases+i)%3)
						kernelsEqual(t, own, standard, rows, rate)
					})
				}
			}
		}
	}
}

// kernelsEqual holds a model of kernels against one of TensorFlow's operations, from random
// variables on.
func kernelsEqual(t *testing.T, own, standard *Model, rows [][]int32, rate float64) {
	t.Helper()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(3, 5))
	given(t, own, standard, rng)
	features := layRows(rng, own.export.Contract, rows)
	scalars := Scalars{"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 0.7, "beta_1": 0.5, "epsilon": 1e-4}
	for _, h := range own.export.Contract.Hyperparameters {
		if strings.HasSuffix(h.Name, "_dropout") || h.Name == "label_smoothing" {
			scalars[h.Name] = rate
		}
	}
	compare(t, own, standard, func(s *Model) (*Result, error) {
		return stepOf(ctx, s, [][]Feature{features}, [2]int64{1 << 40, 77}, scalars)
	})
	compare(t, own, standard, func(s *Model) (*Result, error) {
		sums, err := s.Evaluate(ctx, features)
		return &Result{Sums: sums}, err
	})
	compare(t, own, standard, func(s *Model) (*Result, error) {
		sums, err := s.Predict(ctx, features)
		return &Result{Sums: sums}, err
	})
}

// given gives the variables of two models the same random values.
func given(t *testing.T, own, standard *Model, rng *rand.Rand) {
	t.Helper()
	start(t, own, rng)
	// All in one call: TensorFlow prepares the graph for each new set of fetches.
	var names []string
	for _, v := range own.Variables() {
		names = append(names, v.Name)
	}
	tensors, err := own.Read(context.Background(), names...)
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]*tf.Tensor)
	for i, name := range names {
		values[name] = tensors[i]
	}
	if err := standard.Assign(context.Background(), values); err != nil {
		t.Fatal(err)
	}
}

// start gives every variable random values: biases and offsets, too.
func start(t *testing.T, s *Model, rng *rand.Rand) {
	t.Helper()
	values := make(map[string]*tf.Tensor)
	for _, v := range s.Variables() {
		if v.Name == s.export.Contract.Optimizer.Iterations {
			continue
		}
		n := int64(1)
		for _, d := range v.Shape {
			n *= d
		}
		flat := make([]float32, n)
		for i := range flat {
			flat[i] = float32(rng.NormFloat64() * 0.3)
			if v.Slot {
				flat[i] = float32(math.Abs(float64(flat[i])))
			}
		}
		value, err := newTensor(v.DType, v.Shape, raw(flat))
		if err != nil {
			t.Fatal(err)
		}
		values[v.Name] = value
	}
	if err := s.Assign(context.Background(), values); err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, own, standard *Model, call func(*Model) (*Result, error)) {
	t.Helper()
	got, err := call(own)
	if err != nil {
		t.Fatal(err)
	}
	want, err := call(standard)
	if err != nil {
		t.Fatal(err)
	}
	if !near(got.GradientNorm, want.GradientNorm, 1e-5) || got.Applied != want.Applied {
		t.Errorf("gradient norm %v, standard %v", got.GradientNorm, want.GradientNorm)
	}
	equal := func(name string, got, want []float64) {
		for i := range want {
			if !near(got[i], want[i], 1e-5) {
				t.Errorf("%s[%d] is %v, standard %v", name, i, got[i], want[i])
				return
			}
		}
	}
	for name := range want.Sums {
		equal(name, got.Sums[name], want.Sums[name])
	}
	after := variables(t, standard)
	for name, values := range variables(t, own) {
		equal(name, values, after[name])
	}
}
