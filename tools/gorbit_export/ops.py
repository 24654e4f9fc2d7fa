"""Building blocks whose gradients are written out, and stateless randomness."""

from __future__ import annotations

import dataclasses
import math
from typing import Callable

import tensorflow as tf

Tensor = tf.Tensor
_PHILOX = 1  # tensorflow/core/framework/rng_alg.h


@dataclasses.dataclass(frozen=True)
class Random:
    """A source of random numbers without state, one stream per site.

    Philox is counter based: its numbers are a function of a key and a 128 bit
    counter. The key and the counter's start come from the step's seed; every
    place in the model that draws (a site) adds its number to the counter's
    high half, so that streams cannot overlap.

    Attributes:
        key: uint64 [1].
        counter: uint64 [2], low half first.
    """

    key: Tensor
    counter: Tensor

    @classmethod
    def from_seed(cls, seed: Tensor) -> Random:
        """Makes the source of one step.

        Args:
            seed: int64 [2], for instance a run's seed (with the replica's and the
                micro-batch's number mixed in) and the step.
        """
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        return cls(key, counter)

    def site(self, number: int | Tensor) -> Random:
        """Returns the stream of one site, by its number."""
        offset = tf.stack([tf.constant(0, tf.uint64), tf.cast(number, tf.uint64)])
        return Random(self.key, self.counter + offset)

    def bits16(self, shape: Tensor) -> Tensor:
        """Draws uniform 16 bit numbers, of which a 128 bit block of Philox holds eight.

        Number n is half n % 2 (the low one first) of the stream's 32 bit word n // 2.

        Returns:
            int16 of the shape: every value from -32768 to 32767 is as likely.
        """
        count = tf.reduce_prod(shape)
        words = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=tf.reshape((count + 1) // 2, [1]),
            key=self.key,
            counter=self.counter,
            alg=_PHILOX,
            dtype=tf.int32,
        )
        halves = tf.reshape(tf.bitcast(words, tf.int16), [-1])
        return tf.reshape(halves[:count], shape)


def dropout(x: Tensor, rate: Tensor, random: Random) -> Tensor:
    """Sets elements to zero with probability `rate` and scales the others up.

    The rate is rounded to a multiple of 1/65536 below 1, and the scale is that of
    the rounded rate, so the expectation is exact. A rate of 0 returns x unchanged.

    Args:
        x: float tensor of any shape.
        rate: float32 scalar in [0, 1).
        random: the site's stream.
    """
    dropped = tf.clip_by_value(tf.round(rate * 65536.0), 0.0, 65535.0)
    scale = tf.cast(65536.0 / (65536.0 - dropped), x.dtype)
    threshold = tf.cast(tf.cast(dropped, tf.int32) - 32768, tf.int16)
    keep = random.bits16(tf.shape(x)) >= threshold

    @tf.custom_gradient
    def apply(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        mask = tf.cast(keep, x.dtype) * scale
        return x * mask, lambda dy: dy * mask

    return apply(x)


def layer_norm(x: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Layer normalization over the last axis (Ba et al. 2016).

    The gradient is the closed form dx = r * (g - mean(g) - n * mean(g * n)) with
    g = dy * scale, n the normalized input and r the reciprocal deviation.
    """

    @tf.custom_gradient
    def apply(
        x: Tensor, scale: Tensor, bias: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        centered = x - tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
        reciprocal = tf.math.rsqrt(variance + epsilon)
        normalized = centered * reciprocal

        def gradient(dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            g = dy * scale
            dx = reciprocal * (
                g
                - tf.reduce_mean(g, -1, keepdims=True)
                - normalized * tf.reduce_mean(g * normalized, -1, keepdims=True)
            )
            axes = list(range(x.shape.rank - 1))
            return dx, tf.reduce_sum(dy * normalized, axes), tf.reduce_sum(dy, axes)

        return normalized * scale + bias, gradient

    return apply(x, scale, bias)


@tf.custom_gradient
def gelu(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The Gaussian error linear unit, exact: x * Phi(x) (Hendrycks & Gimpel 2016)."""
    cdf = 0.5 + 0.5 * tf.math.erf(x * math.sqrt(0.5))

    def gradient(dy: Tensor) -> Tensor:
        return dy * (cdf + x * (tf.exp(-0.5 * tf.square(x)) * (1 / math.sqrt(2 * math.pi))))

    return x * cdf, gradient


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of the Gaussian error linear unit."""
    return tf.nn.gelu(x, approximate=True)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "swish": tf.nn.silu,
    "tanh": tf.nn.tanh,
}
"""Activation functions by the names that configuration files use."""


def embedding(table: Tensor, ids: Tensor) -> Tensor:
    """Looks rows of a table up; its gradient is dense and summed in a fixed order.

    Args:
        table: float [V, H].
        ids: integers [N] in [0, V).

    Returns:
        float [N, H].
    """

    @tf.custom_gradient
    def apply(table: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        rows = tf.shape(table)[0]
        return tf.gather(table, ids), lambda dy: tf.math.unsorted_segment_sum(dy, ids, rows)

    return apply(table)
