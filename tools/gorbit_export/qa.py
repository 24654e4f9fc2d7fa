"""BERT for extractive question answering: the first and the last token of an answer."""

from __future__ import annotations

import tensorflow as tf

from gorbit_export import bert, encoded, ops, task

Tensor = tf.Tensor

POSITIONS = ("start_positions", "end_positions")
"""The features with the answer's first and last token, as indices in the flattened rows."""


class BertSpans(tf.Module):
    """Encoder and a linear map from each token's vector to two logits, in float32."""

    def __init__(self, build: encoded.Build) -> None:
        """Makes the variables."""
        super().__init__()
        config = build.config
        self.encoder = encoded.encoder(config, build.seed, build.recompute, build.compute)
        self.head = encoded.head(config, build.seed)
        self.qa_outputs = encoded.last(config, 2, build.seed, config.family.spans)

    def __call__(
        self,
        features: dict[str, Tensor],
        dropout: encoded.Dropout | None = None,
        classifier_dropout: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the logits of first and last tokens, float32 [R * S] each, of packed features."""
        x = ops.cast(encoded.encode(self.encoder, features, dropout), tf.float32)
        if self.head:
            x = self.head(x)
            if dropout is not None:
                x = ops.dropout(x, classifier_dropout, dropout.random.site(bert.HEAD_SITE))
        logits = self.qa_outputs(x)
        return logits[:, 0], logits[:, 1]


class QuestionAnswering(encoded.EncoderTask):
    """The mean of two cross entropies over the tokens of an example: of its first and last token.

    An example is a window of a context. [CLS] is the answer of one that has none.
    """

    name = "qa"
    architecture = "bert-qa"
    best = ("f1", "higher")

    def __init__(self, build: encoded.Build) -> None:
        """Makes the model."""
        model = BertSpans(build)
        rate = ("classifier_dropout", "before the last layer") if model.head else None
        super().__init__(build, model, rate)
        axes, examples = ("rows", "length"), ("examples",)
        self.features = [
            *encoded.token_features(build.config),
            *(
                task.Feature(name, tf.int32, examples, label=True, make="offset")
                for name in POSITIONS
            ),
            task.Feature("example_weights", tf.float32, examples),
            # What the spans of logits stand for.
            task.Feature("cls_positions", tf.int32, examples, role="id", make="starts", aside=True),
            task.Feature("question", tf.int32, examples, role="id", aside=True),
            task.Feature("token_starts", tf.int32, axes, role="id", aside=True),
            task.Feature("token_ends", tf.int32, axes, role="id", aside=True),
        ]
        self.outputs = (
            task.Output("start_logits", axes, "spans", POSITIONS[0]),
            task.Output("end_logits", axes, "spans", POSITIONS[1]),
        )

    def huggingface(self) -> encoded.HuggingFace | None:
        """See EncoderTask."""
        family = self.build.config.family
        return encoded.HuggingFace("ForQuestionAnswering", (family.spans, *family.head_parts))

    def head_flops(self) -> dict[str, int]:
        """See EncoderTask."""
        return {"per_token": encoded.last_flops(self.build.config, 2)}

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        dropout = self.dropout(hyperparameters, random)
        logits = self.model(features, dropout, hyperparameters.get("classifier_dropout"))
        return _sums(logits, features)

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. The logits, float32 [R * S], are collected."""
        logits = self.model(features)
        return _sums(logits, features) | {
            "each/start_logits": logits[0],
            "each/end_logits": logits[1],
        }

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "start_logits" and "end_logits", float32 [R, S]."""
        shape = tf.shape(features["input_ids"])
        start, end = self.model(features)
        return {"start_logits": tf.reshape(start, shape), "end_logits": tf.reshape(end, shape)}


def _sums(logits: tuple[Tensor, Tensor], features: dict[str, Tensor]) -> dict[str, Tensor]:
    """A position that is not a token of its example makes the loss NaN."""
    weights = features["example_weights"]
    count = tf.shape(weights)[0]
    examples = tf.reshape(features["example_ids"], [-1])  # `count` in padding
    losses = tf.zeros_like(weights)
    right = tf.ones_like(weights, tf.bool)
    for values, name in zip(logits, POSITIONS):
        loss, best = _cross_entropy(values, examples, count, features[name])
        losses += loss / 2
        right &= tf.equal(best, features[name])
    return {
        "loss_sum": encoded.weighted(losses, weights),
        "weight_sum": tf.reduce_sum(weights),
        "accuracy_sum": tf.reduce_sum(tf.cast(right, tf.float32) * weights),
    }


def _cross_entropy(
    logits: Tensor, examples: Tensor, count: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """The cross entropy of each example's position, with a softmax over its own tokens.

    Args:
        logits: float32 [T].
        examples: int32 [T], the number of each token's example; `count` and more is no example.
        count: the number of examples, B.
        positions: int32 [B], indices of T.

    Returns:
        float32 [B], NaN where the position is not a token of the example; and int32 [B], the index
        of the largest logit, the first of equal ones.
    """
    size = tf.shape(logits)[0]
    known = tf.clip_by_value(positions, 0, size - 1)
    valid = tf.equal(known, positions) & tf.equal(tf.gather(examples, known), tf.range(count))
    # One more segment takes the padding. A segment without tokens has no finite maximum.
    most = tf.math.unsorted_segment_max(logits, examples, count + 1)
    places = tf.where(tf.equal(logits, tf.gather(most, examples)), tf.range(size), size)
    first = tf.math.unsorted_segment_min(places, examples, count + 1)[:-1]
    most = tf.stop_gradient(tf.where(tf.abs(most) < float("inf"), most, 0.0))
    shifted = logits - tf.gather(most, examples)
    total = tf.math.unsorted_segment_sum(tf.exp(shifted), examples, count + 1)[:-1]
    empty = tf.equal(total, 0)
    losses = tf.math.log(tf.where(empty, 1.0, total)) - tf.gather(shifted, known)
    return tf.where(valid, losses, float("nan")), first
