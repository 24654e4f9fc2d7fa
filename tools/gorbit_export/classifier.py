"""BERT with a classification head: one label per sentence or sentence pair."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import tensorflow as tf

from gorbit_export import bert, layers, ops, task
from gorbit_export.config import BertConfig

Tensor = tf.Tensor
POOLINGS = ("first", "mean")

MAX_LABELS = 10_000
"""Limits the confusion matrix of an evaluation, which has MAX_LABELS squared numbers."""


class BertClassifier(tf.Module):
    """Encoder, pooling and a linear map to logits.

    Pooling "first" is BERT's own: the first token's vector through a dense
    layer with tanh. "mean" is the mean of the tokens' vectors without another
    layer, as sentence encoders trained with mean pooling expect.

    Everything after the pooling is float32, whatever dtype the encoder computes in.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        pooling: str,
        seed: int,
        recompute: str = "none",
        compute: tf.DType = tf.float32,
    ) -> None:
        """Makes the variables. `seed`, `recompute` and `compute` are bert.Encoder's."""
        super().__init__()
        if not 2 <= num_labels <= MAX_LABELS:
            raise ValueError(f"num_labels is {num_labels}; expected 2 to {MAX_LABELS}")
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}; expected {' or '.join(POOLINGS)}")
        h, std = config.hidden_size, config.initializer_range
        self._pooling = pooling
        self.encoder = bert.Encoder(config, seed, recompute, compute)
        if pooling == "first":
            number = bert.EMBEDDING_LAYERS + config.num_hidden_layers
            paths = ("pooler/dense", f"layer_with_weights-{number}", "_pooler_layer")
            self.pooler = layers.Dense(h, h, std, seed, "pooler.dense", paths)
        self.classifier = layers.Dense(h, num_labels, std, seed, "classifier")

    def __call__(
        self,
        features: dict[str, Tensor],
        dropout: bert.Dropout | None = None,
        classifier_dropout: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits, float32 [B, C], of packed features."""
        hidden = self.encoder(
            features["input_ids"],
            features["type_ids"],
            features["sequence_ids"],
            features["position_ids"],
            dropout,
        )
        x = bert.pool(hidden, features["sequence_ids"], features["cls_positions"], self._pooling)
        x = ops.cast(x, tf.float32)
        if self._pooling == "first":
            x = tf.tanh(self.pooler(x))
        if dropout is not None:
            x = ops.dropout(x, classifier_dropout, dropout.random.site(bert.HEAD_SITE))
        return self.classifier(x)


def _rate(name: str, default: float, text: str) -> task.Hyperparameter:
    return task.Hyperparameter(name, default, text, 0.0, 1.0)


class Classification(task.Task):
    """Single-label classification with a BertClassifier."""

    name = "classification"
    best = ("accuracy", "higher")

    def __init__(
        self,
        config: BertConfig,
        num_labels: int = 2,
        pooling: str = "first",
        seed: int = 0,
        recompute: str = "none",
        precision: str = "float32",
        lora: bert.Lora | None = None,
    ) -> None:
        """Makes the model.

        `precision` is one of task.PRECISIONS; `lora` freezes the encoder and adds adapters.
        """
        if precision not in task.PRECISIONS:
            known = ", ".join(task.PRECISIONS)
            raise ValueError(f"precision is {precision!r}; expected one of {known}")
        self.precision = precision
        compute = task.PRECISIONS[precision]
        self.model = BertClassifier(config, num_labels, pooling, seed, recompute, compute)
        if lora:
            self.model.encoder.adapt(lora, seed)
        self._config, self._num_labels, self._pooling = config, num_labels, pooling
        self._recompute = recompute
        self.features = [
            *bert.features(config),
            task.Feature("labels", tf.int32, ("examples",), label=True, below=num_labels),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        self.outputs = (
            task.Output("logits", ("examples", "classes"), "logits", "labels"),
            task.Output("probabilities", ("examples", "classes"), "probabilities", "labels"),
        )
        rates = (config.hidden_dropout_prob, config.attention_probs_dropout_prob)
        head = config.classifier_dropout
        self.hyperparameters = [
            _rate("hidden_dropout", rates[0], "rate after embeddings and sublayers"),
            _rate("attention_dropout", rates[1], "rate on attention weights"),
            _rate(
                "classifier_dropout", rates[0] if head is None else head, "before the classifier"
            ),
            _rate("label_smoothing", 0.0, "share spread evenly over all labels"),
        ]

    def description(self) -> dict[str, Any]:
        """See Task."""
        h, labels = self._config.hidden_size, self._num_labels
        head = 2 * h * labels + (2 * h * h if self._pooling == "first" else 0)
        return {
            "architecture": "bert-classifier",
            "num_labels": labels,
            "pooling": self._pooling,
            "recompute": self._recompute,
            "flops": {**bert.flops(self._config), "per_example": head},
            "config": dataclasses.asdict(self._config),
        }

    def rows(self, path: str) -> str | None:
        """See Task. Only input_ids select rows of the word table."""
        return "input_ids" if path == "model/encoder/embeddings/word/table" else None

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        dropout = bert.Dropout(
            hyperparameters["hidden_dropout"], hyperparameters["attention_dropout"], random
        )
        logits = self.model(features, dropout, hyperparameters["classifier_dropout"])
        return self._sums(logits, features, hyperparameters["label_smoothing"])

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "confusion" is [C, C]: weights by label (row) and prediction (column)."""
        logits = self.model(features)
        sums = self._sums(logits, features, tf.constant(0.0))
        labels = self._one_hot(features["labels"])
        guesses = tf.one_hot(tf.argmax(logits, -1, tf.int32), self._num_labels)
        weighted = labels * features["example_weights"][:, None]
        sums["confusion"] = tf.matmul(weighted, guesses, transpose_a=True)
        return sums

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "logits" and "probabilities", float32 [B, C]."""
        logits = self.model(features)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    def serving(self) -> tuple[list[tf.TensorSpec], Callable[..., dict[str, Tensor]]]:
        """See Task. One example per row: input_ids, attention_mask and token_type_ids [B, S]."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        specs = [tf.TensorSpec([None, None], tf.int32, name) for name in names]

        def serve(input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> dict:
            shape = tf.shape(input_ids)
            # Positions count only real tokens, as in the packed rows of training.
            mask = tf.cast(tf.not_equal(attention_mask, 0), tf.int32)
            positions = tf.maximum(tf.cumsum(mask, 1) - 1, 0)
            first = tf.argmax(mask, 1, tf.int32)
            return self.predict(
                {
                    "input_ids": input_ids,
                    "type_ids": token_type_ids,
                    "sequence_ids": mask,
                    "position_ids": positions,
                    "cls_positions": tf.range(shape[0]) * shape[1] + first,
                }
            )

        return specs, serve

    def _one_hot(self, labels: Tensor) -> Tensor:
        return tf.one_hot(labels, self._num_labels)

    def _sums(
        self, logits: Tensor, features: dict[str, Tensor], smoothing: Tensor
    ) -> dict[str, Tensor]:
        """Cross entropy with label smoothing (Szegedy et al. 2016), summed over examples.

        A label out of range makes the loss NaN, so the step is not applied. Examples of
        weight 0 may have any label.
        """
        labels, weights = features["labels"], features["example_weights"]
        target = self._one_hot(labels) * (1 - smoothing) + smoothing / self._num_labels
        losses = -tf.reduce_sum(target * tf.nn.log_softmax(logits), -1)
        known = (labels >= 0) & (labels < self._num_labels)
        losses = tf.where(known, losses, float("nan"))
        correct = tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), labels), tf.float32)
        return {
            "loss_sum": tf.reduce_sum(tf.math.multiply_no_nan(losses, weights)),
            "weight_sum": tf.reduce_sum(weights),
            "accuracy_sum": tf.reduce_sum(correct * weights),
        }
