"""Encoder-decoder models (T5, BART, Marian) over packed rows, and their generation."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from gorbit_export import bert, causal, layers, ops, prenorm, task
from gorbit_export.seq2seq_config import OFFSET, Seq2SeqConfig

Tensor = tf.Tensor

SITES = 6
"""How many places of a layer draw numbers for dropout: the weights of attention, what it gives,
the same of attention to the source, the feed-forward network's middle, and what it gives."""
_SELF, _CROSS, _NET = 0, 2, 4
_SIDES = ("encoder", "decoder")


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

    config: Seq2SeqConfig
    seed: int = 0
    recompute: str = "none"
    precision: str = "float32"
    lora: causal.Lora | None = None


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Dropout of a training pass: the rates (float32 scalars) and the random source."""

    hidden: Tensor
    attention: Tensor
    activation: Tensor
    random: ops.Random

    def drop(self, x: Tensor, site: int, rate: Tensor | None = None) -> Tensor:
        """Drops elements of x at one of the model's sites, by the rate or that of `hidden`."""
        rate = self.hidden if rate is None else rate
        return ops.dropout(x, rate, self.random.site(site))

    def of_layer(self, first: int) -> tuple[Tensor, ...]:
        """What a layer takes whose sites begin with `first`: the fields, in their order."""
        random = self.random.site(first)
        return self.hidden, self.attention, self.activation, random.key, random.counter

    @classmethod
    def taken(cls, drawn: tuple[Tensor, ...]) -> Dropout | None:
        """What `of_layer` gave; None of nothing."""
        return cls(*drawn[:3], ops.Random(*drawn[3:])) if drawn else None


def _norm(config: Seq2SeqConfig, foreign: str) -> causal.RMSNorm | causal.LayerNorm:
    kind = causal.RMSNorm if config.family.relative else causal.LayerNorm
    return kind(config.hidden_size, config.norm_epsilon, foreign)


class Sublayer(tf.Module):
    """A part of a layer, with a norm before it (T5) or after it, and added to its input."""

    def __init__(self, config: Seq2SeqConfig, norm: str) -> None:
        """Makes the norm."""
        super().__init__()
        self._config = config
        self.norm = _norm(config, norm)

    def maps(self) -> dict[str, causal.Map]:
        """The maps by their names, in the order in which they are computed."""
        raise NotImplementedError

    def weights(self, maps: list[causal.Map] | None = None) -> list[tf.Variable]:
        """The variables of the norm and of maps, all of them by default, in the order of use."""
        own = [w for m in maps or self.maps().values() for w in m.weights()]
        norm = self.norm.weights()
        return [*norm, *own] if self._config.family.relative else [*own, *norm]

    def around(
        self,
        x: Tensor,
        dtype: tf.DType,
        weights: list[Tensor],
        body: Callable[[Tensor], Tensor],
        last: causal.Map,
        add: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Maps what the body makes of x float32 [N, H] in `dtype`, adds it to x, and normalizes."""
        if self._config.family.relative:
            y = body(ops.cast(self.norm.apply(x, weights), dtype))
            return last.added(y, x, weights, add)
        y = body(ops.cast(x, dtype))
        return self.norm.apply(last.added(y, x, weights, add), weights)


class Attention(Sublayer):
    """The maps of attention to a side's own tokens, or to the source's."""

    def __init__(self, config: Seq2SeqConfig, side: str, at: str, norm: str, seed: int) -> None:
        """Makes the variables of attention called `at` in other releases."""
        super().__init__(config, norm)
        h, width, std = config.hidden_size, config.width(side), config.initializer_range
        relative = config.family.relative
        heads, head = config.heads(side), config.head_width(side)
        self.shape = causal.Heads(heads, heads, head, 1.0 if relative else head**-0.5)
        inner, outer = std / math.sqrt(h), std / math.sqrt(width)
        query = inner / math.sqrt(config.head_width(side))
        deviations = (query, inner, inner, outer) if relative else (std,) * 4
        names = ("q", "k", "v", "o") if relative else ("q_proj", "k_proj", "v_proj", "out_proj")
        sizes = ((h, width),) * 3 + ((width, h),)
        self.query, self.key, self.value, self.output = (
            causal.Map(*size, deviation, seed, f"{at}.{name}", bias=not relative)
            for size, deviation, name in zip(sizes, deviations, names)
        )

    def maps(self) -> dict[str, causal.Map]:
        """See Sublayer."""
        return {n: getattr(self, n) for n in ("query", "key", "value", "output")}

    def outer_weights(self) -> list[tf.Variable]:
        """What attention to known keys and values takes."""
        return self.weights([self.query, self.output])

    def memory_weights(self) -> list[tf.Variable]:
        """What keys and values are made with."""
        return [*self.key.weights(), *self.value.weights()]


class FeedForward(Sublayer):
    """A position-wise network, in T5 1.1 with a gate."""

    def __init__(self, config: Seq2SeqConfig, side: str, at: str, norm: str, seed: int) -> None:
        """Makes the variables of the network called `at` in other releases."""
        super().__init__(config, norm)
        h, width, std = config.hidden_size, config.ffn(side), config.initializer_range
        relative = config.family.relative
        inner, outer = (std / math.sqrt(h), std / math.sqrt(width)) if relative else (std, std)
        names = ("wi", "wo") if relative else ("fc1", "fc2")
        if config.gated:
            names = ("wi_1", "wo")
            self.gate = causal.Map(h, width, inner, seed, f"{at}wi_0", bias=False)
        self.intermediate = causal.Map(h, width, inner, seed, at + names[0], bias=not relative)
        self.feed_forward = causal.Map(width, h, outer, seed, at + names[1], bias=not relative)

    def maps(self) -> dict[str, causal.Map]:
        """See Sublayer."""
        names = ("gate", "intermediate", "feed_forward")
        return {n: getattr(self, n) for n in names if hasattr(self, n)}

    def apply(
        self, x: Tensor, dtype: tf.DType, weights: list[Tensor], dropout: Dropout | None
    ) -> Tensor:
        """Adds what the network makes of x, float32 [N, H]."""
        act = self._config.hidden_act

        def body(y: Tensor) -> Tensor:
            if self._config.gated:
                gate = self.gate.apply(y, weights)
                z = ops.gated(act, gate, self.intermediate.apply(y, weights))
            else:
                z = self.intermediate.activated(act, y, weights)
            if dropout is not None:
                z = dropout.drop(z, _NET, dropout.activation)
            return z

        add = _adder(dropout, _NET + 1)
        return self.around(x, dtype, weights, body, self.feed_forward, add)


class Layer(tf.Module):
    """A layer of the encoder or the decoder."""

    def __init__(self, config: Seq2SeqConfig, side: str, index: int, seed: int) -> None:
        """Makes the variables."""
        super().__init__()
        how = (config, side)
        if config.family.relative:
            at = f"{side}.block.{index}.layer"
            net = 2 if side == "decoder" else 1
            self.attention = Attention(*how, f"{at}.0.SelfAttention", f"{at}.0.layer_norm", seed)
            if side == "decoder":
                norm = f"{at}.1.layer_norm"
                self.source = Attention(*how, f"{at}.1.EncDecAttention", norm, seed)
            norm = f"{at}.{net}.layer_norm"
            self.network = FeedForward(*how, f"{at}.{net}.DenseReluDense.", norm, seed)
            return
        at = f"{side}.layers.{index}"
        self.attention = Attention(*how, f"{at}.self_attn", f"{at}.self_attn_layer_norm", seed)
        if side == "decoder":
            norm = f"{at}.encoder_attn_layer_norm"
            self.source = Attention(*how, f"{at}.encoder_attn", norm, seed)
        self.network = FeedForward(*how, f"{at}.", f"{at}.final_layer_norm", seed)

    def parts(self) -> dict[str, Sublayer]:
        """The sublayers by their names, in the order in which they are computed."""
        names = ("attention", "source", "network")
        return {n: getattr(self, n) for n in names if hasattr(self, n)}

    def maps(self) -> dict[str, causal.Map]:
        """The maps by their names; those of attention to the source begin with source_."""
        return {
            ("source_" if part == "source" else "") + name: made
            for part, sub in self.parts().items()
            for name, made in sub.maps().items()
        }

    def weights(self) -> list[tf.Variable]:
        """The variables in the order in which training uses them."""
        memory = self.source.memory_weights() if hasattr(self, "source") else []
        outer = self.source.outer_weights() if hasattr(self, "source") else []
        return [*self.attention.weights(), *memory, *outer, *self.network.weights()]

    def cached_weights(self) -> list[tf.Variable]:
        """The variables of a decoder's layer in the order in which generation uses them."""
        parts = (self.attention.weights(), self.source.outer_weights(), self.network.weights())
        return [w for part in parts for w in part]


def _dropper(dropout: Dropout | None, site: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x if dropout is None else dropout.drop(x, site)


def _adder(dropout: Dropout | None, site: int) -> Callable[[Tensor, Tensor], Tensor]:
    if dropout is None:
        return lambda y, x: x + y
    return lambda y, x: prenorm.residual(y, x, dropout.hidden, dropout.random.site(site))


def _weights_dropper(dropout: Dropout | None, site: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x if dropout is None else dropout.drop(x, site, dropout.attention)


def _same(ids: Tensor, others: Tensor) -> Tensor:
    """Which of int32 [R, T] and [R, L] are of the same sequence, bool [R, T, L]."""
    # In int64, because GPUs leave comparisons of int32 to the host.
    return tf.equal(tf.cast(ids, tf.int64)[:, :, None], tf.cast(others, tf.int64)[:, None, :])


def _by_row(x: Tensor, like: Tensor) -> Tensor:
    """Reshapes [R * T, width] by the shape [R, T] of `like`."""
    shape = tf.shape(like)
    return tf.reshape(x, [shape[0], shape[1], x.shape[1]])


class Distances(layers.Layer):
    """T5's bias of attention by the distance of two tokens."""

    def __init__(self, config: Seq2SeqConfig, side: str, seed: int) -> None:
        """Makes the table, float32 [buckets, heads]."""
        super().__init__()
        self._config, self._both = config, side == "encoder"
        name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        std = config.initializer_range / math.sqrt(config.hidden_size)
        value = layers.initial([config.buckets, config.heads(side)], std, seed, name)
        initializer = layers.Initializer("normal", std)
        self._add("table", value, layers.Foreign((name,)), initializer)

    def __call__(self, positions: Tensor, others: Tensor) -> Tensor:
        """Returns float32 [R, heads, T, L] of int32 [R, T] and [R, L]."""
        buckets = self._buckets(others[:, None, :] - positions[:, :, None])
        bias = ops.embedding(self.table, tf.reshape(buckets, [-1]))
        shape = tf.concat([tf.shape(buckets), [self.table.shape[1]]], 0)
        return tf.transpose(tf.reshape(bias, shape), [0, 3, 1, 2])

    def _buckets(self, distance: Tensor) -> Tensor:
        """The classes of distances: exact ones of near tokens, then wider and wider ones."""
        count, after = self._config.buckets, 0
        distance = tf.cast(distance, tf.int64)
        if self._both:
            count //= 2
            after = tf.where(distance > 0, tf.constant(count, tf.int64), 0)
            distance = tf.abs(distance)
        else:
            distance = tf.maximum(-distance, 0)
        exact = count // 2
        # A table, so that no bucket depends on how a machine rounds a logarithm.
        far = np.arange(self._config.max_distance + 1, dtype=np.float32)
        with np.errstate(divide="ignore"):
            share = np.log(far / np.float32(exact)) / np.float32(
                math.log(self._config.max_distance / exact)
            )
        wide = exact + np.where(far < exact, 0, share * (count - exact)).astype(np.int64)
        known = np.where(far < exact, far, np.minimum(wide, count - 1)).astype(np.int64)
        near = tf.minimum(distance, self._config.max_distance)
        return after + tf.gather(tf.constant(known), near)


def sines(rows: int, width: int) -> np.ndarray:
    """Marian's positions, float32 [rows, width]: sines, then cosines (Vaswani et al. 2017)."""
    rates = 1 / np.power(10000.0, 2 * np.arange(width // 2) / width)
    angles = np.arange(rows)[:, None] * rates[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


class Side(tf.Module):
    """The encoder or the decoder."""

    def __init__(self, config: Seq2SeqConfig, side: str, seed: int) -> None:
        """Makes the variables."""
        super().__init__()
        c = config
        if c.family.relative:
            self.distances = Distances(c, side, seed)
        elif c.family.learned_positions:
            rows, std = c.max_length + OFFSET, c.initializer_range
            name = f"{side}.embed_positions"
            self.positions = layers.Embedding(rows, c.hidden_size, std, seed, name)
            self.embedding_norm = _norm(c, f"{side}.layernorm_embedding")
        self.layers = [Layer(c, side, i, seed) for i in range(c.layers(side))]
        if c.family.relative:
            self.norm = _norm(c, f"{side}.final_layer_norm")


class EncoderDecoder(tf.Module):
    """Embeddings, an encoder and a decoder, and the table that logits are products with.

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
        # Files have a tied table once, under any of its names.
        names = ("encoder.embed_tokens", "decoder.embed_tokens", *(["lm_head"] * c.tied))
        self.words = layers.Embedding(
            c.vocab_size, c.hidden_size, std, seed, "shared", others=names
        )
        self.encoder, self.decoder = (Side(c, side, seed) for side in _SIDES)
        self.output: layers.Bias | None = None
        if not c.tied:
            self.head = layers.Embedding(c.vocab_size, c.hidden_size, std, seed, "lm_head")
        if not c.family.relative:
            self.output = LogitsBias(c.vocab_size)
        if build.lora:
            self._adapt(build.lora, seed)
        bodies = (self._encoder_layer, self._decoder_layer, self._cached_layer)
        functions = [tf.function(body, autograph=False) for body in bodies]
        # In lambdas, because a module saves every tf.function among its attributes.
        self._call_encoder = lambda *args: functions[0](*args)
        self._call_decoder = lambda *args: functions[1](*args)
        self._call_cached = lambda *args: functions[2](*args)

    def _adapt(self, lora: causal.Lora, seed: int) -> None:
        """Freezes the model and adds adapters to its layers."""
        c = self._config
        limit = min(c.hidden_size, c.encoder_ffn, c.decoder_ffn, c.width("encoder"))
        targets = lora.targets or ("query", "value", "source_query", "source_value")
        both = [*self.encoder.layers, *self.decoder.layers]
        causal.check_lora(lora, targets, self.decoder.layers[0].maps(), limit)
        for module in self.submodules:
            if isinstance(module, layers.Layer):
                module.freeze()
        for layer in both:
            for target in targets:
                if target in layer.maps():
                    layer.maps()[target].adapt(lora.rank, lora.alpha / lora.rank, seed)

    @property
    def bias(self) -> tf.Variable | None:
        """What is added to the logits, float32 [1, V]; None in T5."""
        return self.output and self.output.bias

    def table(self) -> tf.Variable:
        """The table of the logits, float32 [V, H]."""
        return (self.words if self._config.tied else self.head).table

    def logits(self, x: Tensor) -> Tensor:
        """Returns float32 [N, V] of [N, H]."""
        table = ops.cast(tf.convert_to_tensor(self.table()), self._compute)
        bias = None if self.bias is None else tf.convert_to_tensor(self.bias)
        return ops.table_product(x, table, bias)

    def encode(
        self,
        input_ids: Tensor,
        sequence_ids: Tensor,
        position_ids: Tensor,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """Computes what the decoder sees of sources.

        Args:
            input_ids: int32 [R, S], rows of the vocabulary.
            sequence_ids: int32 [R, S]: a token sees those of its row that have the same number.
            position_ids: int32 [R, S], restarting at 0 with every sequence.
            dropout: rates and random source; None in evaluation.

        Returns:
            [R * S, H] in the compute dtype.
        """
        x = self._embed("encoder", input_ids, position_ids, dropout)
        shared = self._shared(self.encoder, position_ids, position_ids)
        for i, layer in enumerate(self.encoder.layers):
            x = self._run(self._call_encoder, x, (sequence_ids,), shared, layer, i, dropout)
        return self._last("encoder", x, dropout)

    def decode(
        self,
        encoded: Tensor,
        source_ids: Tensor,
        input_ids: Tensor,
        sequence_ids: Tensor,
        position_ids: Tensor,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """Computes what logits are products of.

        Args:
            encoded: [R * S, H], what `encode` gave.
            source_ids: int32 [R, S], the sequence_ids of the sources.
            input_ids: int32 [R, T]: what the decoder has seen before each token.
            sequence_ids: int32 [R, T]: a token sees itself and the tokens before it in its row
                that have the same number, and the source's of the row with that number.
            position_ids: int32 [R, T].
            dropout: rates and random source; None in evaluation.

        Returns:
            [R * T, H] in the compute dtype.
        """
        x = self._embed("decoder", input_ids, position_ids, dropout)
        shared = [_by_row(encoded, source_ids)]
        shared += self._shared(self.decoder, position_ids, position_ids)
        ids, before = (sequence_ids, source_ids), len(self.encoder.layers)
        for i, layer in enumerate(self.decoder.layers):
            x = self._run(self._call_decoder, x, ids, shared, layer, before + i, dropout)
        return self._last("decoder", x, dropout)

    def _shared(self, side: Side, positions: Tensor, others: Tensor) -> list[Tensor]:
        """What all layers of a side take: the bias of distances, if there is one."""
        return [side.distances(positions, others)] if self._config.family.relative else []

    def _run(
        self,
        function: Callable[..., Tensor],
        x: Tensor,
        ids: tuple[Tensor, ...],
        shared: list[Tensor],
        layer: Layer,
        number: int,
        dropout: Dropout | None,
    ) -> Tensor:
        """Calls a layer, by its number among those of both sides."""
        tensors = [*shared, *self._weights(layer.weights())]
        if dropout is None:
            return function(x, *ids, tensors)
        rest = (*ids, *dropout.of_layer(len(_SIDES) + SITES * number))
        if self._recompute == "layers":
            return bert.recomputed(function, x, rest, tensors)
        return function(x, *rest, tensors)

    def _embed(
        self, side: str, ids: Tensor, positions: Tensor, dropout: Dropout | None = None
    ) -> Tensor:
        """The inputs of the first layer, float32 [R * T, H]."""
        c, own = self._config, getattr(self, side)
        ids, positions = tf.reshape(ids, [-1]), tf.reshape(positions, [-1])
        x = self.words(ids)
        padding = c.tokens.get("pad_token_id")
        if not c.family.relative and padding is not None:
            # As where the models were trained: the vector of padding, with which Marian's decoder
            # begins, has the gradient of the logits alone.
            known = tf.equal(tf.cast(ids, tf.int64), padding)[:, None]
            x = tf.where(known, tf.stop_gradient(x), x)
        if c.scale_embedding:
            x *= math.sqrt(c.hidden_size)
        if c.family.learned_positions:
            x += own.positions(positions + OFFSET)
            x = own.embedding_norm(x)
        elif not c.family.relative:
            x += tf.gather(tf.constant(sines(c.max_length, c.hidden_size)), positions)
        return _dropper(dropout, _SIDES.index(side))(x)

    def _last(self, side: str, x: Tensor, dropout: Dropout | None = None) -> Tensor:
        """What is behind the last layer, in the compute dtype."""
        c = self._config
        if c.family.relative:
            norm = getattr(self, side).norm
            x = norm.apply(x, [tf.convert_to_tensor(w) for w in norm.weights()])
            layers_of_both = c.encoder_layers + c.decoder_layers
            site = len(_SIDES) + SITES * layers_of_both + _SIDES.index(side)
            x = _dropper(dropout, site)(x)
            if side == "decoder" and c.tied:
                x /= math.sqrt(c.hidden_size)
        return ops.cast(x, ops.computes(self._compute))

    def _weights(self, variables: list[tf.Variable]) -> list[Tensor]:
        """The values of variables, matrices in the compute dtype."""
        values = [tf.convert_to_tensor(w) for w in variables]
        return [ops.cast(v, self._compute) if v.shape.rank == 2 else v for v in values]

    def _encoder_layer(self, x: Tensor, ids: Tensor, *rest: Tensor | list[Tensor]) -> Tensor:
        """One layer: x float32 [R * S, H], ids int32 [R, S]; then dropout's, and the tensors."""
        *drawn, tensors = rest
        return self._attend_and_map("encoder", x, ids, _same(ids, ids), drawn, list(tensors))

    def _decoder_layer(
        self, x: Tensor, ids: Tensor, source_ids: Tensor, *rest: Tensor | list[Tensor]
    ) -> Tensor:
        """One layer: x float32 [R * T, H], int32 [R, T] and [R, S]; then as _encoder_layer."""
        *drawn, (encoded, *tensors) = rest
        allowed = ops.before(ids)
        source = self.decoder.layers[0].source

        def known(weights: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
            flat = tf.reshape(encoded, [-1, encoded.shape[2]])
            memory = (m.apply(flat, weights) for m in (source.key, source.value))
            return *(_by_row(m, source_ids) for m in memory), _same(ids, source_ids)

        return self._attend_and_map("decoder", x, ids, allowed, drawn, tensors, known)

    def _attend_and_map(
        self,
        side: str,
        x: Tensor,
        ids: Tensor,
        allowed: Tensor,
        drawn: list[Tensor],
        tensors: list[Tensor],
        memory: Callable[[list[Tensor]], tuple[Tensor, Tensor, Tensor]] | None = None,
    ) -> Tensor:
        """A layer of training.

        Args:
            side: "encoder" or "decoder".
            x: float32 [R * T, H].
            ids: int32 [R, T], for the shape.
            allowed: bool [R, T, T], what each token sees of its own side.
            drawn: those of dropout; empty for none.
            tensors: the bias of distances, if there is one, and the weights.
            memory: takes weights, and gives keys, values and what is allowed of the source.
        """
        bias = tensors.pop(0) if self._config.family.relative else None
        dropout, layer = Dropout.taken(tuple(drawn)), getattr(self, side).layers[0]

        def own(query: Tensor, weights: list[Tensor]) -> Tensor:
            part = layer.attention
            made = [m.apply(query, weights) for m in (part.query, part.key, part.value)]
            if bias is None:
                drawn = (dropout.attention, dropout.random.site(_SELF)) if dropout else ()
                known = (ids, part.shape.number, *drawn)
                whole = ops.join(made, 1)
                return ops.attention(whole, None, *known, causal=side == "decoder")
            drop, by_row = _weights_dropper(dropout, _SELF), [_by_row(y, ids) for y in made]
            return causal.attend(*by_row, allowed, part.shape, drop, bias)

        x = self._attended(layer.attention, x, tensors, own, _adder(dropout, _SELF + 1))
        if memory is not None:
            keys, values, seen = memory(tensors)
            drop = _weights_dropper(dropout, _CROSS)
            to_source = functools.partial(self._to_source, layer, ids, keys, values, seen, drop)
            x = self._attended(layer.source, x, tensors, to_source, _adder(dropout, _CROSS + 1))
        return layer.network.apply(x, ops.computes(self._compute), tensors, dropout)

    def _attended(
        self,
        part: Attention,
        x: Tensor,
        weights: list[Tensor],
        context: Callable[[Tensor, list[Tensor]], Tensor],
        add: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Adds to x what a part's heads give, `context` of its input."""

        def body(y: Tensor) -> Tensor:
            return context(y, weights)

        return part.around(x, ops.computes(self._compute), weights, body, part.output, add)

    @staticmethod
    def _to_source(
        layer: Layer,
        ids: Tensor,
        keys: Tensor,
        values: Tensor,
        seen: Tensor,
        drop: Callable[[Tensor], Tensor],
        x: Tensor,
        weights: list[Tensor],
    ) -> Tensor:
        """What the heads of attention to the source give for x [R * T, H]."""
        query = _by_row(layer.source.query.apply(x, weights), ids)
        return causal.attend(query, keys, values, seen, layer.source.shape, drop)

    def write_source(
        self, input_ids: Tensor, position_ids: Tensor, slots: Tensor, caches: list[Tensor]
    ) -> Tensor:
        """Encodes sources, and writes what the decoder sees of them to caches.

        Args:
            input_ids: int32 [B, S], one source in each row.
            position_ids: int32 [B, S].
            slots: int32 [B, S], where in the caches each token's keys and values go; 0 is padding.
            caches: handles of variables [slots, width]: key and value of each decoder layer.

        Returns:
            int32 [B], the number of tokens of each source.
        """
        real = tf.cast(tf.not_equal(slots, 0), tf.int32)
        encoded, writes = self.encode(input_ids, real, position_ids), []
        for i, layer in enumerate(self.decoder.layers):
            weights = self._weights(layer.source.memory_weights())
            for handle, part in zip(caches[2 * i :], (layer.source.key, layer.source.value)):
                entries = part.apply(encoded, weights)
                writes.append(causal.write_cache(handle, slots, entries))
        with tf.control_dependencies(writes):
            return tf.reduce_sum(real, 1)

    def next_logits(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        slots: Tensor,
        context: Tensor,
        last: Tensor,
        caches: list[Tensor],
        source: Tensor,
        source_caches: list[Tensor],
    ) -> Tensor:
        """Computes the logits of the tokens after sequences, of which most tokens are cached.

        Args:
            input_ids: int32 [B, T], the new tokens.
            position_ids: int32 [B, T].
            slots: int32 [B, T], where in the caches the new tokens' keys and values go.
            context: int32 [B, L], the slots of each sequence's positions, new ones included.
            last: int32 [B], the column of each sequence's last new token.
            caches: handles of variables [slots, width]: key and value of each layer.
            source: int32 [S, L_s], the slots of sources, each that of B / S sequences in a row;
                0 is nothing.
            source_caches: handles of variables that write_source wrote to.

        Returns:
            float32 [B, V].
        """
        with ops.generation():
            shape = tf.shape(input_ids)
            x = self._embed("decoder", input_ids, position_ids)
            columns = tf.broadcast_to(tf.range(tf.shape(context)[1])[None, :], tf.shape(context))
            shared = self._shared(self.decoder, position_ids, columns)
            for i, layer in enumerate(self.decoder.layers):
                pairs = (*caches[2 * i : 2 * i + 2], *source_caches[2 * i : 2 * i + 2])
                tensors = [*shared, *self._weights(layer.cached_weights())]
                x = self._call_cached(x, position_ids, slots, context, source, *pairs, tensors)
            at = tf.range(shape[0]) * shape[1] + last
            return self.logits(self._last("decoder", tf.gather(x, at)))

    def _cached_layer(
        self,
        x: Tensor,
        position_ids: Tensor,
        slots: Tensor,
        context: Tensor,
        source: Tensor,
        keys: Tensor,
        values: Tensor,
        source_keys: Tensor,
        source_values: Tensor,
        tensors: list[Tensor],
    ) -> Tensor:
        """One layer of next_logits: x float32 [B * T, H], and four handles."""
        tensors, layer = list(tensors), self.decoder.layers[0]
        bias = tensors.pop(0) if self._config.family.relative else None
        cached = causal.Cached(slots, context, position_ids, keys, values)

        def own(y: Tensor, weights: list[Tensor]) -> Tensor:
            part = layer.attention
            made = causal.mapped([part.query, part.key, part.value], y, weights)
            return causal.attend_cached(*made, cached, part.shape, bias=bias)

        def to_source(y: Tensor, weights: list[Tensor]) -> Tensor:
            query = layer.source.query.apply(y, weights)
            return causal.attend_source(
                query, source, source_keys, source_values, layer.source.shape
            )

        x = self._attended(layer.attention, x, tensors, own, _adder(None, 0))
        x = self._attended(layer.source, x, tensors, to_source, _adder(None, 0))
        return layer.network.apply(x, ops.computes(self._compute), tensors, None)


class LogitsBias(layers.Layer):
    """A row that is added to logits, and that nothing trains."""

    def __init__(self, vocab: int) -> None:
        """Makes zeros, float32 [1, V]."""
        super().__init__()
        self._add("bias", tf.zeros([1, vocab]), layers.Foreign(("final_logits_bias",)))
        self.freeze()
