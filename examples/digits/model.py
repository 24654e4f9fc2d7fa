"""A convolutional network that reads digits of 8 x 8 pixels."""

import keras
from gorbit_export import Feature, Model
from keras import layers


def build(width: int = 16, dropout: float = 0.2) -> Model:
    """Makes the model; the arguments are those of --set."""
    image = keras.Input((8, 8, 1), name="image", dtype="uint8")
    x = layers.Rescaling(1 / 16)(image)
    for i, filters in enumerate((width, 2 * width)):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv{i}")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"norm{i}")(x)
        x = layers.MaxPool2D()(layers.ReLU()(x))
    x = layers.Dropout(dropout)(layers.Flatten()(x))
    logits = layers.Dense(10, name="head")(x)
    return Model(
        model=keras.Model(image, logits),
        features=[
            Feature("image", "uint8", (None, 8, 8, 1), below=17),
            Feature("digit", "int32", (None,), label=True, below=10),
        ],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        labels="digit",
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        optimizer=keras.optimizers.Adam(),
    )
