"""BERT with any number of labels for each sentence or sentence pair."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorbit_export import bert, classifier, encoded, ops, task

Tensor = tf.Tensor

MAX_LABELS = 10_000
AUC_BINS = 500
"""Bins of the probabilities that the area under the curve is computed from."""
AUC_LABELS = 1000
"""The most labels whose histograms an evaluation adds up."""
EACH_LABELS = 100
"""The most labels whose logits an evaluation collects instead, for the exact area."""


class MultiLabel(encoded.EncoderTask):
    """A sigmoid per label. The loss of an example is the mean of its labels' cross entropies.

    That is the loss of Hugging Face's problem_type "multi_label_classification".
    """

    name = "multilabel"
    architecture = "bert-multilabel"
    best = ("micro_f1", "higher")
    packs = True

    def __init__(
        self,
        build: encoded.Build,
        num_labels: int = 2,
        pooling: str = "first",
        labels: tuple[str, ...] = (),
    ) -> None:
        """Makes the model.

        Args:
            build: how the encoder is made.
            num_labels: number of labels.
            pooling: one of classifier.POOLINGS.
            labels: their names, if they are known.
        """
        if not 1 <= num_labels <= MAX_LABELS:
            raise ValueError(f"num_labels is {num_labels}; expected 1 to {MAX_LABELS}")
        model = classifier.BertClassifier(
            build.config, num_labels, pooling, build.seed, build.recompute, build.compute
        )
        super().__init__(build, model, ("classifier_dropout", "before the classifier"))
        self._pooling, self._num_labels, self._labels = pooling, num_labels, labels
        self.features = [
            *bert.features(build.config),
            task.Feature(
                "labels",
                tf.float32,
                ("examples", "classes"),
                label=True,
                shape=(None, num_labels),
                make="multi_hot",
            ),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        axes = ("examples", "classes")
        self.outputs = (
            task.Output("logits", axes, "logits", "labels"),
            task.Output("probabilities", axes, "probabilities", "labels"),
        )

    def model_description(self) -> dict[str, Any]:
        """See EncoderTask."""
        names = {"labels": list(self._labels)} if self._labels else {}
        return {"num_labels": self._num_labels, **names, "pooling": self._pooling}

    def huggingface(self) -> encoded.HuggingFace | None:
        """See EncoderTask."""
        return encoded.classifier_form(
            self.build.config, self._pooling, "multi_label_classification"
        )

    def head_flops(self) -> dict[str, int]:
        """See EncoderTask."""
        return encoded.classifier_flops(self.build.config, self._pooling, self._num_labels)

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        dropout = self.dropout(hyperparameters, random)
        return _sums(self.model(features, dropout, hyperparameters["classifier_dropout"]), features)

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task.

        "label_counts" is float32 [C, 3]: the weights of the examples that have the label and are
        predicted to, that are predicted to, and that have it; a label is predicted from
        probability 0.5 on. The logits are collected, up to EACH_LABELS labels. Up to AUC_LABELS
        labels there is "label_bins" instead, float32 [C, 2, AUC_BINS]: the weights of the
        examples without and with the label by their probability.
        """
        logits = self.model(features)
        sums = _sums(logits, features)
        labels, weights = features["labels"], features["example_weights"][:, None]
        guesses = tf.cast(logits >= 0, tf.float32)
        sums["label_counts"] = tf.stack(
            [tf.reduce_sum(weights * v, 0) for v in (labels * guesses, guesses, labels)], 1
        )
        if self._num_labels <= EACH_LABELS:
            sums |= encoded.each(logits, features["labels"], features)
        elif self._num_labels <= AUC_LABELS:
            sums["label_bins"] = self._bins(logits, labels, weights)
        return sums

    def _bins(self, logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        bins = tf.cast(tf.nn.sigmoid(logits) * AUC_BINS, tf.int32)
        bins = tf.clip_by_value(bins, 0, AUC_BINS - 1)
        count = self._num_labels
        # The number of the label, of having it, and of the bin as one.
        base = tf.range(count)[None, :] * 2 + tf.cast(labels > 0, tf.int32)
        places = tf.reshape(base * AUC_BINS + bins, [-1])
        values = tf.reshape(weights * tf.ones_like(logits), [-1])
        total = tf.math.unsorted_segment_sum(values, places, count * 2 * AUC_BINS)
        return tf.reshape(total, [count, 2, AUC_BINS])

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "logits" and "probabilities", float32 [B, C]."""
        logits = self.model(features)
        return {"logits": logits, "probabilities": tf.nn.sigmoid(logits)}


def _sums(logits: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
    """The loss, and the weight of examples all of whose labels are predicted (exact_match)."""
    labels, weights = features["labels"], features["example_weights"]
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    same = tf.reduce_all(tf.equal(logits >= 0, labels > 0), 1)
    return {
        "loss_sum": encoded.weighted(tf.reduce_mean(losses, 1), weights),
        "weight_sum": tf.reduce_sum(weights),
        "exact_match_sum": tf.reduce_sum(tf.cast(same, tf.float32) * weights),
    }
