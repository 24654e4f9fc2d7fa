"""Encoders that make a vector of a text, and the losses that sentence-transformers has for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from gorbit_export import bert, encoded, ops, regression, task

Tensor = tf.Tensor

LOSSES = ("ranking", "triplet", "cosine")
"""Multiple negatives ranking, of pairs or triplets; triplet; the error of cosines, of scores."""
POOLINGS = ("mean", "first")
_PART = 32
"""Sites of a part of a batch are so many bits away from those of the part before."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How vectors are made and compared.

    Attributes:
        loss: one of LOSSES.
        texts: how many an example has, 2 or 3.
        pooling: one of POOLINGS.
        normalize: whether vectors have the length 1.
        scale: what cosines are multiplied by in the loss "ranking".
        margin: by how much the third text must be further away in the loss "triplet".
        matryoshka: the loss is the sum of those of so many first numbers of the vectors; () is
            that of whole vectors.
        cache_rows: rows of a batch that are encoded at a time in training; 0 is all. The
            gradient is that of the whole batch, and each row is encoded twice.
    """

    loss: str = "ranking"
    texts: int = 2
    pooling: str = "mean"
    normalize: bool = True
    scale: float = 20.0
    margin: float = 5.0
    matryoshka: tuple[int, ...] = ()
    cache_rows: int = 0

    def check(self, width: int) -> None:
        """Raises ValueError if a setting has no meaning for vectors of a width."""
        if self.loss not in LOSSES:
            raise ValueError(f"loss is {self.loss!r}; expected one of {', '.join(LOSSES)}")
        texts = {"triplet": (3,), "cosine": (2,)}.get(self.loss, (2, 3))
        if self.texts not in texts:
            raise ValueError(
                f"an example has {self.texts} texts; expected {' or '.join(map(str, texts))} "
                f"for the loss {self.loss}"
            )
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling is {self.pooling!r}; expected {' or '.join(POOLINGS)}")
        for name, value in (("scale", self.scale), ("margin", self.margin)):
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value}; expected a number above 0")
        if self.cache_rows < 0:
            raise ValueError(f"cache_rows is {self.cache_rows}; expected 0 (all) or more")
        sizes = self.matryoshka
        if len(set(sizes)) != len(sizes) or any(not 1 <= size <= width for size in sizes):
            raise ValueError(
                f"sizes of vectors are {', '.join(map(str, sizes))}; expected different ones from "
                f"1 to {width}, the width of the encoder"
            )


class Embed(encoded.EncoderTask):
    """A vector per text, of which those of an example are compared."""

    name = "embed"
    architecture = "bert-embedding"
    packs = True

    def __init__(self, build: encoded.Build, settings: Settings) -> None:
        """Makes the model: the encoder alone."""
        config = build.config
        settings.check(config.hidden_size)
        model = tf.Module()
        model.encoder = encoded.encoder(config, build.seed, build.recompute, build.compute)
        super().__init__(build, model, None)
        self._settings = settings
        self.across = settings.loss == "ranking"
        scored = settings.loss == "cosine"
        self.best = ("spearman", "higher") if scored else ("ndcg_10", "higher")
        made = {
            "type_ids": {"below": settings.texts},
            "position_ids": {"make": "text_position_ids"},
        }
        score = task.Feature("labels", tf.float32, ("examples",), label=True)
        self.features = [
            *(dataclasses.replace(f, **made.get(f.name, {})) for f in bert.features(config)),
            *([score] if scored else []),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        self.outputs = (task.Output("embedding", ("examples", "dimensions"), "values"),)

    def model_description(self) -> dict[str, Any]:
        """See EncoderTask."""
        s = self._settings
        own = {"ranking": {"scale": s.scale}, "triplet": {"margin": s.margin}}.get(s.loss, {})
        sizes = {"matryoshka": list(s.matryoshka)} if s.matryoshka else {}
        return {"pooling": s.pooling, "normalize": s.normalize, "loss": s.loss, **own, **sizes}

    def huggingface(self) -> encoded.HuggingFace | None:
        """See EncoderTask: the encoder without a head."""
        return encoded.HuggingFace("Model", (), headless=True)

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        dropout = self.dropout(hyperparameters, random)
        return self._sums(self._vectors(features, self._settings.texts, dropout), features)

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. With scores there are "moments" and what regression.Regression collects.

        Otherwise the vectors are collected, of length 1, of the first texts and of the others.
        """
        vectors = self._vectors(features, self._settings.texts)
        sums = self._sums(vectors, features)
        if self._settings.loss == "cosine":
            return sums | regression.evaluated(_cosines(vectors), features)
        unit = _unit(vectors)
        return sums | {
            "each/query": unit[:, 0],
            "each/document": unit[:, 1:],
            "each/weight": features["example_weights"],
        }

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "embedding", float32 [B, H], of the first text of each example."""
        return {"embedding": self._vectors(features, 1)[:, 0]}

    def serve_rows(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See EncoderTask. What is given as types is not looked at: a row is one text."""
        return self.predict({**features, "type_ids": tf.zeros_like(features["type_ids"])})

    def _vectors(
        self, features: dict[str, Tensor], texts: int, dropout: encoded.Dropout | None = None
    ) -> Tensor:
        """Returns the vectors of the first texts of each example, [B, texts, H]."""
        settings, number = self._settings, features["type_ids"]
        # A text attends to itself alone: each has a number of its own in its row.
        examples, most = features["sequence_ids"], settings.texts
        sequences = tf.where(tf.equal(examples, 0), 0, examples * most + number)
        shape = tf.shape(sequences)
        # In int64, because GPUs leave comparisons of int32 to the host.
        rows = tf.cast(tf.range(shape[0]) * (shape[1] + 1) * most, tf.int64)
        keys = tf.cast(sequences, tf.int64) + rows[:, None]
        first = tf.gather(tf.reshape(keys, [-1]), features["cls_positions"])
        wanted = tf.reshape(first[:, None] + tf.range(texts, dtype=tf.int64), [-1, 1])
        grids = (features["input_ids"], sequences, features["position_ids"], keys)
        if dropout is None or not settings.cache_rows:
            pooled = self._pooled(grids, wanted, dropout)
        else:
            pooled = self._in_parts(grids, wanted, dropout)
        vectors = tf.reshape(pooled, [-1, texts, self.build.config.hidden_size])
        return _unit(vectors) if settings.normalize else vectors

    def _pooled(
        self, grids: tuple[Tensor, ...], wanted: Tensor, dropout: encoded.Dropout | None
    ) -> Tensor:
        """Returns the vector of each wanted text, [N, H]; 0 for one that is not in the rows.

        Args:
            grids: tokens, sequences, positions and the number of each token's text, [R, S].
            wanted: numbers of texts, [N, 1].
            dropout: rates and random source; None in evaluation.
        """
        ids, sequences, positions, keys = grids
        hidden = self.model.encoder(ids, tf.zeros_like(ids), sequences, positions, dropout)
        chosen = tf.equal(wanted, tf.reshape(keys, [1, -1]))
        if self._settings.pooling == "first":
            first = tf.equal(tf.cast(tf.reshape(positions, [1, -1]), tf.int64), 0)
            share = tf.cast(chosen & first, tf.float32)
        else:
            # Counted in float32, because bfloat16 cannot represent 257. What fills a batch may
            # lack a text.
            share = tf.cast(chosen, tf.float32)
            share = tf.math.divide_no_nan(share, tf.reduce_sum(share, 1, keepdims=True))
        return ops.cast(tf.matmul(ops.cast(share, hidden.dtype), hidden), tf.float32)

    def _in_parts(
        self, grids: tuple[Tensor, ...], wanted: Tensor, dropout: encoded.Dropout
    ) -> Tensor:
        """Returns what _pooled does, of some rows at a time (Gao et al. 2021, GradCache).

        Nothing of a part is kept for the backward pass, which computes it again, with the same
        random numbers. A text is in one row, so that the parts' vectors add up.
        """
        size = self._settings.cache_rows
        count = -(-tf.shape(grids[0])[0] // size)

        def part(i: Tensor) -> Tensor:
            own = tuple(grid[i * size : (i + 1) * size] for grid in grids)
            far = tf.bitwise.left_shift(tf.cast(i, tf.uint64), tf.constant(_PART, tf.uint64))
            far = tf.stack([tf.constant(0, tf.uint64), far])
            random = dropout.random
            random = ops.Random(random.key, random.counter + far)
            return self._pooled(own, wanted, dataclasses.replace(dropout, random=random))

        def more(i: Tensor, _: Any) -> Tensor:
            return i < count

        @tf.custom_gradient
        def pooled(one: Tensor) -> tuple[Tensor, Any]:
            start = tf.zeros([tf.shape(wanted)[0], self.build.config.hidden_size])
            _, total = tf.while_loop(
                more, lambda i, sum_: (i + 1, sum_ + part(i)), (0, start), parallel_iterations=1
            )

            def gradient(dy: Tensor, variables: Any = None) -> tuple[Tensor, list[Tensor]]:
                def add(i: Tensor, sums: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
                    with tf.GradientTape() as tape:
                        value = part(i)
                    new = tape.gradient(value, variables, dy, "zero")
                    return i + 1, [s + tf.convert_to_tensor(g) for s, g in zip(sums, new)]

                zeros = [tf.zeros(v.shape) for v in variables]
                _, sums = tf.while_loop(more, add, (0, zeros), parallel_iterations=1)
                return tf.zeros_like(one), sums

            return total * one, gradient

        return pooled(tf.constant(1.0))

    def _sums(self, vectors: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
        weights, sizes = features["example_weights"], self._settings.matryoshka
        losses = tf.zeros_like(weights)
        for size in sizes or (vectors.shape[2],):
            part = _unit(vectors[:, :, :size]) if sizes else vectors
            losses += self._losses(part, features)
        # An example of weight 0 may have any label: its gradient must not be 0 times NaN.
        losses = tf.where(tf.equal(weights, 0), 0.0, losses)
        return {"loss_sum": encoded.weighted(losses, weights), "weight_sum": tf.reduce_sum(weights)}

    def _losses(self, vectors: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Returns the loss of each example, [B]."""
        if self._settings.loss == "cosine":
            weights, cosines = features["example_weights"], _cosines(vectors)
            labels = tf.where(tf.equal(weights, 0), cosines, features["labels"])
            return tf.math.squared_difference(cosines, labels)
        if self._settings.loss == "triplet":
            near, far = (_distances(vectors[:, 0], vectors[:, i]) for i in (1, 2))
            return tf.nn.relu(near - far + self._settings.margin)
        return _ranking(_unit(vectors), features["example_weights"], self._settings.scale)


def _unit(x: Tensor) -> Tensor:
    """Returns vectors of length 1, as torch.nn.functional.normalize does; zeros stay."""
    return x * tf.math.rsqrt(tf.maximum(ops.row_sums(tf.square(x))[..., None], 1e-24))


def _cosines(vectors: Tensor) -> Tensor:
    """Returns the cosines of the first two vectors of each example, [B]."""
    unit = _unit(vectors)
    return ops.row_sums(unit[:, 0] * unit[:, 1])


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Returns distances as torch.nn.functional.pairwise_distance, which adds 1e-6."""
    return tf.sqrt(ops.row_sums(tf.square(a - b + 1e-6)))


def _ranking(unit: Tensor, weights: Tensor, scale: float) -> Tensor:
    """Returns the loss of multiple negatives ranking of each example, [B].

    The cross entropy of the example's second text among those of all examples of the batch, and
    their third ones (Henderson et al. 2017). What has weight 0 is not among them.

    Args:
        unit: vectors of length 1, [B, texts, H].
        weights: of the examples, [B].
        scale: what cosines are multiplied by.
    """
    texts = unit.shape[1]
    others = tf.concat([unit[:, i] for i in range(1, texts)], 0)
    scores = scale * tf.matmul(unit[:, 0], others, transpose_b=True)
    present = tf.tile(tf.not_equal(weights, 0), [texts - 1])
    own = scale * ops.row_sums(unit[:, 0] * unit[:, 1])
    scores = tf.where(present[None, :], scores, scores.dtype.min)
    return tf.reduce_logsumexp(scores, 1) - own
