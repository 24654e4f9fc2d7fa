package loop_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// A file of GGUF is taken if all that it says of its model is as in the graph.
func TestCheckFormOfGGUF(t *testing.T) {
	source, err := checkpoint.OpenGGUF(filepath.Join("..", "..", "checkpoint", "testdata", "gguf", "llama.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	released := map[string]any{
		"num_attention_heads": 4.0, "num_key_value_heads": 2.0, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 50000.0,
		"tie_word_embeddings": true, "rope_scaling": nil, "hidden_size": 32.0, "num_hidden_layers": 2.0, "intermediate_size": 64.0,
		"vocab_size": 48.0, "max_position_embeddings": 32.0,
	}
	bias := checkpoint.Entry{Name: "blk.0.attn_q.bias", DType: 1, Shape: []int64{32}}
	for _, tt := range []struct {
		name, kind, field string
		value             any
		unused            []checkpoint.Entry
		partial           bool
		want              string
	}{
		{name: "as it is", kind: "llama"},
		{name: "one name for two", kind: "mistral"},
		{name: "fewer positions than the file's", kind: "llama", field: "max_position_embeddings", value: 16.0},
		{name: "more positions", kind: "llama", field: "max_position_embeddings", value: 64.0, want: "max_position_embeddings is 32; expected 64"},
		{name: "model", kind: "qwen2", want: `model_type is "llama"; expected "qwen2"`},
		{name: "heads", kind: "llama", field: "num_attention_heads", value: 8.0, want: "num_attention_heads is 4; expected 8"},
		{name: "base of the positions", kind: "llama", field: "rope_theta", value: 10000.0, want: "rope_theta is 50000; expected 10000"},
		{name: "epsilon", kind: "llama", field: "rms_norm_eps", value: 1e-5, want: "rms_norm_eps is 0.000001; expected 0.00001"},
		{name: "layers", kind: "llama", field: "num_hidden_layers", value: 1.0, want: "num_hidden_layers is 2; expected 1"},
		{name: "layers, in part", kind: "llama", field: "num_hidden_layers", value: 1.0, partial: true},
		{name: "tied", kind: "llama", field: "tie_word_embeddings", value: false, want: "tie_word_embeddings is true; expected false"},
		{name: "no place", kind: "llama", unused: []checkpoint.Entry{bias}, want: "tensor blk.0.attn_q.bias float32[32] has no place"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := maps.Clone(released)
			if tt.field != "" {
				config[tt.field] = tt.value
			}
			needed := maps.Clone(config)
			for _, size := range []string{"hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "max_position_embeddings"} {
				delete(needed, size)
			}
			contract := &graphs.Contract{Model: graphs.Model{
				Weights: &graphs.Weights{ModelType: tt.kind, Prefix: "model.", Config: needed}, HuggingFace: &graphs.HuggingFace{Config: config},
			}}
			err := loop.CheckForm(source, &checkpoint.LoadReport{Unused: tt.unused}, contract, tt.partial)
			if tt.want == "" && err != nil {
				t.Fatal(err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || fault.Of(err) != fault.Usage) {
				t.Fatalf("error %v; expected %q", err, tt.want)
			}
		})
	}
}

// A config.json next to weights is taken whatever release of transformers wrote it, if it says the same.
func TestCheckFormOfReleases(t *testing.T) {
	scaling := map[string]any{"rope_type": "linear", "factor": 4.0}
	for _, tt := range []struct {
		there  string
		window any // of the graph, whose longest text has 32 tokens
		scaled any
		want   string
	}{
		{`{"rope_theta": 5.0, "rope_scaling": {"type": "linear", "factor": 4}, "sliding_window": 8}`, 8.0, scaling, ""},
		{`{"rope_parameters": {"rope_theta": 5.0, "rope_type": "linear", "factor": 4.0}, "sliding_window": 8}`, 8.0, scaling, ""},
		{`{"rope_parameters": {"rope_theta": 5.0, "rope_type": "default"}, "rope_scaling": null}`, 8.0, nil, ""},
		{`{"rope_theta": 5.0, "sliding_window": 32}`, nil, nil, ""},
		{`{"rope_theta": 5.0, "sliding_window": 4, "use_sliding_window": false}`, nil, nil, ""},
		{`{"rope_parameters": {"full_attention": {"rope_theta": 5.0, "rope_type": "linear", "factor": 4, "type": "linear"}, "sliding_attention": {"rope_theta": 7.0}}}`, nil, scaling, ""},
		{`{"rope_parameters": {"full_attention": {"rope_theta": 5.0}, "sliding_attention": {"rope_theta": 8.0}}}`, nil, nil, "rope_local_base_freq is 8; expected 7"},
		{`{"rope_parameters": {"rope_theta": 6.0}}`, nil, nil, "rope_theta is 6; expected 5"},
		{`{"rope_parameters": {"rope_theta": 5.0, "rope_type": "yarn", "factor": 4.0}}`, nil, scaling, `rope_scaling is {"factor":4,"rope_type":"yarn"}; expected {"factor":4,"rope_type":"linear"}`},
		{`{"rope_scaling": {"type": "linear", "factor": 4}}`, nil, nil, "rope_scaling is {"},
		{`{}`, nil, scaling, "rope_scaling is null; expected {"},
		{`{"rope_scaling": null}`, nil, scaling, "rope_scaling is null; expected {"},
		{`{"sliding_window": 31}`, nil, nil, "sliding_window is 31; expected null"},
		{`{"sliding_window": 32}`, 8.0, nil, "sliding_window is null; expected 8"},
		{`{"sliding_window": 8, "use_sliding_window": false}`, 8.0, nil, "sliding_window is null; expected 8"},
		{`{"rope_theta": 5.0, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 8, "beta_fast": 32, "mscale": 1.0, "mscale_all_dim": 1.0}}`, nil,
			map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8.0, "attention_factor": 1.0}, ""},
		{`{"rope_theta": 5.0, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 8, "beta_slow": 2}}`, nil,
			map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8.0}, `rope_scaling is {"beta_slow":2,`},
		{`{"rope_theta": 5.0, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 8, "attention_factor": 1.5}}`, nil,
			map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8.0}, `rope_scaling is {"attention_factor":1.5,`},
	} {
		needed := map[string]any{"rope_theta": 5.0, "rope_local_base_freq": 7.0, "rope_scaling": tt.scaled, "sliding_window": tt.window, "positions": 32.0}
		err := checkedNextTo(t, tt.there, &graphs.Weights{ModelType: "mistral", Config: needed})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; expected %q", tt.there, err, tt.want)
		}
	}
}

// checkedNextTo checks weights next to a config.json.
func checkedNextTo(t *testing.T, config string, form *graphs.Weights) error {
	t.Helper()
	folder := t.TempDir()
	data, err := os.ReadFile(filepath.Join("..", "..", "tools", "tests", "goldens", "causal", "mistral-window.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "model.safetensors")
	for name, content := range map[string][]byte{path: data, filepath.Join(folder, loop.ReleaseConfig): []byte(config)} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	weights, err := checkpoint.OpenSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer weights.Close()
	return loop.CheckForm(weights, new(checkpoint.LoadReport), &graphs.Contract{Model: graphs.Model{Weights: form}}, false)
}

// A field that is not in a config.json means what it does in transformers.
func TestCheckFormOfDefaults(t *testing.T) {
	for _, tt := range []struct {
		there         string
		window, theta any // of the graph, whose longest text has 32 tokens
		want          string
	}{
		{`{"sliding_window": 4096, "max_window_layers": 21}`, nil, 1e4, ""}, // Qwen's, where nothing switches the window on
		{`{"sliding_window": 4}`, nil, 1e4, ""},
		{`{}`, nil, 1e4, ""},
		{`{"sliding_window": 4, "use_sliding_window": true}`, nil, 1e4, "sliding_window is 4; expected null, as in the graph"},
		{`{"use_sliding_window": true}`, nil, 1e4, "sliding_window is not there, which means 6 in transformers; expected null, as in the graph"},
		{`{"use_sliding_window": true}`, 6.0, 1e4, ""},
		{`{"sliding_window": 6}`, 6.0, 1e4, "sliding_window is null; expected 6"},
		{`{}`, nil, 5e4, "rope_theta is not there, which means 10000 in transformers; expected 50000, as in the graph"},
		{`{"rope_parameters": {"rope_theta": 5e4}}`, nil, 5e4, ""},
		{`{"rope_parameters": {"rope_theta": 1e4}}`, nil, 5e4, "rope_theta is 10000; expected 50000"},
	} {
		err := checkedNextTo(t, tt.there, &graphs.Weights{
			ModelType: "qwen2", Config: map[string]any{"rope_theta": tt.theta, "sliding_window": tt.window, "positions": 32.0},
			Defaults: map[string]any{"rope_theta": 1e4, "sliding_window": 6.0, "use_sliding_window": false},
		})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; expected %q", tt.there, err, tt.want)
		}
	}
}

// Files of GGUF say how turns are scaled, Llama 3's by a tensor.
func TestCheckFormOfScaledGGUF(t *testing.T) {
	llama3 := map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.5, "high_freq_factor": 4.0, "original_max_position_embeddings": 64.0}
	other := maps.Clone(llama3)
	other["low_freq_factor"] = 0.6
	yarn := map[string]any{"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16.0, "beta_fast": 32.0, "attention_factor": 1.0693147180559945}
	mscale := map[string]any{"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16.0, "mscale": 1.0, "mscale_all_dim": 0.5}
	frequencies := []checkpoint.Entry{{Name: checkpoint.GGUFFrequencies, DType: 1, Shape: []int64{4}}}
	for _, tt := range []struct {
		file   string
		scaled map[string]any // of the graph
		unused []checkpoint.Entry
		want   string
	}{
		{"linear", map[string]any{"rope_type": "linear", "factor": 4.0}, nil, ""},
		{"linear", map[string]any{"rope_type": "linear", "factor": 2.0}, nil, `rope_scaling is {"factor":4,"rope_type":"linear"}; expected {"factor":2,`},
		{"linear", nil, nil, "expected null"},
		{"yarn", yarn, nil, ""},
		{"yarn", mscale, nil, "rope_scaling is {"},
		{"yarn", map[string]any{"rope_type": "linear", "factor": 2.0}, nil, "rope_scaling is {"},
		{"llama3", llama3, frequencies, ""},
		{"llama3", other, frequencies, "rope_freqs.weight has 5.87222 at 1; expected 6.85447 by rope_scaling of the graph; export"},
		{"llama3", nil, frequencies, "tensor rope_freqs.weight float32[4] has no place in the graph's model"},
		{"llama3", yarn, frequencies, "rope_scaling is null; expected {"},
		{"linear", llama3, nil, `rope_scaling is {"factor":4,"rope_type":"linear"}; expected {`},
		{"llama", llama3, nil, "rope_scaling is null; expected {"},
		{"llama", map[string]any{"rope_type": "dynamic", "factor": 2.0}, nil, ""},
	} {
		source, err := checkpoint.OpenGGUF(filepath.Join("..", "..", "checkpoint", "testdata", "gguf", tt.file+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		needed := map[string]any{"rope_theta": 5e4, "rope_scaling": any(nil)}
		if tt.scaled != nil {
			needed["rope_scaling"] = tt.scaled
		}
		contract := &graphs.Contract{Model: graphs.Model{Weights: &graphs.Weights{ModelType: "llama", Config: needed}}}
		err = loop.CheckForm(source, &checkpoint.LoadReport{Unused: tt.unused}, contract, false)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || fault.Of(err) != fault.Usage) {
			t.Errorf("%s with %v: %v; expected %q", tt.file, tt.scaled, err, tt.want)
		}
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	}
}
