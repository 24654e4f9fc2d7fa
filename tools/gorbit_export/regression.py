"""BERT with one number as its answer, for sentences and sentence pairs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorbit_export import bert, classifier, encoded, ops, task

Tensor = tf.Tensor

MOMENTS = ("w", "wy", "wp", "wyy", "wpp", "wyp", "wabs")
"""The columns of the sum "moments": y are labels, p predictions, w weights; wabs is w |p - y|."""


class Regression(encoded.EncoderTask):
    """The mean squared error of one number per example."""

    name = "regression"
    architecture = "bert-regression"
    best = ("pearson", "higher")
    packs = True

    def __init__(self, build: encoded.Build, pooling: str = "first") -> None:
        """Makes the model. `pooling` is one of classifier.POOLINGS."""
        model = classifier.BertClassifier(
            build.config, 1, pooling, build.seed, build.recompute, build.compute
        )
        super().__init__(build, model, ("classifier_dropout", "before the last layer"))
        self._pooling = pooling
        self.features = [
            *bert.features(build.config),
            task.Feature("labels", tf.float32, ("examples",), label=True),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        self.outputs = (task.Output("predictions", ("examples",), "value", "labels"),)

    def model_description(self) -> dict[str, Any]:
        """See EncoderTask."""
        return {"pooling": self._pooling}

    def huggingface(self) -> encoded.HuggingFace | None:
        """See EncoderTask."""
        return encoded.classifier_form(self.build.config, self._pooling, "regression")

    def head_flops(self) -> dict[str, int]:
        """See EncoderTask."""
        return encoded.classifier_flops(self.build.config, self._pooling, 1)

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        dropout = self.dropout(hyperparameters, random)
        x = self.model(features, dropout, hyperparameters["classifier_dropout"])
        return _sums(x[:, 0], features)

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "moments" is float32 [2, 7], see MOMENTS and encoded.precise.

        Predictions and labels are collected as well, for the rank correlation.
        """
        predictions = self.model(features)[:, 0]
        return _sums(predictions, features) | evaluated(predictions, features)

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "predictions", float32 [B]."""
        return {"predictions": self.model(features)[:, 0]}


def evaluated(predictions: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
    """What metrics of numbers are computed from: see Regression.evaluate_sums.

    Args:
        predictions: float32 [B].
        features: those of the batch, with `labels`.
    """
    weights = tf.cast(features["example_weights"], tf.float64)
    y, p = (tf.cast(v, tf.float64) for v in (features["labels"], predictions))
    columns = [tf.ones_like(y), y, p, y * y, p * p, y * p, tf.abs(p - y)]
    columns = [tf.math.multiply_no_nan(column, weights) for column in columns]
    moments = {"moments": encoded.precise(tf.stack(columns, 1))}
    return moments | encoded.each(predictions, features["labels"], features)


def _sums(predictions: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
    weights = features["example_weights"]
    # An example of weight 0 may have any label: its gradient must not be 0 times NaN.
    labels = tf.where(tf.equal(weights, 0), predictions, features["labels"])
    squares = tf.math.squared_difference(predictions, labels)
    return {"loss_sum": encoded.weighted(squares, weights), "weight_sum": tf.reduce_sum(weights)}
