"""The models that fits.py trains."""

import keras
from gorbit_export import Feature, Model
from keras import layers

VOCABULARY = 30522
"""Tokens of the vocabulary of the texts."""


def build(name: str = "cancer") -> Model:
    """Makes a model by its name in fits.py."""
    if name == "lstm":
        return lstm()
    width = {"cancer": 30, "diabetes": 10}[name]
    inputs = keras.Input((width,), name="x")
    x = layers.Dense(64, activation="relu", name="dense0")(inputs)
    x = layers.Dense(64, activation="relu", name="dense1")(x)
    feature = Feature("x", "float32", (None, width))
    if name == "diabetes":
        x = layers.Dense(1, name="head")(x)
        return Model(
            model=keras.Model(inputs, x),
            features=[feature, Feature("label", "float32", (None,), label=True)],
            loss=keras.losses.MeanSquaredError(),
            labels="label",
            metrics=[keras.metrics.MeanSquaredError(name="mse")],
            optimizer=keras.optimizers.Adam(),
        )
    return classifier(keras.Model(inputs, layers.Dense(2, name="head")(x)), feature)


def lstm() -> Model:
    """A network of one LSTM over word pieces."""
    ids = keras.Input((None,), name="ids", dtype="int32")
    x = layers.Embedding(VOCABULARY, 64, mask_zero=True, name="embedding")(ids)
    x = layers.LSTM(64, name="lstm")(x)
    model = keras.Model(ids, layers.Dense(2, name="head")(x))
    return classifier(model, Feature("ids", "int32", (None, None)))


def classifier(model: keras.Model, feature: Feature) -> Model:
    """A model of two classes."""
    return Model(
        model=model,
        features=[feature, Feature("label", "int32", (None,), label=True, below=2)],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        labels="label",
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        optimizer=keras.optimizers.Adam(),
    )
