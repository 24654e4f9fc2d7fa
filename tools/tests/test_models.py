"""Exports of a user's own models, next to Keras' own training."""

from __future__ import annotations

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from gorbit_export import Feature, Model, export
from gorbit_export.models import task

SEED = tf.constant([3, 4], tf.int64)


def cnn(rate: float = 0.0) -> Model:
    """A CNN with batch normalization, dropout, a frozen layer and regularizers."""
    image = keras.Input((8, 8, 1), name="image", dtype="uint8")
    x = layers.Rescaling(1 / 255)(image)
    x = layers.Conv2D(4, 3, use_bias=False, kernel_regularizer="l2", name="conv0")(x)
    x = layers.BatchNormalization(name="norm0")(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(4, 3, trainable=False, name="frozen")(x)
    x = layers.Flatten()(layers.MaxPool2D()(x))
    x = layers.Dense(6)(layers.Dropout(rate)(x))
    return Model(
        model=keras.Model(image, layers.Dense(3)(x)),
        features=[
            Feature("image", "uint8", (None, 8, 8, 1)),
            Feature("digit", "int32", (None,), label=True),
        ],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        labels="digit",
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")],
        optimizer=keras.optimizers.SGD(momentum=0.9),
        groups=[("norm0", {"learning_rate": 0.5}), ("dense_1", {"weight_decay": 1.0})],
    )


def images(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (count, 8, 8, 1)).astype("uint8"),
        "digit": rng.integers(0, 3, count).astype("int32"),
    }


def tensors(batch: dict, **weights: np.ndarray) -> dict:
    count = len(next(iter(batch.values())))
    weights = weights or {"example_weights": np.ones(count, "float32")}
    return {name: tf.constant(value) for name, value in {**batch, **weights}.items()}


def write(user: Model, out: pathlib.Path) -> tuple[task.ModelTask, dict, object]:
    """Exports a model, and returns its task, contract and the loaded export."""
    made = task.ModelTask(user)
    export.write(made, made.optimizer, out)
    contract = json.loads((out / export.CONTRACT_FILE).read_text())
    return made, contract, tf.saved_model.load(str(out))


def test_a_cnn_trains_as_in_keras(tmp_path):
    user = cnn()
    made, contract, loaded = write(user, tmp_path / "out")
    assert [v["name"] for v in contract["variables"]] == [
        "model/conv0/kernel",
        "model/dense/bias",
        "model/dense/kernel",
        "model/dense_1/bias",
        "model/dense_1/kernel",
        "model/norm0/beta",
        "model/norm0/gamma",
    ]
    assert {s["name"]: s["updated"] for s in contract["states"]} == {
        "model/frozen/bias": False,
        "model/frozen/kernel": False,
        "model/norm0/moving_mean": True,
        "model/norm0/moving_variance": True,
    }
    factors = {
        v["name"]: (v["weight_decay"], v.get("learning_rate")) for v in contract["variables"]
    }
    assert factors["model/norm0/beta"] == (False, 0.5)
    assert factors["model/dense_1/kernel"] == (1.0, None)
    assert factors["model/dense/kernel"] == (False, None)
    assert contract["additive"] is False
    assert contract["best"] == {"metric": "accuracy", "better": "higher"}
    digit = next(f for f in contract["features"] if f["name"] == "digit")
    assert (digit["role"], digit["below"]) == ("label", 3)
    assert [(o["name"], o["kind"], o["of"]) for o in contract["outputs"]] == [
        ("logits", "logits", "digit"),
        ("probabilities", "probabilities", "digit"),
    ]

    model = user.model
    groups = keras.optimizers.SGD(momentum=0.9, learning_rate=0.1)
    slow = keras.optimizers.SGD(momentum=0.9, learning_rate=0.05)
    fast_variables = [v for v in model.trainable_variables if "norm0" not in v.path]
    slow_variables = [v for v in model.trainable_variables if "norm0" in v.path]
    for step in range(3):
        batch = images(10, step)
        got = loaded.gradients(**tensors(batch), seed=SEED)
        with tf.GradientTape() as tape:
            y = model(batch["image"], training=True)
            loss = user.loss(batch["digit"], y) + sum(model.losses)
        want = tape.gradient(loss, [v.value for v in model.trainable_variables])
        np.testing.assert_allclose(got["loss_sum"] / got["weight_sum"], loss, rtol=1e-5)
        by_id = {id(leaf.holder): path for path, leaf in made.named.variables.items()}
        for variable, gradient in zip(model.trainable_variables, want):
            mine = got[f"gradient/{by_id[id(variable)]}"] / got["weight_sum"]
            np.testing.assert_allclose(mine, gradient, atol=2e-6, err_msg=variable.path)
        hits = np.argmax(y, -1) == batch["digit"]
        assert got["metric/accuracy/total"] == hits.sum()
        scalars = {"learning_rate": 0.1, "weight_decay": 0.25, "clip_norm": 0.0}
        decayed = [v for v in model.trainable_variables if by_id[id(v)].startswith("model/dense_1")]
        kept = [v.numpy() * (1 - 0.25 * 0.1) for v in decayed]
        done = loaded.train_step(**tensors(batch), seed=SEED, **scalars)
        assert done["applied"]
        for variable, value in zip(decayed, kept):
            variable.assign(value)
        gradients = dict(zip([id(v) for v in model.trainable_variables], want))
        groups.apply([gradients[id(v)] for v in fast_variables], fast_variables)
        slow.apply([gradients[id(v)] for v in slow_variables], slow_variables)
        for path, leaf in made.named.variables.items():
            node = loaded
            for part in path.split("/"):
                node = getattr(node, part)
            np.testing.assert_allclose(node, leaf.value, atol=2e-6, err_msg=path)

    batch = images(20, 9)
    sums = loaded.evaluate(**tensors(batch))
    named = {f"sum_{i}": sums[name] for i, name in enumerate(contract["results"])}
    results = loaded.results(**named)
    y = model(batch["image"])
    for name, metric in (
        ("accuracy", keras.metrics.SparseCategoricalAccuracy()),
        ("top2", keras.metrics.SparseTopKCategoricalAccuracy(2)),
    ):
        metric.update_state(batch["digit"], y)
        np.testing.assert_allclose(results[name], metric.result(), rtol=1e-6)
    pairs = tf.math.confusion_matrix(batch["digit"], np.argmax(y, -1), y.shape[1])
    np.testing.assert_array_equal(sums["confusion"], tf.cast(pairs, tf.float32))
    answers = loaded.signatures["serving_default"](image=tf.constant(batch["image"]))
    np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(y), atol=1e-5)


def test_confusion_of_yes_and_no():
    user = Model(
        model=keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]),
        features=[
            Feature("parts", "float32", (None, 3)),
            Feature("good", "int32", (None,), label=True),
        ],
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        labels="good",
        optimizer=keras.optimizers.SGD(0.1),
    )
    made = task.ModelTask(user)
    random = np.random.default_rng(1)
    batch = {
        "parts": random.normal(size=(40, 3)).astype("float32"),
        "good": random.integers(0, 2, 40, dtype=np.int32),
    }
    weights = random.integers(0, 3, 40).astype("float32")
    guesses = user.model(batch["parts"])[:, 0] > 0
    want = tf.math.confusion_matrix(batch["good"], guesses, 2, weights)
    got = made.evaluate_sums(tensors(batch, example_weights=weights))["confusion"]
    np.testing.assert_array_equal(got, want)
    assert 0 not in got.numpy()


def test_labels_of_several_numbers_have_no_confusion():
    user = Model(
        model=keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]),
        features=[
            Feature("parts", "float32", (None, 3)),
            Feature("kind", "int32", (None, 2), label=True),  # 0 and 1 of two classes
        ],
        loss=keras.losses.CategoricalCrossentropy(from_logits=True),
        labels="kind",
        optimizer=keras.optimizers.SGD(0.1),
    )
    batch = {
        "parts": np.ones((4, 3), "float32"),
        "kind": np.eye(2, dtype=np.int32)[[0, 1, 1, 0]],
    }
    sums = task.ModelTask(user).evaluate_sums(tensors(batch))
    assert sums["weight_sum"] == 4
    assert "confusion" not in sums


def test_dropout_follows_the_seed(tmp_path):
    _, _, loaded = write(cnn(0.5), tmp_path / "out")
    batch = tensors(images(6))

    def loss(*seed: int) -> float:
        return float(loaded.gradients(**batch, seed=tf.constant(seed, tf.int64))["loss_sum"])

    assert loss(1, 2) == loss(1, 2)
    assert len({loss(1, 2), loss(1, 3), loss(2, 2)}) == 3


def test_examples_of_no_weight_count_for_nothing(tmp_path):
    user = cnn()
    made = task.ModelTask(user)
    whole = made.evaluate_sums(tensors(images(4)))
    batch = images(6)
    first = images(4)
    for name in batch:
        batch[name][:4] = first[name]
    weights = np.array([1, 1, 1, 1, 0, 0], "float32")
    padded = made.evaluate_sums(tensors(batch, example_weights=weights))
    for name, value in whole.items():
        np.testing.assert_allclose(padded[name], value, rtol=1e-5, err_msg=name)
