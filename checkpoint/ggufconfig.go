package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Keys after the architecture's name that are read together with others.
const (
	ggufScaling      = "rope.scaling."
	ggufOldScaling   = "rope.scale_linear"
	ggufWindow       = "attention.sliding_window"
	ggufPattern      = "attention.sliding_window_pattern"
	maxGGUFLayers    = 1 << 16
	ggufFullLayer    = "full_attention"
	ggufSlidingLayer = "sliding_attention"
)

// GGUFFrequencies is the tensor of a file of GGUF by whose numbers turns are divided; see [GGUF.Frequencies].
const GGUFFrequencies = "rope_freqs.weight"

// Config returns what the file says of its model in the fields of Hugging Face's config.json, numbers
// as float64. It is an error if the file says what is not known.
func (g *GGUF) Config() (map[string]any, error) {
	architecture := g.architecture()
	if g.form == nil {
		return nil, fault.Usagef("%s: general.architecture is %q; expected one of %s", g.path, architecture, strings.Join(slices.Sorted(maps.Keys(ggufForms)), ", "))
	}
	config := maps.Clone(g.form.implied)
	config["model_type"] = cmp.Or(g.form.model, architecture)
	for _, key := range g.header.Keys {
		name, own := strings.CutPrefix(key, architecture+".")
		if !own {
			if n, ok := g.header.Values[key].(int64); key == "split.count" && ok && n > 1 {
				return nil, fault.Usagef("%s: the file is one of %d; expected a whole model: join them with llama-gguf-split --merge", g.path, n)
			}
			continue
		}
		if err := g.field(config, key, name); err != nil {
			return nil, err
		}
	}
	if len(g.form.copied) == 0 {
		_, untied := g.byName["output.weight"]
		config["tie_word_embeddings"] = !untied
	}
	for _, key := range []string{ggufHeads, ggufKVHeads} {
		if field, ok := g.form.fields[key]; ok {
			n, err := g.heads(key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", g.path, err)
			}
			config[field] = float64(n)
		}
	}
	for _, read := range []func(map[string]any) error{g.checkWidth, g.layers, g.scaling} {
		if err := read(config); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// field reads the value of a key that stands alone.
func (g *GGUF) field(config map[string]any, key, name string) error {
	field, known := g.form.fields[name]
	if !known {
		if g.form.turns() && (strings.HasPrefix(name, ggufScaling) || name == ggufOldScaling) || g.form.period > 0 && (name == ggufWindow || name == ggufPattern) {
			return nil
		}
		return g.unknown(key)
	}
	value, err := g.number(key)
	if err != nil {
		return err
	}
	if before, twice := config[field]; twice && field == "head_dim" && before != value {
		return fault.Usagef("%s: %s is %v; expected %v, the width of a head", g.path, key, value, before)
	}
	config[field] = value
	return nil
}

// unknown refuses a key.
func (g *GGUF) unknown(key string) error {
	return fault.Usagef("%s: key %s (%.64s) is not known here, and may change what the model computes", g.path, key, fmt.Sprint(g.header.Values[key]))
}

// turns reports whether positions turn queries and keys.
func (f *ggufForm) turns() bool { return f.fields["rope.freq_base"] != "" }

// number returns the value of a key, which must be a number.
func (g *GGUF) number(key string) (float64, error) {
	switch v := g.header.Values[key].(type) {
	case int64:
		return float64(v), nil
	case float64:
		return v, nil
	}
	return 0, fault.Usagef("%s: %s is %.64s; expected a number", g.path, key, fmt.Sprint(g.header.Values[key]))
}

// checkWidth refuses heads of which the positions turn a part only.
func (g *GGUF) checkWidth(config map[string]any) error {
	turned, ok := config["head_dim"].(float64)
	_, given := g.header.Values[g.architecture()+".attention.key_length"]
	hidden, known := config["hidden_size"].(float64)
	heads, counted := config["num_attention_heads"].(float64)
	if ok && !given && known && counted && turned*heads != hidden {
		return fault.Usagef("%s: the positions turn %v numbers of each head; expected %v, all of them", g.path, turned, hidden/heads)
	}
	return nil
}

// layers adds which layers have a window, and by what the scores of Gemma 2 and 3 are divided, which the file
// does not say: llama.cpp knows it by the number of layers.
func (g *GGUF) layers(config map[string]any) error {
	if g.form.period == 0 {
		return nil
	}
	at := g.architecture() + "."
	count, err := g.number(at + "block_count")
	if err != nil {
		return err
	}
	if count < 1 || count > maxGGUFLayers {
		return fault.Damagedf("%s: %sblock_count is %v; expected 1 to %d layers", g.path, at, count, maxGGUFLayers)
	}
	window := float64(g.form.window)
	if _, ok := g.header.Values[at+ggufWindow]; ok {
		if window, err = g.number(at + ggufWindow); err != nil {
			return err
		}
	}
	sliding, err := g.sliding(at+ggufPattern, int64(count))
	if err != nil {
		return err
	}
	kinds := make([]any, int(count))
	for i := range kinds {
		if kinds[i] = ggufFullLayer; window > 0 && sliding(int64(i)) {
			kinds[i] = ggufSlidingLayer
		}
	}
	config["layer_types"], config["sliding_window"] = kinds, any(nil)
	if window > 0 {
		config["sliding_window"] = window
	} else {
		delete(config, "rope_local_base_freq") // no layer has it
	}
	head, ok := config["head_dim"].(float64)
	hidden, known := config["hidden_size"].(float64)
	if heads := config["num_attention_heads"].(float64); known && (!ok || count == g.form.largest) {
		head, ok = hidden/heads, true
	}
	if ok {
		config["query_pre_attn_scalar"] = head
	}
	return nil
}

// sliding returns which of so many layers have the window: the list of a key, or by the number that it has in the
// place of the period.
func (g *GGUF) sliding(key string, count int64) (func(int64) bool, error) {
	period := g.form.period
	switch v := g.header.Values[key].(type) {
	case nil:
	case []bool:
		if int64(len(v)) != count {
			return nil, fault.Usagef("%s: %s has %d values; expected %d, one for each layer", g.path, key, len(v), count)
		}
		return func(i int64) bool { return v[i] }, nil
	case int64:
		if v < 1 {
			return nil, fault.Usagef("%s: %s is %d; expected a number of layers", g.path, key, v)
		}
		period = v
	default:
		return nil, fault.Usagef("%s: %s is %.64s; expected a number of layers", g.path, key, fmt.Sprint(v))
	}
	return func(i int64) bool { return (i+1)%period != 0 }, nil
}

// scaling adds rope_scaling, as Hugging Face's models of the kind have it. Without a kind it is linear, and a
// factor of 1 or 0 is none, as in llama.cpp.
func (g *GGUF) scaling(config map[string]any) error {
	if !g.form.turns() {
		return nil
	}
	at := g.architecture() + "." + ggufScaling
	fields := map[string]string{"factor": "factor"}
	kind, _ := g.header.Values[at+"type"].(string)
	if _, ok := g.header.Values[at+"type"]; !ok {
		kind = "linear"
	}
	switch kind {
	case "none", "linear":
	case "yarn":
		fields["original_context_length"], fields["yarn_attn_factor"] = "original_max_position_embeddings", "attention_factor"
		fields["yarn_beta_fast"], fields["yarn_beta_slow"] = "beta_fast", "beta_slow"
	default:
		return fault.Usagef("%s: %stype is %.64s; expected one of linear, none, yarn", g.path, at, fmt.Sprint(g.header.Values[at+"type"]))
	}
	scaling := map[string]any{"rope_type": kind}
	for _, key := range g.header.Keys {
		name, ok := strings.CutPrefix(key, at)
		if !ok || name == "type" || name == "finetuned" { // whether it was trained with it
			continue
		}
		number, err := g.number(key)
		if err != nil {
			return err
		}
		field := fields[name]
		switch idle, known := ggufIdle[name]; {
		case field != "":
			scaling[field] = number
		case !known || idle != number:
			return g.unknown(key)
		}
	}
	if key := g.architecture() + "." + ggufOldScaling; scaling["factor"] == nil && g.header.Values[key] != nil {
		number, err := g.number(key)
		if err != nil {
			return err
		}
		scaling["factor"] = number
	}
	switch factor, _ := scaling["factor"].(float64); {
	case kind == "none", kind == "linear" && (factor == 0 || factor == 1):
		return nil
	case kind == "yarn" && (factor == 0 || scaling["original_max_position_embeddings"] == nil):
		return fault.Usagef("%s: %stype is yarn; expected %[2]sfactor and %[2]soriginal_context_length, too", g.path, at)
	}
	config["rope_scaling"] = scaling
	return nil
}

// ggufIdle are values that keys of scaling have where they change nothing.
var ggufIdle = map[string]float64{"attn_factor": 1, "yarn_ext_factor": 1, "yarn_log_multiplier": 0}

// Frequencies returns by what the turns of each pair of a head are divided, which Llama 3's models have as a tensor
// in the place of rope_scaling, or nil.
func (g *GGUF) Frequencies() ([]float32, error) {
	i, ok := g.byName[GGUFFrequencies]
	if !ok || g.architecture() != "llama" {
		return nil, nil
	}
	if shape := g.entries[i].Shape; len(shape) != 1 || shape[0] > maxGGUFLayers {
		return nil, fault.Damagedf("%s: tensor %s; expected one number for each pair of a head", g.path, g.entries[i])
	}
	in, err := g.numbers(i)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", g.path, GGUFFrequencies, err)
	}
	out := make([]float32, g.entries[i].Shape[0])
	if err := binary.Read(in, binary.LittleEndian, out); err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", g.path, GGUFFrequencies, err)
	}
	return out, nil
}
