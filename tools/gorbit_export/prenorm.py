"""The parts of layers that normalize their inputs, and whose maps have no biases."""

from __future__ import annotations

import math
from typing import Callable

import tensorflow as tf

from gorbit_export import ops

Tensor = tf.Tensor
Gradient = Callable[..., tuple[Tensor, ...]]


def _moments(x: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """The means of the rows of x, and the reciprocals of their standard deviations."""
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), -1, keepdims=True)
    return mean, tf.math.rsqrt(variance + epsilon)


@ops.block
def _scale_norm(x: Tensor, scale: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, reciprocal = _moments(x, epsilon)
    return (x - mean) * reciprocal * scale, mean, reciprocal


@ops.block
def _scale_norm_gradient(
    dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor, reciprocal: Tensor
) -> tuple[Tensor, Tensor]:
    normalized = (x - mean) * reciprocal
    dx, dscale, _ = ops._normalize_gradient(dy, normalized, reciprocal, scale)
    return dx, dscale


def scale_norm(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Layer normalization without an offset.

    Args:
        x: [T, H].
        scale: float32 [H].
        epsilon: added to the variance.

    Returns:
        [T, H] in the dtype of x.
    """
    epsilon = tf.constant(epsilon, tf.float32)

    @tf.custom_gradient
    def apply(x: Tensor, scale: Tensor) -> tuple[Tensor, Gradient]:
        y, *saved = _scale_norm(ops.cast(x, tf.float32), scale, epsilon)

        def gradient(dy: Tensor) -> tuple[Tensor, Tensor]:
            wide = (ops.cast(dy, tf.float32), ops.cast(x, tf.float32))
            dx, dscale = _scale_norm_gradient(*wide, scale, *saved)
            return ops.cast(dx, x.dtype), dscale

        return ops.cast(y, x.dtype), gradient

    return apply(x, scale)


@ops.block
def _residual_dropout(
    x: Tensor, residual: Tensor, rate: Tensor, key: Tensor, counter: Tensor
) -> tuple[Tensor, Tensor]:
    keep = ops._keep(x, rate, ops.Random(key, counter))
    return residual + x * ops._mask(keep, rate, x.dtype), keep


@ops.block
def _residual_dropout_gradient(
    dy: Tensor, rate: Tensor, key: Tensor, counter: Tensor, keep: Tensor
) -> Tensor:
    del key, counter  # for an implementation that draws again instead of storing `keep`
    return dy * ops._mask(keep, rate, dy.dtype)


def residual(
    x: Tensor, residual: Tensor, rate: Tensor | None = None, random: ops.Random | None = None
) -> Tensor:
    """Computes residual + dropout(x), the end of a sublayer.

    Args:
        x: [T, H], the sublayer's last product.
        residual: [T, H] of the same dtype, the sublayer's input.
        rate: float32 scalar, the dropout rate; unused if random is None.
        random: the site's stream; None for no dropout.

    Returns:
        [T, H] of the same dtype.
    """
    if random is None:
        return x + residual
    drawn = (rate, random.key, random.counter)

    @tf.custom_gradient
    def apply(x: Tensor, residual: Tensor) -> tuple[Tensor, Gradient]:
        wide = (ops.cast(x, tf.float32), ops.cast(residual, tf.float32))
        y, keep = _residual_dropout(*wide, *drawn)

        def gradient(dy: Tensor) -> tuple[Tensor, Tensor]:
            dx = _residual_dropout_gradient(ops.cast(dy, tf.float32), *drawn, keep)
            return ops.cast(dx, x.dtype), dy

        return ops.cast(y, x.dtype), gradient

    return apply(x, residual)


@ops.block
def _geglu(x: Tensor) -> Tensor:
    value, gate = tf.split(x, 2, axis=1)
    return ops.gelu(value) * gate


@ops.block
def _geglu_dropout(x: Tensor, rate: Tensor, key: Tensor, counter: Tensor) -> tuple[Tensor, Tensor]:
    value, gate = tf.split(x, 2, axis=1)
    y = ops.gelu(value) * gate
    keep = ops._keep(y, rate, ops.Random(key, counter))
    return y * ops._mask(keep, rate, y.dtype), keep


@ops.block
def _geglu_dropout_gradient(
    dy: Tensor, x: Tensor, rate: Tensor, key: Tensor, counter: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor]:
    del key, counter
    value, gate = tf.split(x, 2, axis=1)
    mask = ops._mask(keep, rate, dy.dtype)
    cdf = 0.5 + 0.5 * tf.math.erf(value * math.sqrt(0.5))
    density = tf.exp(-0.5 * math.log(2 * math.pi) - 0.5 * tf.square(value))
    dy *= mask
    dvalue = dy * gate * (cdf + value * density)
    return tf.concat([dvalue, dy * value * cdf], 1), value * cdf * gate * mask


def gated_product(
    name: str,
    z: Tensor,
    kernel: Tensor,
    rate: Tensor | None = None,
    random: ops.Random | None = None,
) -> Tensor:
    """Computes dropout(activation(value) * gate) @ kernel (Shazeer 2020).

    Args:
        name: one of ops.ACTIVATIONS.
        z: [T, 2 * F], a product that holds value and gate side by side.
        kernel: [F, H] in the dtype of z.
        rate: float32 scalar, the dropout rate; unused if random is None.
        random: the site's stream; None for no dropout.

    Returns:
        [T, H] of the same dtype.
    """
    if name != "gelu":
        value, gate = tf.split(z, 2, axis=1)
        y = ops.activate(name, value) * gate
        return tf.matmul(y if random is None else ops.dropout(y, rate, random), kernel)
    if random is None:
        return tf.matmul(ops.cast(_geglu(ops.cast(z, tf.float32)), z.dtype), kernel)
    drawn = (rate, random.key, random.counter)

    @tf.custom_gradient
    def apply(z: Tensor, kernel: Tensor) -> tuple[Tensor, Gradient]:
        y, keep = _geglu_dropout(ops.cast(z, tf.float32), *drawn)

        def gradient(dy: Tensor) -> tuple[Tensor, Tensor]:
            # The first factor is not kept: it can be recomputed at almost no cost.
            inner = ops.cast(tf.matmul(dy, kernel, transpose_b=True), tf.float32)
            dz, y = _geglu_dropout_gradient(inner, ops.cast(z, tf.float32), *drawn, keep)
            dkernel = tf.matmul(ops.cast(y, z.dtype), dy, transpose_a=True)
            return ops.cast(dz, z.dtype), dkernel

        return tf.matmul(ops.cast(y, z.dtype), kernel), gradient

    return apply(z, kernel)
