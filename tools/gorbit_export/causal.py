"""Causal language models (GPT-2, Llama and their like) over packed rows, and their generation."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection
from typing import Any

import tensorflow as tf

from gorbit_export import bert, encoded, layers, ops, prenorm, rotary, task
from gorbit_export.causal_config import CausalConfig

Tensor = tf.Tensor

LOGITS = 1 << 25
"""How many logits a training pass has at once, about: those of all tokens would be most of its
memory."""


@dataclasses.dataclass(frozen=True)
class Lora:
    """Adapters of low rank (Hu et al. 2021): the model is frozen, they are trained.

    Attributes:
        rank: of each adapter.
        alpha: an adapter is multiplied by alpha / rank.
        targets: which maps of a layer have one; empty for attention's queries and values, which
            are one map with the keys in GPT-2.
    """

    rank: int
    alpha: float = 16.0
    targets: tuple[str, ...] = ()


def check_lora(lora: Lora, targets: tuple[str, ...], known: Collection[str], limit: int) -> None:
    """Raises ValueError if adapters of these targets are none of the maps `known`.

    `limit` is the width of the narrowest map.
    """
    for target in targets:
        if target not in known:
            raise ValueError(f"LoRA target is {target!r}; expected some of {', '.join(known)}")
    # Checks the rest.
    bert.Lora(lora.rank, lora.alpha)
    if len(set(targets)) < len(targets):
        raise ValueError(f"LoRA targets are {targets}; expected each once")
    if lora.rank > limit:
        raise ValueError(f"LoRA rank is {lora.rank}; expected 1 to {limit}, the model's width")


@dataclasses.dataclass(frozen=True)
class Build:
    """How a model is made.

    Attributes:
        config: its sizes.
        seed: seed of the initial weights.
        recompute: one of bert.RECOMPUTE.
        precision: one of task.PRECISIONS.
        lora: freezes the model and adds adapters to it.
    """

    config: CausalConfig
    seed: int = 0
    recompute: str = "none"
    precision: str = "float32"
    lora: Lora | None = None


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Dropout of a training pass: the rates (float32 scalars) and the random source."""

    embedding: Tensor
    hidden: Tensor
    attention: Tensor
    random: ops.Random


class Map(layers.Dense):
    """layers.Dense with weights that are given, in the dtype of what it maps."""

    def weights(self) -> list[tf.Variable]:
        """The kernel, and the bias and the adapter if there are any, in the order of `apply`."""
        bias = [] if self.bias is None else [self.bias]
        return [self.kernel, *bias, *(self.adapter or ())]

    def apply(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """Maps x [N, inputs] by the first of `weights`, which are taken from the list."""
        if self.whole(x, weights):
            return ops.mapped(x, weights.pop(0), weights.pop(0))
        y, bias = self.product(x, weights)
        return y if bias is None else ops.add_bias(y, bias.full)

    def whole(self, x: Tensor, weights: list[Tensor]) -> bool:
        """Tells whether a block of generation computes the map with its bias."""
        plain = self.bias is not None and not self._adapted
        return plain and ops.generates(x, weights[1], matrices=weights[:1])

    def activated(self, act: str, x: Tensor, weights: list[Tensor]) -> Tensor:
        """Computes an activation of what `apply` gives."""
        if self.whole(x, weights):
            return ops.mapped(x, weights.pop(0), weights.pop(0), act)
        return ops.activate(act, self.apply(x, weights))

    def added(
        self,
        x: Tensor,
        residual: Tensor,
        weights: list[Tensor],
        add: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Adds what `apply` gives, in float32, to a residual; in generation it is their sum."""
        if self.whole(x, weights):
            return ops.map_added(residual, x, weights.pop(0), weights.pop(0))
        return add(ops.cast(self.apply(x, weights), tf.float32), residual)

    def after(self, act: str, z: Tensor, bias: ops.Bias, weights: list[Tensor]) -> Tensor:
        """Maps an activation of z + bias, what another map's `product` gave, as `apply`."""
        if self._adapted or ops.generates(z):
            return self.apply(ops.activate(act, ops.add_bias(z, bias.full)), weights)
        y = ops.activated_product(act, z, bias, weights.pop(0))
        return y if self.bias is None else ops.add_bias(y, weights.pop(0))

    def product(self, x: Tensor, weights: list[Tensor]) -> tuple[Tensor, ops.Bias | None]:
        """Is `apply`, but returns the bias instead of adding it; None for none."""
        y = ops.product(x, weights.pop(0))
        bias = None if self.bias is None else weights.pop(0)
        if self._adapted:
            down, up = weights.pop(0), weights.pop(0)
            y += ops.product(ops.product(x, down), up) * tf.cast(self._scale, x.dtype)
        return y, None if bias is None else ops.Bias(bias, ops.cast(bias, x.dtype))


def mapped(maps: list[Map], x: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """Maps x by three maps, by the first of `weights`, which are taken from the list."""
    pairs = [weights[2 * i : 2 * i + 2] for i in range(3)]
    if all(m.whole(x, pair) for m, pair in zip(maps, pairs)):
        return list(ops.mapped_thrice(x, [weights.pop(0) for _ in range(6)]))
    return [m.apply(x, weights) for m in maps]


class RMSNorm(layers.Layer):
    """Root mean square normalization over the last axis (Zhang & Sennrich 2019)."""

    def __init__(self, width: int, epsilon: float, foreign: str, offset: float = 0.0) -> None:
        """Makes a scale that is 1 with `offset`, which is added to it."""
        super().__init__()
        self._epsilon, self.width, self._offset = epsilon, width, offset
        scale = tf.fill([width], 1 - offset)
        self._add("scale", scale, layers.Foreign((f"{foreign}.weight",)))

    def weights(self) -> list[tf.Variable]:
        """What `apply` takes."""
        return [self.scale]

    def apply(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """Normalizes float32 [..., width] by the first of `weights`, taken from the list."""
        return ops.rms_norm(x, self.scaled(weights), self._epsilon)

    def scaled(self, weights: list[Tensor]) -> Tensor:
        """Returns what the normalized rows are multiplied by, from the first of `weights`."""
        scale = weights.pop(0)
        return scale + self._offset if self._offset else scale


class LayerNorm(layers.LayerNorm):
    """layers.LayerNorm with weights that are given."""

    def weights(self) -> list[tf.Variable]:
        """What `apply` takes."""
        return [self.scale, self.bias]

    def apply(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """Normalizes float32 [N, width] by the first of `weights`, taken from the list."""
        scale, offset = weights.pop(0), weights.pop(0)
        if ops.generates(x, scale, offset):
            return ops.layer_norm(x, scale, offset, self._epsilon)
        return ops.add_bias(prenorm.scale_norm(x, scale, self._epsilon), offset)


def _norm(config: CausalConfig, foreign: str, width: int | None = None) -> RMSNorm | LayerNorm:
    """A norm of the model's width, or of another."""
    width = width or config.hidden_size
    if not config.family.rotary:
        return LayerNorm(width, config.norm_epsilon, foreign)
    return RMSNorm(width, config.norm_epsilon, foreign, 1.0 if config.family.gemma else 0.0)


def _normed_heads(norm: RMSNorm, x: Tensor, weights: list[Tensor]) -> Tensor:
    """Normalizes the heads of x [N, width] by the first of `weights`, taken from the list."""
    heads = tf.reshape(ops.cast(x, tf.float32), [-1, x.shape[1] // norm.width, norm.width])
    return ops.cast(tf.reshape(norm.apply(heads, weights), [-1, x.shape[1]]), x.dtype)


class Layer(tf.Module):
    """A layer: attention and a feed-forward network, each after a norm and added to its input."""

    def __init__(self, config: CausalConfig, index: int, seed: int) -> None:
        """Makes the variables of layer `index`."""
        super().__init__()
        self._config, self.kind = config, config.layer(index)
        self.shape = Heads(
            config.num_attention_heads,
            config.key_value_heads,
            config.head_size,
            (config.query_pre_attn_scalar or config.head_size) ** -0.5,
            config.attn_logit_softcapping,
        )
        h, i, std = config.hidden_size, config.intermediate_size, config.initializer_range
        q, kv = config.query_width, config.cache_width
        biased = config.biased_attention

        if config.family.rotary:
            at, net = f"layers.{index}.self_attn", f"layers.{index}.mlp"

            def make(inputs: int, outputs: int, name: str, bias: bool = False) -> Map:
                return Map(inputs, outputs, std, seed, name, bias=bias)

            self.attention_norm = _norm(config, f"layers.{index}.input_layernorm")
            self.query = make(h, q, f"{at}.q_proj", biased)
            self.key = make(h, kv, f"{at}.k_proj", biased)
            self.value = make(h, kv, f"{at}.v_proj", biased)
            if config.family.normed_heads:
                self.query_norm = _norm(config, f"{at}.q_norm", config.head_size)
                self.key_norm = _norm(config, f"{at}.k_norm", config.head_size)
            self.output = make(q, h, f"{at}.o_proj", biased and config.family.biased_output)
            before = "post_attention_layernorm"
            if config.family.post_norms:
                self.attention_post_norm = _norm(config, f"layers.{index}.{before}")
                after = f"layers.{index}.post_feedforward_layernorm"
                self.feed_forward_post_norm = _norm(config, after)
                before = "pre_feedforward_layernorm"
            self.feed_forward_norm = _norm(config, f"layers.{index}.{before}")
            self.gate = make(h, i, f"{net}.gate_proj")
            self.intermediate = make(h, i, f"{net}.up_proj")
            self.feed_forward = make(i, h, f"{net}.down_proj")
            return
        at, net = f"h.{index}.attn", f"h.{index}.mlp"
        # What is added to the sum of the layers begins smaller (Radford et al. 2019).
        last = std / math.sqrt(2 * config.num_hidden_layers)
        self.attention_norm = _norm(config, f"h.{index}.ln_1")
        self.query_key_value = Map(h, 3 * h, std, seed, f"{at}.c_attn", transpose=False)
        self.output = Map(h, h, last, seed, f"{at}.c_proj", transpose=False)
        self.feed_forward_norm = _norm(config, f"h.{index}.ln_2")
        self.intermediate = Map(h, i, std, seed, f"{net}.c_fc", transpose=False)
        self.feed_forward = Map(i, h, last, seed, f"{net}.c_proj", transpose=False)

    def maps(self) -> dict[str, Map]:
        """The maps by their names, in the order in which they are computed."""
        names = ("query_key_value", "query", "key", "value", "output")
        names += ("gate", "intermediate", "feed_forward")
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def weights(self) -> list[tf.Variable]:
        """The variables in the order in which they are used."""
        maps = self.maps()
        last = ("gate", "intermediate", "feed_forward")
        first = [m for name, m in maps.items() if name not in ("output", *last)]
        if self._config.family.normed_heads:
            first += [self.query_norm, self.key_norm]
        parts = [self.attention_norm, *first, self.output, self.feed_forward_norm]
        parts += [m for name, m in maps.items() if name in last]
        if self._config.family.post_norms:
            parts.insert(parts.index(self.feed_forward_norm), self.attention_post_norm)
            parts.append(self.feed_forward_post_norm)
        return [w for part in parts for w in part.weights()]

    @staticmethod
    def _blocks(maps: list[Map], weights: list[Tensor], *tensors: Tensor) -> bool:
        """Tells whether a block of generation computes products by all of these maps together."""
        matrices = [w for w in weights if w.shape.rank == 2]
        return all(len(m.weights()) == 1 for m in maps) and ops.generates(
            *tensors, matrices=matrices
        )

    def turns(self, positions: Tensor) -> list[Tensor]:
        """The cosines and sines of rotary positions, of int32 [N]; none of other layers."""
        c = self._config
        if not c.family.rotary or self.kind.theta is None:
            return []
        scaling = c.rope_scaling if self.kind.scaled else None
        return list(rotary.tables(positions, c.head_size, self.kind.theta, scaling))

    def heads(self, x: Tensor, turns: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        """Computes query, key and value, [N, width] each, of x float32 [N, H] and its turns."""
        c = self._config
        dtype = ops.computes(next(w.dtype for w in weights if w.shape.rank == 2))
        if not c.family.rotary:
            x = ops.cast(self.attention_norm.apply(x, weights), dtype)
            return tf.split(self.query_key_value.apply(x, weights), 3, 1)
        maps = [self.query, self.key, self.value]
        if self._blocks(maps, weights, x):
            scale = self.attention_norm.scaled(weights)
            known = [weights.pop(0) for _ in maps]
            query, key, value = ops.normed_products(x, scale, c.norm_epsilon, known)
        else:
            x = ops.cast(self.attention_norm.apply(x, weights), dtype)
            query, key, value = mapped(maps, x, weights)
        if c.family.normed_heads:
            query = _normed_heads(self.query_norm, query, weights)
            key = _normed_heads(self.key_norm, key, weights)
        if not turns:
            return [query, key, value]
        query = rotary.rotary(query, *turns, c.num_attention_heads)
        return [query, rotary.rotary(key, *turns, c.key_value_heads), value]

    def context(
        self,
        x: Tensor,
        sequence_ids: Tensor,
        turns: list[Tensor],
        weights: list[Tensor],
        rate: Tensor | None,
        random: ops.Random | None,
    ) -> Tensor:
        """Computes what the heads give for whole rows, [N, width].

        Args:
            x: float32 [N, H], the layer's input.
            sequence_ids: int32 [R, S], N being R * S.
            turns: those of the tokens' positions.
            weights: those of the layer; what is used is taken from the list.
            rate: of dropout of the weights of attention.
            random: its stream; None for no dropout.
        """
        known, shape = (sequence_ids, self.shape.number, rate, random), self.shape
        if not self._config.family.rotary:
            matrix = next(w for w in weights if w.shape.rank == 2)
            x = ops.cast(self.attention_norm.apply(x, weights), ops.computes(matrix.dtype))
            return ops.attention(*self.query_key_value.product(x, weights), *known, causal=True)
        query, key, value = self.heads(x, turns, weights)
        # In all layers or in none: then a token costs the same in a row of any length.
        if self._config.plain_attention:
            if not math.isclose(factor := shape.scale * math.sqrt(shape.width), 1):
                query *= tf.cast(factor, query.dtype)
            both = (shape.spread(y) for y in (key, value))
            return ops.attention(tf.concat([query, *both], 1), None, *known, causal=True)
        rows = tf.shape(sequence_ids)
        by_row = (tf.reshape(y, [rows[0], rows[1], y.shape[1]]) for y in (query, key, value))
        allowed = ops.before(sequence_ids)
        if self.kind.window is not None:
            places = tf.range(tf.cast(rows[1], tf.int64))
            allowed &= places[:, None] - places[None, :] < self.kind.window
        return attend(*by_row, allowed, shape, lambda w: _dropped(w, rate, random))

    def rest(
        self,
        x: Tensor,
        context: Tensor,
        weights: list[Tensor],
        add: Callable[[int, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Adds what attention gave to x, and then the feed-forward network.

        Args:
            x: float32 [N, H], the layer's input.
            context: [N, width], what the heads gave.
            weights: those that `heads` left.
            add: adds dropout of one tensor, at one of the layer's sites 1 and 2, to another.
        """
        act, family = self._config.hidden_act, self._config.family
        if family.rotary and not family.post_norms and act in ops.SWISH:
            maps = [self.output, self.gate, self.intermediate, self.feed_forward]
            if self._blocks(maps, weights, x, context):
                output, scale = weights.pop(0), self.feed_forward_norm.scaled(weights)
                rest = [weights.pop(0) for _ in range(3)]
                epsilon = self._config.norm_epsilon
                return ops.feed_forward(x, context, output, scale, epsilon, rest)
        if family.post_norms:
            y = ops.cast(self.output.apply(context, weights), tf.float32)
            x = add(1, self.attention_post_norm.apply(y, weights), x)
        else:
            x = self.output.added(context, x, weights, functools.partial(add, 1))
        y = ops.cast(self.feed_forward_norm.apply(x, weights), context.dtype)
        if family.rotary:
            gate = self.gate.apply(y, weights)
            y = ops.gated(act, gate, self.intermediate.apply(y, weights))
            y = self.feed_forward.apply(y, weights)
        elif self.intermediate.whole(y, weights):
            z = self.intermediate.activated(act, y, weights)
            return self.feed_forward.added(z, x, weights, functools.partial(add, 2))
        else:
            z = self.intermediate.product(y, weights)
            y = self.feed_forward.after(act, *z, weights)
        y = ops.cast(y, tf.float32)
        if family.post_norms:
            y = self.feed_forward_post_norm.apply(y, weights)
        return add(2, y, x)


@dataclasses.dataclass(frozen=True)
class Heads:
    """The heads of attention.

    Attributes:
        number: of queries' heads.
        shared: heads of keys and values, each that of several of queries; a divisor of number.
        width: of a head.
        scale: what scores are multiplied by.
        cap: what they stay below, as in `capped`.
    """

    number: int
    shared: int
    width: int
    scale: float
    cap: float | None = None

    def spread(self, x: Tensor) -> Tensor:
        """Gives each head of queries keys or values of its own, of x [N, shared * width]."""
        if (groups := self.number // self.shared) == 1:
            return x

        # TensorFlow's gradient of a tile computes shapes, with operations that oneDNN lacks.
        @tf.custom_gradient
        def apply(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
            y = tf.tile(tf.reshape(x, [-1, self.shared, 1, self.width]), [1, 1, groups, 1])

            def gradient(dy: Tensor) -> Tensor:
                dy = tf.reshape(dy, [-1, self.shared, groups, self.width])
                return tf.reshape(tf.reduce_sum(dy, 2), [-1, self.shared * self.width])

            return tf.reshape(y, [-1, self.number * self.width]), gradient

        return apply(x)


def _dropped(x: Tensor, rate: Tensor | None, random: ops.Random | None) -> Tensor:
    return x if random is None else ops.dropout(x, rate, random)


def capped(x: Tensor, cap: float | None) -> Tensor:
    """Keeps the absolute values of x below a cap, by a hyperbolic tangent; None is no cap."""
    return x if cap is None else cap * tf.tanh(x / cap)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor,
    heads: Heads,
    drop: Callable[[Tensor], Tensor] = lambda weights: weights,
    bias: Tensor | None = None,
) -> Tensor:
    """Computes attention, each head of keys and values being that of several heads of queries.

    Args:
        query: [B, T, query width].
        key: [B, L, cache width].
        value: of the shape of key.
        allowed: bool [B, T, L], what each query sees; one at least.
        heads: how many there are, and their width.
        drop: dropout of the weights, [B, heads, T, L] but for the shape.
        bias: what is added to the scores, float32 [B, heads, T, L]; None for nothing.

    Returns:
        [B * T, query width].
    """
    return _attended(query, key, value, allowed, heads, drop, bias)


@dataclasses.dataclass(frozen=True)
class Cached:
    """What attention to cached tokens takes besides the new ones.

    Attributes:
        slots: int32 [B, T], where in the caches the new tokens go; 0 is padding.
        context: int32 [B, L], the slots of each sequence's positions, new ones included.
        positions: int32 [B, T], those of the new tokens.
        keys: handle of a variable [slots, width], and values likewise.
        values: see keys.
    """

    slots: Tensor
    context: Tensor
    positions: Tensor
    keys: Tensor
    values: Tensor


def attend_cached(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cached: Cached,
    heads: Heads,
    window: int | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Writes new tokens to caches, and computes their attention to their sequences.

    Args:
        query: [B * T, query width], of the new tokens.
        key: [B * T, cache width].
        value: of the shape of key.
        cached: where they go, and what they see.
        heads: how many there are, and their width.
        window: how many positions a token sees at most, its own the last; None for all.
        bias: what is added to the scores, float32 [B, heads, T, L]; None for nothing.

    Returns:
        [B * T, query width].
    """
    c = cached
    if heads.cap is not None or not ops.generates(query, key, value):
        return _cached(query, key, value, c, heads, window, bias)
    known = heads.number, heads.shared, heads.scale, window or 0
    args = query, key, value, c.slots, c.context, c.positions, *map(tf.constant, known)
    args += c.keys, c.values
    if bias is None:
        return _next_cached_attention(*args, shape=heads, last=window)
    return _next_cached_attention_biased(*args, bias, shape=heads, last=window)


def _cached(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cached: Cached,
    heads: Heads,
    window: int | None,
    bias: Tensor | None,
) -> Tensor:
    """Is attend_cached by TensorFlow's operations."""
    known = []
    for handle, entries in ((cached.keys, key), (cached.values, value)):
        with tf.control_dependencies([write_cache(handle, cached.slots, entries)]):
            known.append(read_cache(handle, cached.context, key.shape[1], query.dtype))
    columns = tf.range(tf.cast(tf.shape(cached.context)[1], tf.int64))
    places = tf.cast(cached.positions, tf.int64)[:, :, None]
    allowed = columns <= places
    if window is not None:
        allowed &= places - columns < window
    shape = tf.shape(cached.slots)
    query = tf.reshape(query, [shape[0], shape[1], query.shape[1]])
    return attend(query, *known, allowed, heads, bias=bias)


@ops.variables_block
def _next_cached_attention(*args: Tensor, shape: Heads, last: int | None) -> Tensor:
    # The numbers among the arguments are for an implementation that does not know the shape.
    return _cached(*args[:3], Cached(*args[3:6], *args[10:12]), shape, last, None)


@ops.variables_block
def _next_cached_attention_biased(*args: Tensor, shape: Heads, last: int | None) -> Tensor:
    return _cached(*args[:3], Cached(*args[3:6], *args[10:12]), shape, last, args[12])


def attend_source(
    query: Tensor, source: Tensor, keys: Tensor, values: Tensor, heads: Heads
) -> Tensor:
    """Computes attention of new tokens to sources.

    Args:
        query: [B * T, query width].
        source: int32 [S, L], the slots of sources, each that of B / S sequences in a row; 0 is
            nothing.
        keys: handle of a variable [slots, cache width], and values likewise.
        values: see keys.
        heads: how many there are, and their width.

    Returns:
        [B * T, query width].
    """
    args = query, source, keys, values
    if not ops.generates(query):
        return _to_source(*args, heads)
    known = map(tf.constant, (heads.number, heads.shared, heads.scale))
    return _next_source_attention(query, source, *known, keys, values, shape=heads)


def _to_source(query: Tensor, source: Tensor, keys: Tensor, values: Tensor, heads: Heads) -> Tensor:
    """Is attend_source by TensorFlow's operations."""
    width = heads.shared * heads.width
    known = (read_cache(handle, source, width, query.dtype) for handle in (keys, values))
    seen = tf.not_equal(tf.cast(source, tf.int64), 0)[:, None, :]
    # Sequences that have the same source are one row of queries.
    together = tf.stack([tf.shape(source)[0], -1, query.shape[1]])
    return attend(tf.reshape(query, together), *known, seen, heads)


@ops.variables_block
def _next_source_attention(
    query: Tensor,
    source: Tensor,
    heads: Tensor,
    shared: Tensor,
    scale: Tensor,
    keys: Tensor,
    values: Tensor,
    shape: Heads,
) -> Tensor:
    del heads, shared, scale  # for an implementation that does not know the shape
    return _to_source(query, source, keys, values, shape)


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor,
    heads: Heads,
    drop: Callable[[Tensor], Tensor],
    bias: Tensor | None,
) -> Tensor:
    """Computes what `attend` says, by TensorFlow's operations."""
    d, kv = heads.width, heads.shared
    groups = heads.number // kv
    shape, length = tf.shape(query), tf.shape(key)[1]
    b, t = shape[0], shape[1]
    query = tf.transpose(tf.reshape(query, [b, t, kv, groups, d]), [0, 2, 3, 1, 4])
    query = tf.reshape(query, [b, kv, groups * t, d])
    if heads.scale != 1:
        query *= tf.cast(heads.scale, query.dtype)
    key, value = (
        tf.transpose(tf.reshape(x, [b, length, kv, d]), [0, 2, 1, 3]) for x in (key, value)
    )
    scores = ops.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
    scores = capped(tf.reshape(scores, [b, kv, groups, t, length]), heads.cap)
    if bias is not None:
        scores += tf.reshape(bias, [-1, kv, groups, t, length])
    # Finite, so that a softmax over nothing is not NaN.
    scores += tf.where(allowed, 0.0, -1e9)[:, None, None, :, :]
    weights = drop(ops.cast(tf.nn.softmax(scores), query.dtype))
    context = tf.matmul(tf.reshape(weights, [b, kv, groups * t, length]), value)
    context = tf.transpose(tf.reshape(context, [b, kv, groups, t, d]), [0, 3, 1, 2, 4])
    return tf.reshape(context, [b * t, kv * groups * d])


class CausalLM(tf.Module):
    """Embeddings, layers and a norm, and the table that logits are products with.

    The sum of the layers is float32, and so are norms and softmax; products are in the compute
    dtype. A layer is one graph function, called once per layer with its weights.
    """

    def __init__(self, build: Build) -> None:
        """Makes the variables."""
        super().__init__()
        c, seed, std = build.config, build.seed, build.config.initializer_range
        if build.recompute not in bert.RECOMPUTE:
            known = " or ".join(bert.RECOMPUTE)
            raise ValueError(f"recompute is {build.recompute!r}; expected {known}")
        if build.precision not in task.PRECISIONS:
            known = ", ".join(task.PRECISIONS)
            raise ValueError(f"precision is {build.precision!r}; expected one of {known}")
        if c.hidden_act not in ops.ACTIVATIONS:
            known = ", ".join(ops.ACTIVATIONS)
            raise ValueError(f"the activation is {c.hidden_act!r}; expected one of {known}")
        self._config, self._recompute = c, build.recompute
        self._compute = task.PRECISIONS[build.precision]
        llama = c.family.rotary
        self.words = layers.Embedding(
            c.vocab_size, c.hidden_size, std, seed, "embed_tokens" if llama else "wte"
        )
        if not llama:
            rows = c.max_position_embeddings
            self.positions = layers.Embedding(rows, c.hidden_size, std, seed, "wpe")
        self.layers = [Layer(c, i, seed) for i in range(c.num_hidden_layers)]
        self.norm = _norm(c, "norm" if llama else "ln_f")
        if not c.tied:
            self.head = layers.Embedding(c.vocab_size, c.hidden_size, std, seed, "lm_head")
        if build.lora:
            self._adapt(build.lora, seed)
        # A graph function for each kind of layer, in lambdas, because a module saves every
        # tf.function among its attributes.
        firsts = {layer.kind: layer for layer in reversed(self.layers)}
        trained, cached = (
            {
                kind: tf.function(functools.partial(body, layer), autograph=False)
                for kind, layer in firsts.items()
            }
            for body in (self._layer, self._cached_layer)
        )
        self._layer_of = lambda kind: lambda *args: trained[kind](*args)
        self._cached_layer_of = lambda kind: lambda *args: cached[kind](*args)

    def _adapt(self, lora: Lora, seed: int) -> None:
        """Freezes the model and adds adapters to its layers."""
        own = self.layers[0].maps()
        targets = lora.targets or tuple(
            name for name in ("query_key_value", "query", "value") if name in own
        )
        limit = min(self._config.hidden_size, self._config.intermediate_size)
        check_lora(lora, targets, own, limit)
        for module in self.submodules:
            if isinstance(module, layers.Layer):
                module.freeze()
        for layer in self.layers:
            for target in targets:
                layer.maps()[target].adapt(lora.rank, lora.alpha / lora.rank, seed)

    def table(self) -> tf.Variable:
        """The table of the logits, float32 [V, H]."""
        return (self.words if self._config.tied else self.head).table

    def logits(self, x: Tensor) -> Tensor:
        """Returns float32 [N, V] of [N, H]."""
        table = ops.cast(tf.convert_to_tensor(self.table()), self._compute)
        logits = ops.cast(ops.product(x, table, transpose=True), tf.float32)
        return capped(logits, self._config.final_logit_softcapping)

    def __call__(
        self,
        input_ids: Tensor,
        sequence_ids: Tensor,
        position_ids: Tensor,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """Computes what logits are products of.

        Args:
            input_ids: int32 [R, S], rows of the vocabulary.
            sequence_ids: int32 [R, S]: a token sees itself and the tokens before it in its row
                that have the same number. 0 is padding.
            position_ids: int32 [R, S], restarting at 0 with every sequence.
            dropout: rates and random source; None in evaluation.

        Returns:
            [R * S, H] in the compute dtype.
        """
        positions = tf.reshape(position_ids, [-1])
        x = self._embed(tf.reshape(input_ids, [-1]), positions)
        if dropout is not None:
            x = ops.dropout(x, dropout.embedding, dropout.random.site(0))
        for i, layer in enumerate(self.layers):
            weights, call = self._weights(layer), self._layer_of(layer.kind)
            if dropout is None:
                x = call(x, sequence_ids, positions, None, None, None, None, weights)
                continue
            rest = (
                sequence_ids,
                positions,
                dropout.hidden,
                dropout.attention,
                dropout.random.key,
                dropout.random.site(1 + bert.SITES_PER_LAYER * i).counter,
            )
            if self._recompute == "layers":
                x = bert.recomputed(call, x, rest, weights)
            else:
                x = call(x, *rest, weights)
        return self._normed(x)

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        x = self.words(ids)
        if self._config.family.gemma:
            x *= math.sqrt(self._config.hidden_size)
        return x if self._config.family.rotary else x + self.positions(positions)

    def _normed(self, x: Tensor) -> Tensor:
        weights = [tf.convert_to_tensor(w) for w in self.norm.weights()]
        return ops.cast(self.norm.apply(x, weights), ops.computes(self._compute))

    def _weights(self, layer: Layer) -> list[Tensor]:
        """The weights of a layer, matrices in the compute dtype."""
        values = [tf.convert_to_tensor(w) for w in layer.weights()]
        return [ops.cast(v, self._compute) if v.shape.rank == 2 else v for v in values]

    def _layer(
        self,
        layer: Layer,
        x: Tensor,
        sequence_ids: Tensor,
        positions: Tensor,
        hidden_dropout: Tensor | None,
        attention_dropout: Tensor | None,
        random_key: Tensor | None,
        random_counter: Tensor | None,
        weights: list[Tensor],
    ) -> Tensor:
        """One layer of the kind of `layer`, whose weights are not taken.

        x is float32 [R * S, H], sequence_ids int32 [R, S], positions int32 [R * S].
        """

        def site(number: int) -> ops.Random | None:
            known = random_key is not None
            return ops.Random(random_key, random_counter).site(number) if known else None

        def add(number: int, y: Tensor, x: Tensor) -> Tensor:
            return prenorm.residual(y, x, hidden_dropout, site(number))

        weights, turns = list(weights), layer.turns(positions)
        y = layer.context(x, sequence_ids, turns, weights, attention_dropout, site(0))
        return layer.rest(x, y, weights, add)

    def next_logits(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        slots: Tensor,
        context: Tensor,
        last: Tensor,
        caches: list[Tensor],
    ) -> Tensor:
        """Computes the logits of the tokens after sequences, of which most tokens are cached.

        Args:
            input_ids: int32 [B, T], the new tokens.
            position_ids: int32 [B, T].
            slots: int32 [B, T], where in the caches the new tokens' keys and values go.
            context: int32 [B, L], the slots of each sequence's positions, new ones included.
            last: int32 [B], the column of each sequence's last new token.
            caches: handles of variables [slots, width]: key and value of each layer.

        Returns:
            float32 [B, V].
        """
        with ops.generation():
            shape = tf.shape(input_ids)
            x = self._embed(tf.reshape(input_ids, [-1]), tf.reshape(position_ids, [-1]))
            turns: dict[Any, list[Tensor]] = {}
            for i, layer in enumerate(self.layers):
                if layer.kind not in turns:
                    turns[layer.kind] = layer.turns(tf.reshape(position_ids, [-1]))
                places = slots, context, position_ids, *caches[2 * i : 2 * i + 2]
                call = self._cached_layer_of(layer.kind)
                x = call(x, turns[layer.kind], *places, self._weights(layer))
            at = tf.range(shape[0]) * shape[1] + last
            return self.logits(self._normed(tf.gather(x, at)))

    def _cached_layer(
        self,
        layer: Layer,
        x: Tensor,
        turns: list[Tensor],
        slots: Tensor,
        context: Tensor,
        positions: Tensor,
        keys: Tensor,
        values: Tensor,
        weights: list[Tensor],
    ) -> Tensor:
        """One layer of next_logits, as `_layer`: x float32 [B * T, H], and two handles."""
        weights = list(weights)
        made = layer.heads(x, turns, weights)
        cached = Cached(slots, context, positions, keys, values)
        y = attend_cached(*made, cached, layer.shape, layer.kind.window)
        return layer.rest(x, y, weights, lambda _, y, x: x + y)


def write_cache(handle: Tensor, slots: Tensor, entries: Tensor) -> tf.Operation:
    """Writes entries [B * T, width] to the slots, int32 [B, T], of a cache.

    Slot 0 is nobody's and stays 0, so that what is never looked at is finite.
    """
    places = tf.reshape(slots, [-1])
    real = tf.not_equal(tf.cast(places, tf.int64), 0)[:, None]
    entries = tf.where(real, ops.cast(entries, tf.float32), 0.0)
    return tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=places, updates=entries)


def read_cache(handle: Tensor, slots: Tensor, width: int, dtype: tf.DType) -> Tensor:
    """Reads the slots, int32 [B, L], of a cache: [B, L, width]."""
    read = tf.raw_ops.ResourceGather(resource=handle, indices=slots, dtype=tf.float32)
    return ops.cast(tf.ensure_shape(read, [None, None, width]), dtype)


class Parts:
    """Tokens in parts of the same size, so that no more than about LOGITS logits are there."""

    def __init__(self, count: Tensor, vocab: int) -> None:
        """Divides `count` tokens."""
        self._count = count
        self.number = tf.maximum(-(-count // max(LOGITS // vocab, 1)), 1)
        self._size = -(-count // self.number)

    def split(self, values: Tensor) -> Tensor:
        """Makes [N, ...] to [parts, size, ...], with zeros at the end."""
        more = self.number * self._size - self._count
        padded = tf.pad(values, [[0, more]] + [[0, 0]] * (values.shape.rank - 1))
        return tf.reshape(padded, [self.number, self._size, *values.shape[1:]])

    def join(self, values: Tensor) -> Tensor:
        """Makes [parts, size, ...] to [N, ...]."""
        return tf.reshape(values, [-1, *values.shape[2:]])[: self._count]


def _each(body: Callable[..., Any], values: tuple[Tensor, ...], gives: Any) -> Any:
    """Calls the body for one part after the other."""
    return tf.map_fn(
        lambda part: body(*part), values, fn_output_signature=gives, parallel_iterations=1
    )


def token_losses(
    x: Tensor,
    table: tf.Variable,
    labels: Tensor,
    weights: Tensor,
    smoothing: Tensor | None,
    bias: tf.Variable | None = None,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes the cross entropy of tokens, without having the logits of all of them at once.

    The tokens are taken in parts, one after the other. The gradient of a part is computed along
    with its losses, so that its logits are computed once.

    Args:
        x: [N, H].
        table: float32 [V, H], trained or not; the logits are products with it in the dtype of x.
        labels: int32 [N] in [0, V), what the tokens are.
        weights: float32 [N]; 0 for tokens that do not count.
        smoothing: the share of a target that is spread over all tokens, float32; None in
            evaluation, whose sums have no gradient.
        bias: float32 [1, V], added to the logits, and not trained; None for none.
        cap: what the logits stay below, as in `capped`.

    Returns:
        float32 scalars: the sum of the losses times weights, which has a gradient, and the
        sum of the weights of tokens whose label has the largest logit.
    """
    vocab, width = table.shape
    trained = table.trainable
    parts = Parts(tf.shape(x)[0], vocab)
    answers = parts.split(labels), parts.split(weights)
    narrow = ops.cast(tf.convert_to_tensor(table), x.dtype)

    def logits_of(x: Tensor) -> Tensor:
        logits = ops.cast(tf.matmul(x, narrow, transpose_b=True), tf.float32)
        return capped(logits if bias is None else logits + bias, cap)

    if smoothing is None:

        def part(x: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
            logits = logits_of(x)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            right = ops.same(tf.argmax(logits, -1), labels)
            return encoded.weighted(losses, weights), tf.reduce_sum(right * weights)

        sums = _each(part, (parts.split(x), *answers), (tf.float32, tf.float32))
        return tuple(tf.reduce_sum(values) for values in sums)

    def step(i: Tensor, loss: Tensor, right: Tensor, dx: tf.TensorArray, *dtable: Tensor) -> tuple:
        own = rows[i]
        logits = logits_of(own)
        known = (values[i] for values in answers)
        losses, rights, slopes = ops.token_losses(logits, *known, smoothing)
        if cap is not None:
            slopes *= 1 - tf.square(logits / cap)
        slopes = ops.cast(slopes, x.dtype)
        across = (tf.matmul(slopes, own, transpose_a=True) for _ in dtable)
        return (
            i + 1,
            loss + tf.reduce_sum(losses),
            right + tf.reduce_sum(rights),
            dx.write(i, tf.matmul(slopes, narrow)),
            *(d + ops.cast(part, d.dtype) for d, part in zip(dtable, across)),
        )

    rows = parts.split(x)

    @tf.custom_gradient
    def apply(x: Tensor, table: Tensor) -> tuple[tuple[Tensor, Tensor], Callable[..., Any]]:
        del table  # `narrow` is what products take
        dx = tf.TensorArray(x.dtype, parts.number, element_shape=[None, width])
        start = (tf.constant(0), 0.0, 0.0, dx, *([tf.zeros([vocab, width])] if trained else []))
        _, loss, right, dx, *dtable = tf.while_loop(
            lambda i, *_: i < parts.number, step, start, parallel_iterations=1
        )
        down = parts.join(dx.stack())

        def gradient(dloss: Tensor, _: Tensor) -> tuple[Tensor, Tensor | None]:
            dx = ops.cast(ops.cast(down, tf.float32) * dloss, x.dtype)
            return dx, dtable[0] * dloss if trained else None

        return (loss, right), gradient

    return apply(x, tf.convert_to_tensor(table))


def log_probabilities(
    x: Tensor, labels: Tensor, vocab: int, logits: Callable[[Tensor], Tensor]
) -> Tensor:
    """Returns those of the labels, float32 [N]; the logits, of x [N, H], are taken in parts."""
    parts = Parts(tf.shape(labels)[0], vocab)

    def part(x: Tensor, labels: Tensor) -> Tensor:
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits(x))

    return parts.join(_each(part, (parts.split(x), parts.split(labels)), tf.float32))


class LanguageModel(task.Task):
    """Cross entropy of each token but a sequence's first, given those before it.

    The loss is the mean over tokens, not over examples. A token weighs what its example weighs,
    times its own weight, which is 1 where records do not say it.
    """

    name = "lm"
    best = ("loss", "lower")
    metrics = (task.Metric("perplexity", "lower"),)
    results_of = ("metric/perplexity/loss", "metric/perplexity/weight")

    def __init__(self, build: Build) -> None:
        """Makes the model."""
        self.model, self.build, self.precision = CausalLM(build), build, build.precision
        c, rows = build.config, ("rows", "length")
        self.features = [
            task.Feature("input_ids", tf.int32, rows, below=c.vocab_size),
            task.Feature("sequence_ids", tf.int32, rows, make="sequence_ids"),
            task.Feature(
                "position_ids",
                tf.int32,
                rows,
                make="position_ids",
                below=c.max_position_embeddings,
            ),
            task.Feature("example_ids", tf.int32, rows, role="id", make="example_ids"),
            task.Feature("token_weights", tf.float32, rows, role="weight"),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        self.hyperparameters = [
            encoded.rate("embedding_dropout", c.embedding_dropout, "rate after the embeddings"),
            encoded.rate("hidden_dropout", c.hidden_dropout, "rate after sublayers"),
            encoded.rate("attention_dropout", c.attention_dropout, "rate on attention weights"),
            encoded.rate("label_smoothing", 0.0, "share spread evenly over all tokens"),
        ]
        self.outputs = (task.Output("log_probabilities", rows, "tokens"),)

    def description(self) -> dict[str, Any]:
        """See Task."""
        c = self.build.config
        family, h, q, k = c.family, c.hidden_size, c.query_width, c.cache_width
        net = (6 if family.rotary else 4) * h * c.intermediate_size
        layer = 4 * h * q + 4 * h * k + net
        bare = [] if c.tied else ["lm_head."]
        return {
            "architecture": c.model_type,
            "recompute": self.build.recompute,
            "flops": {
                "per_token": c.num_hidden_layers * layer + 2 * h * c.vocab_size,
                "per_token_pair": c.num_hidden_layers * 4 * q,
            },
            "config": c.description(),
            "weights": self._own_weights(),
            "huggingface": {"config": c.released(), "prefix": family.prefix, "bare": bare},
        }

    def _own_weights(self) -> dict[str, Any]:
        """What files of weights must be for the model to be computed as they were trained."""
        c = self.build.config
        released = c.released()
        names = ("num_attention_heads", "num_key_value_heads", "hidden_act", "norm_epsilon")
        names += ("rope_theta", "tie_word_embeddings", "query_pre_attn_scalar")
        names += ("attn_logit_softcapping", "final_logit_softcapping", "rope_local_base_freq")
        fields = [c.family.fields.get(name, name) for name in names]
        needed = {field: released[field] for field in fields if field}
        needed |= {
            field: allowed[0] for field, allowed in c.family.only.items() if len(allowed) == 1
        }
        if c.family.rotary:
            layers_of = ("layer_types", "no_rope_layers")
            needed |= {field: released[field] for field in layers_of if field in released}
            needed |= {"rope_scaling": c.rope_scaling, "sliding_window": c.sliding_window}
            needed["positions"] = c.max_position_embeddings  # from which on a window is none
        return {
            "model_type": c.model_type,
            "prefix": c.family.prefix,
            "others": [],
            "config": needed,
            "defaults": c.family.meant(names),
            "fit": [] if c.family.rotary else ["model/positions/table"],
        }

    def rows(self, path: str) -> str | None:
        """See Task. A tied table has a gradient in all rows."""
        untied = path == "model/words/table" and not self.build.config.tied
        return "input_ids" if untied else None

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        rates = (
            hyperparameters[f"{part}_dropout"] for part in ("embedding", "hidden", "attention")
        )
        dropout = Dropout(*rates, random)
        return self._sums(features, dropout, hyperparameters["label_smoothing"])

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task."""
        sums = self._sums(features, None, None)
        sums["metric/perplexity/loss"] = sums["loss_sum"]
        sums["metric/perplexity/weight"] = sums["weight_sum"]
        return sums

    def results(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. The perplexity is e to the mean loss."""
        loss, weight = (sums[name] for name in self.results_of)
        return {"perplexity": tf.exp(loss / weight)}

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task.

        "log_probabilities", float32 [R, S]: of each token given those before it, 0 for the first
        of a sequence and in padding.
        """
        return self._explained(self._hidden(features, None), features)

    def _explained(self, hidden: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
        labels, follows = next_tokens(features["input_ids"], features["sequence_ids"])
        values = log_probabilities(hidden, labels, self.build.config.vocab_size, self.model.logits)
        values = tf.reshape(tf.where(follows, values, 0.0), tf.shape(features["input_ids"]))
        return {"log_probabilities": tf.pad(values[:, :-1], [[0, 0], [1, 0]])}

    def serving(self) -> tuple[list[tf.TensorSpec], Callable[..., dict[str, Tensor]]]:
        """See Task.

        One example per row: input_ids, attention_mask and token_type_ids, which are not looked at,
        [B, S]. Gives what `predict` does, and "logits", float32 [B, S, V].
        """
        names = ("input_ids", "attention_mask", "token_type_ids")
        specs = [tf.TensorSpec([None, None], tf.int32, name) for name in names]

        def serve(input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> dict:
            del token_type_ids
            mask = tf.cast(tf.not_equal(attention_mask, 0), tf.int32)
            positions = tf.maximum(tf.cumsum(mask, 1) - 1, 0)
            hidden = self.model(input_ids, mask, positions)
            shape = tf.concat([tf.shape(input_ids), [-1]], 0)
            return {
                "logits": tf.reshape(self.model.logits(hidden), shape),
                **self._explained(hidden, {"input_ids": input_ids, "sequence_ids": mask}),
            }

        return specs, serve

    def generation(self) -> task.Generation:
        """See Task."""
        c = self.build.config
        caches = tuple(
            task.Cache(f"layer_{i}/{part}", (c.cache_width,))
            for i in range(c.num_hidden_layers)
            for part in ("key", "value")
        )
        limit = c.max_position_embeddings
        return task.Generation(limit, c.vocab_size, caches, self.model.next_logits)

    def _hidden(self, features: dict[str, Tensor], dropout: Dropout | None) -> Tensor:
        names = ("input_ids", "sequence_ids", "position_ids")
        return self.model(*(features[name] for name in names), dropout)

    def _sums(
        self, features: dict[str, Tensor], dropout: Dropout | None, smoothing: Tensor | None
    ) -> dict[str, Tensor]:
        hidden = self._hidden(features, dropout)
        labels, follows = next_tokens(features["input_ids"], features["sequence_ids"])
        # The weight of a token is that of the place before it, where its loss is.
        own = tf.pad(features["token_weights"][:, 1:], [[0, 0], [0, 1]])
        weights = encoded.token_weights(features) * tf.reshape(own, [-1])
        weights = tf.where(follows, weights, 0.0)
        cap = self.build.config.final_logit_softcapping
        table = self.model.table()
        loss, right = token_losses(hidden, table, labels, weights, smoothing, cap=cap)
        return {
            "loss_sum": loss,
            "weight_sum": tf.reduce_sum(weights),
            "accuracy_sum": tf.stop_gradient(right),
        }


def next_tokens(input_ids: Tensor, sequence_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what follows each token: int32 [R * S], and whether it is of the same sequence."""
    shift = [[0, 0], [0, 1]]
    labels = tf.pad(input_ids[:, 1:], shift)
    ids = tf.cast(sequence_ids, tf.int64)
    follows = tf.equal(ids, tf.pad(ids[:, 1:], shift)) & tf.not_equal(ids, 0)
    return tf.reshape(labels, [-1]), tf.reshape(follows, [-1])
