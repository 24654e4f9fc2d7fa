"""Metrics as sums over examples, and a function that turns the totals into numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers import compile_utils

from gorbit_export import task
from gorbit_export.models import Refusal, losses
from gorbit_export.models.recording import recording

Tensor = tf.Tensor

PREFIX = "metric/"
_LOWER = re.compile(r"Error|Crossentropy|Hinge|Divergence|Poisson|FalsePositives|FalseNegatives")
_HIGHER = re.compile(
    r"Accuracy|^AUC$|Precision|Recall|Sensitivity|Specificity|F1Score|FBetaScore|IoU|R2Score"
    r"|Correlation|CosineSimilarity|TruePositives|TrueNegatives"
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A metric of one output.

    Attributes:
        name: its name in logs.
        metric: a Metric of Keras 3 or tf-keras.
        output: number of the output that it is of.
        rank: number of axes of what its function gives; 0 if it is no function of the user's.
    """

    name: str
    metric: Any
    output: int
    rank: int = 0

    @property
    def variables(self) -> dict[str, Any]:
        """The metric's variables, by the names of the sums that they become."""
        found: dict[str, Any] = {}
        for variable in self.metric.variables:
            name = re.sub(r"[^A-Za-z0-9_.\-]", "_", variable.name.split("/")[-1].split(":")[0])
            while f"{PREFIX}{self.name}/{name}" in found:
                name += "_"
            found[f"{PREFIX}{self.name}/{name}"] = variable
        return found

    @property
    def of_tokens(self) -> bool:
        """Whether it is one of Keras' own, which take tokens like examples."""
        return self.rank == 0 and _is_keras_own(type(self.metric))

    @property
    def better(self) -> str:
        """The direction that is known of the metric's class, or ""."""
        name = type(self.metric).__name__
        if name == "MeanMetricWrapper":
            name = keras.src.utils.naming.to_snake_case(self.name).replace("_", " ").title()
            name = name.replace(" ", "")
        if _LOWER.search(name):
            return "lower"
        return "higher" if _HIGHER.search(name) else ""

    def sums(self, label: Tensor, y: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        """Returns what one batch adds to each variable, float32."""
        variables = self.variables
        zeros = {name: tf.zeros(v.shape, v.dtype) for name, v in variables.items()}
        arguments = (y,) if self._takes_values() else (label, y)
        if isinstance(self.metric, keras.metrics.Metric):
            values = self.metric.stateless_update_state(
                list(zeros.values()), *arguments, sample_weight=weights
            )
            found = dict(zip(zeros, values))
        else:
            if len(arguments) == 2:
                arguments = (losses.like_fit(label, y), y)
            with recording((v, zeros[name]) for name, v in variables.items()) as record:
                self.metric.update_state(*arguments, sample_weight=weights)
            found = {name: record.get(v) for name, v in variables.items()}
        return {name: tf.cast(value, tf.float32) for name, value in found.items()}

    def result(self, totals: dict[str, Tensor]) -> Tensor:
        """Returns the metric, float32 [], of the totals of its sums."""
        variables = self.variables
        values = [tf.cast(totals[name], v.dtype) for name, v in variables.items()]
        if isinstance(self.metric, keras.metrics.Metric):
            result = self.metric.stateless_result(values)
        else:
            with recording(zip(variables.values(), values)):
                result = self.metric.result()
        if not tf.is_tensor(result) or result.shape.rank != 0:
            raise Refusal(f"metric {self.name} gives more than one number; expected one")
        return tf.cast(result, tf.float32)

    def _takes_values(self) -> bool:
        """Whether it is a mean or sum of outputs, which takes no labels."""
        return type(self.metric).__name__ in ("Mean", "Sum")


def resolve(wanted: list[Any], labels: list[Any], outputs: list[Any]) -> list[Measured]:
    """Makes metrics of what the user named, and their variables.

    Args:
        wanted: metrics or names of each output, a list or None.
        labels: arrays of an example batch, for each output.
        outputs: the model's outputs of that batch.

    Raises:
        Refusal: if a metric is unknown or does not begin with zeros, or a name is used twice.
    """
    found: list[Measured] = []
    for i, metrics in enumerate(wanted):
        if metrics is None:
            continue
        for identifier in metrics if isinstance(metrics, (list, tuple)) else [metrics]:
            metric = _metric(identifier, labels[i], outputs[i])
            name = re.sub(r"[^A-Za-z0-9_.\-]", "_", metric.name)
            if name == "loss" or any(name == other.name for other in found):
                raise Refusal(
                    f"two metrics are called {name}; give each a name= of its own"
                    if name != "loss"
                    else "a metric is called loss; give it another name="
                )
            measured = Measured(name, metric, i)
            if hasattr(metric, "_fn") and not _is_keras_own(metric._fn):
                rank = _take_examples(measured, labels[i], outputs[i])
                measured = dataclasses.replace(measured, rank=rank)
            _make_variables(measured, labels[i], outputs[i])
            found.append(measured)
    return found


def _metric(identifier: Any, label: Any, y: Any) -> Any:
    if hasattr(identifier, "update_state"):
        return identifier
    try:
        return compile_utils.get_metric(identifier, label, y)
    except ValueError as err:
        raise Refusal(f"metric {identifier!r} is not one of keras.metrics") from err


def _is_keras_own(thing: Any) -> bool:
    return getattr(thing, "__module__", "").startswith(("keras.", "tf_keras."))


def _take_examples(measured: Measured, label: Any, y: Any) -> int:
    """Lets a function that gives one number for a batch give one for each example.

    Returns:
        The number of axes of what it gives then.

    Raises:
        Refusal: if the number is not the mean of those.
    """
    metric = measured.metric
    function, more = metric._fn, getattr(metric, "_fn_kwargs", {})

    def whole(label: Any, y: Any) -> Tensor:
        return tf.convert_to_tensor(function(label, y, **more))

    with _failing(measured.name):
        if rank := whole(label, y).shape.rank:
            return rank
        mean = losses.is_mean(whole, label, y)
    if not mean:
        raise Refusal(
            f"metric {measured.name} gives one number for a whole batch, which is not the mean of "
            "its examples', so that batches cannot be added up; expected one per example, or a "
            "keras.metrics.Metric that adds up what its result() needs"
        )
    metric._fn = lambda label, y, **_: losses.by_example(whole, label, y)
    return 1


@contextlib.contextmanager
def _failing(name: str) -> Iterator[None]:
    """Turns what a metric raises into a Refusal."""
    try:
        yield
    except Exception as err:
        raise Refusal(
            f"metric {name} fails on the labels and outputs: {' '.join(str(err).split())}"
        ) from err


def _make_variables(measured: Measured, label: Any, y: Any) -> None:
    """Lets the metric make variables that depend on shapes, and checks that they begin at 0."""
    metric = measured.metric
    metric.reset_state()
    with _failing(measured.name):
        if measured._takes_values():
            metric.update_state(y)
        else:
            metric.update_state(label, y)
    metric.reset_state()
    for path, variable in measured.variables.items():
        value = variable.numpy()
        if value.dtype.kind not in "fiu" or (value != 0).any():
            raise Refusal(
                f"metric {measured.name} begins with {path.split('/')[-1]} other than 0; "
                "expected one that adds up from 0"
            )


def described(measured: list[Measured]) -> tuple[task.Metric, ...]:
    """Describes metrics for gorbit.json."""
    return tuple(task.Metric(m.name, m.better) for m in measured)
