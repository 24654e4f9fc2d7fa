"""The Task interface: what the exporter needs to know about a model."""

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
        name: name of the function input.
        dtype: element type.
        axes: one name per axis. Axes with the same name have the same length: "rows",
            "length" (of a row), "examples".
        label: whether the feature is part of the answer; prediction does not take it.
    """

    name: str
    dtype: tf.DType
    axes: tuple[str, ...]
    label: bool = False

    def spec(self) -> tf.TensorSpec:
        """Returns the spec of the function argument for the feature."""
        return tf.TensorSpec([None] * len(self.axes), self.dtype, self.name)


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """A float32 scalar input of a function that users can tune without a new export.

    Attributes:
        name: name of the function input.
        default: used if the user does not set it.
        help: one line for the user.
        minimum: smallest valid value.
        below: exclusive upper limit; None for no limit.
    """

    name: str
    default: float
    help: str
    minimum: float = 0.0
    below: float | None = None

    def spec(self) -> tf.TensorSpec:
        """Returns the spec of the function argument for the scalar."""
        return tf.TensorSpec([], tf.float32, self.name)


class Task(abc.ABC):
    """A model with a loss, as the export contract sees it.

    A new architecture or head is one subclass. The attribute names of the module `model`
    and its submodules determine the names of the variables.
    """

    name: str
    """Name of the task in gorbit.json, for instance "classification"."""
    model: tf.Module
    """Holds every variable. All of them are trained."""
    features: list[Feature]
    """The features of a batch."""
    hyperparameters: list[Hyperparameter]
    """Scalars of the training pass."""
    precision: str = "float32"
    """What `train_sums`, `evaluate_sums` and `predict` compute in, one of PRECISIONS. Their
    outputs and the variables are float32. With fp16 the loss is scaled before its gradient is
    computed."""

    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """The model's part of gorbit.json: architecture, configuration, FLOPs."""

    @abc.abstractmethod
    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """The training pass. Returns "loss_sum" (differentiable), "weight_sum" and metric sums."""

    @abc.abstractmethod
    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """The evaluation pass. Returns "loss_sum", "weight_sum" and metric sums, never means."""

    @abc.abstractmethod
    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns named outputs of the features that are not labels. The first axis is examples."""

    @abc.abstractmethod
    def serving(self) -> tuple[list[tf.TensorSpec], Callable[..., dict[str, Tensor]]]:
        """Returns the inputs of the serving signature, and the function that computes outputs."""

    def decays(self, path: str) -> bool:
        """Whether weight decay applies to a variable; by default not to biases and norms."""
        parts = path.split("/")
        return parts[-1] != "bias" and not any("norm" in part for part in parts)

    def rows(self, path: str) -> str | None:
        """Names the int32 feature that selects the rows of a variable that a batch uses.

        The batch's gradient is 0 in all other rows. None, the default, promises nothing.
        """
        return None
