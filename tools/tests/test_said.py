"""What an export does as fit does, or says that it does otherwise."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from gorbit_export import Feature, Model, Refusal, export
from gorbit_export.models import task

X = Feature("x", "float32", (None, 6))
Y = Feature("y", "float32", (None, 1), label=True)
WORDS = Feature("words", "int32", (None, None))
COUNT = 8


class Aside(keras.Model):
    """A model with a layer that the loss does not reach."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.aside = layers.Dense(1), layers.Dense(2)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        self.aside(x)
        return self.head(x)


def inspected(user: Model) -> tuple[task.ModelTask, export.Export]:
    made = task.ModelTask(user)
    module = export.Export(made, made.optimizer)
    made.inspect(module)
    return made, module


def said(made: task.ModelTask, text: str) -> list[str]:
    return [note for note in made.notes if text in note]


def test_a_variable_without_gradient_is_not_decayed_as_in_fit():
    optimizer = keras.optimizers.AdamW(weight_decay=0.5)
    user = Model(Aside(), [X, Y], "mse", "y", optimizer=optimizer)
    made, module = inspected(user)
    assert said(made, "the loss does not reach model/aside/bias, model/aside/kernel")
    decayed = {v["name"]: v["weight_decay"] for v in module.contract()["variables"]}
    assert decayed["model/aside/kernel"] is False
    assert decayed["model/head/kernel"] is True
    before = user.model.aside.kernel.numpy()
    user.model.compile(optimizer, "mse")
    user.model.fit(np.ones((COUNT, 6), "f"), np.ones((COUNT, 1), "f"), verbose=0)
    np.testing.assert_array_equal(user.model.aside.kernel, before)


def test_an_optimizer_that_moves_a_variable_without_gradient_is_refused():
    user = Model(Aside(), [X, Y], "mse", "y", optimizer=keras.optimizers.Ftrl())
    with pytest.raises(Refusal, match=r"does not reach model/aside/bias, which fit then leaves"):
        inspected(user)


@pytest.mark.parametrize(
    ("name", "squares"), [("Adam", True), ("Adadelta", True), ("SGD", False), ("Lion", False)]
)
def test_slices_of_gradients_are_said(name: str, squares: bool):
    words = keras.Input((None,), dtype="int32", name="words")
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4, mask_zero=True)(words))
    model = keras.Model(words, layers.Dense(1)(pooled))
    made, _ = inspected(Model(model, [WORDS, Y], "mse", "y", optimizer=name))
    assert bool(said(made, "gradient of model/embedding/embeddings in slices")) == squares


def tagger(*heads: str, pooled: bool = False) -> Model:
    words = keras.Input((None,), dtype="int32", name="words")
    x = layers.Embedding(9, 4, "glorot_normal", mask_zero=True)(words)
    outputs = {name: layers.Dense(3, name=name)(x) for name in heads}
    features = [WORDS, *(Feature(f"of_{n}", "int32", (None, None), label=True) for n in heads)]
    if pooled:
        outputs["topic"] = layers.Dense(3, name="topic")(layers.GlobalAveragePooling1D()(x))
        features.append(Feature("of_topic", "int32", (None,), label=True))
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Model(
        keras.Model(words, outputs),
        features,
        dict.fromkeys(outputs, entropy),
        {name: f"of_{name}" for name in outputs},
        optimizer="sgd",
        loss_weights=dict(zip(outputs, (0.3, 2.0))),
    )


@pytest.mark.parametrize(
    ("user", "differs"),
    [
        (tagger("tags"), False),
        (tagger("tags", "chunks"), False),
        (tagger("tags", pooled=True), True),
    ],
    ids=["one loss with a factor", "one mask", "several masks"],
)
def test_losses_over_masks_are_those_of_fit_or_it_is_said(user: Model, differs: bool):
    made, module = inspected(user)
    assert bool(
        said(made, "of several losses, that of tags is the mean of the examples' means")
    ) == (differs)
    batch = made.example.batch(COUNT)
    sums = module.evaluate(**{name: tf.constant(v) for name, v in batch.items()})
    user.model.compile("sgd", user.loss, loss_weights=user.loss_weights)
    answers = {name: batch[label] for name, label in user.labels.items()}
    theirs = user.model.evaluate(batch["words"], answers, COUNT, verbose=0, return_dict=True)
    same = np.isclose(sums["loss_sum"] / sums["weight_sum"], theirs["loss"], rtol=1e-5)
    assert same != differs
