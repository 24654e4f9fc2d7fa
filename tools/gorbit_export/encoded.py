"""What the tasks of a head on a bert.Encoder have in common."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Union

import tensorflow as tf

from gorbit_export import bert, deberta, layers, modernbert, ops, task
from gorbit_export.config import BertConfig
from gorbit_export.families import FAMILIES, Head

Tensor = tf.Tensor

ENCODER_FEATURES = ("input_ids", "type_ids", "sequence_ids", "position_ids")
"""The features that bert.Encoder takes, in the order of its arguments."""


Dropout = Union[bert.Dropout, modernbert.Dropout]


def implementation(config: BertConfig) -> Any:
    """The module with the Encoder, its Dropout and its flops."""
    return {"modernbert": modernbert, "deberta-v2": deberta}.get(config.model_type, bert)


def encoder(
    config: BertConfig, seed: int, recompute: str = "none", compute: tf.DType = tf.float32
) -> bert.Encoder:
    """Makes the encoder of a configuration, see bert.Encoder."""
    return implementation(config).Encoder(config, seed, recompute, compute)


def head(config: BertConfig, seed: int) -> modernbert.Head | None:
    """Makes what is before the last map of every task; None for the families without."""
    return modernbert.Head(config, seed) if config.family.head_norm else None


def last(config: BertConfig, outputs: int, seed: int, name: str) -> layers.Dense:
    """Makes the last map of a task, from the layers' width."""
    h = config.hidden_size
    deviation = 1 / math.sqrt(h) if config.family.head_norm else config.initializer_range
    return layers.Dense(h, outputs, deviation, seed, name)


def last_flops(config: BertConfig, outputs: int) -> int:
    """Operations of the last map and of what is before it, for each vector."""
    h = config.hidden_size
    return 2 * h * outputs + (2 * h * h if config.family.head_norm else 0)


def classifier_flops(config: BertConfig, pooling: str, outputs: int) -> dict[str, int]:
    """Operations of a classifier.BertClassifier behind its encoder."""
    h = config.hidden_size
    mapped = pooling == "first" or config.family.head_norm
    return {"per_example": 2 * h * outputs + (2 * h * h if mapped else 0)}


def rate(name: str, default: float, text: str) -> task.Hyperparameter:
    """A hyperparameter from 0 up to, but not including, 1."""
    return task.Hyperparameter(name, default, text, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Build:
    """How the encoder of a task is made.

    Attributes:
        config: its sizes.
        seed: seed of the initial weights.
        recompute: one of bert.RECOMPUTE.
        precision: one of task.PRECISIONS.
        lora: freezes the encoder and adds adapters to it.
    """

    config: BertConfig
    seed: int = 0
    recompute: str = "none"
    precision: str = "float32"
    lora: bert.Lora | None = None

    @property
    def compute(self) -> tf.DType:
        """The dtype of the encoder's products.

        Raises:
            ValueError: if the precision is unknown.
        """
        if self.precision not in task.PRECISIONS:
            known = ", ".join(task.PRECISIONS)
            raise ValueError(f"precision is {self.precision!r}; expected one of {known}")
        return task.PRECISIONS[self.precision]


@dataclasses.dataclass(frozen=True)
class HuggingFace:
    """How Hugging Face's transformers stores a model.

    Attributes:
        architecture: its class, without the family's stem.
        parts: names of tensors or modules outside of the encoder.
        problem: the configuration's problem_type; "" for none.
        config: further fields of the configuration.
        headless: whether it is the encoder alone, whose tensors' names have no prefix.
    """

    architecture: str
    parts: tuple[str, ...]
    problem: str = ""
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    headless: bool = False

    @property
    def bare(self) -> list[str]:
        """Beginnings of the names of tensors outside of the encoder."""
        return sorted({part.split(".")[0] + "." for part in self.parts})


def classifier_form(
    config: BertConfig, pooling: str, problem: str, head: Head | None = None
) -> HuggingFace | None:
    """The form of a classifier; None if transformers does not pool so.

    Args:
        config: that of the encoder.
        pooling: how tokens become one vector.
        problem: see HuggingFace; "" for a score of choices.
        head: the head; that of the family's classifier by default.
    """
    if pooling not in config.poolings:
        return None
    head = head or config.family.head
    parts = (*([] if head.within else [head.dense]), head.output, *config.family.head_parts)
    how = config.poolings[pooling]
    architecture = "ForSequenceClassification" if problem else "ForMultipleChoice"
    return HuggingFace(architecture, parts, problem, how)


class EncoderTask(task.Task):
    """A task whose model has a bert.Encoder as `encoder` and takes packed rows."""

    architecture: str
    """Name of the architecture in gorbit.json."""

    def __init__(self, build: Build, model: tf.Module, head_rate: tuple[str, str] | None) -> None:
        """Sets what follows from the encoder.

        Args:
            build: how the encoder was made.
            model: the model.
            head_rate: name and description of the dropout rate of the head; None without one.
        """
        self.model, self.build, self.precision = model, build, build.precision
        if build.lora:
            model.encoder.adapt(build.lora, build.seed)
        config = build.config
        self.hyperparameters = [
            rate(f"{name}_dropout", default, text)
            for name, (default, text) in config.dropouts.items()
        ]
        if head_rate:
            name, text = head_rate
            head, hidden = config.classifier_dropout, config.hidden_dropout_prob
            self.hyperparameters.append(rate(name, hidden if head is None else head, text))

    def model_description(self) -> dict[str, Any]:
        """The task's own part of the description, such as the number of labels."""
        return {}

    def huggingface(self) -> HuggingFace | None:
        """The model's form in Hugging Face's transformers; None, the default, if it has none."""
        return None

    def head_flops(self) -> dict[str, int]:
        """Operations of the head, in the form of bert.flops; added to the encoder's."""
        return {"per_example": 0}

    def description(self) -> dict[str, Any]:
        """See Task."""
        flops = dict(implementation(self.build.config).flops(self.build.config))
        for name, count in self.head_flops().items():
            flops[name] = flops.get(name, 0) + count
        return {
            "architecture": self.architecture,
            **self.model_description(),
            "recompute": self.build.recompute,
            "flops": flops,
            "config": self.build.config.description(),
            "weights": self._own_weights(),
            **self._huggingface(),
        }

    def _own_weights(self) -> dict[str, Any]:
        """What files of weights must be for the encoder to be computed as they were trained."""
        config, family = self.build.config, self.build.config.family
        # "model." is no sign of a family: other projects put it before any name.
        others = {f.prefix for f in FAMILIES.values()} - {family.prefix, "model."}
        return {
            "model_type": family.model_type,
            "prefix": family.prefix,
            "others": sorted(others),
            "config": config.computed,
            "fit": [config.positions_table] if config.positions_table else [],
        }

    def _huggingface(self) -> dict[str, Any]:
        form, config = self.huggingface(), self.build.config
        if form is None:
            return {}
        family = config.family
        values = {
            "pad_token_id": max(config.position_offset - 1, 0),
            **config.released(),
            **form.config,
            "architectures": [family.stem + form.architecture],
            "model_type": family.model_type,
            **({"problem_type": form.problem} if form.problem else {}),
            "position_embedding_type": "absolute",
            "torch_dtype": "float32",
        }
        prefix = "" if form.headless else family.prefix
        return {"huggingface": {"config": values, "prefix": prefix, "bare": form.bare}}

    def rows(self, path: str) -> str | None:
        """See Task. Only input_ids select rows of the word table."""
        return "input_ids" if path == "model/encoder/embeddings/word/table" else None

    def dropout(self, hyperparameters: dict[str, Tensor], random: ops.Random) -> Dropout:
        """The encoder's dropout in a training pass."""
        config = self.build.config
        rates = {name: hyperparameters[f"{name}_dropout"] for name in config.dropouts}
        return implementation(config).Dropout(**rates, random=random)

    def serving(self) -> tuple[list[tf.TensorSpec], Callable[..., dict[str, Tensor]]]:
        """See Task. One example per row: input_ids, attention_mask and token_type_ids [B, S]."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        specs = [tf.TensorSpec([None, None], tf.int32, name) for name in names]

        def serve(input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> dict:
            shape = tf.shape(input_ids)
            # Positions count only real tokens, as in the packed rows of training.
            mask = tf.cast(tf.not_equal(attention_mask, 0), tf.int32)
            positions = tf.maximum(tf.cumsum(mask, 1) - 1, 0)
            first = tf.argmax(mask, 1, tf.int32)
            return self.serve_rows(
                {
                    "input_ids": input_ids,
                    "type_ids": token_type_ids,
                    "sequence_ids": mask,
                    "position_ids": positions,
                    "cls_positions": tf.range(shape[0]) * shape[1] + first,
                }
            )

        return specs, serve

    def serve_rows(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Predicts for the serving signature: one example per row."""
        return self.predict(features)


def encode(encoder: bert.Encoder, features: dict[str, Tensor], dropout: Dropout | None) -> Tensor:
    """Returns the last layer's output for packed features, [R * S, H]."""
    return encoder(*(features[name] for name in ENCODER_FEATURES), dropout)


def encoder_features(config: BertConfig) -> list[task.Feature]:
    """The features that bert.Encoder takes."""
    return [f for f in bert.features(config) if f.name in ENCODER_FEATURES]


def token_features(config: BertConfig) -> list[task.Feature]:
    """The features of tasks that look at tokens: the encoder's, and the example of each token."""
    features = encoder_features(config)
    ids = task.Feature("example_ids", tf.int32, ("rows", "length"), role="id", make="example_ids")
    return [*features, ids]


def token_weights(features: dict[str, Tensor]) -> Tensor:
    """Returns the weight of the example of each token, float32 [R * S]; 0 in padding."""
    weights = tf.concat([features["example_weights"], [0.0]], 0)
    return tf.gather(weights, tf.reshape(features["example_ids"], [-1]))


def weighted(values: Tensor, weights: Tensor) -> Tensor:
    """Returns the sum of float32 values times weights. Values of weight 0 may be NaN."""
    return tf.reduce_sum(tf.math.multiply_no_nan(values, weights))


def each(prediction: Tensor, label: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of an evaluation that are collected, for metrics of ranks.

    Args:
        prediction: float32 [B] or [B, C], the larger the more of the label.
        label: of the same shape.
        features: those of the batch, for the weights.
    """
    values = {"prediction": prediction, "label": label, "weight": features["example_weights"]}
    return {f"each/{name}": tf.cast(value, tf.float32) for name, value in values.items()}


def precise(values: Tensor) -> Tensor:
    """Sums float64 [N, K] over N without rounding to float32.

    Returns:
        float32 [2, K]: the sums rounded to float32, and what rounding lost. Added up in float64,
        the two parts are the float64 sums.
    """
    total = tf.reduce_sum(values, 0)
    high = tf.cast(total, tf.float32)
    low = tf.cast(total - tf.cast(high, tf.float64), tf.float32)
    return tf.stack([high, low])
