"""Exports four models that gorbit's Go side knows nothing of: python models.py FOLDER."""

import pathlib
import sys

import tensorflow as tf

from gorbit_export import export, ops, optimizers, task
from gorbit_export.__main__ import main

WEIGHTS = task.Feature(task.WEIGHTS, tf.float32, ("examples",))


def _table(name: str, *shape: int) -> tf.Variable:
    """A variable of small numbers that are the same in every export."""
    size = 1
    for d in shape:
        size *= d
    return tf.Variable(tf.reshape(0.1 * tf.sin(tf.range(size, dtype=tf.float32) + 1), shape), name=name)


class Flowers(task.Task):
    """Three kinds of flowers by four measures, with a metric of its own."""

    name = ""
    best = ("found", "higher")
    metrics = (task.Metric("found", "higher"), task.Metric("margin"))
    results_of = ("metric/found/right", "metric/found/all", "metric/margin/sums")
    outputs = (
        task.Output("chances", ("examples", "kinds"), "probabilities", "kind"),
        task.Output("scores", ("examples", "kinds"), "logits", "kind"),
    )

    def __init__(self):
        self.model = tf.Module()
        self.model.kernel, self.model.bias = _table("kernel", 4, 3), _table("bias", 3)
        self.features = [
            task.Feature("measures", tf.float32, ("examples", "measures"), shape=(None, 4)),
            task.Feature("kind", tf.int32, ("examples",), label=True, below=3),
            WEIGHTS,
        ]
        self.hyperparameters = [task.Hyperparameter("dropout", 0.1, "rate on the measures", 0.0, 1.0)]

    def description(self):
        return {"architecture": "flowers", "config": {"kinds": 3}}

    def _scores(self, measures):
        return measures @ self.model.kernel + self.model.bias

    def _sums(self, scores, features):
        kinds, weights = features["kind"], features[task.WEIGHTS]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(kinds, scores)
        right = tf.cast(tf.equal(tf.argmax(scores, -1, tf.int32), kinds), tf.float32)
        best = tf.reduce_max(scores, -1)
        return {
            "loss_sum": tf.reduce_sum(losses * weights),
            "weight_sum": tf.reduce_sum(weights),
            "metric/found/right": tf.reduce_sum(right * weights),
            "metric/found/all": tf.reduce_sum(weights),
            "metric/margin/sums": tf.stack([tf.reduce_sum(best * weights), tf.reduce_sum(weights)]),
        }

    def train_sums(self, features, hyperparameters, random):
        measures = ops.dropout(features["measures"], hyperparameters["dropout"], random.site(0))
        return self._sums(self._scores(measures), features)

    def evaluate_sums(self, features):
        return self._sums(self._scores(features["measures"]), features)

    def results(self, sums):
        margin = sums["metric/margin/sums"]
        return {"found": sums["metric/found/right"] / sums["metric/found/all"], "margin": margin[0] / margin[1]}

    def predict(self, features):
        scores = self._scores(features["measures"])
        return {"chances": tf.nn.softmax(scores), "scores": scores}

    def serving(self):
        specs = [tf.TensorSpec([None, 4], tf.float32, "measures")]
        return specs, lambda measures: self.predict({"measures": measures})


class Words(task.Task):
    """A number from the words of a text: sequences of any length."""

    name = "sums of words"
    outputs = (
        task.Output("sum", ("examples",), "value"),
        task.Output("worths", ("examples", "length"), "values"),
    )

    def __init__(self):
        self.model = tf.Module()
        self.model.worth, self.model.slope = _table("worth", 20, 1), _table("slope")
        self.features = [
            task.Feature("words", tf.int32, ("examples", "length"), below=20),
            task.Feature("count", tf.int32, ("examples",), make="length"),
            task.Feature("sum", tf.float32, ("examples",), label=True),
            WEIGHTS,
        ]
        self.hyperparameters = []

    def description(self):
        return {"architecture": "words", "config": {}}

    def _guess(self, features):
        words = features["words"]
        real = tf.sequence_mask(features["count"], tf.shape(words)[1], tf.float32)
        worth = tf.gather(self.model.worth[:, 0], words)
        return tf.reduce_sum(worth * real, 1) + self.model.slope * tf.cast(features["count"], tf.float32)

    def _sums(self, features):
        weights = features[task.WEIGHTS]
        errors = tf.square(self._guess(features) - features["sum"])
        return {"loss_sum": tf.reduce_sum(errors * weights), "weight_sum": tf.reduce_sum(weights)}

    def train_sums(self, features, hyperparameters, random):
        return self._sums(features)

    def evaluate_sums(self, features):
        return self._sums(features)

    def predict(self, features):
        return {"sum": self._guess(features), "worths": tf.gather(self.model.worth[:, 0], features["words"])}

    def serving(self):
        specs = [tf.TensorSpec([None, None], tf.int32, "words"), tf.TensorSpec([None], tf.int32, "count")]
        return specs, lambda words, count: self.predict({"words": words, "count": count})


class Weather(task.Task):
    """Rain or not, and how warm, from two measures, which training centers by a moving mean."""

    name = "weather"
    additive = False
    best = ("warmth_error", "lower")
    outputs = (
        task.Output("rain", ("examples",), "probabilities", "rained"),
        task.Output("warmth", ("examples",), "value"),
        task.Output("centered", ("examples", "measures"), "values"),
    )

    def __init__(self):
        self.model = tf.Module()
        self.model.kernel, self.model.bias = _table("kernel", 2, 2), _table("bias", 2)
        self.model.mean = tf.Variable(tf.zeros([2]), trainable=False)
        self.features = [
            task.Feature("measures", tf.float32, ("examples", "measures"), shape=(None, 2)),
            task.Feature("rained", tf.int32, ("examples",), label=True, below=2),
            task.Feature("degrees", tf.float32, ("examples",), label=True),
            WEIGHTS,
        ]
        self.hyperparameters = []

    def description(self):
        return {"architecture": "weather", "config": {}}

    def _heads(self, centered):
        heads = centered @ self.model.kernel + self.model.bias
        return heads[:, 0], heads[:, 1]

    def _sums(self, features, centered):
        weights = features[task.WEIGHTS]
        rain, warmth = self._heads(centered)
        rained = tf.cast(features["rained"], tf.float32)
        errors = tf.square(warmth - features["degrees"])
        losses = tf.nn.sigmoid_cross_entropy_with_logits(rained, rain) + errors
        return {
            "loss_sum": tf.reduce_sum(losses * weights),
            "weight_sum": tf.reduce_sum(weights),
            "warmth_error_sum": tf.reduce_sum(errors * weights),
        }

    def train_sums(self, features, hyperparameters, random):
        weights = features[task.WEIGHTS][:, None]
        mean = tf.reduce_sum(features["measures"] * weights, 0) / tf.maximum(tf.reduce_sum(weights), 1.0)
        sums = self._sums(features, features["measures"] - mean)
        sums["state/model/mean"] = 0.9 * self.model.mean + 0.1 * tf.stop_gradient(mean)
        return sums

    def evaluate_sums(self, features):
        return self._sums(features, features["measures"] - self.model.mean)

    def predict(self, features):
        centered = features["measures"] - self.model.mean
        rain, warmth = self._heads(centered)
        return {"rain": tf.sigmoid(rain), "warmth": warmth, "centered": centered}

    def serving(self):
        specs = [tf.TensorSpec([None, 2], tf.float32, "measures")]
        return specs, lambda measures: self.predict({"measures": measures})


for name, model in (("flowers", Flowers()), ("words", Words()), ("weather", Weather())):
    export.write(model, optimizers.AdamW(), f"{sys.argv[1]}/{name}")

# Kinds of plants by a photo and four measures, as a user of Keras writes it.
PLANTS = """
import keras
from keras import layers

from gorbit_export import Feature, Model


def build(filters: int = 8) -> Model:
    image = keras.Input((6, 6, 3), dtype="uint8", name="image")
    measures = keras.Input((4,), name="measures")
    x = layers.Conv2D(filters, 3, use_bias=False, kernel_regularizer="l2")(layers.Rescaling(1 / 255)(image))
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.BatchNormalization(momentum=0.8)(x)))
    x = layers.Dropout(0.1)(layers.Concatenate()([x, measures]))
    return Model(
        model=keras.Model([image, measures], layers.Dense(3)(x)),
        features=[
            Feature("image", "uint8", (None, 6, 6, 3)),
            Feature("measures", "float32", (None, 4)),
            Feature("kind", "int32", (None,), label=True),
        ],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        labels="kind",
        metrics=["accuracy"],
        optimizer=keras.optimizers.Adam(),
    )
"""
pathlib.Path(sys.argv[1], "plants.py").write_text(PLANTS)
if main(["keras", f"{sys.argv[1]}/plants.py", "--set", "filters=4", "--out", f"{sys.argv[1]}/plants"]):
    sys.exit("plants are not exported")
