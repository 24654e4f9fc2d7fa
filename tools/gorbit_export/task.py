"""What the exporter needs to know of a model to export it: the Task interface."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Callable

import tensorflow as tf

from gorbit_export import ops

Tensor = tf.Tensor

PRECISIONS = {"float32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}
"""The dtypes that a model's products and activations may be computed in, by name."""


@dataclasses.dataclass(frozen=True)
class Feature:
    """A named tensor of a batch.

    Attributes:
        name: as the functions' inputs are called.
        dtype: element type.
        axes: one name per axis. Axes of one name have one length: "rows", "length" (of a
            row), "examples".
        label: whether the feature says what the answer is; prediction does without it.
    """

    name: str
    dtype: tf.DType
    axes: tuple[str, ...]
    label: bool = False

    def spec(self) -> tf.TensorSpec:
        """The function argument that takes the feature."""
        return tf.TensorSpec([None] * len(self.axes), self.dtype, self.name)


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """A float32 scalar input of a function, which a user tunes without a new export.

    Attributes:
        name: as the functions' inputs are called.
        default: used where the user says nothing.
        help: one line for the user.
        minimum: smallest value that makes sense.
        below: first value that is too large; none where any is as good.
    """

    name: str
    default: float
    help: str
    minimum: float = 0.0
    below: float | None = None

    def spec(self) -> tf.TensorSpec:
        """The function argument that takes the scalar."""
        return tf.TensorSpec([], tf.float32, self.name)


class Task(abc.ABC):
    """A model with a loss, as the export contract sees it.

    A new architecture or head is one subclass. The attributes of the module `model`,
    of its modules and so on, decide the variables' names.
    """

    name: str
    """What the task is called in gorbit.json, for instance "classification"."""
    model: tf.Module
    """Holds every variable. All of them are trained."""
    features: list[Feature]
    """What a batch holds."""
    hyperparameters: list[Hyperparameter]
    """Scalars of the training pass."""
    precision: str = "float32"
    """What `train_sums`, `evaluate_sums` and `predict` compute in, one of PRECISIONS. What they
    give is float32, as the variables are. With fp16 the loss is scaled before its gradient is
    taken."""

    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """The model's part of gorbit.json: architecture, configuration, FLOPs."""

    @abc.abstractmethod
    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """The training pass: "loss_sum" (differentiable), "weight_sum", and metric sums."""

    @abc.abstractmethod
    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """The evaluation pass: "loss_sum", "weight_sum" and metric sums, never means."""

    @abc.abstractmethod
    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Named outputs, from the features that are no labels. The first axis is examples."""

    @abc.abstractmethod
    def serving(self) -> tuple[list[tf.TensorSpec], Callable[..., dict[str, Tensor]]]:
        """The inputs of the serving signature, and the function from them to named outputs."""

    def decays(self, path: str) -> bool:
        """Whether weight decay applies to a variable; not to biases and norms by default."""
        parts = path.split("/")
        return parts[-1] != "bias" and not any("norm" in part for part in parts)

    def rows(self, path: str) -> str | None:
        """The int32 feature whose numbers are the only rows that a variable's gradient has.

        A batch's gradient is 0 in all other rows of the variable. None, the default,
        promises nothing.
        """
        return None
