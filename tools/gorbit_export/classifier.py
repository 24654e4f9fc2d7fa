"""BERT with a classification head: one label per sentence or sentence pair."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorbit_export import bert, encoded, layers, ops, task
from gorbit_export.config import BertConfig
from gorbit_export.families import Head

Tensor = tf.Tensor
POOLINGS = ("first", "mean")

MAX_LABELS = 10_000
"""Limits the confusion matrix of an evaluation, which has MAX_LABELS squared numbers."""
TOP = 5
"""How many of the most probable labels count in an evaluation of more labels than these."""


class BertClassifier(tf.Module):
    """Encoder, pooling and a linear map to logits.

    Pooling "first" is BERT's own: the first token's vector through a dense
    layer with tanh, or what its family has instead. "mean" is the mean of the
    tokens' vectors without another layer, as sentence encoders trained with mean
    pooling expect.

    ModernBERT has a map, an activation and a norm behind either kind.

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
        head: Head | None = None,
    ) -> None:
        """Makes the variables.

        Args:
            config: sizes of the encoder.
            num_labels: number of logits.
            pooling: one of POOLINGS.
            seed: bert.Encoder's, as are the following.
            recompute: what the backward pass recomputes.
            compute: dtype of the encoder's products.
            head: the two maps; those of the family's classifier by default.
        """
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}; expected {' or '.join(POOLINGS)}")
        h, std = config.hidden_size, config.initializer_range
        self._pooling, self._head = pooling, head or config.family.head
        self._head_norm = config.family.head_norm
        self.encoder = encoded.encoder(config, seed, recompute, compute)
        if config.family.head_norm:
            self.pooler = encoded.head(config, seed)
        elif pooling == "first":
            number = bert.EMBEDDING_LAYERS + config.num_hidden_layers
            paths = ("pooler/dense", f"layer_with_weights-{number}", "_pooler_layer")
            paths = bert.released(config, *paths)
            self.pooler = layers.Dense(h, h, std, seed, self._head.dense, paths)
        self.classifier = encoded.last(config, num_labels, seed, self._head.output)

    def __call__(
        self,
        features: dict[str, Tensor],
        dropout: encoded.Dropout | None = None,
        classifier_dropout: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits, float32 [B, C], of packed features.

        B are the sequences whose first tokens are at "cls_positions".
        """
        hidden = self.encoder(
            features["input_ids"],
            features["type_ids"],
            features["sequence_ids"],
            features["position_ids"],
            dropout,
        )
        x = bert.pool(hidden, features["sequence_ids"], features["cls_positions"], self._pooling)
        x = ops.cast(x, tf.float32)
        if self._head_norm:
            x = self.pooler(x)
        elif self._pooling == "first":
            if dropout is not None and self._head.dropout_first:
                x = ops.dropout(x, classifier_dropout, dropout.random.site(bert.HEAD_SITE + 1))
            x = ops.activate(self._head.activation, self.pooler(x))
        if dropout is not None:
            x = ops.dropout(x, classifier_dropout, dropout.random.site(bert.HEAD_SITE))
        return self.classifier(x)


class Classification(encoded.EncoderTask):
    """Single-label classification with a BertClassifier."""

    name = "classification"
    architecture = "bert-classifier"
    best = ("accuracy", "higher")
    packs = True

    def __init__(
        self,
        config: BertConfig,
        num_labels: int = 2,
        pooling: str = "first",
        seed: int = 0,
        recompute: str = "none",
        precision: str = "float32",
        lora: bert.Lora | None = None,
        labels: tuple[str, ...] = (),
    ) -> None:
        """Makes the model.

        `precision` is one of task.PRECISIONS; `lora` freezes the encoder and adds adapters.
        `labels` are the names of the labels, if they are known.
        """
        build = encoded.Build(config, seed, recompute, precision, lora)
        compute = build.compute
        if not 2 <= num_labels <= MAX_LABELS:
            raise ValueError(f"num_labels is {num_labels}; expected 2 to {MAX_LABELS}")
        model = BertClassifier(config, num_labels, pooling, seed, recompute, compute)
        super().__init__(build, model, ("classifier_dropout", "before the classifier"))
        self._num_labels, self._pooling, self._labels = num_labels, pooling, labels
        self.features = [
            *bert.features(config),
            task.Feature("labels", tf.int32, ("examples",), label=True, below=num_labels),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        self.outputs = (
            task.Output("logits", ("examples", "classes"), "logits", "labels"),
            task.Output("probabilities", ("examples", "classes"), "probabilities", "labels"),
        )
        smoothing = "share spread evenly over all labels"
        self.hyperparameters.append(encoded.rate("label_smoothing", 0.0, smoothing))

    def model_description(self) -> dict[str, Any]:
        """See EncoderTask."""
        names = {"labels": list(self._labels)} if self._labels else {}
        return {"num_labels": self._num_labels, **names, "pooling": self._pooling}

    def huggingface(self) -> encoded.HuggingFace | None:
        """See EncoderTask."""
        return encoded.classifier_form(
            self.build.config, self._pooling, "single_label_classification"
        )

    def head_flops(self) -> dict[str, int]:
        """See EncoderTask."""
        return encoded.classifier_flops(self.build.config, self._pooling, self._num_labels)

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        dropout = self.dropout(hyperparameters, random)
        logits = self.model(features, dropout, hyperparameters["classifier_dropout"])
        return self._sums(logits, features, hyperparameters["label_smoothing"])

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "confusion" is [C, C]: weights by label (row) and prediction (column).

        The difference of two logits is collected, for the area under the curve. With more than
        TOP labels there is the accuracy of the TOP most probable ones.
        """
        logits = self.model(features)
        sums = self._sums(logits, features, tf.constant(0.0))
        guesses, weights = tf.argmax(logits, -1, tf.int32), features["example_weights"]
        sums["confusion"] = task.confusion(features["labels"], guesses, weights, self._num_labels)
        if self._num_labels == 2:
            sums |= encoded.each(logits[:, 1] - logits[:, 0], features["labels"], features)
        if self._num_labels > TOP:
            sums[f"top_{TOP}_accuracy_sum"] = self._top(logits, features)
        return sums

    def _top(self, logits: Tensor, features: dict[str, Tensor]) -> Tensor:
        """The weight of the examples whose label is among the TOP; of equal logits, the first."""
        labels = features["labels"]
        own = tf.reduce_sum(tf.where(self._one_hot(labels) > 0, logits, 0.0), 1, keepdims=True)
        earlier = tf.range(self._num_labels)[None, :] < labels[:, None]
        before = (logits > own) | (tf.equal(logits, own) & earlier)
        right = tf.reduce_sum(tf.cast(before, tf.float32), 1) < TOP
        return encoded.weighted(tf.cast(right, tf.float32), features["example_weights"])

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "logits" and "probabilities", float32 [B, C]."""
        logits = self.model(features)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

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
        losses = -ops.row_sums(target * tf.nn.log_softmax(logits))
        known = (labels >= 0) & (labels < self._num_labels)
        losses = tf.where(known, losses, float("nan"))
        correct = ops.same(tf.argmax(logits, -1), labels)
        return {
            "loss_sum": tf.reduce_sum(tf.math.multiply_no_nan(losses, weights)),
            "weight_sum": tf.reduce_sum(weights),
            "accuracy_sum": tf.reduce_sum(correct * weights),
        }
