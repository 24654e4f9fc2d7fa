"""Adapters of low rank: what is trained, what is computed, and what is merged."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import test_texttasks as texttasks
from helpers import scalars, tensors

from gorbit_export import bert, classifier, config, encoded, export, optimizers

SMALL = config.BertConfig(8, 2, 2, 12, vocab_size=20, max_position_embeddings=16)
ALL = bert.Lora(3, 6.0, bert.LORA_TARGETS)


def features() -> dict[str, tf.Tensor]:
    """Makes three examples in two rows."""
    rng = np.random.default_rng(4)
    sequences = [[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]]
    positions = [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]]
    return {
        "input_ids": tf.constant(rng.integers(0, 20, (2, 6)), tf.int32),
        "type_ids": tf.zeros([2, 6], tf.int32),
        "sequence_ids": tf.constant(sequences, tf.int32),
        "position_ids": tf.constant(positions, tf.int32),
        "cls_positions": tf.constant([0, 3, 6], tf.int32),
        "labels": tf.constant([0, 1, 1], tf.int32),
        "example_weights": tf.ones([3]),
    }


def task(lora: bert.Lora | None, **options) -> classifier.Classification:
    return classifier.Classification(SMALL, 2, "first", 7, lora=lora, **options)


def draw_up(model: tf.Module) -> None:
    """Gives every lora_up, which is 0 at first, random values."""
    rng = np.random.default_rng(9)
    for variable in model.trainable_variables:
        if "lora_up" in variable.name:
            variable.assign(rng.normal(size=variable.shape) * 0.3)


def merged_twin(adapted: encoded.EncoderTask, plain: encoded.EncoderTask | None = None):
    """Gives a task without adapters the values of `adapted`, with the adapters merged."""
    plain = plain or task(None)
    to = dict(export._variable_paths(plain.model, "model"))
    module = export.Export(adapted, optimizers.AdamW())
    for path, value in {**module.variables_by_path, **module.states_by_path}.items():
        if path in to:
            to[path].assign(value)
    for path, value in module.merge().items():
        to[path].assign(value)
    return plain


@pytest.mark.parametrize("recompute", ["none", "layers"])
def test_adapters_compute_what_merged_kernels_do(recompute):
    names = ("input_ids", "type_ids", "sequence_ids", "position_ids")

    def encoded(of: classifier.Classification) -> tf.Tensor:
        return of.model.encoder(*(features()[name] for name in names))

    adapted = task(ALL, recompute=recompute)
    before = encoded(adapted)
    np.testing.assert_array_equal(before, encoded(task(None)))
    draw_up(adapted.model)
    got = encoded(adapted)
    assert np.abs(got - before).max() > 0.1
    np.testing.assert_allclose(got, encoded(merged_twin(adapted)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", texttasks.NAMES)
def test_every_task_trains_adapters(name):
    build = dataclasses.replace(texttasks.BUILD, lora=bert.Lora(2, 4.0, bert.LORA_TARGETS))
    adapted = texttasks.make(name, build)
    draw_up(adapted.model)
    paths = export.Export(adapted, optimizers.AdamW()).variables_by_path
    assert all("lora" in path for path in paths if path.startswith("model/encoder/"))
    whole = list(range(texttasks.COUNT))
    features = tensors(texttasks.features_of(name, whole, [whole]))
    plain = texttasks.make(name)
    before = plain.evaluate_sums(features)["loss_sum"]
    got = adapted.evaluate_sums(features)["loss_sum"]
    want = merged_twin(adapted, plain).evaluate_sums(features)["loss_sum"]
    assert abs(got - before) > 1e-4
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_gradients_are_those_of_the_product():
    """For W + s A B, the gradient of A is s dW B', and that of B is s A' dW."""
    adapted = task(ALL)
    draw_up(adapted.model)
    rates = scalars(**{h.name: 0.0 for h in adapted.hyperparameters})
    seed = tf.constant([1, 2], tf.int64)
    got = export.Export(adapted, optimizers.AdamW()).gradients(seed=seed, **features(), **rates)
    twin = export.Export(merged_twin(adapted), optimizers.AdamW())
    want = twin.gradients(seed=seed, **features(), **rates)
    for layer in adapted.model.encoder.layers:
        for dense in layer.dense().values():
            paths = {v.ref(): p for p, v in export._variable_paths(adapted.model, "model")}
            down, up = dense.adapter
            whole = want["gradient/" + paths[dense.kernel.ref()]]
            for variable, product in (
                (down, tf.matmul(whole, up, transpose_b=True)),
                (up, tf.matmul(down, whole, transpose_a=True)),
            ):
                np.testing.assert_allclose(
                    got["gradient/" + paths[variable.ref()]], 2.0 * product, rtol=2e-4, atol=2e-6
                )


def test_what_is_trained_and_what_is_frozen(tmp_path):
    adapted = task(bert.Lora(2))
    export.write(adapted, optimizers.AdamW(), tmp_path / "graph")
    contract = json.loads((tmp_path / "graph" / export.CONTRACT_FILE).read_text())
    trained = {v["name"]: v for v in contract["variables"]}
    states = {v["name"]: v for v in contract["states"]}
    query = "model/encoder/layers/1/attention/query/"
    assert trained[query + "lora_down"]["shape"] == [8, 2]
    assert trained[query + "lora_down"]["foreign"] == [
        "encoder.layer.1.attention.self.query.lora_A.weight"
    ]
    assert all("lora" in name or "encoder" not in name for name in trained)
    assert len([name for name in trained if "lora" in name]) == 2 * 2 * 2
    assert all(name.startswith("model/encoder/") and not v["updated"] for name, v in states.items())
    assert states[query + "kernel"]["transpose"]
    assert contract["merge"] == [
        f"model/encoder/layers/{i}/attention/{target}/kernel"
        for i in (0, 1)
        for target in ("query", "value")
    ]
    loaded = tf.saved_model.load(str(tmp_path / "graph"))
    assert sorted(loaded.merge()) == contract["merge"]
    serving = (tmp_path / "graph" / "serving" / "saved_model.pb").read_bytes()
    assert b"lora" not in serving and b"layers" in serving


@pytest.mark.parametrize(
    "lora, reason",
    [
        ({"rank": 0}, "LoRA rank is 0; expected 1 or more"),
        ({"rank": 9}, "LoRA rank is 9; expected 1 to 8"),
        ({"rank": 2, "alpha": 0.0}, "LoRA alpha is 0.0"),
        ({"rank": 2, "targets": ("query", "pooler")}, "LoRA target is 'pooler'; expected some of"),
        ({"rank": 2, "targets": ("query", "query")}, "each once"),
    ],
)
def test_refusals(lora, reason):
    with pytest.raises(ValueError, match=reason):
        task(bert.Lora(**lora))
