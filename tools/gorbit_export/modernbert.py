"""The ModernBERT encoder (Warner et al. 2024), over packed rows."""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf

from gorbit_export import bert, layers, local, ops, prenorm, rotary
from gorbit_export.modernbert_config import ModernBertConfig

Tensor = tf.Tensor


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Dropout of a training pass: the rates (float32 scalars) and the random source.

    Attributes:
        embedding: after the embeddings.
        attention: on attention weights, and after attention.
        mlp: between the maps of the feed-forward network.
        random: the source.
    """

    embedding: Tensor
    attention: Tensor
    mlp: Tensor
    random: ops.Random


class Attention(tf.Module):
    """The norm before attention, and its two maps. The first layer has no norm."""

    def __init__(self, config: ModernBertConfig, index: int, seed: int) -> None:
        """Makes the variables of layer `index`."""
        super().__init__()
        h, std = config.hidden_size, config.initializer_range
        foreign, part = config.family.layer_path.format(index), config.family.layer
        self.norm = None
        if index:
            self.norm = _norm(config, f"{foreign}.{part.attention_norm}")
        name = f"{foreign}.{part.query}"
        self.qkv = layers.Dense(h, 3 * h, std, seed, name, bias=False)
        name = f"{foreign}.{part.attention_output}"
        self.output = layers.Dense(h, h, config.output_range, seed, name, bias=False)


class FeedForward(tf.Module):
    """The norm before the position-wise network, and its two maps."""

    def __init__(self, config: ModernBertConfig, index: int, seed: int) -> None:
        """Makes the variables of layer `index`."""
        super().__init__()
        h, i, std = config.hidden_size, config.intermediate_size, config.initializer_range
        foreign, part = config.family.layer_path.format(index), config.family.layer
        self.norm = _norm(config, f"{foreign}.{part.output_norm}")
        name = f"{foreign}.{part.intermediate}"
        self.intermediate = layers.Dense(h, 2 * i, std, seed, name, bias=False)
        name = f"{foreign}.{part.output}"
        self.output = layers.Dense(i, h, config.output_range, seed, name, bias=False)


def _norm(config: ModernBertConfig, foreign: str) -> layers.LayerNorm:
    return layers.LayerNorm(config.hidden_size, config.layer_norm_eps, foreign, bias=False)


class EncoderLayer(bert.EncoderLayer):
    """One layer's variables; the computation is shared, see Encoder._layer."""

    def __init__(self, config: ModernBertConfig, index: int, seed: int) -> None:
        """Makes the variables of layer `index`."""
        tf.Module.__init__(self)
        self.attention = Attention(config, index, seed)
        self.feed_forward = FeedForward(config, index, seed)

    def dense(self) -> dict[str, layers.Dense]:
        """The maps by their names in bert.MAPS."""
        a, f = self.attention, self.feed_forward
        return {
            "output": a.output,
            "intermediate": f.intermediate,
            "feed_forward": f.output,
            "qkv": a.qkv,
        }

    def weights(self) -> list[tf.Variable]:
        """The variables in the order in which Encoder._layer takes them."""
        norms = (self.attention.norm, self.feed_forward.norm)
        return [d.kernel for d in self.dense().values()] + [n.scale for n in norms if n]


class Embeddings(tf.Module):
    """The vectors of words, normalized."""

    def __init__(self, config: ModernBertConfig, seed: int) -> None:
        """Makes the table and the norm."""
        super().__init__()
        size, h = config.vocab_size, config.hidden_size
        name = "embeddings.tok_embeddings"
        self.word = layers.Embedding(size, h, config.initializer_range, seed, name)
        self.norm = _norm(config, "embeddings.norm")


class Encoder(bert.Encoder):
    """ModernBERT without a head, with the interface of bert.Encoder."""

    def __init__(
        self,
        config: ModernBertConfig,
        seed: int = 0,
        recompute: str = "none",
        compute: tf.DType = tf.float32,
    ) -> None:
        """See bert.Encoder."""
        tf.Module.__init__(self)
        self._configure(config, recompute, compute)
        self.embeddings = Embeddings(config, seed)
        self.layers = [EncoderLayer(config, i, seed) for i in range(config.num_hidden_layers)]
        self.norm = _norm(config, "final_norm")
        # A graph function for each kind of layer, in a lambda as in bert.Encoder.
        kinds = {(i == 0, config.is_local(i)) for i in range(config.num_hidden_layers)}
        functions = {
            kind: tf.function(functools.partial(self._layer, *kind), autograph=False)
            for kind in kinds
        }
        self._layer_of = lambda kind: lambda *args: functions[kind](*args)

    def __call__(
        self,
        input_ids: Tensor,
        type_ids: Tensor,
        sequence_ids: Tensor,
        position_ids: Tensor,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """See bert.Encoder. type_ids is not looked at."""
        del type_ids
        c, epsilon = self._config, self._config.layer_norm_eps
        x = self.embeddings.word(tf.reshape(input_ids, [-1]))
        x = prenorm.scale_norm(x, tf.convert_to_tensor(self.embeddings.norm.scale), epsilon)
        if dropout is not None:
            x = ops.dropout(x, dropout.embedding, dropout.random.site(0))
        x = ops.cast(x, self._compute)
        flat = tf.reshape(position_ids, [-1])
        tables = {t: rotary.tables(flat, c.head_size, t) for t in {c.theta(0), c.theta(1)}}
        for i, layer in enumerate(self.layers):
            weights = [self._weight(w) for w in layer.weights()]
            weights += [self._weight(w) for pair in layer.adapters().values() for w in pair]
            call = self._layer_of((i == 0, c.is_local(i)))
            rest = (sequence_ids, *tables[c.theta(i)])
            if dropout is None:
                x = call(x, *rest, None, None, None, None, weights)
                continue
            counter = dropout.random.site(1 + bert.SITES_PER_LAYER * i).counter
            rest += (dropout.attention, dropout.mlp, dropout.random.key, counter)
            if self._recompute == "layers":
                x = bert.recomputed(call, x, rest, weights)
            else:
                x = call(x, *rest, weights)
        return prenorm.scale_norm(x, tf.convert_to_tensor(self.norm.scale), epsilon)

    def _weight(self, variable: tf.Variable) -> Tensor:
        """Casts a matrix to the compute dtype; other variables stay float32."""
        value = tf.convert_to_tensor(variable)
        return ops.cast(value, self._compute) if value.shape.rank == 2 else value

    def _layer(
        self,
        first: bool,
        windowed: bool,
        x: Tensor,
        sequence_ids: Tensor,
        cosines: Tensor,
        sines: Tensor,
        attention_dropout: Tensor | None,
        mlp_dropout: Tensor | None,
        random_key: Tensor | None,
        random_counter: Tensor | None,
        weights: list[Tensor],
    ) -> Tensor:
        """One encoder layer: x [R * S, H], sequence_ids int32 [R, S]."""
        c, count = self._config, 5 if first else 6
        wo, wi, wf, wqkv, *norms = weights[:count]
        low = bert._Adapters(self._lora, weights[count:])
        heads, epsilon = c.num_attention_heads, c.layer_norm_eps
        sites: list[ops.Random | None] = [None] * 3
        if random_key is not None:
            random = ops.Random(random_key, random_counter)
            sites = [random, random.site(1), random.site(2)]

        y = x if first else prenorm.scale_norm(x, norms[0], epsilon)
        qkv = low.add(tf.matmul(y, wqkv), y, "qkv")
        qkv = rotary.rotary(qkv, cosines, sines, 2 * heads)
        how = (attention_dropout, sites[0])
        y = local.attention(qkv, sequence_ids, heads, c.reach if windowed else None, *how)
        y = low.add(tf.matmul(y, wo), y, "output")
        x = prenorm.residual(y, x, attention_dropout, sites[1])

        y = prenorm.scale_norm(x, norms[-1], epsilon)
        y = low.add(tf.matmul(y, wi), y, "intermediate")
        wf = low.kernel(wf, "feed_forward")
        y = prenorm.gated_product(c.hidden_act, y, wf, mlp_dropout, sites[2])
        return prenorm.residual(y, x)


class Head(tf.Module):
    """What is before the last map of every task: a map, an activation and a norm, in float32."""

    def __init__(self, config: ModernBertConfig, seed: int) -> None:
        """Makes the variables."""
        super().__init__()
        h, self._activation = config.hidden_size, config.classifier_activation
        names = config.family.masked
        self.dense = layers.Dense(h, h, config.output_range, seed, names.dense, bias=False)
        self.norm = _norm(config, names.norm)

    def __call__(self, x: Tensor) -> Tensor:
        """Maps float32 [N, H] to [N, H]."""
        return self.norm(ops.activate(self._activation, self.dense(x)))


def flops(config: ModernBertConfig) -> dict[str, int]:
    """Counts operations as bert.flops does.

    Layers with a window count with each token, as if every sequence was longer than the window.
    """
    c, h = config, config.hidden_size
    windowed = sum(c.is_local(i) for i in range(c.num_hidden_layers))
    layer = 8 * h * h + 6 * h * c.intermediate_size
    return {
        "per_token": c.num_hidden_layers * layer + windowed * 4 * h * (2 * c.reach + 1),
        "per_token_pair": (c.num_hidden_layers - windowed) * 4 * h,
    }
