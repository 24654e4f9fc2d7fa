"""Building blocks with explicit gradients, and stateless random numbers.

The blocks that take most of a step besides the matrix products are graph functions
of their own, forward and backward. The `_implements` attribute of each names what it
computes ("gorbit.gelu"). A runtime with a faster implementation for its hardware
replaces them; any other runs them as they are. docs/reference/contract.md lists them.

Inputs narrower than float32 give outputs of the same dtype. The attention block then
computes its matrix products in that dtype and its softmax in float32. The other blocks
always compute in float32, and so do biases, the parameters of norms, and their gradients.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable

import tensorflow as tf

Tensor = tf.Tensor
_PHILOX = 1  # tensorflow/core/framework/rng_alg.h
_IMPLEMENTS = "_implements"


def block(body: Callable[..., Any]) -> Callable[..., Any]:
    """Turns `body` into a graph function that implements "gorbit.NAME", NAME being the body's."""
    name = body.__name__.strip("_")
    function = tf.function(
        body, autograph=False, experimental_attributes={_IMPLEMENTS: f"gorbit.{name}"}
    )
    # In a lambda, so that no module saves it as a function of its own.
    return lambda *args: function(*args)


def cast(x: Tensor, dtype: tf.DType) -> Tensor:
    """Casts a tensor. A tensor that already has the dtype is returned as is, without a new node."""
    return x if x.dtype == dtype else tf.cast(x, dtype)


def _wide(x: Tensor) -> Tensor:
    return cast(x, tf.float32)


def _scaled(x: Tensor, factor: Tensor) -> Tensor:
    """Multiplies by a float32 scalar that is not first rounded to the dtype of x."""
    return cast(_wide(x) * factor, x.dtype)


@dataclasses.dataclass(frozen=True)
class Random:
    """A stateless source of random numbers, with one stream per site.

    Philox is counter-based: its numbers are a function of a key and a 128-bit
    counter. The key and the initial counter come from the step's seed. Each place
    in the model that draws numbers (a site) adds its own number to the counter's
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
            seed: int64 [2], for instance the run's seed (mixed with the numbers of the
                replica and the micro-batch) and the step.
        """
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        return cls(key, counter)

    def site(self, number: int | Tensor) -> Random:
        """Returns the stream of one site, by its number."""
        offset = tf.stack([tf.constant(0, tf.uint64), tf.cast(number, tf.uint64)])
        return Random(self.key, self.counter + offset)

    def bits16(self, like: Tensor) -> Tensor:
        """Draws uniform 16-bit numbers. A 128-bit block of Philox holds eight of them.

        Number n is half n % 2 (the low one first) of the stream's 32-bit word n // 2.

        Args:
            like: a tensor of the wanted shape.

        Returns:
            int16; all values from -32768 to 32767 are equally likely.
        """
        # Not the product of the shape: a GPU would compute it, and the host wait for it.
        count = tf.size(like)
        words = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=tf.reshape((count + 1) // 2, [1]),
            key=self.key,
            counter=self.counter,
            alg=_PHILOX,
            dtype=tf.int32,
        )
        halves = tf.bitcast(words, tf.int16)
        if all(size is None or size % 2 for size in like.shape):  # the count may be odd
            halves = tf.reshape(halves, [-1])[:count]
        return tf.reshape(halves, tf.shape(like))


def _dropped(rate: Tensor) -> Tensor:
    """Returns how many of the 65536 16-bit numbers mean "drop", a float32 scalar."""
    return tf.clip_by_value(tf.round(rate * 65536.0), 0.0, 65535.0)


def _factor(rate: Tensor) -> Tensor:
    """Returns the factor that dropout applies to the elements it keeps."""
    return 65536.0 / (65536.0 - _dropped(rate))


def _keep(like: Tensor, rate: Tensor, random: Random) -> Tensor:
    """Draws which elements dropout keeps, bool of the shape of `like`."""
    # The difference in float32: GPUs leave arithmetic of int32 to the host.
    threshold = tf.cast(_dropped(rate) - 32768.0, tf.int16)
    return random.bits16(like) >= threshold


def dropout(x: Tensor, rate: Tensor, random: Random) -> Tensor:
    """Sets elements to zero with probability `rate`, and scales up the others.

    The rate is rounded to a multiple of 1/65536 below 1. The scale is computed from
    the rounded rate, so the expectation is exact. A rate of 0 returns x unchanged.

    Args:
        x: float tensor of any shape.
        rate: float32 scalar in [0, 1).
        random: the site's stream.
    """
    keep, scale = _keep(x, rate, random), _factor(rate)

    @tf.custom_gradient
    def apply(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        mask = tf.cast(keep, x.dtype) * tf.cast(scale, x.dtype)
        return x * mask, lambda dy: dy * mask

    return apply(x)


def _normalize(x: Tensor, epsilon: Tensor | float) -> tuple[Tensor, Tensor]:
    """Returns the normalized rows of x, and the reciprocals of their standard deviations."""
    centered = x - tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
    reciprocal = tf.math.rsqrt(variance + epsilon)
    return centered * reciprocal, reciprocal


def _normalize_gradient(
    dy: Tensor, normalized: Tensor, reciprocal: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of a layer norm's x, scale and offset.

    dx = r * (g - mean(g) - n * mean(g * n)) with g = dy * scale, n the normalized
    input and r the reciprocal standard deviation.
    """
    g = dy * scale
    dx = reciprocal * (
        g
        - tf.reduce_mean(g, -1, keepdims=True)
        - normalized * tf.reduce_mean(g * normalized, -1, keepdims=True)
    )
    axes = list(range(dy.shape.rank - 1))
    return dx, tf.reduce_sum(dy * normalized, axes), tf.reduce_sum(dy, axes)


def layer_norm(x: Tensor, scale: Tensor, offset: Tensor, epsilon: float) -> Tensor:
    """Layer normalization over the last axis (Ba et al. 2016)."""

    @tf.custom_gradient
    def apply(
        x: Tensor, scale: Tensor, offset: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        normalized, reciprocal = _normalize(x, epsilon)
        return normalized * scale + offset, lambda dy: _normalize_gradient(
            dy, normalized, reciprocal, scale
        )

    return apply(x, scale, offset)


def _add_bias(z: Tensor, bias: Tensor) -> Tensor:
    return tf.nn.bias_add(z, cast(bias, z.dtype))


def _bias_gradient(dy: Tensor) -> Tensor:
    return tf.raw_ops.BiasAddGrad(out_backprop=_wide(dy))


@block
def _residual_norm(
    x: Tensor, residual: Tensor, scale: Tensor, offset: Tensor, epsilon: Tensor
) -> Tensor:
    normalized, _ = _normalize(residual + x, epsilon)
    return normalized * scale + offset


@block
def _residual_norm_dropout(
    x: Tensor,
    residual: Tensor,
    scale: Tensor,
    offset: Tensor,
    epsilon: Tensor,
    rate: Tensor,
    key: Tensor,
    counter: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    keep = _keep(x, rate, Random(key, counter))
    kept = x * (tf.cast(keep, x.dtype) * _factor(rate))
    normalized, reciprocal = _normalize(residual + kept, epsilon)
    return normalized * scale + offset, normalized, reciprocal, keep


@block
def _residual_norm_dropout_gradient(
    dy: Tensor,
    scale: Tensor,
    rate: Tensor,
    key: Tensor,
    counter: Tensor,
    normalized: Tensor,
    reciprocal: Tensor,
    keep: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    del key, counter  # for an implementation that draws again instead of storing `keep`
    dresidual, dscale, doffset = _normalize_gradient(dy, normalized, reciprocal, scale)
    dx = dresidual * (tf.cast(keep, dy.dtype) * _factor(rate))
    return dx, _bias_gradient(dx), dresidual, dscale, doffset


def residual_norm(
    z: Tensor,
    bias: Tensor,
    residual: Tensor,
    scale: Tensor,
    offset: Tensor,
    epsilon: float,
    rate: Tensor | None = None,
    random: Random | None = None,
) -> Tensor:
    """Computes layer_norm(residual + dropout(z + bias)), the end of a transformer sublayer.

    Args:
        z: [T, H], the sublayer's last product.
        bias: float32 [H], added to that product.
        residual: [T, H] of the same dtype, the sublayer's input.
        scale: float32 [H], scale of the norm.
        offset: float32 [H], offset of the norm.
        epsilon: added to the variance.
        rate: float32 scalar, the dropout rate; unused if random is None.
        random: the site's stream; None for no dropout.

    Returns:
        [T, H] of the same dtype.
    """
    epsilon = tf.constant(epsilon, tf.float32)
    if random is None:
        y = _residual_norm(_wide(_add_bias(z, bias)), _wide(residual), scale, offset, epsilon)
        return cast(y, z.dtype)
    drawn = (rate, random.key, random.counter)

    @tf.custom_gradient
    def apply(
        z: Tensor, bias: Tensor, residual: Tensor, scale: Tensor, offset: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
        x = _wide(_add_bias(z, bias))
        y, *saved = _residual_norm_dropout(x, _wide(residual), scale, offset, epsilon, *drawn)

        def gradient(dy: Tensor) -> tuple[Tensor, ...]:
            dx, dbias, dresidual, dscale, doffset = _residual_norm_dropout_gradient(
                _wide(dy), scale, *drawn, *saved
            )
            return cast(dx, z.dtype), dbias, cast(dresidual, z.dtype), dscale, doffset

        return cast(y, z.dtype), gradient

    return apply(z, bias, residual, scale, offset)


@block
def _gelu(x: Tensor) -> Tensor:
    return gelu(x)


@block
def _gelu_gradient(dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    cdf = 0.5 + 0.5 * tf.math.erf(x * math.sqrt(0.5))
    # The density's constant factor is moved into the exponent, which saves one pass.
    density = tf.exp(-0.5 * math.log(2 * math.pi) - 0.5 * tf.square(x))
    dx = dy * (cdf + x * density)
    return dx, _bias_gradient(dx), x * cdf


def _gelu_product(z: Tensor, bias: Tensor, kernel: Tensor) -> Tensor:
    """Computes gelu(z + bias) @ kernel.

    The kernel's gradient needs the output of GELU. GELU's own gradient can recompute it
    at almost no cost, so it is not kept. It would be a quarter of what a layer keeps.
    """

    @tf.custom_gradient
    def apply(
        z: Tensor, bias: Tensor, kernel: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        x = _add_bias(z, bias)

        def gradient(dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            dgelu = tf.matmul(dy, kernel, transpose_b=True)
            dx, dbias, y = _gelu_gradient(_wide(dgelu), _wide(x))
            dkernel = tf.matmul(cast(y, z.dtype), dy, transpose_a=True)
            return cast(dx, z.dtype), dbias, dkernel

        return tf.matmul(cast(_gelu(_wide(x)), z.dtype), kernel), gradient

    return apply(z, bias, kernel)


def gelu(x: Tensor) -> Tensor:
    """The Gaussian error linear unit, exact: x * Phi(x) (Hendrycks & Gimpel 2016)."""
    return x * (0.5 + 0.5 * tf.math.erf(x * math.sqrt(0.5)))


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of the Gaussian error linear unit."""
    return tf.nn.gelu(x, approximate=True)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "swish": tf.nn.silu,
    "tanh": tf.nn.tanh,
}

ACTIVATIONS = ("gelu", *_ACTIVATIONS)
"""Activation functions, by the names that configuration files use."""


def activate(name: str, x: Tensor) -> Tensor:
    """Computes an activation function, `name` being one of ACTIVATIONS."""
    return gelu(x) if name == "gelu" else _ACTIVATIONS[name](x)


def activated_product(name: str, z: Tensor, bias: Tensor, kernel: Tensor) -> Tensor:
    """Computes activation(z + bias) @ kernel, the middle of a position-wise network.

    Args:
        name: one of ACTIVATIONS.
        z: [T, F], a product.
        bias: float32 [F], added to that product.
        kernel: [F, H] in the dtype of z.

    Returns:
        [T, H] of the same dtype.
    """
    if name == "gelu":
        return _gelu_product(z, bias, kernel)
    return tf.matmul(_ACTIVATIONS[name](_add_bias(z, bias)), kernel)


def _split_heads(qkv: Tensor, sequence_ids: Tensor, heads: Tensor) -> list[Tensor]:
    """Returns query (scaled), key and value, each [R, heads, S, D]."""
    shape = tf.shape(sequence_ids)
    width = qkv.shape[1] // 3
    x = tf.reshape(qkv, tf.stack([shape[0], shape[1], 3, heads, width // heads]))
    query, key, value = tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), num=3)
    return [_scaled(query, _score_scale(width, heads)), key, value]


def _score_scale(width: int, heads: Tensor) -> Tensor:
    return tf.math.rsqrt(tf.cast(width // heads, tf.float32))


def _attention_weights(query: Tensor, key: Tensor, sequence_ids: Tensor) -> Tensor:
    """Returns the softmax of the scores, float32 [R, heads, S, S]."""
    # In int64, because GPUs leave comparisons of int32 to the host.
    ids = tf.cast(sequence_ids, tf.int64)
    same = tf.equal(ids[:, :, None], ids[:, None, :])
    # Finite, so that a softmax over nothing but padding is not NaN.
    bias = tf.where(same, 0.0, -1e9)[:, None, :, :]
    return tf.nn.softmax(_wide(tf.matmul(query, key, transpose_b=True)) + bias)


def _join_heads(x: Tensor, width: int) -> Tensor:
    """Reshapes [R, heads, S, D] to [R * S, width]."""
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, width])


@block
def _attention(qkv: Tensor, sequence_ids: Tensor, heads: Tensor) -> Tensor:
    query, key, value = _split_heads(qkv, sequence_ids, heads)
    weights = cast(_attention_weights(query, key, sequence_ids), qkv.dtype)
    return _join_heads(tf.matmul(weights, value), qkv.shape[1] // 3)


@block
def _attention_dropout(
    qkv: Tensor,
    sequence_ids: Tensor,
    heads: Tensor,
    rate: Tensor,
    random_key: Tensor,
    random_counter: Tensor,
) -> tuple[Tensor, ...]:
    query, key, value = _split_heads(qkv, sequence_ids, heads)
    weights = cast(_attention_weights(query, key, sequence_ids), qkv.dtype)
    keep = _keep(weights, rate, Random(random_key, random_counter))
    dropped = weights * tf.cast(keep, weights.dtype)
    # The dropout factor is applied to the values, which are fewer than the weights.
    value = _scaled(value, _factor(rate))
    context = _join_heads(tf.matmul(dropped, value), qkv.shape[1] // 3)
    return context, query, key, value, weights, dropped


@block
def _attention_dropout_gradient(
    dy: Tensor,
    qkv: Tensor,
    sequence_ids: Tensor,
    heads: Tensor,
    rate: Tensor,
    random_key: Tensor,
    random_counter: Tensor,
    context: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    dropped: Tensor,
) -> tuple[Tensor, Tensor]:
    del random_key, random_counter  # for an implementation that recomputes instead of storing
    shape, width = tf.shape(sequence_ids), qkv.shape[1] // 3
    by_head = tf.stack([shape[0], shape[1], heads, width // heads])
    dcontext = tf.transpose(tf.reshape(dy, by_head), [0, 2, 1, 3])
    # The inner product of the weights and their gradient equals that of the context
    # and its gradient, which are smaller (Dao et al. 2022).
    inner = tf.reduce_sum(tf.reshape(_wide(dy) * _wide(context), by_head), -1)
    inner = tf.transpose(inner, [0, 2, 1])[:, :, :, None]
    dvalue = _scaled(tf.matmul(dropped, dcontext, transpose_a=True), _factor(rate))
    dweights = _wide(tf.matmul(dcontext, value, transpose_b=True))
    dscores = cast(_wide(dropped) * dweights - _wide(weights) * inner, dy.dtype)
    dquery = _scaled(tf.matmul(dscores, key), _score_scale(width, heads))
    dkey = tf.matmul(dscores, query, transpose_a=True)
    dx = tf.transpose(tf.stack([dquery, dkey, dvalue]), [1, 3, 0, 2, 4])
    dqkv = tf.reshape(dx, [-1, 3 * width])
    return dqkv, _bias_gradient(dqkv)


def attention(
    qkv: Tensor,
    bias: Tensor,
    sequence_ids: Tensor,
    heads: int,
    rate: Tensor | None = None,
    random: Random | None = None,
) -> Tensor:
    """Computes multi-head self-attention (Vaswani et al. 2017) within sequences of packed rows.

    Args:
        qkv: [R * S, 3 * H], the product that holds query, key and value
            side by side, each head after head.
        bias: float32 [3 * H], added to that product.
        sequence_ids: int32 [R, S]: a position attends to the positions of its row that have
            the same number.
        heads: number of heads, a divisor of H.
        rate: float32 scalar, dropout rate of the attention weights; unused if random is None.
        random: the site's stream, drawn for [R, heads, S, S]; None for no dropout.

    Returns:
        [R * S, H] in the dtype of qkv.
    """
    heads = tf.constant(heads, tf.int32)
    if random is None:
        return _attention(_add_bias(qkv, bias), sequence_ids, heads)
    rest = (sequence_ids, heads, rate, random.key, random.counter)

    @tf.custom_gradient
    def apply(
        qkv: Tensor, bias: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        x = _add_bias(qkv, bias)
        context, *saved = _attention_dropout(x, *rest)
        return context, lambda dy: _attention_dropout_gradient(dy, x, *rest, context, *saved)

    return apply(qkv, bias)


def same(x: Tensor, y: Tensor) -> Tensor:
    """Compares integers, and returns float32, 1 where they are the same."""
    # In int64, because GPUs leave comparisons of int32 to the host.
    return tf.cast(tf.equal(cast(x, tf.int64), cast(y, tf.int64)), tf.float32)


def row_sums(x: Tensor) -> Tensor:
    """Sums over the last axis."""
    # Without keepdims a GPU computes a shape for the gradient, and the host waits for it.
    return tf.squeeze(tf.reduce_sum(x, -1, keepdims=True), -1)


def embedding(table: Tensor, ids: Tensor) -> Tensor:
    """Looks up rows of a table. The gradient is dense.

    CPUs sum it in a fixed order. GPUs add in any order, so that last bits differ between runs.

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
