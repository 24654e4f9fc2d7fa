"""The BERT encoder (Devlin et al. 2018), and those of its family, over packed rows."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import tensorflow as tf

from gorbit_export import layers, ops, task
from gorbit_export.config import BertConfig

Tensor = tf.Tensor

# The embeddings draw at site 0; layer i at sites 1 + 4 i (attention weights),
# 2 + 4 i (attention output), 3 + 4 i (feed-forward output) and in some families
# 4 + 4 i; heads from HEAD_SITE on.
SITES_PER_LAYER = 4
HEAD_SITE = 1 << 20

RECOMPUTE = ("none", "layers")
"""What the backward pass recomputes instead of keeping: nothing, or each encoder
layer from its input (Chen et al. 2016)."""


LORA_TARGETS = ("query", "key", "value", "output", "intermediate", "feed_forward")
"""The maps of a layer that can have an adapter: attention's four, and the feed-forward
network's two."""
MAPS = (*LORA_TARGETS, "qkv")
"""The maps of the layers of any family; those with qkv have no query, key and value."""


@dataclasses.dataclass(frozen=True)
class Lora:
    """Adapters of low rank (Hu et al. 2021): the encoder is frozen, they are trained.

    Attributes:
        rank: of each adapter.
        alpha: an adapter is multiplied by alpha / rank.
        targets: some of LORA_TARGETS.
    """

    rank: int
    alpha: float = 16.0
    targets: tuple[str, ...] = ("query", "value")

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: if one makes no sense.
        """
        if self.rank < 1:
            raise ValueError(f"LoRA rank is {self.rank}; expected 1 or more")
        if not 0 < self.alpha < float("inf"):
            raise ValueError(f"LoRA alpha is {self.alpha}; expected more than 0")
        for target in self.targets:
            if target not in MAPS:
                known = ", ".join(MAPS)
                raise ValueError(f"LoRA target is {target!r}; expected some of {known}")
        if not self.targets or len(set(self.targets)) < len(self.targets):
            raise ValueError(f"LoRA targets are {self.targets}; expected one or more, each once")


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Dropout of a training pass: the rates (float32 scalars) and the random source."""

    hidden: Tensor
    attention: Tensor
    random: ops.Random


def garden(index: int, number: int, *names: str) -> tuple[str, ...]:
    """Names of a layer in the checkpoints of TensorFlow's Model Garden.

    Its functional models number all layers that have weights; the others have the layers of
    the encoder in a list.

    Args:
        index: the layer's number among the encoder's, from 0.
        number: that among all layers with weights.
        names: the attributes that lead from the layer to its part, joined by slashes; several
            for the several versions of the layer.
    """
    ways = (f"layer_with_weights-{number}", f"_transformer_layers/{index}")
    return tuple(f"{way}/{name}" for way in ways for name in names)


def released(config: BertConfig, *names: str) -> tuple[str, ...]:
    """Names in TensorFlow's releases, which have the encoders of some families only."""
    return names if config.family.released else ()


EMBEDDING_LAYERS = 4
"""Layers with weights before the encoder's layers in the Model Garden: three tables and a norm."""


class SelfAttention(tf.Module):
    """The four maps of multi-head self-attention, and the norm after it."""

    def __init__(self, config: BertConfig, index: int, seed: int) -> None:
        """Makes the variables of layer `index`."""
        super().__init__()
        h, std = config.hidden_size, config.initializer_range
        family, google = config.family, f"encoder/layer_{index}/attention"
        foreign, part = family.layer_path.format(index), family.layer
        number = index + EMBEDDING_LAYERS

        def paths(release: str, *names: str) -> tuple[str, ...]:
            return released(config, f"{google}/{release}", *garden(index, number, *names))

        def dense(name: str, release: str, *names: str) -> layers.Dense:
            return layers.Dense(h, h, std, seed, f"{foreign}.{name}", paths(release, *names))

        self.query = dense(part.query, "self/query", "_attention_layer/_query_dense")
        self.key = dense(part.key, "self/key", "_attention_layer/_key_dense")
        self.value = dense(part.value, "self/value", "_attention_layer/_value_dense")
        self.output = dense(
            part.attention_output,
            "output/dense",
            "_attention_layer/_output_dense",
            "_attention_output_dense",
        )
        self.norm = layers.LayerNorm(
            h,
            config.layer_norm_eps,
            f"{foreign}.{part.attention_norm}",
            paths("output/LayerNorm", "_attention_layer_norm"),
        )


class FeedForward(tf.Module):
    """The two maps of the position-wise network, and the norm after it."""

    def __init__(self, config: BertConfig, index: int, seed: int) -> None:
        """Makes the variables of layer `index`."""
        super().__init__()
        h, i, std = config.hidden_size, config.intermediate_size, config.initializer_range
        foreign, part = config.family.layer_path.format(index), config.family.layer
        google = f"encoder/layer_{index}"

        def paths(release: str, name: str) -> tuple[str, ...]:
            names = garden(index, index + EMBEDDING_LAYERS, name)
            return released(config, f"{google}/{release}", *names)

        self.intermediate = layers.Dense(
            h,
            i,
            std,
            seed,
            f"{foreign}.{part.intermediate}",
            paths("intermediate/dense", "_intermediate_dense"),
        )
        self.output = layers.Dense(
            i, h, std, seed, f"{foreign}.{part.output}", paths("output/dense", "_output_dense")
        )
        self.norm = layers.LayerNorm(
            h,
            config.layer_norm_eps,
            f"{foreign}.{part.output_norm}",
            paths("output/LayerNorm", "_output_layer_norm"),
        )


class EncoderLayer(tf.Module):
    """One layer's variables; the computation is shared, see Encoder._layer."""

    def __init__(self, config: BertConfig, index: int, seed: int) -> None:
        """Makes the variables of layer `index`."""
        super().__init__()
        self.attention = SelfAttention(config, index, seed)
        self.feed_forward = FeedForward(config, index, seed)

    def dense(self) -> dict[str, layers.Dense]:
        """The maps by their names in LORA_TARGETS."""
        a, f = self.attention, self.feed_forward
        maps = (a.query, a.key, a.value, a.output, f.intermediate, f.output)
        return dict(zip(LORA_TARGETS, maps))

    def products(self) -> tuple[tuple[layers.Dense, ...], ...]:
        """The maps, those together that are one product, in the order of LORA_TARGETS."""
        query, key, value, *rest = self.dense().values()
        return (query, key, value), *((d,) for d in rest)

    def norms(self) -> list[tf.Variable]:
        """The variables of the two norms in the order in which Encoder._layer takes them."""
        norms = (self.attention.norm, self.feed_forward.norm)
        return [v for n in norms for v in (n.scale, n.bias)]

    def adapters(self) -> dict[str, tuple[tf.Variable, tf.Variable]]:
        """The adapters by their names in LORA_TARGETS."""
        return {name: d.adapter for name, d in self.dense().items() if d.adapter}


class Embeddings(tf.Module):
    """The sum of word, position and type vectors, normalized; some families have no types."""

    def __init__(self, config: BertConfig, seed: int) -> None:
        """Makes the tables and the norm."""
        super().__init__()
        h, std = config.embedding_width, config.initializer_range
        self._offset = config.position_offset

        def table(rows: int, name: str, number: int, attribute: str) -> layers.Embedding:
            paths = released(
                config,
                f"embeddings/{name}",
                f"layer_with_weights-{number}/embeddings",
                f"{attribute}/embeddings",
            )
            return layers.Embedding(rows, h, std, seed, f"embeddings.{name}", paths)

        positions = config.max_position_embeddings
        self.word = table(config.vocab_size, "word_embeddings", 0, "_embedding_layer")
        self.position = table(positions, "position_embeddings", 1, "_position_embedding_layer")
        self.type = None
        if config.family.token_types:
            types = config.type_vocab_size
            self.type = table(types, "token_type_embeddings", 2, "_type_embedding_layer")
        self.norm = layers.LayerNorm(
            h,
            config.layer_norm_eps,
            "embeddings.LayerNorm",
            released(
                config, "embeddings/LayerNorm", "layer_with_weights-3", "_embedding_norm_layer"
            ),
        )

    def __call__(self, ids: Tensor, position_ids: Tensor, type_ids: Tensor) -> Tensor:
        """Maps three int32 [T] to float32 [T, E], E being the width of the tables."""
        if self._offset:
            position_ids = position_ids + self._offset
        x = self.word(ids) + self.position(position_ids)
        return self.norm(x if self.type is None else x + self.type(type_ids))


class Encoder(tf.Module):
    """BERT without a head, over rows that may hold several sequences each.

    A layer is one graph function, called once per layer with that layer's
    weights, so the exported graph contains it only once.
    """

    _sites = 3
    """How many sites of a layer draw."""

    def __init__(
        self,
        config: BertConfig,
        seed: int = 0,
        recompute: str = "none",
        compute: tf.DType = tf.float32,
    ) -> None:
        """Makes the variables, float32, initialized from `seed`.

        Args:
            config: sizes.
            seed: seed of the initial weights.
            recompute: one of RECOMPUTE.
            compute: dtype of the layers' products and activations.
        """
        super().__init__()
        self._configure(config, recompute, compute)
        self.embeddings = Embeddings(config, seed)
        self.projection = None
        if config.embedding_width != config.hidden_size:
            sizes = config.embedding_width, config.hidden_size
            name = config.family.projection
            self.projection = layers.Dense(*sizes, config.initializer_range, seed, name)
        self._make_layers(seed)

    def _make_layers(self, seed: int) -> None:
        config = self._config
        own = 1 if config.family.shared else config.num_hidden_layers
        self.layers = [EncoderLayer(config, i, seed) for i in range(own)]
        function = tf.function(self._layer, autograph=False)
        # In a lambda, because a module saves every tf.function among its attributes,
        # and this one must be saved only as part of the functions that call it.
        self._call_layer = lambda *args: function(*args)

    def _configure(self, config: BertConfig, recompute: str, compute: tf.DType) -> None:
        if recompute not in RECOMPUTE:
            raise ValueError(f"recompute is {recompute!r}; expected {' or '.join(RECOMPUTE)}")
        if config.hidden_act not in ops.ACTIVATIONS:
            known = ", ".join(ops.ACTIVATIONS)
            raise ValueError(f"hidden_act is {config.hidden_act!r}; expected one of {known}")
        self._config, self._recompute, self._compute = config, recompute, compute
        self._lora: Lora | None = None

    def adapt(self, lora: Lora, seed: int) -> None:
        """Freezes the encoder and adds adapters to its layers; to be called once.

        Args:
            lora: which.
            seed: seed of their initial values.
        """
        limit = min(self._config.hidden_size, self._config.intermediate_size)
        if lora.rank > limit:
            raise ValueError(f"LoRA rank is {lora.rank}; expected 1 to {limit}, the model's width")
        known = self.layers[0].dense()
        for target in lora.targets:
            if target not in known:
                raise ValueError(
                    f"LoRA target is {target!r}; expected some of {', '.join(known)} "
                    f"for {self._config.family.title}"
                )
        self._lora = lora
        for module in self.submodules:
            if isinstance(module, layers.Layer):
                module.freeze()
        for layer in self.layers:
            for target in lora.targets:
                layer.dense()[target].adapt(lora.rank, lora.alpha / lora.rank, seed)

    @property
    def config(self) -> BertConfig:
        """The encoder's sizes."""
        return self._config

    def __call__(
        self,
        input_ids: Tensor,
        type_ids: Tensor,
        sequence_ids: Tensor,
        position_ids: Tensor,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """Encodes rows.

        Args:
            input_ids: int32 [R, S], rows of the vocabulary.
            type_ids: int32 [R, S], the segment of each token; not looked at without a table.
            sequence_ids: int32 [R, S]: a token attends to the tokens of its row that have
                the same number. 0 is padding.
            position_ids: int32 [R, S], restarting at 0 with every sequence.
            dropout: rates and random source; None in evaluation.

        Returns:
            float32 [R * S, H], the last layer's output, row after row.
        """
        flat = (tf.reshape(ids, [-1]) for ids in (input_ids, position_ids, type_ids))
        x = self.embeddings(*flat)
        if dropout is not None:
            x = ops.dropout(x, dropout.hidden, dropout.random.site(0))
        if self.projection is not None:
            x = self.projection(x)
        weights, narrow = self._weights()
        distances, table = self._relative(sequence_ids)
        for i in range(self._config.num_hidden_layers):
            own = min(i, len(self.layers) - 1)
            values = [*weights[own], *table]
            if dropout is None:
                x = self._call_layer(x, sequence_ids, distances, *[None] * 4, narrow[own], values)
                continue
            sites = (dropout.random.site(1 + SITES_PER_LAYER * i + j) for j in range(self._sites))
            rest = (
                sequence_ids,
                distances,
                dropout.hidden,
                dropout.attention,
                dropout.random.key,
                [site.counter for site in sites],
                narrow[own],
            )
            if self._recompute == "layers":
                x = recomputed(self._call_layer, x, rest, values)
            else:
                x = self._call_layer(x, *rest, values)
        return x

    def _relative(self, sequence_ids: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """What the attention of all layers knows of distances between positions.

        Returns:
            Tensors without a gradient, which _attention gets, and at most one with, which is the
            last of a layer's weights.
        """
        del sequence_ids
        return [], []

    def _weights(self) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
        """Returns what each layer computes with.

        Returns:
            Of each layer of variables, its matrices in the compute dtype, biases, norms and
            adapters in the order in which _layer takes them; and its biases in the compute dtype.
        """
        biases = [[d.bias for d in p] for layer in self.layers for p in layer.products()]
        full, narrow = _joined(biases, self._compute)
        weights, per = [], len(full) // len(self.layers)
        for i, layer in enumerate(self.layers):
            matrices = [self._cast(*(d.kernel for d in p)) for p in layer.products()]
            adapters = [self._cast(w) for pair in layer.adapters().values() for w in pair]
            norms = [tf.convert_to_tensor(v) for v in layer.norms()]
            weights.append([*matrices, *full[i * per : (i + 1) * per], *norms, *adapters])
        return weights, [narrow[i : i + per] for i in range(0, len(narrow), per)]

    def _cast(self, *matrices: tf.Variable) -> Tensor:
        """Returns matrices side by side in the compute dtype."""
        values = [tf.convert_to_tensor(matrix) for matrix in matrices]
        return ops.cast(values[0] if len(values) == 1 else ops.join(values, 1), self._compute)

    def _layer(
        self,
        x: Tensor,
        sequence_ids: Tensor,
        distances: list[Tensor],
        hidden_dropout: Tensor | None,
        attention_dropout: Tensor | None,
        random_key: Tensor | None,
        random_counters: list[Tensor] | None,
        narrow: list[Tensor],
        weights: list[Tensor],
    ) -> Tensor:
        """One encoder layer: x float32 [R * S, H], sequence_ids int32 [R, S]."""
        wqkv, wo, wi, wf = weights[:4]
        bqkv, bo, bi, bf = (ops.Bias(*pair) for pair in zip(weights[4:8], narrow))
        ns1, nb1, ns2, nb2 = weights[8:12]
        low = _Adapters(self._lora, weights[12:])
        c = self._config
        sites: list[ops.Random | None] = [None] * self._sites
        if random_counters is not None:
            sites = [ops.Random(random_key, counter) for counter in random_counters]

        y = ops.cast(x, self._compute)
        maps = _Maps(wqkv, bqkv, low)
        rates = hidden_dropout, attention_dropout
        context = self._attention(y, maps, sequence_ids, distances, weights[-1], rates, sites)
        z = low.add(tf.matmul(context, wo), context, "output")
        x = ops.residual_norm(z, bo, x, ns1, nb1, c.layer_norm_eps, hidden_dropout, sites[1])

        y = ops.cast(x, self._compute)
        z = low.add(tf.matmul(y, wi), y, "intermediate")
        z = ops.activated_product(c.hidden_act, z, bi, low.kernel(wf, "feed_forward"))
        return ops.residual_norm(z, bf, x, ns2, nb2, c.layer_norm_eps, hidden_dropout, sites[2])

    def _attention(
        self,
        y: Tensor,
        maps: _Maps,
        sequence_ids: Tensor,
        distances: list[Tensor],
        table: Tensor,
        rates: tuple[Tensor | None, Tensor | None],
        sites: list[ops.Random | None],
    ) -> Tensor:
        """Attention of y, [R * S, H]. `distances` and `table` are those of _relative."""
        del distances, table
        heads = self._config.num_attention_heads
        return ops.attention(maps(y), maps.bias, sequence_ids, heads, rates[1], sites[0])


@dataclasses.dataclass(frozen=True)
class _Maps:
    """The maps to query, key and value, as one product."""

    kernel: Tensor
    bias: ops.Bias
    low: _Adapters

    def __call__(self, y: Tensor) -> Tensor:
        """Returns the three of y, [T, H], side by side, without the bias."""
        return self.low.add(tf.matmul(y, self.kernel), y, "query", "key", "value")


class _Adapters:
    """What the adapters of a layer add to its products; nothing without adapters."""

    def __init__(self, lora: Lora | None, weights: list[Tensor]) -> None:
        """Takes lora_down and lora_up of each target, in the order of MAPS."""
        names = [name for name in MAPS if lora and name in lora.targets]
        self._pairs = dict(zip(names, zip(weights[::2], weights[1::2])))
        self._scale = lora.alpha / lora.rank if lora else 0.0

    def add(self, z: Tensor, x: Tensor, *names: str) -> Tensor:
        """Adds the adapters' products of x to z, whose columns are those of the maps `names`."""
        present = [name for name in names if name in self._pairs]
        if not present:
            return z
        width = z.shape[1] // len(names)
        down = tf.concat([self._pairs[name][0] for name in present], 1)
        rank = down.shape[1] // len(present)
        # One product for all: the matrix has an adapter's rows and a map's columns per block.
        up = [
            tf.pad(
                self._pairs[name][1],
                [
                    [i * rank, (len(present) - 1 - i) * rank],
                    [names.index(name) * width, (len(names) - 1 - names.index(name)) * width],
                ],
            )
            for i, name in enumerate(present)
        ]
        return z + tf.matmul(tf.matmul(x, down), _scaled(sum(up[1:], up[0]), self._scale))

    def kernel(self, kernel: Tensor, name: str) -> Tensor:
        """Returns a kernel with the adapter in it."""
        if name not in self._pairs:
            return kernel
        down, up = self._pairs[name]
        return kernel + _scaled(tf.matmul(down, up), self._scale)


def _scaled(x: Tensor, scale: float) -> Tensor:
    return x * tf.cast(scale, x.dtype)


def recomputed(
    layer: Callable[..., Tensor], x: Tensor, rest: tuple[Any, ...], weights: list[Tensor]
) -> Tensor:
    """Runs a layer that keeps only its input, and recomputes the rest for its gradient.

    Args:
        layer: takes x, then `rest`, then the list of weights.
        x: the input that has a gradient.
        rest: inputs without.
        weights: inputs that have one, too.
    """

    @tf.custom_gradient
    def apply(x: Tensor, *weights: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        # Without a tape, the call does not produce the outputs that only a gradient needs.
        unwatched = [tf.stop_gradient(w) for w in weights]
        y = layer(tf.stop_gradient(x), *rest, unwatched)

        def gradient(dy: Tensor) -> list[Tensor]:
            # Wait for dy. Otherwise TensorFlow may run the recomputation early, or merge
            # it with the first computation, and everything is kept after all.
            inputs, others = _after(dy, ([x, *weights], rest))
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(inputs)
                y = layer(inputs[0], *others, inputs[1:])
            return tape.gradient(y, inputs, dy)

        return y, gradient

    return apply(x, *weights)


def _after(before: Tensor, tensors: Any) -> Any:
    """Returns the same structure of tensors, available only after `before`."""
    # Through an identity: a control dependency on a call is lost when the call is inlined.
    with tf.control_dependencies([tf.identity(before)]):
        return tf.nest.map_structure(tf.identity, tensors)


def _joined(
    biases: list[list[tf.Variable]], compute: tf.DType
) -> tuple[list[Tensor], list[Tensor]]:
    """Joins the vectors of each group, all in a few operations whatever their number.

    Returns:
        A vector for each group, float32, which get the gradients; the same in the compute dtype.
    """
    flat = [tf.convert_to_tensor(bias) for group in biases for bias in group]
    sizes = [sum(bias.shape[0] for bias in group) for group in biases]

    @tf.custom_gradient
    def apply(*flat: Tensor) -> tuple[list[Tensor], Callable[..., list[Tensor]]]:
        def gradient(*dy: Tensor) -> list[Tensor]:
            several = [d for d, group in zip(dy, biases) if len(group) > 1]
            parts = [bias.shape[0] for group in biases if len(group) > 1 for bias in group]
            split = iter(tf.split(tf.concat(several, 0), parts))
            return [
                next(split) if len(group) > 1 else d for d, group in zip(dy, biases) for _ in group
            ]

        return tf.split(tf.concat(flat, 0), sizes), gradient

    full = apply(*flat)
    if compute == tf.float32:
        return full, full
    return full, tf.split(ops.cast(tf.concat(flat, 0), compute), sizes)


def pool(hidden: Tensor, sequence_ids: Tensor, cls_positions: Tensor, pooling: str) -> Tensor:
    """Returns one vector per example from packed rows.

    Both kinds are products with a [B, T] matrix, and so are their gradients: the
    sums have a fixed order, and the cost is small next to the encoder's.

    Args:
        hidden: float32 [R * S, H].
        sequence_ids: int32 [R, S].
        cls_positions: int32 [B], the index of each example's first token in the flat rows.
        pooling: "first" for the first token's vector, "mean" for the mean over the tokens.

    Returns:
        [B, H] in the dtype of hidden.
    """
    shape = tf.shape(sequence_ids)
    positions = tf.range(shape[0] * shape[1])
    if pooling == "first":
        chosen = tf.equal(cls_positions[:, None], positions[None, :])
        return tf.matmul(tf.cast(chosen, hidden.dtype), hidden)
    # A number that identifies the example of each token: row and sequence together.
    keys = tf.reshape(sequence_ids, [-1]) + positions // shape[1] * (shape[1] + 1)
    # In int64, because GPUs leave comparisons of int32 to the host.
    keys = tf.cast(keys, tf.int64)
    chosen = tf.equal(tf.gather(keys, cls_positions)[:, None], keys[None, :])
    # Counted in float32, because bfloat16 cannot represent 257.
    share = tf.cast(chosen, tf.float32)
    share = ops.cast(share / tf.reduce_sum(share, 1, keepdims=True), hidden.dtype)
    return tf.matmul(share, hidden)


def features(config: BertConfig) -> list[task.Feature]:
    """Returns the features of packed rows, and of where each example begins in them."""
    rows = ("rows", "length")

    def ids(name: str, below: int | None, make: str) -> task.Feature:
        return task.Feature(name, tf.int32, rows, below=below, make=make)

    return [
        ids("input_ids", config.vocab_size, ""),
        ids("type_ids", config.type_vocab_size if config.family.token_types else None, ""),
        ids("sequence_ids", None, "sequence_ids"),
        ids("position_ids", config.positions, "position_ids"),
        task.Feature("cls_positions", tf.int32, ("examples",), make="starts"),
    ]


def flops(config: BertConfig) -> dict[str, int]:
    """Counts the operations of the forward pass's matrix products, two per multiply-add.

    Returns:
        "per_token", and "per_token_pair" for each pair of positions in a row.
    """
    c, h, e = config, config.hidden_size, config.embedding_width
    layer = 8 * h * h + 4 * h * c.intermediate_size
    return {
        "per_token": c.num_hidden_layers * layer + (0 if e == h else 2 * e * h),
        "per_token_pair": c.num_hidden_layers * 4 * h,
    }
