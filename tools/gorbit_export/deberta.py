"""The encoder of DeBERTa-v3 (He et al. 2021), over packed rows."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from gorbit_export import bert, layers, ops
from gorbit_export.deberta_config import DebertaConfig

Tensor = tf.Tensor
Dropout = bert.Dropout


class Embeddings(tf.Module):
    """The vectors of words, mapped to the layers' width and normalized."""

    def __init__(self, config: DebertaConfig, seed: int) -> None:
        """Makes the table, the map where the table is narrower than the layers, and the norm."""
        super().__init__()
        h, e, std = config.hidden_size, config.embedding_width, config.initializer_range
        name = "embeddings.word_embeddings"
        self.word = layers.Embedding(config.vocab_size, e, std, seed, name)
        self.projection = None
        if e != h:
            name = config.family.projection
            self.projection = layers.Dense(e, h, std, seed, name, bias=False)
        self.norm = layers.LayerNorm(h, config.layer_norm_eps, "embeddings.LayerNorm")

    def __call__(self, ids: Tensor, position_ids: Tensor, type_ids: Tensor) -> Tensor:
        """Maps int32 [T] to float32 [T, H]. Only the ids are looked at."""
        del position_ids, type_ids
        x = self.word(ids)
        return self.norm(x if self.projection is None else self.projection(x))


class Encoder(bert.Encoder):
    """DeBERTa without a head, with the interface of bert.Encoder.

    Scores are sums of three products: of queries with keys, of queries with a vector for the
    distance to the key, and of keys with one for the distance to the query. How far two positions
    of a sequence are apart is how far they are apart in their row.
    """

    _sites = bert.SITES_PER_LAYER  # the last one's is the table of distances

    def __init__(
        self,
        config: DebertaConfig,
        seed: int = 0,
        recompute: str = "none",
        compute: tf.DType = tf.float32,
    ) -> None:
        """See bert.Encoder."""
        tf.Module.__init__(self)
        self._configure(config, recompute, compute)
        h, std = config.hidden_size, config.initializer_range
        self.embeddings, self.projection = Embeddings(config, seed), None
        rows, name = 2 * config.position_buckets, "encoder.rel_embeddings"
        self.relative = layers.Embedding(rows, h, std, seed, name)
        self.norm = layers.LayerNorm(h, config.layer_norm_eps, "encoder.LayerNorm")
        self._make_layers(seed)

    def _relative(self, sequence_ids: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """See bert.Encoder.

        Returns:
            Rows of the table of distances, int32 [2 S]: of S - 1 to -S, and of 1 - S to S; and the
            table, normalized.
        """
        known, length = self._config.positions, tf.shape(sequence_ids)[1]
        rows = buckets(self._config, np.arange(-known, known + 1)) + self._config.position_buckets
        rows = tf.constant(np.clip(rows, 0, 2 * self._config.position_buckets - 1), tf.int32)
        # Positions that are further apart belong to different sequences.
        more = tf.maximum(length - known, 0)
        rows = tf.pad(rows, [[more, more]])
        middle = known + more
        rows = rows[middle - length : middle + length + 1]
        return [tf.reverse(rows, [0])[1:], rows[1:]], [
            self.norm(tf.convert_to_tensor(self.relative.table))
        ]

    def _attention(
        self,
        y: Tensor,
        maps: bert._Maps,
        sequence_ids: Tensor,
        distances: list[Tensor],
        table: Tensor,
        rates: tuple[Tensor | None, Tensor | None],
        sites: list[ops.Random | None],
    ) -> Tensor:
        """See bert.Encoder."""
        width, heads = self._config.hidden_size, self._config.num_attention_heads
        if sites[3] is not None:
            table = ops.dropout(table, rates[0], sites[3])
        positions = ops.add_bias(maps(ops.cast(table, self._compute)), maps.bias.full)
        # In float32, so that the gradients of distances are summed there.
        positions = ops.cast(positions, tf.float32)
        of_queries, of_keys = positions[:, :width], positions[:, width : 2 * width]
        scale = 1 / math.sqrt(3 * self._config.head_size)
        qkv = ops.add_bias(maps(y), maps.bias.full)
        query, key, value = tf.unstack(ops._by_head(qkv, sequence_ids, heads), num=3)
        query = ops._scaled(query, scale)
        more = _by_distance(query, of_keys, distances[0])
        back = _by_distance(key, of_queries * scale, distances[1])
        more += tf.transpose(back, [0, 1, 3, 2])
        weights = ops._attention_weights(query, key, sequence_ids, more)
        weights = ops.cast(weights, self._compute)
        if sites[0] is not None:
            weights = ops.dropout(weights, rates[1], sites[0])
        return ops._join_heads(tf.matmul(weights, value), width)


def buckets(config: DebertaConfig, distances: np.ndarray) -> np.ndarray:
    """Returns the bucket of each distance, from -position_buckets to position_buckets.

    Near ones have one each, and the others by the logarithm, in float32 as transformers has it.
    """
    near = config.position_buckets // 2
    away = np.maximum(np.abs(distances), near).astype(np.float32)
    last = np.log(np.float32((config.reach - 1) / near))
    far = np.ceil(np.log(away / np.float32(near)) / last * np.float32(near - 1)) + near
    far = np.sign(distances) * far
    return np.where(np.abs(distances) <= near, distances, far).astype(np.int32)


def _by_distance(x: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """Products of x with a vector for the distance of each pair of positions.

    Args:
        x: [R, heads, S, D].
        table: float32 [N, heads * D].
        rows: int32 [2 S], the row of the table for each distance b - a, from 1 - S to S.

    Returns:
        float32 [R, heads, S, S]: of x at a and the vector for b - a.
    """
    shape, heads, size = tf.shape(x), x.shape[1], x.shape[3]
    vectors = tf.reshape(ops.embedding(table, rows), tf.stack([2 * shape[2], heads, size]))
    vectors = ops.cast(tf.transpose(vectors, [1, 0, 2]), x.dtype)
    products = ops.cast(tf.matmul(x, vectors, transpose_b=True), tf.float32)
    # Row a begins a places further to the left than the one before it: in rows that are one place
    # shorter, b is at column b.
    flat = tf.reshape(products, tf.stack([shape[0], shape[1], 2 * shape[2] * shape[2]]))
    flat = flat[:, :, shape[2] - 1 : -1]
    rest = tf.stack([shape[0], shape[1], shape[2], 2 * shape[2] - 1])
    return tf.reshape(flat, rest)[:, :, :, : shape[2]]


def flops(config: DebertaConfig) -> dict[str, int]:
    """Counts operations as bert.flops does, but for those of the table of distances.

    There are two products with vectors of distances, each with twice as many as positions.
    """
    pairs = config.num_hidden_layers * 8 * config.hidden_size
    counted = bert.flops(config)
    return counted | {"per_token_pair": counted["per_token_pair"] + pairs}
