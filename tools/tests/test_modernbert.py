"""ModernBERT: the numbers of transformers, windows, and what of a configuration is refused."""

import dataclasses
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from helpers import pack, safetensors
from test_families import filled

from gorbit_export import (
    bert,
    classifier,
    config,
    encoded,
    export,
    local,
    mlm,
    ops,
    optimizers,
    qa,
    tokens,
)
from gorbit_export.modernbert_config import ModernBertConfig

GOLDENS = pathlib.Path(__file__).parent / "goldens"
KINDS = ("cls", "mean", "mlm", "tokens", "qa")
SMALL = ModernBertConfig(8, 4, 2, 6, vocab_size=20, max_position_embeddings=64, local_attention=6)
# Rows of several examples, and one of one.
ROWS = [[0, 3, 1], [4], [2]]


@pytest.fixture(scope="module", params=["committed", "fresh"])
def folder(request, tmp_path_factory) -> pathlib.Path:
    """The folder of models: the committed one, and the one that transformers writes."""
    if request.param == "committed":
        return GOLDENS / "modernbert"
    python = os.environ.get("GORBIT_TRANSFORMERS")
    if not python:
        pytest.skip("GORBIT_TRANSFORMERS is not set; expected a Python with torch, transformers")
    out = tmp_path_factory.mktemp("modernbert")
    subprocess.run([python, GOLDENS / "gen_modernbert.py", out], check=True)
    return out


def make(kind: str, build: encoded.Build) -> encoded.EncoderTask:
    if kind == "mlm":
        return mlm.MaskedLM(build, mlm.Special(3, (0, 3)))
    if kind == "tokens":
        return tokens.Tokens(build, 3)
    if kind == "qa":
        return qa.QuestionAnswering(build)
    how = (build.seed, build.recompute, build.precision, build.lora)
    return classifier.Classification(build.config, 3, build.config.pooling, *how)


def batch(kind: str, case: dict) -> dict[str, tf.Tensor]:
    """Packs the examples of a case, with their labels."""
    ids, labels = case["input_ids"], case["labels"]
    packed = pack([(x, [0] * len(x)) for x in ids], ROWS)
    packed["example_weights"] = np.ones(len(ids), np.float32)
    starts = packed["cls_positions"]
    of_token = np.full(packed["input_ids"].size, len(ids), np.int32)
    for i, start in enumerate(starts):
        of_token[start : start + len(ids[i])] = i
    packed["example_ids"] = of_token.reshape(packed["input_ids"].shape)
    at = np.concatenate([s + np.arange(len(x)) for s, x in zip(starts, ids)]).astype(np.int32)
    every = np.concatenate([np.array(x, np.int32) for x in labels])
    if kind == "mlm":
        packed |= {"masked_positions": at, "masked_labels": every}
        packed["masked_weights"] = np.ones(len(at), np.float32)
    elif kind == "tokens":
        packed["labels"] = np.full(of_token.shape, tokens.UNCOUNTED, np.int32)
        packed["labels"][at] = every
        packed["labels"] = packed["labels"].reshape(packed["input_ids"].shape)
    elif kind == "qa":
        for i, name in enumerate(qa.POSITIONS):
            packed[name] = np.array([s + x[i] for s, x in zip(starts, labels)], np.int32)
    else:
        packed["labels"] = every
    return {name: tf.constant(value) for name, value in packed.items()}


def logits(kind: str, task: encoded.EncoderTask, features: dict[str, tf.Tensor]) -> np.ndarray:
    """The logits in the order of the examples, and of their tokens."""
    if kind == "mlm":
        return task.model(features, features["masked_positions"]).numpy()
    got = task.model(features)
    if kind in ("cls", "mean"):
        return got.numpy()
    got = tf.stack(got, 1) if kind == "qa" else got
    ids = tf.reshape(features["example_ids"], [-1])
    order = [np.flatnonzero(ids == i) for i in range(len(features["cls_positions"]))]
    return got.numpy()[np.concatenate(order)]


def gradients(task: encoded.EncoderTask, features: dict, rates: float = 0.0, seed: int = 1):
    """The loss of a training pass, and its gradients."""
    scalars = {h.name: tf.constant(rates) for h in task.hyperparameters}
    if "label_smoothing" in scalars:
        scalars["label_smoothing"] = tf.constant(0.0)
    random = ops.Random.from_seed(tf.constant([seed, 2], tf.int64))
    with tf.GradientTape() as tape:
        loss = task.train_sums(features, scalars, random)["loss_sum"]
    return loss, tape.gradient(loss, task.model.trainable_variables)


def check_numbers(folder: pathlib.Path, name: str, kind: str, recompute: str) -> None:
    """Compares a model with what transformers computes with its weights."""
    c = config.load(str(folder / f"{name}.json"))
    case = json.loads((folder / "cases.json").read_text())[name]
    task = make(kind, encoded.Build(c, recompute=recompute))
    filled(task.model, folder / f"{name}.safetensors", c.family.prefix)
    features = batch(kind, case)
    flat = case["logits"] if kind in ("cls", "mean") else np.concatenate(case["logits"])
    np.testing.assert_allclose(logits(kind, task, features), flat, atol=1e-5, rtol=1e-5)
    loss, found = gradients(task, features)
    np.testing.assert_allclose(loss, case["loss"], rtol=1e-5)
    names = {}
    for layer in task.model.submodules:
        for variable, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            names[variable.ref()] = foreign.names[0]
    for variable, gradient in zip(task.model.trainable_variables, found):
        name = names[variable.ref()]
        want = case["gradients"].get(name, case["gradients"].get(c.family.prefix + name))
        got = float(tf.reduce_sum(tf.square(gradient)))
        # A last bit changed in each weight moves some of these numbers by 2e-4: the norms of so
        # narrow a model divide by small spreads.
        assert got == pytest.approx(want, rel=1e-3, abs=1e-10), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recompute", ["none", "layers"])
def test_logits_loss_and_gradients_are_those_of_transformers(folder, kind, recompute):
    check_numbers(folder, kind, kind, recompute)


def check_form(path: pathlib.Path, kind: str) -> encoded.EncoderTask:
    """Compares names, shapes and configuration with those that transformers wrote."""
    made = make(kind, encoded.Build(config.load(str(path))))
    form = made.description()["huggingface"]
    shapes = {}
    for layer in made.model.submodules:
        for variable, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            bare = foreign.names[0].startswith(tuple(form["bare"]))
            name = foreign.names[0] if bare else form["prefix"] + foreign.names[0]
            shape = variable.shape.as_list()
            shapes[name] = shape[::-1] if foreign.transpose else shape
    theirs = {n: list(v.shape) for n, v in safetensors(path.with_suffix(".safetensors")).items()}
    for again in ("decoder.weight", "cls.predictions.decoder.weight"):  # the word vectors
        theirs.pop(again, None)
    assert shapes == theirs
    values = json.loads(path.read_text())
    ours = form["config"]
    assert {k: v for k, v in ours.items() if values.get(k, v) != v} == {}
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_for_transformers_is_that_of_its_own_files(kind):
    path = GOLDENS / "modernbert" / f"{kind}.json"
    made = check_form(path, kind)
    values, ours = json.loads(path.read_text()), made.description()["huggingface"]["config"]
    computed = made.description()["weights"]["config"]
    assert {k for k in computed if k not in values} == {"layer_types", "rope_parameters"}
    assert set(computed) - set(ours) == {"layer_types", "rope_parameters"}


def test_sizes():
    task = make("cls", encoded.Build(SMALL))
    encoder = task.model.encoder
    assert SMALL.parameters == sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)
    assert [SMALL.is_local(i) for i in range(4)] == [False, True, True, False]
    assert [SMALL.theta(i) for i in range(4)] == [160_000, 10_000, 10_000, 160_000]
    assert task.description()["config"]["model_type"] == "modernbert"
    names = {h.name for h in task.hyperparameters}
    assert {"embedding_dropout", "mlp_dropout", "attention_dropout"} < names


def plain_attention(qkv, ids, heads, reach):
    """Softmax over all positions that the window and the sequence leave."""
    rows, length = ids.shape
    q, k, v = np.moveaxis(qkv.reshape(rows, length, 3, heads, -1), 2, 0).transpose(0, 1, 3, 2, 4)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    far = np.abs(np.arange(length)[:, None] - np.arange(length)) > reach
    seen = (ids[:, :, None] == ids[:, None, :]) & ~far
    scores = np.where(seen[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(rows * length, -1)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 13, 30])
@pytest.mark.parametrize("reach", [1, 4, 40])
def test_windows(length, reach):
    rng = np.random.default_rng(length)
    ids = np.sort(rng.integers(1, 4, (2, length)), 1).astype(np.int32)
    qkv = rng.normal(size=(2 * length, 24)).astype(np.float32)
    want = plain_attention(qkv, ids, 2, reach)
    random = ops.Random.from_seed(tf.constant([1, 2], tf.int64))
    np.testing.assert_allclose(local.attention(tf.constant(qkv), ids, 2, reach), want, atol=1e-5)
    dy = rng.normal(size=want.shape).astype(np.float32)

    def loss(x: tf.Tensor, *how) -> tf.Tensor:
        return tf.reduce_sum(local.attention(x, ids, 2, reach, *how) * dy)

    # The explicit gradient without dropout is that of TensorFlow.
    found = []
    for how in ((), (tf.constant(0.0), random)):
        with tf.GradientTape() as tape:
            x = tf.Variable(qkv)
            y = loss(x, *how)
        found.append(tape.gradient(y, x))
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_gradients_with_dropout_are_those_of_differences():
    task = make("cls", encoded.Build(dataclasses.replace(SMALL, initializer_range=0.5)))
    case = {"input_ids": [[1, 2, 3], [4] * 8, [5] * 9, list(range(13)), list(range(19))]}
    features = batch("cls", case | {"labels": [[0], [1], [2], [0], [1]]})
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
        assert float(losses[0] - losses[1]) == pytest.approx(want, rel=0.05, abs=2e-5)


def test_rows_and_padding_do_not_matter():
    task = make("tokens", encoded.Build(dataclasses.replace(SMALL, initializer_range=0.5)))
    rng = np.random.default_rng(6)
    examples = [(rng.integers(0, 20, n).tolist(), [0] * n) for n in (5, 17, 9)]
    outs = []
    for rows in ([[0], [1], [2]], [[2, 0, 1]]):
        packed = {k: tf.constant(v) for k, v in pack(examples, rows).items()}
        hidden = task.model.encoder(*(packed[n] for n in encoded.ENCODER_FEATURES)).numpy()
        starts = packed["cls_positions"].numpy()
        outs.append(np.concatenate([hidden[s : s + len(x)] for s, (x, _) in zip(starts, examples)]))
    np.testing.assert_allclose(outs[0], outs[1], atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_narrow_precisions_are_near(precision):
    case = json.loads((GOLDENS / "modernbert" / "cases.json").read_text())["mean"]
    c = config.load(str(GOLDENS / "modernbert" / "mean.json"))
    norms = []
    for how in ("float32", precision):
        task = make("mean", encoded.Build(c, precision=how))
        _, found = gradients(task, batch("mean", case), 0.1)
        assert all(g.dtype == tf.float32 for g in found)
        norms.append(tf.concat([tf.reshape(g, [-1]) for g in found], 0))
    assert tf.norm(norms[1] - norms[0]) < 0.05 * tf.norm(norms[0])


@pytest.mark.parametrize("kind", ["mean", "mlm"])
def test_xla_computes_the_same(kind):
    case = json.loads((GOLDENS / "modernbert" / "cases.json").read_text())[kind]
    c = config.load(str(GOLDENS / "modernbert" / f"{kind}.json"))
    task = make(kind, encoded.Build(dataclasses.replace(c, initializer_range=0.3)))
    features = batch(kind, case)

    def step() -> list[tf.Tensor]:
        loss, found = gradients(task, features, 0.2)
        return [loss, *found]

    want = tf.function(step, autograph=False)()
    got = tf.function(step, autograph=False, jit_compile=True)()
    for x, y in zip(got, want):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_adapters():
    lora = bert.Lora(2, 4.0, ("qkv", "output", "intermediate", "feed_forward"))
    task = make("cls", encoded.Build(SMALL, lora=lora))
    module = export.Export(task, optimizers.AdamW())
    for v in task.model.trainable_variables:
        if "lora_up" in v.name:
            v.assign(tf.random.stateless_normal(v.shape, [3, 4]) * 0.3)
    case = {"input_ids": [[1, 2], [4] * 8, [5] * 9, list(range(13)), list(range(19))]}
    features = batch("cls", case | {"labels": [[0], [1], [2], [0], [1]]})
    adapted = logits("cls", task, features)
    plain = make("cls", encoded.Build(SMALL))
    to = dict(export._variable_paths(plain.model, "model"))
    for path, value in {**module.variables_by_path, **module.states_by_path}.items():
        if path in to:
            to[path].assign(value)
    for path, value in module.merge().items():
        to[path].assign(value)
    np.testing.assert_allclose(adapted, logits("cls", plain, features), atol=1e-5)
    trained = {p for p in module.variables_by_path if "encoder" in p}
    assert trained and all("lora" in p for p in trained)
    with pytest.raises(ValueError, match="LoRA target is 'query'; expected some of output"):
        make("cls", encoded.Build(SMALL, lora=bert.Lora(2, 4.0, ("query",))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_bias": True}, "norm_bias is True; expected False"),
        ({"decoder_bias": False}, "decoder_bias is False; expected True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False; expected True"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling is .*; expected None"),
        ({"sliding_kind": 3}, "sliding_kind is 3; no field of ModernBERT that is known"),
        ({"local_attention": 1}, "local_attention is 1; expected 2 or more"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0; expected 1 or more"),
        ({"global_rope_theta": 0}, "global_rope_theta is 0; expected a positive number"),
        ({"mlp_dropout": 1.0}, "mlp_dropout is 1.0; expected a number in"),
        ({"classifier_pooling": "max"}, "classifier_pooling is 'max'; expected 'cls' or 'mean'"),
        ({"hidden_size": 6}, "expected heads of an even width"),
        ({"pad_token_id": -1}, "pad_token_id is -1; expected 0 or more"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types is .*; expected full_attention"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters is .*; expected rope_theta"),
    ],
)
def test_files_that_describe_no_such_model(tmp_path, change, message):
    values = json.loads((GOLDENS / "modernbert" / "cls.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**values, **change}))
    with pytest.raises(ValueError, match=message):
        config.load(str(path))


def test_the_form_of_later_releases_is_read(tmp_path):
    values = json.loads((GOLDENS / "modernbert" / "cls.json").read_text())
    want = config.load(str(GOLDENS / "modernbert" / "cls.json"))
    later = {k: v for k, v in values.items() if "rope" not in k and "every" not in k}
    later |= {k: want.computed[k] for k in ("layer_types", "rope_parameters")}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(later))
    assert config.load(str(path)) == want
