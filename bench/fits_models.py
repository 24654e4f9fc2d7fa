"""The models that fits.py trains."""

import keras
from gorbit_export import Feature, Model
from keras import layers

VOCABULARY = 30522
"""Tokens of the vocabulary of the texts."""


def build(name: str = "cancer", words: int = 0, tags: int = 0) -> Model:
    """Makes a model by its name in fits.py; `words` and `tags` are the sizes of brown's."""
    if name == "lstm":
        return lstm()
    if name == "brown":
        return tagger(words, tags)
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


def tagger(words: int, tags: int) -> Model:
    """A network of a bidirectional LSTM over words, with a tag for each."""
    ids = keras.Input((None,), name="words", dtype="int32")
    x = layers.Embedding(words, 64, mask_zero=True, name="embedding")(ids)
    x = layers.Bidirectional(layers.LSTM(64, return_sequences=True), name="lstm")(x)
    return Model(
        model=keras.Model(ids, layers.Dense(tags, name="head")(x)),
        features=[
            Feature("words", "int32", (None, None)),
            Feature("label", "int32", (None, None), label=True),
        ],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        labels="label",
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        optimizer=keras.optimizers.Adam(),
    )


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
