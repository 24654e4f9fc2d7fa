"""BERT's masked language model (Devlin et al. 2018, task 1)."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from gorbit_export import bert, encoded, layers, ops, task

Tensor = tf.Tensor


@dataclasses.dataclass(frozen=True)
class Special:
    """The special tokens of a vocabulary.

    Attributes:
        mask: the number of [MASK].
        all: the numbers of all special tokens, which are never masked.
    """

    mask: int
    all: tuple[int, ...]


class BertMaskedLM(tf.Module):
    """Encoder, a dense layer with norm, and a product with the word embeddings.

    The products are in the encoder's compute dtype; norm, bias and softmax are float32.
    """

    def __init__(self, build: encoded.Build) -> None:
        """Makes the variables."""
        super().__init__()
        config = build.config
        head = config.masked
        if head is None:
            raise ValueError(
                f"model_type is {config.model_type!r}; a masked language model of "
                f"{config.family.title} is not supported"
            )
        h, e, std = config.hidden_size, config.embedding_width, config.initializer_range
        self._build = build
        self.encoder = encoded.encoder(config, build.seed, build.recompute, build.compute)
        google = "cls/predictions"
        paths = bert.released(config, f"{google}/transform/dense", "masked_lm/dense")
        biases = not config.family.head_norm
        self.transform = layers.Dense(h, e, std, build.seed, head.dense, paths, biases)
        paths = bert.released(config, f"{google}/transform/LayerNorm", "masked_lm/layer_norm")
        self.norm = layers.LayerNorm(e, config.layer_norm_eps, head.norm, paths, biases)
        names = (*head.bias, *bert.released(config, f"{google}/output_bias"))
        self.output = layers.Bias(config.vocab_size, names)

    def __call__(
        self, features: dict[str, Tensor], positions: Tensor, dropout: encoded.Dropout | None = None
    ) -> Tensor:
        """Returns the logits, float32 [P, V], at positions, int32 [P], of the flat packed rows."""
        hidden = encoded.encode(self.encoder, features, dropout)
        compute, act = self._build.compute, self._build.config.masked_act
        x = ops.cast(tf.gather(hidden, positions), compute)
        x = tf.matmul(x, ops.cast(tf.convert_to_tensor(self.transform.kernel), compute))
        x = ops.cast(x, tf.float32)
        if self.transform.bias is not None:
            x = tf.nn.bias_add(x, self.transform.bias)
        x = ops.activate(act, x)
        x = ops.cast(self.norm(x), compute)
        table = ops.cast(tf.convert_to_tensor(self.encoder.embeddings.word.table), compute)
        logits = ops.cast(tf.matmul(x, table, transpose_b=True), tf.float32)
        return tf.nn.bias_add(logits, self.output.bias)


class MaskedLM(encoded.EncoderTask):
    """Cross entropy of the masked tokens: the mean over them, not over examples.

    A masked token weighs what its example weighs.
    """

    name = "mlm"
    architecture = "bert-masked-lm"
    best = ("loss", "lower")
    metrics = (task.Metric("perplexity", "lower"),)
    results_of = ("metric/perplexity/loss", "metric/perplexity/weight")

    def __init__(self, build: encoded.Build, special: Special, word_starts: bool = False) -> None:
        """Makes the model.

        Args:
            build: how the encoder is made.
            special: the special tokens of the vocabulary.
            word_starts: whether records say where words start, so that whole words can be masked.
        """
        super().__init__(build, BertMaskedLM(build), None)
        vocab = build.config.vocab_size
        wrong = [i for i in (special.mask, *special.all) if not 0 <= i < vocab]
        if wrong:
            raise ValueError(f"special token {wrong[0]} is not in the vocabulary of {vocab}")
        axes = ("predictions",)
        self.features = [
            *encoded.encoder_features(build.config),
            task.Feature("masked_positions", tf.int32, axes, make="masked_positions"),
            task.Feature(
                "masked_labels", tf.int32, axes, label=True, make="masked_labels", below=vocab
            ),
            task.Feature("masked_weights", tf.float32, axes, role="weight", make="masked_weights"),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        self.masking = {
            "mask_token": special.mask,
            "vocab_size": vocab,
            "special": sorted(special.all),
            "word_starts": word_starts,
        }
        self.outputs = (
            task.Output(
                "probabilities", ("predictions", "vocabulary"), "probabilities", "masked_labels"
            ),
        )

    def huggingface(self) -> encoded.HuggingFace | None:
        """See EncoderTask."""
        head = self.build.config.masked
        return encoded.HuggingFace("ForMaskedLM", (head.dense, head.norm, *head.bias))

    def head_flops(self) -> dict[str, int]:
        """See EncoderTask. The share of masked tokens is BERT's."""
        c = self.build.config
        return {"per_token": round(0.15 * 2 * c.embedding_width * (c.hidden_size + c.vocab_size))}

    def rows(self, path: str) -> str | None:
        """See Task. The head has a gradient in all rows of the word table."""
        return None

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        return self._sums(features, self.dropout(hyperparameters, random))

    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task."""
        sums = self._sums(features, None)
        sums["metric/perplexity/loss"] = sums["loss_sum"]
        sums["metric/perplexity/weight"] = sums["weight_sum"]
        return sums

    def results(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. The perplexity is e to the mean loss."""
        loss, weight = (sums[name] for name in self.results_of)
        return {"perplexity": tf.exp(loss / weight)}

    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See Task. "probabilities", float32 [P, V]: of each token at each masked position."""
        logits = self.model(features, features["masked_positions"])
        return {"probabilities": tf.nn.softmax(logits)}

    def serve_rows(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """See EncoderTask. "logits", float32 [B, S, V], at all positions."""
        shape = tf.shape(features["input_ids"])
        logits = self.model(features, tf.range(shape[0] * shape[1]))
        return {"logits": tf.reshape(logits, tf.concat([shape, [-1]], 0))}

    def _sums(
        self, features: dict[str, Tensor], dropout: encoded.Dropout | None
    ) -> dict[str, Tensor]:
        """A label out of range makes the loss NaN, so the step is not applied."""
        positions, labels = features["masked_positions"], features["masked_labels"]
        logits = self.model(features, positions, dropout)
        weights = features["masked_weights"]  # those of the examples, 0 where there is no token
        last = self.build.config.vocab_size - 1
        known = tf.clip_by_value(labels, 0, last)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(known, logits)
        losses = tf.where(tf.equal(known, labels), losses, float("nan"))
        right = ops.same(tf.argmax(logits, -1), labels)
        return {
            "loss_sum": encoded.weighted(losses, weights),
            "weight_sum": tf.reduce_sum(weights),
            "accuracy_sum": tf.reduce_sum(right * weights),
        }
