package checkpoint

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// What is read from a file of GGUF by Hugging Face's names is what a file of theirs has, to the bit.
func TestGGUF(t *testing.T) {
	for name, want := range map[string]map[string]any{
		"llama": {
			"model_type": "llama", "vocab_size": 48.0, "max_position_embeddings": 32.0, "hidden_size": 32.0, "num_hidden_layers": 2.0,
			"intermediate_size": 64.0, "num_attention_heads": 4.0, "num_key_value_heads": 2.0, "rms_norm_eps": 1e-6, "rope_theta": 5e4,
			"head_dim": 8.0, "hidden_act": "silu", "tie_word_embeddings": true,
		},
		"qwen2": {
			"model_type": "qwen2", "vocab_size": 48.0, "max_position_embeddings": 32.0, "hidden_size": 32.0, "num_hidden_layers": 2.0,
			"intermediate_size": 64.0, "num_attention_heads": 4.0, "num_key_value_heads": 2.0, "rms_norm_eps": 1e-6, "rope_theta": 5e4,
			"head_dim": 8.0, "hidden_act": "silu", "tie_word_embeddings": true,
		},
		"qwen3": {
			"model_type": "qwen3", "vocab_size": 48.0, "max_position_embeddings": 32.0, "hidden_size": 32.0, "num_hidden_layers": 2.0,
			"intermediate_size": 64.0, "num_attention_heads": 4.0, "num_key_value_heads": 2.0, "rms_norm_eps": 1e-6, "rope_theta": 5e4,
			"head_dim": 16.0, "hidden_act": "silu", "tie_word_embeddings": true,
		},
		"gpt2": {
			"model_type": "gpt2", "vocab_size": 48.0, "n_positions": 32.0, "n_embd": 32.0, "n_layer": 2.0, "n_inner": 64.0, "n_head": 4.0,
			"layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
		},
		"gemma": gemmaConfig("gemma", nil),
		"gemma2": gemmaConfig("gemma2", map[string]any{
			"hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 4.0, "final_logit_softcapping": 3.0, "sliding_window": 6.0,
			"query_pre_attn_scalar": 16.0, "layer_types": []any{"sliding_attention", "full_attention"},
		}),
		"gemma3": gemmaConfig("gemma3_text", map[string]any{
			"num_hidden_layers": 6.0, "final_logit_softcapping": nil, "sliding_window": 6.0, "query_pre_attn_scalar": 16.0, "rope_theta": 1e6,
			"rope_local_base_freq": 1e4, "rope_scaling": map[string]any{"rope_type": "linear", "factor": 8.0},
			"layer_types": append(slices.Repeat([]any{"sliding_attention"}, 5), "full_attention"),
		}),
		"linear": scaledConfig(map[string]any{"rope_type": "linear", "factor": 4.0}),
		"yarn":   scaledConfig(map[string]any{"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16.0}),
		"llama3": scaledConfig(nil),
	} {
		t.Run(name, func(t *testing.T) {
			g, err := OpenGGUF(filepath.Join("testdata", "gguf", name+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if config, err := g.Config(); err != nil || !reflect.DeepEqual(config, want) {
				t.Errorf("config is %v, %v; expected %v", config, err, want)
			}
			weights, others := name, 0
			switch name {
			case "llama3":
				weights, others = "scaled", 1 // rope_freqs.weight
			case "linear", "yarn":
				weights = "scaled"
			}
			theirs, err := OpenSafetensors(filepath.Join("testdata", "gguf", weights+".safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			var wanted []Wanted
			for _, e := range theirs.Entries() {
				_, short, _ := strings.Cut(e.Name, ".") // without model. or transformer.
				wanted = append(wanted, Wanted{Name: e.Name, DType: e.DType, Shape: e.Shape, Foreign: []Candidate{{Name: short}}})
			}
			got, report, err := Load(context.Background(), g, wanted)
			if err != nil || report.Strict() != nil || len(report.Unused) != others || !report.Unverified {
				t.Fatalf("%v, report %v", err, report)
			}
			expected, err := theirs.Read(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range expected {
				if !reflect.DeepEqual(got[name].Value(), value.Value()) {
					t.Errorf("%s is not as in Hugging Face's form", name)
				}
			}
		})
	}
}

// gemmaConfig is what the files of Gemma have in common, with other values.
func gemmaConfig(kind string, others map[string]any) map[string]any {
	config := map[string]any{
		"model_type": kind, "vocab_size": 48.0, "max_position_embeddings": 32.0, "hidden_size": 32.0, "num_hidden_layers": 2.0,
		"intermediate_size": 32.0, "num_attention_heads": 2.0, "num_key_value_heads": 1.0, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
		"head_dim": 16.0, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
	}
	maps.Copy(config, others)
	return config
}

// scaledConfig is what the files of a Llama whose turns are scaled say.
func scaledConfig(scaling map[string]any) map[string]any {
	config := map[string]any{
		"model_type": "llama", "vocab_size": 48.0, "max_position_embeddings": 32.0, "hidden_size": 32.0, "num_hidden_layers": 2.0,
		"intermediate_size": 64.0, "num_attention_heads": 4.0, "num_key_value_heads": 2.0, "rms_norm_eps": 1e-6, "rope_theta": 5e4,
		"hidden_act": "silu", "tie_word_embeddings": true,
	}
	if scaling != nil {
		config["rope_scaling"] = scaling
	}
	return config
}

// What files say of scaled turns and of windows, in the ways in which llama.cpp writes it.
func TestGGUFConfig(t *testing.T) {
	for _, tt := range []struct {
		file, field string
		values      map[string]any // nil takes a key away
		want        any            // a string is the error
	}{
		{"linear", "rope_scaling", map[string]any{"rope.scaling.type": nil}, map[string]any{"rope_type": "linear", "factor": 4.0}},
		{"linear", "rope_scaling", map[string]any{"rope.scaling.type": "none"}, nil},
		{"linear", "rope_scaling", map[string]any{"rope.scaling.factor": 1.0}, nil},
		{"linear", "rope_scaling", map[string]any{"rope.scaling.factor": nil}, nil},
		{"linear", "rope_scaling", map[string]any{"rope.scaling.factor": nil, "rope.scale_linear": 3.0}, map[string]any{"rope_type": "linear", "factor": 3.0}},
		{"linear", "rope_scaling", map[string]any{"rope.scaling.finetuned": true, "rope.scaling.attn_factor": 1.0}, map[string]any{"rope_type": "linear", "factor": 4.0}},
		{"linear", "", map[string]any{"rope.scaling.type": "longrope"}, "llama.rope.scaling.type is longrope; expected one of linear, none, yarn"},
		{"linear", "", map[string]any{"rope.scaling.type": int64(1)}, "llama.rope.scaling.type is 1; expected one of linear, none, yarn"},
		{"linear", "", map[string]any{"rope.scaling.factor": "4"}, "llama.rope.scaling.factor is 4; expected a number"},
		{"linear", "", map[string]any{"rope.scaling.attn_factor": 0.5}, "key llama.rope.scaling.attn_factor (0.5) is not known here"},
		{"linear", "", map[string]any{"rope.scaling.alpha": 2.0}, "key llama.rope.scaling.alpha (2) is not known here"},
		{"linear", "", map[string]any{"rope.scaling.original_context_length": int64(16)}, "key llama.rope.scaling.original_context_length (16) is not known here"},
		{"yarn", "rope_scaling", map[string]any{"rope.scaling.yarn_attn_factor": 1.5, "rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_ext_factor": 1.0}, map[string]any{
			"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16.0, "attention_factor": 1.5, "beta_fast": 16.0,
		}},
		{"yarn", "", map[string]any{"rope.scaling.yarn_ext_factor": 0.0}, "key llama.rope.scaling.yarn_ext_factor (0) is not known here"},
		{"yarn", "", map[string]any{"rope.scaling.yarn_log_multiplier": 0.1}, "key llama.rope.scaling.yarn_log_multiplier (0.1) is not known here"},
		{"yarn", "", map[string]any{"rope.scaling.factor": nil}, "llama.rope.scaling.type is yarn; expected llama.rope.scaling.factor and"},
		{"gemma2", "sliding_window", map[string]any{"attention.sliding_window": nil}, 4096.0},
		{"gemma2", "final_logit_softcapping", map[string]any{"final_logit_softcapping": nil}, 30.0},
		{"gemma2", "query_pre_attn_scalar", map[string]any{"attention.key_length": nil, "attention.value_length": nil}, 16.0},
		{"gemma2", "query_pre_attn_scalar", map[string]any{"block_count": int64(46), "embedding_length": int64(20)}, 10.0},
		{"gemma2", "layer_types", map[string]any{"attention.sliding_window_pattern": []bool{false, true}}, []any{"full_attention", "sliding_attention"}},
		{"gemma2", "layer_types", map[string]any{"attention.sliding_window_pattern": int64(1)}, []any{"full_attention", "full_attention"}},
		{"gemma2", "", map[string]any{"attention.sliding_window_pattern": []bool{false}}, "attention.sliding_window_pattern has 1 values; expected 2, one for each layer"},
		{"gemma2", "", map[string]any{"attention.sliding_window_pattern": "2"}, "attention.sliding_window_pattern is 2; expected a number of layers"},
		{"gemma2", "", map[string]any{"block_count": int64(1) << 40}, "gemma2.block_count is 1.099511627776e+12; expected 1 to 65536 layers"},
		{"gemma2", "", map[string]any{"rope.freq_base_swa": 5.0}, "key gemma2.rope.freq_base_swa (5) is not known here"},
		{"gemma3", "rope_local_base_freq", map[string]any{"rope.freq_base_swa": 5.0}, 5.0},
		{"gemma3", "sliding_window", map[string]any{"attention.sliding_window": nil}, nil},
		{"gemma3", "final_logit_softcapping", map[string]any{"final_logit_softcapping": 7.0}, 7.0},
		{"gemma", "", map[string]any{"attention.sliding_window": int64(4)}, "key gemma.attention.sliding_window (4) is not known here"},
		{"gpt2", "", map[string]any{"rope.scaling.type": "none"}, "key gpt2.rope.scaling.type (none) is not known here"},
	} {
		g, err := OpenGGUF(filepath.Join("testdata", "gguf", tt.file+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range tt.values {
			key := tt.file + "." + name
			if tt.file == "linear" || tt.file == "yarn" {
				key = "llama." + name
			}
			delete(g.header.Values, key)
			g.header.Keys = slices.DeleteFunc(g.header.Keys, func(k string) bool { return k == key })
			if value != nil {
				g.header.Values[key] = value
				g.header.Keys = append(g.header.Keys, key)
			}
		}
		config, err := g.Config()
		if want, ok := tt.want.(string); ok {
			if err == nil || !strings.Contains(err.Error(), want) || fault.Of(err) == fault.Failed {
				t.Errorf("%s with %v: error %v; expected %q", tt.file, tt.values, err, want)
			}
		} else if err != nil || !reflect.DeepEqual(config[tt.field], tt.want) {
			t.Errorf("%s with %v: %s is %v, error %v; expected %v", tt.file, tt.values, tt.field, config[tt.field], err, tt.want)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestGGUFValues(t *testing.T) {
	g, err := OpenGGUF(filepath.Join("testdata", "gguf", "llama.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	theirs, err := OpenSafetensors(filepath.Join("testdata", "gguf", "llama.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for _, e := range theirs.Entries() {
		name, _ := g.Resolve(e.Name)
		var both [2][]float64
		for i, of := range []struct {
			src  Source
			name string
		}{{g, name}, {theirs, e.Name}} {
			for _, entry := range of.src.Entries() {
				if entry.Name == of.name {
					both[i] = allValues(t, of.src, entry)
				}
			}
		}
		if len(both[0]) == 0 || !reflect.DeepEqual(both[0], both[1]) {
			t.Errorf("%s differs from %s", name, e.Name)
		}
	}
}

func allValues(t *testing.T, src Source, e Entry) (all []float64) {
	t.Helper()
	v, err := OpenValues(context.Background(), src, e)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	some := make([]float64, 100)
	for {
		n, err := v.Next(some)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some[:n]...)
	}
}

// A file is read by its first bytes, and says what it is that cannot be read.
func TestGGUFRefused(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "gguf", "llama.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, now, want string }{
		{"llama.block_count", "llama.block_crowd", "key llama.block_crowd (2) is not known here"},
		{"\x00\x00\x00\x00llama", "\x00\x00\x00\x00lamas", `general.architecture is "lamas"; expected one of gemma, gemma2, gemma3, gpt2, llama, qwen2, qwen3`},
		{"llama.attention.head_count\x04\x00\x00\x00\x04", "llama.attention.head_count\x04\x00\x00\x00\x00", "llama.attention.head_count is 0; expected a number of heads"},
		{"llama.rope.dimension_count\x04\x00\x00\x00\x08", "llama.rope.dimension_count\x04\x00\x00\x00\x04", "the positions turn 4 numbers of each head; expected 8"},
	} {
		changed := strings.Replace(string(data), tt.old, tt.now, 1)
		if changed == string(data) {
			t.Fatalf("%q is not in the file", tt.old)
		}
		path := filepath.Join(t.TempDir(), "weights")
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		src, closing, err := OpenSource(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = src.(*GGUF).Config()
		if err == nil || !strings.Contains(err.Error(), tt.want) || fault.Of(err) == fault.Failed {
			t.Errorf("error %v; expected %q", err, tt.want)
		}
		if err := closing(); err != nil {
			t.Error(err)
		}
	}
	path := filepath.Join(t.TempDir(), "short.gguf")
	if err := os.WriteFile(path, data[:len(data)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenSource(path); err == nil || !strings.Contains(err.Error(), "expected them inside the file") || fault.Of(err) != fault.Damaged {
		t.Errorf("error %v; expected damage", err)
	}
}
