"""BERT that chooses one of several texts that go with a text (SWAG, RACE, COPA)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorbit_export import classifier, encoded, ops, task

Tensor = tf.Tensor

MAX_CHOICES = 64
STARTS = "choice_starts"
"""The feature with the index of each choice's first token in the flattened rows. The choices that
an example lacks have that of its first."""
_LACKING = -1e9
"""The logit of a choice that an example lacks."""


class Choices(encoded.EncoderTask):
    """The cross entropy of the right choice among those of its example.

    A sequence of tokens is a text with one of its choices. The model gives each a number.
    """

    name = "choices"
    architecture = "bert-choices"
    best = ("accuracy", "higher")

    def __init__(self, build: encoded.Build, num_choices: int = 2, pooling: str = "first") -> None:
        """Makes the model.

        Args:
            build: how the encoder is made.
            num_choices: the most choices of an example.
            pooling: one of classifier.POOLINGS.
        """
        if not 2 <= num_choices <= MAX_CHOICES:
            raise ValueError(f"the number of choices is {num_choices}; expected 2 to {MAX_CHOICES}")
        self._head = build.config.family.choice or build.config.family.head
        model = classifier.BertClassifier(
            build.config, 1, pooling, build.seed, build.recompute, build.compute, self._head
        )
        super().__init__(build, model, ("classifier_dropout", "before the last layer"))
        self._num_choices, self._pooling = num_choices, pooling
        examples = ("examples",)
        self.features = [
            *encoded.encoder_features(build.config),
            task.Feature(
                STARTS,
                tf.int32,
                ("examples", "choices"),
                shape=(None, num_choices),
                make="parts",
            ),
            task.Feature("labels", tf.int32, examples, label=True, below=num_choices),
            task.Feature("example_weights", tf.float32, examples),
        ]
        axes = ("examples", "choices")
        self.outputs = (
            task.Output("logits", axes, "logits", "labels"),
            task.Output("probabilities", axes, "probabilities", "labels"),
        )

    def model_description(self) -> dict[str, Any]:
        """See EncoderTask."""
        return {"num_choices": self._num_choices, "pooling": self._pooling}

    def huggingface(self) -> encoded.HuggingFace | None:
        """See EncoderTask."""
        return encoded.classifier_form(self.build.config, self._pooling, "", self._head)

    def head_flops(self) -> dict[str, int]:
        """See EncoderTask."""
        one = encoded.classifier_flops(self.build.config, self._pooling, 1)
        return {name: count * self._num_choices for name, count in one.items()}

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        dropout = self.dropout(hyperparameters, random)
        return self._sums(
            self._logits(features, dropout, hyperparameters["classifier_dropout"]), features
        )

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task."""
        return self._sums(self._logits(features), features)

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "logits" and "probabilities", float32 [B, C]."""
        logits = self._logits(features)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    def serve_rows(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See EncoderTask. A row is a text with one choice, the first of `logits`."""
        first = features.pop("cls_positions")
        return self.predict({**features, STARTS: tf.repeat(first[:, None], self._num_choices, 1)})

    def _logits(
        self,
        features: dict[str, Tensor],
        dropout: encoded.Dropout | None = None,
        classifier_dropout: Tensor | None = None,
    ) -> Tensor:
        """Returns float32 [B, C]."""
        starts = features[STARTS]
        each = {**features, "cls_positions": tf.reshape(starts, [-1])}
        logits = tf.reshape(self.model(each, dropout, classifier_dropout), tf.shape(starts))
        # In float32, because GPUs leave comparisons of int32 to the host.
        lacking = ops.same(starts, starts[:, :1]) * tf.constant(
            [[0.0] + [1.0] * (self._num_choices - 1)]
        )
        return tf.where(lacking > 0, _LACKING, logits)

    def _sums(self, logits: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """A label that is none of the example's choices makes the loss NaN."""
        labels, weights = features["labels"], features["example_weights"]
        target = tf.one_hot(labels, self._num_choices)
        losses = -ops.row_sums(target * tf.nn.log_softmax(logits))
        known = (labels >= 0) & (labels < self._num_choices) & (losses < -_LACKING / 2)
        losses = tf.where(known, losses, float("nan"))
        correct = ops.same(tf.argmax(logits, -1), labels)
        return {
            "loss_sum": encoded.weighted(losses, weights),
            "weight_sum": tf.reduce_sum(weights),
            "accuracy_sum": tf.reduce_sum(correct * weights),
        }
