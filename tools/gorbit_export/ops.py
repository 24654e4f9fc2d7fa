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

import contextlib
import contextvars
import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import tensorflow as tf

Tensor = tf.Tensor
_Block = Callable[..., Any]
_PHILOX = 1  # tensorflow/core/framework/rng_alg.h


def block(body: _Block, attribute: str = "_implements") -> _Block:
    """Turns `body` into a graph function that implements "gorbit.NAME", NAME being the body's.

    There is a function for each set of keyword arguments, which are no arguments of it. The
    attribute is what says so.
    """
    name = body.__name__.strip("_")

    @functools.cache
    def made(**known: Any) -> _Block:
        def function(*args: Tensor) -> Any:
            return body(*args, **known)

        function.__name__ = body.__name__
        return tf.function(
            function, autograph=False, experimental_attributes={attribute: f"gorbit.{name}"}
        )

    # In a lambda, so that no module saves it as a function of its own.
    return lambda *args, **known: made(**known)(*args)


def variables_block(body: _Block) -> _Block:
    """Is `block` of a body that takes variables, for which TensorFlow has another attribute."""
    return block(body, "api_implements")


SWISH = ("silu", "swish")
"""The names of the activation that SwiGLU has."""

_generates = contextvars.ContextVar("_generates", default=False)


@contextlib.contextmanager
def generation() -> Iterator[None]:
    """What is traced computes next tokens, which blocks of their own do, and has no gradients."""
    token = _generates.set(True)
    try:
        yield
    finally:
        _generates.reset(token)


def generates(*tensors: Tensor, matrices: Sequence[Tensor] = ()) -> bool:
    """Tells whether a block of `generation` takes the tensors.

    It takes float32 alone, and matrices that are factors of products in bfloat16, too.
    """
    if not _generates.get() or any(t.dtype != tf.float32 for t in tensors):
        return False
    return all(m.dtype in (tf.float32, tf.bfloat16) for m in matrices)


def computes(dtype: tf.DType) -> tf.DType:
    """Returns the dtype of what products by weights of a dtype take and give.

    The function that computes next tokens has weights in bfloat16 and the rest in float32: its
    time is that of memory, and numbers that are not rounded cost nothing.
    """
    return tf.float32 if _generates.get() and dtype == tf.bfloat16 else dtype


def cast(x: Tensor, dtype: tf.DType) -> Tensor:
    """Casts a tensor. A tensor that already has the dtype is returned as is, without a new node."""
    return x if x.dtype == dtype else tf.cast(x, dtype)


def _wide(x: Tensor) -> Tensor:
    return cast(x, tf.float32)


def _ours(x: Tensor) -> Tensor:
    """Returns what a block takes of a product: float32 or bfloat16, which it widens itself."""
    return x if x.dtype == tf.bfloat16 else _wide(x)


def _scaled(x: Tensor, factor: Tensor | float) -> Tensor:
    """Multiplies by a float32 number that is not rounded to the dtype of x before."""
    # No dtype rounds a power of two, nor the product with it.
    if isinstance(factor, float) and math.frexp(factor)[0] == 0.5:
        return x * tf.constant(factor, x.dtype)
    return cast(_wide(x) * factor, x.dtype)


def join(tensors: list[Tensor], axis: int) -> Tensor:
    """Joins tensors of one shape along an axis. The gradient is one operation."""

    @tf.custom_gradient
    def apply(*tensors: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        return tf.concat(tensors, axis), lambda dy: tf.split(dy, len(tensors), axis)

    return apply(*tensors)


@dataclasses.dataclass(frozen=True)
class Bias:
    """A vector that is added to a product.

    Attributes:
        full: float32, which gets the gradient.
        narrow: the same in the product's dtype, which is added.
    """

    full: Tensor
    narrow: Tensor


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

    def site(self, number: int) -> Random:
        """Returns the stream of one site, by its number."""
        return Random(self.key, self.counter + tf.constant([0, number], tf.uint64))

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
    return tf.raw_ops.ClipByValue(
        t=tf.round(rate * 65536.0), clip_value_min=0.0, clip_value_max=65535.0
    )


def _factor(rate: Tensor) -> Tensor:
    """Returns the factor that dropout applies to the elements it keeps."""
    return 65536.0 / (65536.0 - _dropped(rate))


def _keep(like: Tensor, rate: Tensor, random: Random) -> Tensor:
    """Draws which elements dropout keeps, bool of the shape of `like`."""
    # The difference in float32: GPUs leave arithmetic of int32 to the host.
    threshold = tf.cast(_dropped(rate) - 32768.0, tf.int16)
    return random.bits16(like) >= threshold


def _mask(keep: Tensor, rate: Tensor, dtype: tf.DType) -> Tensor:
    """Returns what dropout multiplies elements by: its factor, or 0."""
    return tf.where(keep, cast(_factor(rate), dtype), tf.zeros([], dtype))


def dropout(x: Tensor, rate: Tensor, random: Random) -> Tensor:
    """Sets elements to zero with probability `rate`, and scales up the others.

    The rate is rounded to a multiple of 1/65536 below 1. The scale is computed from
    the rounded rate, so the expectation is exact. A rate of 0 returns x unchanged.

    Args:
        x: float tensor of any shape.
        rate: float32 scalar in [0, 1).
        random: the site's stream.
    """
    keep = _keep(x, rate, random)

    @tf.custom_gradient
    def apply(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        mask = _mask(keep, rate, x.dtype)
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


@block
def _next_norm(x: Tensor, scale: Tensor, offset: Tensor, epsilon: Tensor) -> Tensor:
    return _normalize(x, epsilon)[0] * scale + offset


def layer_norm(x: Tensor, scale: Tensor, offset: Tensor, epsilon: float) -> Tensor:
    """Layer normalization over the last axis (Ba et al. 2016)."""
    if x.shape.rank == 2 and generates(x, scale, offset):
        return _next_norm(x, scale, offset, tf.constant(epsilon, tf.float32))

    @tf.custom_gradient
    def apply(
        x: Tensor, scale: Tensor, offset: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        normalized, reciprocal = _normalize(x, epsilon)
        return normalized * scale + offset, lambda dy: _normalize_gradient(
            dy, normalized, reciprocal, scale
        )

    return apply(x, scale, offset)


@block
def _next_product(x: Tensor, w: Tensor) -> Tensor:
    return tf.matmul(x, _wide(w))


@block
def _next_product_transposed(x: Tensor, w: Tensor) -> Tensor:
    return tf.matmul(x, _wide(w), transpose_b=True)


def product(x: Tensor, w: Tensor, transpose: bool = False) -> Tensor:
    """Multiplies x [N, inputs] by w [inputs, outputs], [outputs, inputs] with `transpose`."""
    if generates(x, matrices=[w]):
        return (_next_product_transposed if transpose else _next_product)(x, w)
    return tf.matmul(x, w, transpose_b=transpose)


_NEXT = {"": 0, "relu": 1, "gelu": 2, "gelu_new": 3, "gelu_pytorch_tanh": 3}
"""The activations that a map of generation computes, by their numbers; "" is none."""


@block
def _next_map(x: Tensor, w: Tensor, bias: Tensor, activation: Tensor, act: str) -> Tensor:
    del activation  # for an implementation that does not know it
    y = tf.nn.bias_add(tf.matmul(x, _wide(w)), bias)
    return (gelu if act == "gelu" else _ACTIVATIONS[act])(y) if act else y


@block
def _next_map_add(x: Tensor, context: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return x + tf.nn.bias_add(tf.matmul(context, _wide(w)), bias)


@block
def _next_map_transposed(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return tf.nn.bias_add(tf.matmul(x, _wide(w), transpose_b=True), bias)


@block
def _next_maps(x: Tensor, *both: Tensor) -> tuple[Tensor, ...]:
    pairs = zip(both[::2], both[1::2])
    return tuple(tf.nn.bias_add(tf.matmul(x, _wide(w)), bias) for w, bias in pairs)


def mapped(x: Tensor, w: Tensor, bias: Tensor, act: str = "") -> Tensor:
    """Computes activation(x w + bias); the tensors are those that `generates` takes.

    `act` is one of ACTIVATIONS, or "" for none.
    """
    known = act if act in _NEXT else ""
    y = _next_map(x, w, bias, tf.constant(_NEXT[known]), act=known)
    return y if act == known else activate(act, y)


def mapped_thrice(x: Tensor, both: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Maps x by three matrices, each followed by its bias in the list, as `mapped`."""
    return _next_maps(x, *both)


def map_added(x: Tensor, context: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    """Computes x + context w + bias; the tensors are those that `generates` takes."""
    return _next_map_add(x, context, w, bias)


def table_product(x: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
    """Multiplies x [N, H] by a table [V, H]; float32 [N, V], to which a bias [1, V] is added."""
    if bias is not None and generates(x, bias, matrices=[table]):
        return _next_map_transposed(x, table, tf.reshape(bias, [-1]))
    y = _wide(product(x, table, transpose=True))
    return y if bias is None else y + bias


def _rms_normed(x: Tensor, scale: Tensor, epsilon: Tensor | float) -> Tensor:
    square = tf.reduce_mean(tf.square(x), -1, keepdims=True)
    return x * tf.math.rsqrt(square + epsilon) * scale


@block
def _rms_norm(x: Tensor, scale: Tensor, epsilon: Tensor) -> Tensor:
    return _rms_normed(x, scale, epsilon)


def rms_norm(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Root mean square normalization over the last axis (Zhang & Sennrich 2019)."""
    if x.shape.rank == 2 and generates(x, scale):
        return _rms_norm(x, scale, tf.constant(epsilon, tf.float32))
    return _rms_normed(x, scale, epsilon)


@block
def _next_normed_products(
    x: Tensor, scale: Tensor, epsilon: Tensor, w0: Tensor, w1: Tensor, w2: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    x = _rms_normed(x, scale, epsilon)
    return tf.matmul(x, _wide(w0)), tf.matmul(x, _wide(w1)), tf.matmul(x, _wide(w2))


def normed_products(
    x: Tensor, scale: Tensor, epsilon: float, matrices: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Multiplies rms_norm(x) by three matrices; the tensors are those that `generates` takes."""
    return _next_normed_products(x, scale, tf.constant(epsilon, tf.float32), *matrices)


@block
def _next_feed_forward(
    x: Tensor,
    context: Tensor,
    output: Tensor,
    scale: Tensor,
    epsilon: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
) -> Tensor:
    x += tf.matmul(context, _wide(output))
    y = _rms_normed(x, scale, epsilon)
    y = tf.nn.silu(tf.matmul(y, _wide(gate))) * tf.matmul(y, _wide(up))
    return x + tf.matmul(y, _wide(down))


def feed_forward(
    x: Tensor, context: Tensor, output: Tensor, scale: Tensor, epsilon: float, rest: list[Tensor]
) -> Tensor:
    """Ends a layer whose activation is SwiGLU; the tensors are those that `generates` takes.

    Args:
        x: [N, H], the layer's input.
        context: [N, W], what its attention gave.
        output: [W, H], which maps that to what is added to x.
        scale: [H], of the norm of that sum.
        epsilon: of that norm.
        rest: [H, I] twice, of the gate and of what it multiplies, and [I, H].
    """
    known = tf.constant(epsilon, tf.float32)
    return _next_feed_forward(x, context, output, scale, known, *rest)


@block
def _swiglu(gate: Tensor, x: Tensor) -> Tensor:
    return tf.nn.silu(gate) * x


def gated(name: str, gate: Tensor, x: Tensor) -> Tensor:
    """Multiplies x by the activation of a gate, `name` being one of ACTIVATIONS."""
    if name in SWISH and generates(gate, x):
        return _swiglu(gate, x)
    return activate(name, gate) * x


def _bias_gradient(dy: Tensor) -> Tensor:
    return tf.raw_ops.BiasAddGrad(out_backprop=_wide(dy))


def add_bias(z: Tensor, bias: Tensor) -> Tensor:
    """Adds a float32 bias [F] to z [T, F] of any float dtype; its gradient is summed in float32."""

    @tf.custom_gradient
    def apply(z: Tensor, full: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        y = tf.nn.bias_add(z, cast(full, z.dtype))
        return y, lambda dy: (dy, _bias_gradient(dy))

    return apply(z, bias)


@block
def _residual_norm(
    x: Tensor, residual: Tensor, scale: Tensor, offset: Tensor, epsilon: Tensor
) -> Tensor:
    normalized, _ = _normalize(residual + _wide(x), epsilon)
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
    x = _wide(x)
    keep = _keep(x, rate, Random(key, counter))
    normalized, reciprocal = _normalize(residual + x * _mask(keep, rate, x.dtype), epsilon)
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
    *,
    dtype: tf.DType,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    del key, counter  # for an implementation that draws again instead of storing `keep`
    dresidual, dscale, doffset = _normalize_gradient(dy, normalized, reciprocal, scale)
    dx = dresidual * _mask(keep, rate, dy.dtype)
    return cast(dx, dtype), _bias_gradient(dx), dresidual, dscale, doffset


def residual_norm(
    z: Tensor,
    bias: Bias,
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
        bias: [H], added to that product.
        residual: float32 [T, H], the sublayer's input.
        scale: float32 [H], scale of the norm.
        offset: float32 [H], offset of the norm.
        epsilon: added to the variance.
        rate: float32 scalar, the dropout rate; unused if random is None.
        random: the site's stream; None for no dropout.

    Returns:
        float32 [T, H].
    """
    epsilon = tf.constant(epsilon, tf.float32)
    if random is None:
        x = _ours(tf.nn.bias_add(z, bias.narrow))
        return _residual_norm(x, residual, scale, offset, epsilon)
    drawn = (rate, random.key, random.counter)

    @tf.custom_gradient
    def apply(
        z: Tensor, full: Tensor, residual: Tensor, scale: Tensor, offset: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
        del full  # gets a gradient
        x = _ours(tf.nn.bias_add(z, bias.narrow))
        y, *saved = _residual_norm_dropout(x, residual, scale, offset, epsilon, *drawn)

        def gradient(dy: Tensor) -> tuple[Tensor, ...]:
            dx, *rest = _residual_norm_dropout_gradient(dy, scale, *drawn, *saved, dtype=x.dtype)
            return cast(dx, z.dtype), *rest

        return y, gradient

    return apply(z, bias.full, residual, scale, offset)


@block
def _gelu(x: Tensor) -> Tensor:
    return cast(gelu(_wide(x)), x.dtype)


@block
def _gelu_gradient(dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dtype, dy, x = x.dtype, _wide(dy), _wide(x)
    half = x * math.sqrt(0.5)
    cdf = 0.5 + 0.5 * tf.math.erf(half)
    # The density's constant factor is moved into the exponent, which saves one pass.
    density = tf.exp(-0.5 * math.log(2 * math.pi) - tf.square(half))
    dx = dy * (cdf + x * density)
    return cast(dx, dtype), _bias_gradient(dx), cast(x * cdf, dtype)


@block
def _gelu_tanh(x: Tensor) -> Tensor:
    return cast(gelu_tanh(_wide(x)), x.dtype)


@block
def _gelu_tanh_gradient(dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dtype, dy, x = x.dtype, _wide(dy), _wide(x)
    factor, square = math.sqrt(2 / math.pi), tf.square(x)
    inner = tf.tanh(factor * x * (1 + 0.044715 * square))
    cdf = 0.5 + 0.5 * inner
    slope = 0.5 * (1 - tf.square(inner)) * factor * (1 + 3 * 0.044715 * square)
    dx = dy * (cdf + x * slope)
    return cast(dx, dtype), _bias_gradient(dx), cast(x * cdf, dtype)


def _gelu_product(
    z: Tensor, bias: Bias, kernel: Tensor, forward: _Block, backward: _Block
) -> Tensor:
    """Computes gelu(z + bias) @ kernel.

    The kernel's gradient needs the output of GELU. GELU's own gradient can recompute it
    at almost no cost, so it is not kept. It would be a quarter of what a layer keeps.
    """

    @tf.custom_gradient
    def apply(
        z: Tensor, full: Tensor, kernel: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        del full  # gets a gradient
        x = tf.nn.bias_add(z, bias.narrow)

        def gradient(dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            dgelu = tf.matmul(dy, kernel, transpose_b=True)
            dx, dbias, y = backward(_ours(dgelu), _ours(x))
            dkernel = tf.matmul(cast(y, z.dtype), dy, transpose_a=True)
            return cast(dx, z.dtype), dbias, dkernel

        return tf.matmul(cast(forward(_ours(x)), z.dtype), kernel), gradient

    return apply(z, bias.full, kernel)


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
    function = gelu if name == "gelu" else _ACTIVATIONS[name]
    if generates(x) and function in (gelu, gelu_tanh):
        return _gelu(x) if function is gelu else _gelu_tanh(x)
    return function(x)


def activated_product(name: str, z: Tensor, bias: Bias, kernel: Tensor) -> Tensor:
    """Computes activation(z + bias) @ kernel, the middle of a position-wise network.

    Args:
        name: one of ACTIVATIONS.
        z: [T, F], a product.
        bias: [F], added to that product.
        kernel: [F, H] in the dtype of z.

    Returns:
        [T, H] of the same dtype.
    """
    if name == "gelu":
        return _gelu_product(z, bias, kernel, _gelu, _gelu_gradient)
    if _ACTIVATIONS[name] is gelu_tanh:
        return _gelu_product(z, bias, kernel, _gelu_tanh, _gelu_tanh_gradient)
    x = add_bias(z, bias.full)
    return tf.matmul(_ACTIVATIONS[name](x), kernel)


def _by_head(qkv: Tensor, sequence_ids: Tensor, heads: Tensor | int) -> Tensor:
    """Returns query, key and value, [3, R, heads, S, D]."""
    shape = tf.shape(sequence_ids)
    width = qkv.shape[1] // 3
    x = tf.reshape(qkv, tf.stack([shape[0], shape[1], 3, heads, width // heads]))
    return tf.transpose(x, [2, 0, 3, 1, 4])


def _factors(size: int, rate: Tensor) -> Tensor:
    """Returns what training multiplies query, key and value by, float32 [3, 1, 1, 1, 1].

    The query has that of the scores, and the values, which are fewer than the weights, dropout's.
    """
    return tf.reshape(tf.stack([_score_factor(size), 1.0, _factor(rate)]), [3, 1, 1, 1, 1])


def _score_factor(size: int) -> float:
    return 1 / math.sqrt(size)


def before(sequence_ids: Tensor) -> Tensor:
    """Which positions are of the same sequence and not behind, bool [R, S, S] of int32 [R, S]."""
    # In int64, because GPUs leave comparisons of int32 to the host.
    ids = tf.cast(sequence_ids, tf.int64)
    places = tf.range(tf.cast(tf.shape(ids)[1], tf.int64))
    return tf.equal(ids[:, :, None], ids[:, None, :]) & (places[:, None] >= places[None, :])


def _attention_weights(
    query: Tensor,
    key: Tensor,
    sequence_ids: Tensor,
    more: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Returns the softmax of the scores, float32 [R, heads, S, S].

    The query is scaled; `more`, in float32, is added to the scores.
    """
    if causal:
        seen = before(sequence_ids)
    else:
        # In int64, because GPUs leave comparisons of int32 to the host.
        ids = tf.cast(sequence_ids, tf.int64)
        seen = tf.equal(ids[:, :, None], ids[:, None, :])
    # Finite, so that a softmax over nothing but padding is not NaN.
    bias = tf.where(seen, 0.0, -1e9)[:, None, :, :]
    scores = _wide(tf.matmul(query, key, transpose_b=True))
    return tf.nn.softmax((scores if more is None else scores + more) + bias)


def _join_heads(x: Tensor, width: int) -> Tensor:
    """Reshapes [R, heads, S, D] to [R * S, width]."""
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, width])


# Attention's blocks get the number of heads twice: as a tensor, for implementations in their
# place, and as a number, by which shapes are known.


def _context(
    qkv: Tensor, sequence_ids: Tensor, heads: Tensor, *, number: int, causal: bool
) -> Tensor:
    del heads
    query, key, value = tf.unstack(_by_head(qkv, sequence_ids, number), num=3)
    query = _scaled(query, _score_factor(query.shape[-1]))
    weights = cast(_attention_weights(query, key, sequence_ids, causal=causal), qkv.dtype)
    return _join_heads(tf.matmul(weights, value), qkv.shape[1] // 3)


@block
def _attention(*args: Tensor, number: int) -> Tensor:
    return _context(*args, number=number, causal=False)


@block
def _causal_attention(*args: Tensor, number: int) -> Tensor:
    return _context(*args, number=number, causal=True)


def _context_dropout(
    qkv: Tensor,
    sequence_ids: Tensor,
    heads: Tensor,
    rate: Tensor,
    random_key: Tensor,
    random_counter: Tensor,
    *,
    number: int,
    causal: bool,
) -> tuple[Tensor, ...]:
    del heads
    x = _wide(_by_head(qkv, sequence_ids, number))
    x = cast(x * _factors(x.shape[-1], rate), qkv.dtype)
    query, key, value = tf.unstack(x, num=3)
    weights = cast(_attention_weights(query, key, sequence_ids, causal=causal), qkv.dtype)
    keep = _keep(weights, rate, Random(random_key, random_counter))
    dropped = tf.where(keep, weights, tf.zeros([], weights.dtype))
    context = _join_heads(tf.matmul(dropped, value), qkv.shape[1] // 3)
    return context, query, key, value, weights, dropped


@block
def _attention_dropout(*args: Tensor, number: int) -> tuple[Tensor, ...]:
    return _context_dropout(*args, number=number, causal=False)


@block
def _causal_attention_dropout(*args: Tensor, number: int) -> tuple[Tensor, ...]:
    return _context_dropout(*args, number=number, causal=True)


def _context_gradient(
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
    *,
    number: int,
) -> tuple[Tensor, Tensor]:
    # For an implementation that recomputes instead of storing.
    del heads, random_key, random_counter, context
    shape, width = tf.shape(sequence_ids), qkv.shape[1] // 3
    by_head = tf.stack([shape[0], shape[1], number, width // number])
    dcontext = tf.transpose(tf.reshape(dy, by_head), [0, 2, 1, 3])
    dvalue = tf.matmul(dropped, dcontext, transpose_a=True)
    products = _wide(dropped) * _wide(tf.matmul(dcontext, value, transpose_b=True))
    inner = tf.reduce_sum(products, -1, keepdims=True)
    dscores = cast(products - _wide(weights) * inner, dy.dtype)
    dquery, dkey = tf.matmul(dscores, key), tf.matmul(dscores, query, transpose_a=True)
    dx = _wide(tf.stack([dquery, dkey, dvalue])) * _factors(width // number, rate)
    dqkv = tf.reshape(tf.transpose(dx, [1, 3, 0, 2, 4]), [-1, 3 * width])
    return cast(dqkv, dy.dtype), _bias_gradient(dqkv)


@block
def _attention_dropout_gradient(*args: Tensor, number: int) -> tuple[Tensor, Tensor]:
    return _context_gradient(*args, number=number)


@block
def _causal_attention_dropout_gradient(*args: Tensor, number: int) -> tuple[Tensor, Tensor]:
    return _context_gradient(*args, number=number)


def attention(
    qkv: Tensor,
    bias: Bias | None,
    sequence_ids: Tensor,
    heads: int,
    rate: Tensor | None = None,
    random: Random | None = None,
    causal: bool = False,
) -> Tensor:
    """Computes multi-head self-attention (Vaswani et al. 2017) within sequences of packed rows.

    Args:
        qkv: [R * S, 3 * H], the product that holds query, key and value
            side by side, each head after head.
        bias: [3 * H], added to that product; None for none.
        sequence_ids: int32 [R, S]: a position attends to the positions of its row that have
            the same number.
        heads: number of heads, a divisor of H.
        rate: float32 scalar, dropout rate of the attention weights; unused if random is None.
        random: the site's stream, drawn for [R, heads, S, S]; None for no dropout.
        causal: a position does not attend to those behind it.

    Returns:
        [R * S, H] in the dtype of qkv.
    """
    rest: tuple[Tensor, ...] = (sequence_ids, tf.constant(heads, tf.int32))
    if random is None:
        plain = _causal_attention if causal else _attention
        x = qkv if bias is None else tf.nn.bias_add(qkv, bias.narrow)
        return plain(x, *rest, number=heads)
    rest += (rate, random.key, random.counter)
    forward, backward = (
        (_causal_attention_dropout, _causal_attention_dropout_gradient)
        if causal
        else (_attention_dropout, _attention_dropout_gradient)
    )

    @tf.custom_gradient
    def apply(qkv: Tensor, *full: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
        x = tf.nn.bias_add(qkv, bias.narrow) if full else qkv
        context, *saved = forward(x, *rest, number=heads)

        def gradient(dy: Tensor) -> tuple[Tensor, ...]:
            dqkv, dbias = backward(dy, x, *rest, context, *saved, number=heads)
            return (dqkv, dbias) if full else (dqkv,)

        return context, gradient

    return apply(qkv, *([] if bias is None else [bias.full]))


@block
def _token_losses(
    logits: Tensor, labels: Tensor, weights: Tensor, smoothing: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    vocab = logits.shape[1]
    spread = smoothing / vocab
    target = tf.one_hot(labels, vocab, 1 - smoothing + spread, spread)
    losses = tf.nn.softmax_cross_entropy_with_logits(target, logits)
    right = same(tf.argmax(logits, -1), labels)
    slopes = tf.nn.softmax(logits) - target
    return (
        tf.math.multiply_no_nan(losses, weights),
        right * weights,
        tf.math.multiply_no_nan(slopes, weights[:, None]),
    )


def token_losses(
    logits: Tensor, labels: Tensor, weights: Tensor, smoothing: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes cross entropies, and their gradient at once.

    Args:
        logits: float32 [N, V].
        labels: int32 [N] in [0, V).
        weights: float32 [N]; what has the weight 0 may be NaN.
        smoothing: the share of a target that is spread over all of V, a float32 scalar.

    Returns:
        The losses times weights, float32 [N]; the weights where the label has the first of the
        largest logits, and else 0, [N]; and the gradient of the losses' sum, [N, V].
    """
    return _token_losses(logits, labels, weights, smoothing)


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
