"""BERT with a label for every token, such as a part of speech or a tag of named entities."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from gorbit_export import bert, encoded, ops, task

Tensor = tf.Tensor

MAX_LABELS = 10_000
UNCOUNTED = -1
"""The label of tokens that are not counted: special tokens, and all but the first of a word."""
PREFIXES = "BIES"
"""What the tags of entities begin with, followed by "-" and the type."""
OUTSIDE = len(PREFIXES)
"""The number of the tag O, after those of PREFIXES."""


class BertTagger(tf.Module):
    """Encoder and a linear map from each token's vector to logits, in float32."""

    def __init__(self, build: encoded.Build, num_labels: int) -> None:
        """Makes the variables."""
        super().__init__()
        config = build.config
        self.encoder = encoded.encoder(config, build.seed, build.recompute, build.compute)
        self.head = encoded.head(config, build.seed)
        self.classifier = encoded.last(config, num_labels, build.seed, "classifier")

    def __call__(
        self,
        features: dict[str, Tensor],
        dropout: encoded.Dropout | None = None,
        classifier_dropout: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits, float32 [R * S, C], of packed features."""
        x = ops.cast(encoded.encode(self.encoder, features, dropout), tf.float32)
        if self.head:
            x = self.head(x)
        if dropout is not None:
            x = ops.dropout(x, classifier_dropout, dropout.random.site(bert.HEAD_SITE))
        return self.classifier(x)


class Tokens(encoded.EncoderTask):
    """Cross entropy over the counted tokens: the mean over tokens, not over examples.

    A counted token weighs what its example weighs.
    """

    name = "tokens"
    architecture = "bert-tagger"

    def __init__(
        self, build: encoded.Build, num_labels: int = 2, labels: tuple[str, ...] = ()
    ) -> None:
        """Makes the model.

        Args:
            build: how the encoder is made.
            num_labels: number of labels.
            labels: their names, if they are known. If some begin with B-, I-, E- or S-, they are
                tags of entities, and evaluations count entities.
        """
        if not 2 <= num_labels <= MAX_LABELS:
            raise ValueError(f"num_labels is {num_labels}; expected 2 to {MAX_LABELS}")
        super().__init__(
            build, BertTagger(build, num_labels), ("classifier_dropout", "before the classifier")
        )
        self._num_labels, self._labels = num_labels, labels
        self.entities = EntityTags(labels)
        self.best = ("f1" if self.entities.types else "accuracy", "higher")
        rows = ("rows", "length")
        self.features = [
            *encoded.token_features(build.config),
            task.Feature(
                "labels", tf.int32, rows, label=True, minimum=-1, below=num_labels, pad=UNCOUNTED
            ),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        axes = ("rows", "length", "classes")
        self.outputs = (
            task.Output("logits", axes, "logits", "labels"),
            task.Output("probabilities", axes, "probabilities", "labels"),
        )

    def model_description(self) -> dict[str, Any]:
        """See EncoderTask."""
        names = {"labels": list(self._labels)} if self._labels else {}
        types = {"entities": list(self.entities.types)} if self.entities.types else {}
        return {"num_labels": self._num_labels, **names, **types}

    def huggingface(self) -> encoded.HuggingFace | None:
        """See EncoderTask."""
        return encoded.HuggingFace(
            "ForTokenClassification", ("classifier", *self.build.config.family.head_parts)
        )

    def head_flops(self) -> dict[str, int]:
        """See EncoderTask."""
        return {"per_token": encoded.last_flops(self.build.config, self._num_labels)}

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        dropout = self.dropout(hyperparameters, random)
        logits = self.model(features, dropout, hyperparameters["classifier_dropout"])
        return self._sums(logits, features)

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task.

        "token_counts" is float32 [C, 3]: the weights of the tokens whose label and prediction
        is the class, whose prediction is, and whose label is. "entity_counts", where the labels
        are tags of entities, is float32 [types, 3]: the weights of the entities that are
        predicted and true, that are predicted, and that are true.
        """
        logits = self.model(features)
        sums = self._sums(logits, features)
        labels = tf.reshape(features["labels"], [-1])
        weights = self._weights(features)
        guesses = tf.argmax(logits, -1, tf.int32)
        right = tf.where(tf.equal(labels, guesses), weights, 0.0)
        valid = (labels >= 0) & (labels < self._num_labels)
        known = tf.where(valid, labels, self._num_labels)
        sums["token_counts"] = tf.stack(
            [
                tf.math.unsorted_segment_sum(values, ids, self._num_labels + 1)[:-1]
                for values, ids in ((right, known), (weights, guesses), (weights, known))
            ],
            1,
        )
        if self.entities.types:
            examples = tf.reshape(features["example_ids"], [-1])
            sums["entity_counts"] = self.entities.counts(labels, guesses, examples, weights)
        return sums

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "logits" and "probabilities", float32 [R, S, C]."""
        logits = self.model(features)
        shape = tf.concat([tf.shape(features["input_ids"]), [self._num_labels]], 0)
        logits = tf.reshape(logits, shape)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    def _weights(self, features: dict[str, Tensor]) -> Tensor:
        """The weight of each token, float32 [R * S]; 0 for those that are not counted."""
        labels = tf.reshape(features["labels"], [-1])
        return tf.where(tf.equal(labels, UNCOUNTED), 0.0, encoded.token_weights(features))

    def _sums(self, logits: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """A label out of range makes the loss NaN, so the step is not applied."""
        labels = tf.reshape(features["labels"], [-1])
        weights = self._weights(features)
        target = tf.one_hot(labels, self._num_labels)
        losses = -ops.row_sums(target * tf.nn.log_softmax(logits))
        known = (labels >= 0) & (labels < self._num_labels)
        losses = tf.where(known, losses, float("nan"))
        right = ops.same(tf.argmax(logits, -1), labels)
        return {
            "loss_sum": encoded.weighted(losses, weights),
            "weight_sum": tf.reduce_sum(weights),
            "accuracy_sum": tf.reduce_sum(right * weights),
        }


class EntityTags:
    """Finds the entities that tags stand for, by the rules of seqeval 1.2 in its default mode.

    Those are the rules of the CoNLL-2000 script: a tag is O, or a prefix (B, I, E or S) and a
    type; an entity starts at B and S, at I or E after O, E, S or the beginning, and where the
    type changes; it ends before B, S and O, after E and S, and before another type.
    """

    def __init__(self, labels: tuple[str, ...]) -> None:
        """Takes labels apart. Unless all of them are tags of entities, there are no types."""
        self.types: tuple[str, ...] = ()
        if not all(_is_tag(label) for label in labels):
            return
        kinds = [label[1:].removeprefix("-") or "_" for label in labels]
        self.types = tuple(sorted({k for k, label in zip(kinds, labels) if label != "O"}))
        outside = [label == "O" for label in labels]
        places = {kind: i for i, kind in enumerate(self.types)}
        self._prefixes = [
            OUTSIDE if o else PREFIXES.index(label[0]) for o, label in zip(outside, labels)
        ]
        self._kinds = [len(places) if o else places[kind] for o, kind in zip(outside, kinds)]

    def counts(self, labels: Tensor, guesses: Tensor, examples: Tensor, weights: Tensor) -> Tensor:
        """Counts entities.

        Args:
            labels: int32 [T], UNCOUNTED for tokens that are passed over.
            guesses: int32 [T], the predicted labels.
            examples: int32 [T], the number of each token's example; the tokens of an example
                follow each other.
            weights: float32 [T]. That of an entity is its first token's.

        Returns:
            float32 [types, 3]: the weights of the entities of each type that are both predicted
            and true, that are predicted, and that are true.
        """
        # The counted tokens come first, in their order, so that neighbours are words.
        size = tf.shape(labels)[0]
        places = tf.range(size)
        behind = tf.where(tf.equal(labels, UNCOUNTED), size, 0)
        order = tf.sort(places + behind) % tf.maximum(size, 1)
        counted = tf.sort(places + behind) < size
        labels, guesses, examples, weights = (
            tf.gather(values, order) for values in (labels, guesses, examples, weights)
        )
        fresh = tf.not_equal(examples, tf.concat([[-1], examples[:-1]], 0))
        true = self._spans(labels, counted, fresh)
        guessed = self._spans(guesses, counted, fresh)
        both = true.starts & guessed.starts & tf.equal(true.kinds, guessed.kinds)
        both &= tf.equal(true.ends, guessed.ends)

        def total(chosen: Tensor, kinds: Tensor) -> Tensor:
            values = tf.where(chosen, weights, 0.0)
            return tf.math.unsorted_segment_sum(values, kinds, len(self.types) + 1)[:-1]

        return tf.stack(
            [
                total(both, true.kinds),
                total(guessed.starts, guessed.kinds),
                total(true.starts, true.kinds),
            ],
            1,
        )

    def _spans(self, tags: Tensor, counted: Tensor, fresh: Tensor) -> _Spans:
        """Finds entities in tags of neighbouring words; `fresh` where an example begins."""
        known = tf.clip_by_value(tags, 0, len(self._prefixes) - 1)
        prefix = tf.where(counted, tf.gather(self._prefixes, known), OUTSIDE)
        kind = tf.where(counted, tf.gather(self._kinds, known), len(self.types))
        past = tf.where(fresh, OUTSIDE, tf.concat([[OUTSIDE], prefix[:-1]], 0))
        changed = tf.not_equal(kind, tf.concat([[len(self.types)], kind[:-1]], 0))

        def among(values: Tensor, prefixes: str) -> Tensor:
            return tf.reduce_any([tf.equal(values, PREFIXES.index(c)) for c in prefixes], 0)

        outside = tf.equal(prefix, OUTSIDE)
        behind = among(past, "ES") | tf.equal(past, OUTSIDE)
        starts = among(prefix, "BS") | (among(prefix, "IE") & (behind | changed))
        stops = among(past, "ES") | (among(past, "BI") & (among(prefix, "BS") | outside | changed))
        # An entity ends before the first stop after its start.
        size = tf.shape(tags)[0]
        places = tf.range(size)
        stopped = tf.sort(tf.where(stops | fresh, places, size))
        following = tf.searchsorted(stopped, places, side="right")
        ends = tf.gather(tf.concat([stopped, [size]], 0), following)
        return _Spans(starts, kind, ends)


@dataclasses.dataclass(frozen=True)
class _Spans:
    """Entities among words: whether one starts at a word, its type, and the word after its end."""

    starts: Tensor
    kinds: Tensor
    ends: Tensor


def _is_tag(label: str) -> bool:
    """Whether a label is a tag of entities: O, B-TYPE, or B without a type."""
    return label == "O" or (label[:1] in tuple(PREFIXES) and label[1:2] in ("", "-"))
