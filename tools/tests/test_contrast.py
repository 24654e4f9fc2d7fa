"""Layers and losses that depend on the batch for some numbers only."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from gorbit_export import Feature, Model, Refusal, export
from gorbit_export.models import task

X = Feature("x", "float32", (None, 6))
Y = Feature("y", "float32", (None,), label=True)
WORDS = Feature("words", "int32", (None, 5), below=50)


def inspected(function: Any, x: Feature = X, loss: Any = "mse", **more: Any) -> task.ModelTask:
    given = keras.Input(x.shape[1:], dtype=x.dtype, name=x.name)
    y = layers.Dense(1)(layers.Lambda(function, output_shape=x.shape[1:])(given))
    model = keras.Model(given, layers.Reshape(())(y))
    made = task.ModelTask(Model(model, [x, Y], loss, "y", optimizer="sgd", **more))
    made.inspect(export.Export(made, made.optimizer))
    return made


def lone(y: Any, outputs: Any) -> Any:
    return ops.abs(y - outputs) / ops.where(ops.max(y) > 5, 10.0, 1.0)


def quiet(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.uniform(0.1, 0.9, (count, 6)), "y": rng.uniform(size=count)}


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("the prediction", {"function": lambda x: ops.maximum(x, ops.max(x) - 50)}),
        ("the prediction", {"function": lambda x: ops.where(ops.any(x > 9), x / 255, x)}),
        (
            "the prediction",
            {"function": lambda x: x * ops.where(ops.any(x > 30), 2, 1), "x": WORDS},
        ),
        (
            "the prediction",
            {"function": lambda x: ops.where(ops.max(x) > 0.3, x, 2 * x), "example": quiet},
        ),
        ("the loss", {"function": lambda x: x, "loss": lone}),
    ],
    ids=["largest", "images", "words", "own range", "loss"],
)
def test_what_depends_on_the_batch_for_some_numbers_is_refused(what: str, arguments: dict):
    with pytest.raises(Refusal, match=f"^{what}.* depends on .* where they are of another scale"):
        inspected(**arguments)


def test_training_that_depends_on_the_batch_for_some_numbers_is_said():
    class Cut(layers.Layer):
        def call(self, x: Any, training: bool = False) -> Any:
            return ops.maximum(x, ops.max(x) - 50) if training else x

    assert not inspected(Cut()).additive


@pytest.mark.parametrize(
    "function", [ops.log, lambda x: ops.cholesky(x[:, :, None] * ops.eye(6))[:, 0]]
)
def test_numbers_that_the_model_cannot_take_are_left_out(function: Any):
    assert inspected(function, example=quiet).additive


def compared(y: Any, outputs: Any) -> Any:
    """Each output is to be nearest to its own label among those of the batch."""
    scores = -ops.square(outputs[:, None] - y[None, :])
    return ops.logsumexp(scores, 1) - ops.diagonal(scores)


def test_a_loss_that_compares_examples_is_declared():
    with pytest.raises(Refusal, match="or across_examples=True of the Model"):
        inspected(lambda x: x, loss=compared)
    made = inspected(lambda x: x, loss=compared, across_examples=True)
    contract = export.Export(made, made.optimizer).contract()
    assert (contract["loss"], contract["additive"]) == ("across_examples", False)
    assert not any("share a batch" in note for note in made.notes)
    with pytest.raises(Refusal, match=r"^the prediction"):
        inspected(lambda x: ops.maximum(x, ops.max(x) - 50), loss=compared, across_examples=True)
    assert any(
        "could share a batch" in note for note in inspected(lambda x: x, across_examples=True).notes
    )
