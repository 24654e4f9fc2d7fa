package checkpoint

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
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
			theirs, err := OpenSafetensors(filepath.Join("testdata", "gguf", name+".safetensors"))
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
			if err != nil || report.Strict() != nil || len(report.Unused) > 0 || !report.Unverified {
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
		{"\x00\x00\x00\x00llama", "\x00\x00\x00\x00lamas", `general.architecture is "lamas"; expected one of gpt2, llama, qwen2, qwen3`},
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
