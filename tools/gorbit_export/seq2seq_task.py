"""The task of encoder-decoder models: a target of each source, such as a translation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gorbit_export import causal, encoded, ops, seq2seq, task
from gorbit_export.seq2seq_config import SPECIAL

Tensor = tf.Tensor


class Seq2Seq(task.Task):
    """Cross entropy of each token of a target, given those before it and the source.

    The loss is the mean over the tokens of targets, not over examples. A token weighs what its
    example weighs, times its own weight, which is 1 where records do not say it.
    """

    name = "seq2seq"
    best = ("loss", "lower")
    metrics = (task.Metric("perplexity", "lower"),)
    results_of = ("metric/perplexity/loss", "metric/perplexity/weight")

    def __init__(self, build: seq2seq.Build) -> None:
        """Makes the model."""
        self.model, self.build = seq2seq.EncoderDecoder(build), build
        self.precision = build.precision
        c = build.config
        self.features = [
            *self._side("", "length", c.max_length),
            *self._side("target_", "target_length", c.max_target_length),
            task.Feature("target_weights", tf.float32, ("rows", "target_length"), role="weight"),
            task.Feature("example_weights", tf.float32, ("examples",)),
        ]
        self.hyperparameters = [
            encoded.rate("hidden_dropout", c.hidden_dropout, "rate after embeddings and sublayers"),
            encoded.rate("attention_dropout", c.attention_dropout, "rate on attention weights"),
            encoded.rate(
                "activation_dropout", c.activation_dropout, "rate within feed-forward networks"
            ),
            encoded.rate("label_smoothing", 0.0, "share spread evenly over all tokens"),
        ]
        self.outputs = (task.Output("log_probabilities", ("rows", "target_length"), "tokens"),)

    def _side(self, prefix: str, length: str, limit: int) -> list[task.Feature]:
        """The features of sources or targets."""
        c, axes = self.build.config, ("rows", length)
        ids, examples = (
            ("target_ids", "target_example_ids")
            if prefix
            else (
                "input_ids",
                "example_ids",
            )
        )
        names = [f"{prefix}sequence_ids", f"{prefix}position_ids"]
        below = (None, None if c.family.relative else limit)
        return [
            task.Feature(ids, tf.int32, axes, below=c.vocab_size),
            *(
                task.Feature(name, tf.int32, axes, make=name, below=first)
                for name, first in zip(names, below)
            ),
            task.Feature(examples, tf.int32, axes, role="id", make=examples),
        ]

    def description(self) -> dict[str, Any]:
        """See Task."""
        c = self.build.config
        return {
            "architecture": c.model_type,
            "recompute": self.build.recompute,
            "flops": self._flops(),
            "config": c.description(),
            "weights": self._own_weights(),
            "huggingface": {
                "config": c.released(),
                "prefix": c.family.prefix,
                "bare": c.family.bare,
            },
        }

    def _flops(self) -> dict[str, int]:
        """Operations. Keys and values that the decoder makes of a source are the source's."""
        c, net = self.build.config, 6 if self.build.config.gated else 4
        h, q, k = c.hidden_size, c.width("encoder"), c.width("decoder")
        encoder = c.encoder_layers * (8 * h * q + net * h * c.encoder_ffn)
        decoder = c.decoder_layers * (12 * h * k + net * h * c.decoder_ffn)
        return {
            "per_token": encoder + c.decoder_layers * 4 * h * k,
            "per_token_pair": c.encoder_layers * 4 * q,
            "per_target_token": decoder + 2 * h * c.vocab_size,
            "per_target_pair": c.decoder_layers * 4 * k,
        }

    def _own_weights(self) -> dict[str, Any]:
        """What files of weights must be for the model to be computed as they were trained."""
        c = self.build.config
        released = c.released()
        sizes = ("encoder_heads", "decoder_heads", "hidden_act", "buckets", "max_distance")
        sizes += ("scale_embedding",)
        needed = {
            c.family.fields[name]: released[c.family.fields[name]]
            for name in sizes
            if name in c.family.fields
        }
        needed |= {f: allowed[0] for f, allowed in c.family.only.items() if len(allowed) == 1}
        if c.family.relative:
            needed["feed_forward_proj"] = released["feed_forward_proj"]
            # With a table of their own, logits are not scaled; later releases say so here alone.
            needed["scale_decoder_outputs"] = c.tied
            needed |= {"tie_word_embeddings": True} if c.tied else {}
        learned = c.family.learned_positions
        return {
            "model_type": c.model_type,
            "prefix": c.family.prefix,
            "others": [],
            "config": needed,
            "fit": [f"model/{side}/positions/table" for side in ("encoder", "decoder")] * learned,
        }

    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """See Task."""
        names = ("hidden", "attention", "activation")
        rates = (hyperparameters[f"{name}_dropout"] for name in names)
        dropout = seq2seq.Dropout(*rates, random)
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

        "log_probabilities", float32 [R, T]: of each target token given those before it and the
        source, 0 in padding.
        """
        labels = tf.reshape(features["target_ids"], [-1])
        values = causal.log_probabilities(
            self._hidden(features, None), labels, self.build.config.vocab_size, self.model.logits
        )
        real = tf.not_equal(tf.cast(features["target_sequence_ids"], tf.int64), 0)
        values = tf.reshape(values, tf.shape(features["target_ids"]))
        return {"log_probabilities": tf.where(real, values, 0.0)}

    def serving(self) -> tuple[list[tf.TensorSpec], Callable[..., dict[str, Tensor]]]:
        """See Task.

        One example per row: input_ids and attention_mask [B, S], and decoder_input_ids [B, T],
        which begin with the decoder's first token. Gives "logits", float32 [B, T, V], of the token
        after each of them.
        """
        names = ("input_ids", "attention_mask", "decoder_input_ids")
        specs = [tf.TensorSpec([None, None], tf.int32, name) for name in names]

        def serve(
            input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor
        ) -> dict[str, Tensor]:
            mask = tf.cast(tf.not_equal(attention_mask, 0), tf.int32)
            # Positions count only real tokens, as in the packed rows of training.
            positions = tf.maximum(tf.cumsum(mask, 1) - 1, 0)
            source = self.model.encode(input_ids, mask, positions)
            own = tf.ones_like(decoder_input_ids)
            places = tf.cumsum(own, 1) - 1
            hidden = self.model.decode(source, mask, decoder_input_ids, own, places)
            shape = tf.concat([tf.shape(decoder_input_ids), [-1]], 0)
            return {"logits": tf.reshape(self.model.logits(hidden), shape)}

        return specs, serve

    def generation(self) -> task.Generation:
        """See Task."""
        c = self.build.config
        names = [f"layer_{i}/{part}" for i in range(c.decoder_layers) for part in ("key", "value")]
        width = (c.width("decoder"),)
        own, sources = (
            tuple(task.Cache(prefix + name, width) for name in names) for prefix in ("", "source/")
        )
        tokens = {name: c.tokens[name] for name in SPECIAL if name in c.tokens}
        if (end := tokens.pop("eos_token_id", None)) is not None:
            tokens["eos_token_ids"] = end if isinstance(end, list) else [end]
        return task.Generation(
            c.max_target_length,
            c.vocab_size,
            own,
            self.model.next_logits,
            task.Source(c.max_length, sources, self.model.write_source, shared=True),
            tokens,
        )

    def _hidden(self, features: dict[str, Tensor], dropout: seq2seq.Dropout | None) -> Tensor:
        names = ("input_ids", "sequence_ids", "position_ids")
        source = self.model.encode(*(features[name] for name in names), dropout)
        places = features["target_position_ids"]
        # What the decoder has seen before each token: its first token, then those of the target.
        before = tf.pad(features["target_ids"][:, :-1], [[0, 0], [1, 0]])
        first = tf.equal(tf.cast(places, tf.int64), 0)
        before = tf.where(first, self.build.config.start, before)
        ids = features["target_sequence_ids"]
        return self.model.decode(source, features["sequence_ids"], before, ids, places, dropout)

    def _sums(
        self,
        features: dict[str, Tensor],
        dropout: seq2seq.Dropout | None,
        smoothing: Tensor | None,
    ) -> dict[str, Tensor]:
        hidden = self._hidden(features, dropout)
        examples = {**features, "example_ids": features["target_example_ids"]}
        weights = encoded.token_weights(examples) * tf.reshape(features["target_weights"], [-1])
        labels = tf.reshape(features["target_ids"], [-1])
        loss, right = causal.token_losses(
            hidden, self.model.table(), labels, weights, smoothing, self.model.bias
        )
        return {
            "loss_sum": loss,
            "weight_sum": tf.reduce_sum(weights),
            "accuracy_sum": tf.stop_gradient(right),
        }
