package train

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// releases exports a model and writes its encoder in the form of TensorFlow's releases: Google's
// of BERT, with an optimizer's slots and a head, and two versions of the Model Garden's.
const releases = `
import sys
import numpy as np
import tensorflow as tf
from gorbit_export import classifier, config, export, optimizers

out, heads, width = sys.argv[1], 2, 4
h = heads * width
c = config.BertConfig(h, 2, heads, 12, vocab_size=20, max_position_embeddings=16)
task = classifier.Classification(c, 3)
draw = np.random.default_rng(5)
for v in task.model.variables:
    v.assign(draw.normal(size=v.shape))
export.write(task, optimizers.AdamW(), f"{out}/graph")
export.write(classifier.Classification(c, 3, seed=9), optimizers.AdamW(), f"{out}/other")

encoder, pooler = task.model.encoder, task.model.pooler

def bundle(name, tensors):
    names = sorted(tensors)
    values = [tf.constant(tensors[n]) for n in names]
    tf.raw_ops.SaveV2(prefix=f"{out}/{name}", tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)

tables = (encoder.embeddings.word, encoder.embeddings.position, encoder.embeddings.type)
google = {"global_step": np.int64(7), "output_weights": np.zeros((2, h), np.float32)}
def put(path, layer):
    for name, v in (("kernel", getattr(layer, "kernel", None)), ("gamma", getattr(layer, "scale", None)), ("bias" if hasattr(layer, "kernel") else "beta", layer.bias)):
        if v is not None:
            google[f"bert/{path}/{name}"] = v.numpy()
            google[f"bert/{path}/{name}/adam_m"] = np.zeros(v.shape, np.float32)
for table, name in zip(tables, ("word", "position", "token_type")):
    google[f"bert/embeddings/{name}_embeddings"] = table.table.numpy()
put("embeddings/LayerNorm", encoder.embeddings.norm)
for i, layer in enumerate(encoder.layers):
    a, f, at = layer.attention, layer.feed_forward, f"encoder/layer_{i}"
    for name, part in (("attention/self/query", a.query), ("attention/self/key", a.key), ("attention/self/value", a.value), ("attention/output/dense", a.output),
                       ("attention/output/LayerNorm", a.norm), ("intermediate/dense", f.intermediate), ("output/dense", f.output), ("output/LayerNorm", f.norm)):
        put(f"{at}/{name}", part)
put("pooler/dense", pooler)
bundle("google", google)

def module(**variables):
    m = tf.Module()
    for name, value in variables.items():
        setattr(m, name, value if isinstance(value, tf.Module) else tf.Variable(value))
    return m

def dense(layer, kernel=None, bias=None):
    k, b = layer.kernel.numpy(), layer.bias.numpy()
    return module(kernel=k.reshape(kernel or k.shape), bias=b.reshape(bias or b.shape))

def norm(layer):
    return module(gamma=layer.scale.numpy(), beta=layer.bias.numpy())

def block(layer, joined):
    a, f, split = layer.attention, layer.feed_forward, ((h, heads, width), (heads, width))
    parts = {f"_{n}_dense": dense(getattr(a, n), *split) for n in ("query", "key", "value")}
    output = dense(a.output, (heads, width, h))
    m = module(_attention_layer=module(**parts, **({"_output_dense": output} if joined else {})), _attention_layer_norm=norm(a.norm),
               _intermediate_dense=dense(f.intermediate), _output_dense=dense(f.output), _output_layer_norm=norm(f.norm))
    if not joined:
        m._attention_output_dense = output
    return m

functional = tf.Module()
for i, table in enumerate(tables):
    setattr(functional, f"layer_with_weights-{i}", module(embeddings=table.table.numpy()))
setattr(functional, "layer_with_weights-3", norm(encoder.embeddings.norm))
for i, layer in enumerate(encoder.layers):
    setattr(functional, f"layer_with_weights-{i + 4}", block(layer, False))
setattr(functional, "layer_with_weights-6", dense(pooler))
tf.train.Checkpoint(encoder=functional).write(f"{out}/functional")

listed = tf.Module()
listed._embedding_layer, listed._position_embedding_layer, listed._type_embedding_layer = (module(embeddings=t.table.numpy()) for t in tables)
listed._embedding_norm_layer, listed._pooler_layer = norm(encoder.embeddings.norm), dense(pooler)
listed._transformer_layers = [block(layer, True) for layer in encoder.layers]
tf.train.Checkpoint(encoder=listed).write(f"{out}/listed")
`

// TestInitFromTensorFlowsReleases fills the encoder and the pooler from checkpoints that others
// wrote, and no head.
func TestInitFromTensorFlowsReleases(t *testing.T) {
	long(t)
	dir := testkit.Made(t, releases)
	export, err := graphs.Open(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range export.Contract.Variables {
		names = append(names, v.Name)
	}
	bundle, err := checkpoint.OpenBundle(filepath.Join(dir, "graph", "variables", "variables"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := bundle.Read(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"google", "functional", "listed"} {
		t.Run(name, func(t *testing.T) {
			got, report, err := loop.Init{From: filepath.Join(dir, name)}.Load(t.Context(), export.Contract)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Mismatched) > 0 || len(report.Missing) != 2 || len(got) != len(names)-2 {
				t.Fatalf("%d values; report:\n%s", len(got), report)
			}
			if name == "google" && !slices.ContainsFunc(report.Unused, func(e checkpoint.Entry) bool { return strings.HasSuffix(e.Name, "/adam_m") }) {
				t.Errorf("no slot among the unused tensors:\n%s", report)
			}
			for v, value := range got {
				if !slices.Equal(value.Shape(), want[v].Shape()) {
					t.Errorf("%s has shape %v, expected %v", v, value.Shape(), want[v].Shape())
				}
				var a, b bytes.Buffer
				if _, err := value.WriteContentsTo(&a); err != nil {
					t.Fatal(err)
				}
				if _, err := want[v].WriteContentsTo(&b); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(a.Bytes(), b.Bytes()) {
					t.Errorf("%s has other values", v)
				}
			}
		})
	}
}
