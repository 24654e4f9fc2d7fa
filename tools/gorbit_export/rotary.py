"""Rotary position embeddings (Su et al. 2021), over packed rows."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from gorbit_export import ops, rope

Tensor = tf.Tensor


def tables(
    position_ids: Tensor, width: int, theta: float, scaling: dict[str, Any] | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the cosines and the sines of the angles of all positions.

    Args:
        position_ids: int32 [T].
        width: that of a head, even.
        theta: the base of the frequencies.
        scaling: how they are scaled, as `rope.checked` gives it; None: they are not.

    Returns:
        Two float32 [T, width / 2].
    """
    frequencies, factor = rope.frequencies(width, theta, scaling)
    angles = tf.cast(position_ids, tf.float32)[:, None] * frequencies
    cosines, sines = tf.cos(angles), tf.sin(angles)
    return (cosines, sines) if factor == 1 else (cosines * factor, sines * factor)


@ops.block
def _rotary(x: Tensor, cosines: Tensor, sines: Tensor, heads: Tensor) -> Tensor:
    half = cosines.shape[1]
    width = heads * (2 * half)
    parts = tf.reshape(x[:, :width], tf.stack([-1, heads, 2, half]))
    first, second = tf.unstack(parts, num=2, axis=2)
    cosines, sines = cosines[:, None, :], sines[:, None, :]
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    y = tf.concat([tf.reshape(tf.stack(turned, 2), tf.stack([-1, width])), x[:, width:]], 1)
    y.set_shape(x.shape)
    return y


def rotary(x: Tensor, cosines: Tensor, sines: Tensor, heads: int) -> Tensor:
    """Turns each pair of numbers of a head by its position's angle.

    A pair is a number of a head's first half, and the one at the same place of the second half.

    Args:
        x: [T, W], heads side by side, such as the product that holds query, key and value.
        cosines: float32 [T, D / 2], of `tables`, D being the width of a head.
        sines: the same.
        heads: how many heads are turned. What follows them stays as it is.

    Returns:
        [T, W] in the dtype of x.
    """
    if not 0 < heads * 2 * cosines.shape[1] <= x.shape[1]:
        width = 2 * cosines.shape[1]
        raise ValueError(f"{heads} heads of width {width} do not fit into {x.shape[1]} columns")
    count = tf.constant(heads, tf.int32)

    @tf.custom_gradient
    def apply(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        def turn(x: Tensor, sines: Tensor) -> Tensor:
            return ops.cast(_rotary(ops.cast(x, tf.float32), cosines, sines, count), x.dtype)

        return turn(x, sines), lambda dy: turn(dy, -sines)

    return apply(x)
