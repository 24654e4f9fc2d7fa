"""DeBERTa: the numbers of transformers, distances, and what of a configuration is refused."""

import dataclasses
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from helpers import needs_narrow_products, pack
from test_modernbert import batch, check_form, check_numbers, gradients, logits, make

from gorbit_export import bert, config, deberta, encoded, export, ops, optimizers
from gorbit_export.deberta_config import DebertaConfig

GOLDENS = pathlib.Path(__file__).parent / "goldens"
KINDS = {"cls": "cls", "narrow": "cls", "mlm": "mlm", "head": "mlm", "tokens": "tokens", "qa": "qa"}
SMALL = DebertaConfig(
    8, 2, 2, 6, vocab_size=20, max_position_embeddings=32, position_buckets=4, initializer_range=0.5
)
CASE = {"input_ids": [[1, 2, 3], [4] * 8, [5] * 9, list(range(13)), list(range(19))]}
LABELED = CASE | {"labels": [[0], [1], [2], [0], [1]]}


@pytest.fixture(scope="module", params=["committed", "fresh"])
def folder(request, tmp_path_factory) -> pathlib.Path:
    """The folder of models: the committed one, and the one that transformers writes."""
    if request.param == "committed":
        return GOLDENS / "deberta"
    python = os.environ.get("GORBIT_TRANSFORMERS")
    if not python:
        pytest.skip("GORBIT_TRANSFORMERS is not set; expected a Python with torch, transformers")
    out = tmp_path_factory.mktemp("deberta")
    subprocess.run([python, GOLDENS / "gen_deberta.py", out], check=True)
    return out


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
@pytest.mark.parametrize("recompute", ["none", "layers"])
def test_logits_loss_and_gradients_are_those_of_transformers(folder, name, kind, recompute):
    check_numbers(folder, name, kind, recompute)


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_form_for_transformers_is_that_of_its_own_files(name, kind):
    path = GOLDENS / "deberta" / f"{name}.json"
    made = check_form(path, kind)
    computed, values = made.description()["weights"]["config"], json.loads(path.read_text())
    assert {k: v for k, v in computed.items() if values[k] != v} == {}
    written = made.description()["huggingface"]["config"]
    assert {k for k in values if k not in written} <= {
        "attn_implementation",
        "dtype",
        "id2label",
        "label2id",
        "transformers_version",
    }


@pytest.mark.parametrize("size", ["256 512", "32 128"])
def test_buckets_are_those_of_transformers(size):
    want = json.loads((GOLDENS / "deberta" / "buckets.json").read_text())[size]
    count, reach = map(int, size.split())
    c = dataclasses.replace(SMALL, position_buckets=count, max_relative_positions=reach)
    np.testing.assert_array_equal(deberta.buckets(c, np.arange(-512, 513)), want)


def test_sizes():
    for c in (SMALL, dataclasses.replace(SMALL, embedding_size=4)):
        task = make("cls", encoded.Build(c))
        encoder = task.model.encoder
        assert c.parameters == sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)
        assert {f.name: f.below for f in task.features}["position_ids"] == 32
    weights = task.description()["weights"]
    assert weights["fit"] == ["model/encoder/relative/table"]
    assert weights["fit"][0] in dict(export._variable_paths(task.model, "model"))
    assert (weights["prefix"], weights["model_type"]) == ("deberta.", "deberta-v2")


@pytest.mark.parametrize("rows", [[[2, 0, 1]], [[1, 2], [0]]])
def test_rows_and_padding_do_not_matter(rows):
    """The rows are shorter and longer than the positions that there are."""
    task = make("tokens", encoded.Build(SMALL))
    rng = np.random.default_rng(6)
    examples = [(rng.integers(0, 20, n).tolist(), [0] * n) for n in (5, 17, 29)]
    outs = []
    for packing in ([[0], [1], [2]], rows):
        packed = {k: tf.constant(v) for k, v in pack(examples, packing).items()}
        hidden = task.model.encoder(*(packed[n] for n in encoded.ENCODER_FEATURES)).numpy()
        starts = packed["cls_positions"].numpy()
        outs.append(np.concatenate([hidden[s : s + len(x)] for s, (x, _) in zip(starts, examples)]))
    np.testing.assert_allclose(outs[0], outs[1], atol=1e-5)


def test_one_token():
    task = make("tokens", encoded.Build(SMALL))
    packed = {k: tf.constant(v) for k, v in pack([([3], [0])], [[0]]).items()}
    hidden = task.model.encoder(*(packed[n] for n in encoded.ENCODER_FEATURES))
    assert hidden.shape == [1, 8] and np.isfinite(hidden).all()


@pytest.mark.parametrize("recompute", ["none", "layers"])
def test_gradients_with_dropout_are_those_of_differences(recompute):
    task = make("cls", encoded.Build(SMALL, recompute=recompute))
    features = batch("cls", LABELED)
    _, found = gradients(task, features, 0.3)
    rng = np.random.default_rng(5)
    for variable, gradient in zip(task.model.trainable_variables, found):
        step = tf.constant(rng.normal(size=variable.shape), tf.float32)
        step *= 2e-3 / tf.norm(step)
        losses = []
        for sign in (1, -2):
            variable.assign_add(sign * step)
            losses.append(gradients(task, features, 0.3)[0])
        variable.assign_add(step)
        want = float(tf.reduce_sum(gradient * step)) * 2
        assert float(losses[0] - losses[1]) == pytest.approx(want, rel=0.05, abs=3e-5)


def test_the_table_of_distances_has_dropout():
    features = batch("cls", LABELED)
    encoder = make("cls", encoded.Build(SMALL)).model.encoder
    random = ops.Random.from_seed(tf.constant([1, 2], tf.int64))
    found = []
    for rate in (0.0, 0.3):
        how = (tf.constant(rate), None), [None, None, None, random.site(4)]
        distances, table = encoder._relative(features["sequence_ids"])
        layer = encoder.layers[0].attention
        maps = [layer.query, layer.key, layer.value]
        bias = tf.random.stateless_normal([24], [1, 2])
        kernel = tf.concat([m.kernel for m in maps], 1)
        maps = bert._Maps(kernel, ops.Bias(bias, bias), bert._Adapters(None, []))
        y = encoder.embeddings.word(tf.reshape(features["input_ids"], [-1]))
        ids = features["sequence_ids"]
        found.append(encoder._attention(y, maps, ids, distances, table[0], *how))
    assert tf.norm(found[0] - found[1]) > 0.01 * tf.norm(found[0])


@needs_narrow_products
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_narrow_precisions_are_near(precision):
    norms = []
    for how in ("float32", precision):
        task = make("cls", encoded.Build(SMALL, precision=how))
        _, found = gradients(task, batch("cls", LABELED), 0.1)
        assert all(g.dtype == tf.float32 for g in found)
        norms.append(tf.concat([tf.reshape(g, [-1]) for g in found], 0))
    assert tf.norm(norms[1] - norms[0]) < 0.05 * tf.norm(norms[0])


def test_xla_computes_the_same():
    task = make("cls", encoded.Build(SMALL))
    features = batch("cls", LABELED)

    def step() -> list[tf.Tensor]:
        loss, found = gradients(task, features, 0.2)
        return [loss, *found]

    want = tf.function(step, autograph=False)()
    got = tf.function(step, autograph=False, jit_compile=True)()
    for x, y in zip(got, want):
        assert tf.norm(x - y) < 1e-4 * tf.norm(y) + 1e-5


def test_adapters():
    """Those of queries and keys change the vectors of distances, too."""
    lora = bert.Lora(2, 4.0, bert.LORA_TARGETS)
    task = make("cls", encoded.Build(SMALL, lora=lora))
    module = export.Export(task, optimizers.AdamW())
    for v in task.model.trainable_variables:
        if "lora_up" in v.name:
            v.assign(tf.random.stateless_normal(v.shape, [3, 4]) * 0.3)
    features = batch("cls", LABELED)
    adapted = logits("cls", task, features)
    plain = make("cls", encoded.Build(SMALL))
    assert np.abs(adapted - logits("cls", plain, features)).max() > 1e-3
    to = dict(export._variable_paths(plain.model, "model"))
    for path, value in {**module.variables_by_path, **module.states_by_path}.items():
        if path in to:
            to[path].assign(value)
    for path, value in module.merge().items():
        to[path].assign(value)
    np.testing.assert_allclose(adapted, logits("cls", plain, features), atol=1e-5)
    trained = {p for p in module.variables_by_path if "encoder" in p}
    assert trained and all("lora" in p for p in trained)


RELEASE = {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
"""The config.json of the base model."""


def read(tmp_path: pathlib.Path, values: dict) -> config.BertConfig:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return config.load(str(path))


def test_the_configuration_of_a_release(tmp_path):
    assert read(tmp_path, RELEASE) == DebertaConfig(768, 12, 12, 3072)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv_kernel_size": 3}, "conv_kernel_size is 3; expected 0"),
        ({"position_biased_input": True}, "position_biased_input is True; expected False"),
        ({"type_vocab_size": 2}, "type_vocab_size is 2; expected 0"),
        ({"share_att_key": False}, "share_att_key is False; expected True"),
        ({"norm_rel_ebd": "none"}, "norm_rel_ebd is 'none'; expected 'layer_norm'"),
        ({"relative_attention": False}, "relative_attention is False; expected True"),
        ({"pos_att_type": "c2p"}, r"pos_att_type is 'c2p'; expected 'p2c\|c2p'"),
        ({"pos_att_type": ["p2c", "p2p"]}, r"pos_att_type is \['p2c', 'p2p'\]; expected"),
        ({"pos_att_type": None}, "pos_att_type is None; expected"),
        ({"position_buckets": None}, "position_buckets is None; expected 2 or more"),
        ({"position_buckets": -1}, "position_buckets is -1; expected 2 or more"),
        ({"max_relative_positions": 100}, r"max_relative_positions is 100; expected .*\(129\)"),
        ({"pooler_dropout": 0.1}, "pooler_dropout is 0.1; expected 0"),
        ({"pooler_hidden_act": "tanh"}, "pooler_hidden_act is 'tanh'; expected 'gelu'"),
        ({"pooler_hidden_size": 8}, "pooler_hidden_size is 8; expected 768"),
        ({"attention_head_size": 32}, "attention_head_size is 32; expected 64"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False; expected True"),
        ({"legacy": 1}, "legacy is 1; expected true or false"),
        ({"legacy": False, "embedding_size": 128}, "legacy is False and embedding_size 128"),
        ({"cls_dropout": 1}, "classifier_dropout is 1; expected a number in"),
        ({"window": 3}, "window is 3; no field of DeBERTa that is known"),
    ],
)
def test_files_that_describe_no_such_model(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, RELEASE | change)


@pytest.mark.parametrize("name", ["relative_attention", "position_buckets", "norm_rel_ebd"])
def test_what_is_not_said_is_not_taken_as_said(tmp_path, name):
    """Its default in transformers is that of another model."""
    values = {k: v for k, v in RELEASE.items() if k != name}
    with pytest.raises(ValueError, match=f"missing {name}; of models of this type only DeBERTa-v3"):
        read(tmp_path, values)
