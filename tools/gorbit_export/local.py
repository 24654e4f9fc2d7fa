"""Attention within a window (Beltagy et al. 2020), in time proportional to the length of a row."""

from __future__ import annotations

import functools
from typing import Callable

import numpy as np
import tensorflow as tf

from gorbit_export import ops

Tensor = tf.Tensor


class _Blocks:
    """The computation for windows of one size: `reach` positions to either side.

    A row is cut into blocks of `reach` positions. Those of a block attend to it and its two
    neighbours, so that no matrix is wider than three blocks.
    """

    def __init__(self, reach: int) -> None:
        self._reach = reach
        queries, keys = np.arange(reach)[:, None], np.arange(3 * reach)[None, :]
        self._band = (keys >= queries) & (keys <= queries + 2 * reach)
        bodies = (
            self._local_attention,
            self._local_attention_dropout,
            self._local_attention_dropout_gradient,
        )
        self.functions = tuple(ops.block(body) for body in bodies)

    def _cut(self, x: Tensor, axis: int) -> Tensor:
        """Divides an axis into blocks; the last is filled up with 0."""
        size = tf.shape(x)[axis]
        blocks = (size + self._reach - 1) // self._reach
        padding = [[0, 0]] * x.shape.rank
        padding[axis] = [0, blocks * self._reach - size]
        x = tf.pad(x, padding)
        shape = tf.shape(x)
        cut = tf.reshape(x, tf.concat([shape[:axis], [blocks, self._reach], shape[axis + 1 :]], 0))
        static = x.shape.as_list()
        known = None if static[axis] is None else static[axis] // self._reach
        cut.set_shape([*static[:axis], known, self._reach, *static[axis + 1 :]])
        return cut

    @staticmethod
    def _near(blocks: Tensor, axis: int) -> Tensor:
        """Puts each block between its neighbours; the next axis becomes three times as long."""
        padding = [[0, 0]] * blocks.shape.rank
        padding[axis] = [1, 1]
        x = tf.pad(blocks, padding)
        before = [slice(None)] * axis
        parts = (slice(None, -2), slice(1, -1), slice(2, None))
        return tf.concat([x[(*before, part)] for part in parts], axis + 1)

    @staticmethod
    def _back(near: Tensor) -> Tensor:
        """The gradient of _near for axis 2."""
        left, own, right = tf.split(near, 3, axis=3)
        own += tf.pad(left[:, :, 1:], [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0]])
        return own + tf.pad(right[:, :, :-1], [[0, 0], [0, 0], [1, 0], [0, 0], [0, 0]])

    def _heads(self, qkv: Tensor, sequence_ids: Tensor, heads: Tensor) -> list[Tensor]:
        """Query (scaled), key and value in blocks, each [R, heads, N, reach, D]."""
        query, key, value = tf.unstack(ops._by_head(qkv, sequence_ids, heads), num=3)
        query = ops._scaled(query, _score_scale(qkv.shape[1] // 3, heads))
        return [self._cut(x, 2) for x in (query, key, value)]

    def _weights(self, query: Tensor, key: Tensor, sequence_ids: Tensor) -> Tensor:
        """The softmax of the scores, float32 [R, heads, N, reach, 3 reach]."""
        # In float32, because GPUs leave comparisons of int32 to the host, and pad no int64. From 1
        # on, because filling with another number than 0 makes the host wait for it.
        ids = self._cut(tf.cast(sequence_ids, tf.float32) + 1.0, 1)
        seen = tf.equal(ids[:, :, :, None], self._near(ids, 1)[:, :, None, :]) & self._band
        bias = tf.where(seen, 0.0, -1e9)[:, None]
        scores = tf.matmul(query, self._near(key, 2), transpose_b=True)
        return tf.nn.softmax(ops.cast(scores, tf.float32) + bias)

    @staticmethod
    def _join(x: Tensor, sequence_ids: Tensor, width: int) -> Tensor:
        """Reshapes [R, heads, N, reach, D] to [R * S, width]."""
        shape, length = tf.shape(x), tf.shape(sequence_ids)[1]
        x = tf.reshape(x, tf.stack([shape[0], shape[1], shape[2] * shape[3], shape[4]]))
        return ops._join_heads(x[:, :, :length], width)

    def _local_attention(
        self, qkv: Tensor, sequence_ids: Tensor, heads: Tensor, reach: Tensor
    ) -> Tensor:
        del reach  # for an implementation that has one function for all sizes
        query, key, value = self._heads(qkv, sequence_ids, heads)
        weights = ops.cast(self._weights(query, key, sequence_ids), qkv.dtype)
        context = tf.matmul(weights, self._near(value, 2))
        return self._join(context, sequence_ids, qkv.shape[1] // 3)

    def _local_attention_dropout(
        self,
        qkv: Tensor,
        sequence_ids: Tensor,
        heads: Tensor,
        reach: Tensor,
        rate: Tensor,
        random_key: Tensor,
        random_counter: Tensor,
    ) -> tuple[Tensor, ...]:
        del reach
        query, key, value = self._heads(qkv, sequence_ids, heads)
        weights = ops.cast(self._weights(query, key, sequence_ids), qkv.dtype)
        keep = ops._keep(weights, rate, ops.Random(random_key, random_counter))
        dropped = weights * tf.cast(keep, weights.dtype)
        value = ops._scaled(value, ops._factor(rate))
        context = tf.matmul(dropped, self._near(value, 2))
        context = self._join(context, sequence_ids, qkv.shape[1] // 3)
        return context, query, key, value, weights, dropped

    def _local_attention_dropout_gradient(
        self,
        dy: Tensor,
        qkv: Tensor,
        sequence_ids: Tensor,
        heads: Tensor,
        reach: Tensor,
        rate: Tensor,
        random_key: Tensor,
        random_counter: Tensor,
        context: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        weights: Tensor,
        dropped: Tensor,
    ) -> tuple[Tensor]:
        del reach, random_key, random_counter
        shape, width = tf.shape(sequence_ids), qkv.shape[1] // 3
        by_head = tf.stack([shape[0], shape[1], heads, width // heads])

        def blocks(x: Tensor) -> Tensor:
            return self._cut(tf.transpose(tf.reshape(x, by_head), [0, 2, 1, 3]), 2)

        dcontext = blocks(dy)
        # The inner product of the weights and their gradient equals that of the context and its
        # gradient, which are smaller (Dao et al. 2022).
        wide = ops.cast(dcontext, tf.float32) * ops.cast(blocks(context), tf.float32)
        inner = tf.reduce_sum(wide, -1, keepdims=True)
        dvalue = self._back(tf.matmul(dropped, dcontext, transpose_a=True))
        dweights = tf.matmul(dcontext, self._near(value, 2), transpose_b=True)
        dscores = ops.cast(dropped, tf.float32) * ops.cast(dweights, tf.float32)
        dscores = ops.cast(dscores - ops.cast(weights, tf.float32) * inner, dy.dtype)
        dquery = ops._scaled(tf.matmul(dscores, self._near(key, 2)), _score_scale(width, heads))
        dkey = self._back(tf.matmul(dscores, query, transpose_a=True))
        parts = (dquery, dkey, ops._scaled(dvalue, ops._factor(rate)))
        return (tf.concat([self._join(x, sequence_ids, width) for x in parts], 1),)


def _score_scale(width: int, heads: Tensor) -> Tensor:
    return tf.math.rsqrt(tf.cast(width // heads, tf.float32))


_blocks = functools.lru_cache(maxsize=None)(_Blocks)


def attention(
    qkv: Tensor,
    sequence_ids: Tensor,
    heads: int,
    reach: int | None = None,
    rate: Tensor | None = None,
    random: ops.Random | None = None,
) -> Tensor:
    """Computes multi-head self-attention within sequences of packed rows, and within a window.

    Args:
        qkv: [R * S, 3 * H], as in ops.attention, and without a bias.
        sequence_ids: int32 [R, S]: a position attends to the positions of its row that have
            the same number and are at most `reach` away.
        heads: number of heads, a divisor of H.
        reach: 1 or more; None for no window, which is ops.attention.
        rate: float32 scalar, dropout rate of the attention weights; unused if random is None.
        random: the site's stream, drawn for [R, heads, N, reach, 3 * reach], N being
            S / reach rounded up: the weights of the positions of a block for those of the block
            before, of the block itself and of the one behind; without a window as in
            ops.attention. None for no dropout.

    Returns:
        [R * S, H] in the dtype of qkv.
    """
    sizes = [tf.constant(heads, tf.int32)]
    blocks = (ops._attention, ops._attention_dropout, ops._attention_dropout_gradient)
    functions = tuple(functools.partial(block, number=heads) for block in blocks)
    if reach is not None:
        sizes.append(tf.constant(reach, tf.int32))
        functions = _blocks(reach).functions
    forward, train, backward = functions
    if random is None:
        return forward(qkv, sequence_ids, *sizes)
    rest = (sequence_ids, *sizes, rate, random.key, random.counter)

    @tf.custom_gradient
    def apply(qkv: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        context, *saved = train(qkv, *rest)
        return context, lambda dy: backward(dy, qkv, *rest, context, *saved)[0]

    return apply(qkv)
