package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/gguf"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// GGUF is an opened file of GGUF. Its tensors are listed by their names in the file, in the shapes that
// Hugging Face's weights have, and answer to the names there. It is safe for concurrent use.
type GGUF struct {
	path    string
	file    vfs.File
	header  *gguf.File
	form    *ggufForm // nil for an architecture that is not known
	entries []Entry
	byName  map[string]int
}

// ggufForm is how models of an architecture lie in a file.
type ggufForm struct {
	// prefix is what Hugging Face's names begin with, and layers what stands before a layer's number.
	prefix, layers string
	// outer and inner are the names there, by those in the file: of the model and of a layer.
	outer, inner map[string]string
	// fields are those of config.json by the keys after the architecture, and implied those without a key.
	fields  map[string]string
	implied map[string]any
	// turned says that rows of queries and keys lie in another order: pairs that the positions turn are
	// neighbours in the file, and half a head apart in Hugging Face's weights.
	turned bool
	// transposed says that matrices of layers lie the other way round.
	transposed bool
	// copied are tensors that repeat others.
	copied []string
	// model is the model_type in config.json, where it is another name.
	model string
	// shifted says that 1 was added to the weights of norms.
	shifted bool
	// period is which layers attend to all tokens where the others have a window: each period-th. 0: none has one.
	// window is that window where the file does not say it, or 0 for none.
	period, window int64
	// largest is the number of layers of the one size whose scores are divided by the root of the width of the
	// model by its heads, and not by that of a head's width.
	largest float64
}

var (
	llamaOuter = map[string]string{"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
	llamaInner = map[string]string{
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
		"ffn_down": "mlp.down_proj",
	}
	qwen3Inner  = with(llamaInner, map[string]string{"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"})
	llamaFields = map[string]string{
		"vocab_size": "vocab_size", "context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
		"feed_forward_length": "intermediate_size", ggufHeads: "num_attention_heads", ggufKVHeads: "num_key_value_heads",
		"attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
		"attention.key_length": "head_dim", "attention.value_length": "head_dim", "rope.dimension_count": "head_dim",
	}
	llamaImplied = map[string]any{"hidden_act": "silu", "rope_theta": 10000.0}
	gemmaImplied = map[string]any{"hidden_activation": "gelu_pytorch_tanh", "rope_theta": 10000.0}
	gemma2Inner  = with(llamaInner, map[string]string{
		"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
	})
	gemma3Fields = with(llamaFields, map[string]string{"final_logit_softcapping": "final_logit_softcapping", "rope.freq_base_swa": "rope_local_base_freq"})
)

const ggufHeads, ggufKVHeads = "attention.head_count", "attention.head_count_kv"

// ggufForms are the architectures that are known. Mistral's models are of llama.
var ggufForms = map[string]*ggufForm{
	"llama": {prefix: "model.", layers: "layers.", outer: llamaOuter, inner: llamaInner, fields: llamaFields, implied: llamaImplied, turned: true},
	"qwen2": {prefix: "model.", layers: "layers.", outer: llamaOuter, inner: llamaInner, fields: llamaFields, implied: llamaImplied},
	"qwen3": {prefix: "model.", layers: "layers.", outer: llamaOuter, inner: qwen3Inner, fields: llamaFields, implied: llamaImplied},
	"gemma": {prefix: "model.", layers: "layers.", outer: llamaOuter, inner: llamaInner, fields: llamaFields, implied: gemmaImplied, shifted: true},
	"gemma2": {
		prefix: "model.", layers: "layers.", outer: llamaOuter, inner: gemma2Inner, shifted: true, period: 2, window: 4096, largest: 46,
		fields: with(llamaFields, map[string]string{
			"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
		}),
		implied: with(gemmaImplied, map[string]any{"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
	},
	"gemma3": {
		prefix: "model.", layers: "layers.", outer: llamaOuter, shifted: true, period: 6, largest: 62, model: "gemma3_text",
		inner:   with(gemma2Inner, map[string]string{"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}),
		fields:  gemma3Fields,
		implied: with(gemmaImplied, map[string]any{"final_logit_softcapping": nil, "rope_local_base_freq": 10000.0}),
	},
	"gpt2": {
		prefix: "transformer.", layers: "h.", transposed: true, copied: []string{"output.weight"},
		outer: map[string]string{"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f"},
		inner: map[string]string{
			"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
		},
		fields: map[string]string{
			"vocab_size": "vocab_size", "context_length": "n_positions", "embedding_length": "n_embd", "block_count": "n_layer",
			"feed_forward_length": "n_inner", ggufHeads: "n_head", "attention.layer_norm_epsilon": "layer_norm_epsilon",
		},
		implied: map[string]any{"activation_function": "gelu_new"},
	},
}

// with returns both maps as one.
func with[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// OpenGGUF opens a file of GGUF and checks its header: each tensor must be inside the file, of a known
// type, and share no bytes with another.
func OpenGGUF(path string) (*GGUF, error) {
	f, err := vfs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	g, err := newGGUF(f, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return g, nil
}

func newGGUF(f vfs.File, path string) (*GGUF, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	g := &GGUF{path: path, file: f, byName: map[string]int{}}
	if g.header, err = gguf.Parse(f, info.Size()); err != nil {
		return nil, err
	}
	g.form = ggufForms[g.architecture()]
	for i, t := range g.header.Tensors {
		e := Entry{Name: t.Name, DType: tf.Float, Shape: t.Shape, Offset: t.Offset, Size: t.Size}
		if g.transposes(t) {
			e.Shape = []int64{t.Shape[1], t.Shape[0]}
		}
		g.byName[t.Name] = i
		g.entries = append(g.entries, e)
	}
	if g.form != nil {
		for i, t := range g.header.Tensors {
			if name, ok := g.form.name(t.Name); ok {
				g.byName[name], g.byName[g.form.prefix+name] = i, i
			}
		}
	}
	return g, nil
}

func (g *GGUF) architecture() string {
	name, _ := g.header.Values["general.architecture"].(string)
	return name
}

// name returns the name in Hugging Face's weights, without prefix, of a tensor of the file.
func (f *ggufForm) name(tensor string) (string, bool) {
	stem, kind, ok := cutLast(tensor, ".")
	if !ok || kind != "weight" && kind != "bias" {
		return "", false
	}
	if outer, ok := f.outer[stem]; ok {
		return outer + "." + kind, true
	}
	rest, ok := strings.CutPrefix(stem, "blk.")
	number, part, found := strings.Cut(rest, ".")
	inner, known := f.inner[part]
	return f.layers + number + "." + inner + "." + kind, ok && found && known
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// transposes reports whether a tensor lies the other way round than in Hugging Face's weights.
func (g *GGUF) transposes(t gguf.Tensor) bool {
	return g.form != nil && g.form.transposed && strings.HasPrefix(t.Name, "blk.") && len(t.Shape) == 2
}

// Path returns the file's path; it is part of [Source].
func (g *GGUF) Path() string { return g.path }

// Entries lists the tensors in the order of the file; it is part of [Source]. They are read as float32,
// and Size is what they take in the file. The caller must not change it.
func (g *GGUF) Entries() []Entry { return g.entries }

// Resolve finds a tensor by its name in the file or in Hugging Face's weights.
func (g *GGUF) Resolve(name string) (string, bool) {
	i, ok := g.byName[name]
	if !ok {
		return "", false
	}
	return g.entries[i].Name, true
}

// Close closes the file.
func (g *GGUF) Close() error { return g.file.Close() }

// FormatType returns the name of a tensor's type in ggml, such as "Q4_1"; "" if there is no such tensor.
func (g *GGUF) FormatType(name string) string {
	i, ok := g.byName[name]
	if !ok {
		return ""
	}
	return g.header.Tensors[i].Type.String()
}

// Metadata returns the metadata as text; of a list, only its length.
func (g *GGUF) Metadata() map[string]string {
	out := make(map[string]string, len(g.header.Values))
	for key, v := range g.header.Values {
		switch list := v.(type) {
		case []string:
			out[key] = fmt.Sprintf("%d texts", len(list))
		case []int64:
			out[key] = fmt.Sprintf("%d integers", len(list))
		case []float64:
			out[key] = fmt.Sprintf("%d numbers", len(list))
		default:
			out[key] = fmt.Sprint(v)
		}
	}
	return out
}

// Read reads tensors, or all tensors if no name is given, as float32 and in the form of Hugging Face's
// weights: quantized numbers are those that ggml computes from them.
func (g *GGUF) Read(ctx context.Context, names ...string) (map[string]*tf.Tensor, error) {
	if len(names) == 0 {
		names = entryNames(g.entries)
	}
	out := make(map[string]*tf.Tensor, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", g.path, err)
		}
		i, ok := g.byName[name]
		if !ok {
			return nil, &MismatchError{Path: g.path, Missing: []string{name}}
		}
		in, err := g.numbers(i)
		if err == nil {
			out[name], err = tf.ReadTensor(tf.Float, g.entries[i].Shape, in)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: tensor %q: %w", g.path, name, err)
		}
	}
	return out, nil
}

// numbers returns a reader of the bytes of a tensor as float32.
func (g *GGUF) numbers(i int) (io.Reader, error) {
	t := g.header.Tensors[i]
	order, err := g.order(t)
	if err != nil {
		return nil, err
	}
	if order != nil && len(t.Shape) == 1 { // a bias, of a row for each number
		t.Shape = []int64{t.Shape[0], 1}
	}
	in, err := t.Rows(g.file, order)
	shifted := g.form != nil && g.form.shifted && strings.HasSuffix(t.Name, "norm.weight")
	if err != nil || !g.transposes(t) && !shifted {
		return in, err
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	const width = 4 // of a float32
	if shifted {
		for at := 0; at < len(data); at += width {
			number := data[at:][:width]
			binary.LittleEndian.PutUint32(number, math.Float32bits(math.Float32frombits(binary.LittleEndian.Uint32(number))-1))
		}
		return bytes.NewReader(data), nil
	}
	turned, rows, columns := make([]byte, len(data)), int(t.Shape[0]), int(t.Shape[1])
	for row := range rows {
		for column := range columns {
			copy(turned[(column*rows+row)*width:][:width], data[(row*columns+column)*width:])
		}
	}
	return bytes.NewReader(turned), nil
}

// order returns the row of the file that is a row of Hugging Face's weights, or nil if they are the same.
func (g *GGUF) order(t gguf.Tensor) (func(int64) int64, error) {
	if g.form == nil || !g.form.turned || !strings.HasPrefix(t.Name, "blk.") {
		return nil, nil
	}
	var key string
	switch stem, _, _ := cutLast(t.Name, "."); {
	case strings.HasSuffix(stem, ".attn_q"):
		key = ggufHeads
	case strings.HasSuffix(stem, ".attn_k"):
		key = ggufKVHeads
	default:
		return nil, nil
	}
	heads, err := g.heads(key)
	if err != nil {
		return nil, err
	}
	rows := t.Shape[0]
	if rows%(2*heads) != 0 {
		return nil, fault.Damagedf("it has %d rows; expected a multiple of %d, two for each head", rows, 2*heads)
	}
	half := rows / heads / 2
	return func(i int64) int64 {
		head, at := i/(2*half), i%(2*half)
		return head*2*half + at%half*2 + at/half
	}, nil
}

// heads returns a number of heads. Without one of its own, keys and values have as many as queries.
func (g *GGUF) heads(key string) (int64, error) {
	name := g.architecture() + "." + key
	v, ok := g.header.Values[name]
	if !ok && key == ggufKVHeads {
		return g.heads(ggufHeads)
	}
	n, ok := v.(int64)
	if !ok || n < 1 || n > 1<<20 {
		return 0, fault.Damagedf("%s is %.64s; expected a number of heads", name, fmt.Sprint(v))
	}
	return n, nil
}

// Repeats reports whether a tensor is a copy of another.
func (g *GGUF) Repeats(e Entry) bool { return g.form != nil && slices.Contains(g.form.copied, e.Name) }
