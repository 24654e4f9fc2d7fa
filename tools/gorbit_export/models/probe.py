"""Tries whether sums over parts of a batch add up to those of the whole.

Gorbit divides batches over replicas and micro-batches and adds up. A model whose evaluation
is not such a sum has a loss or metric that depends on which examples share a batch. One
whose training alone is not (batch normalization) trains, but divisions change it a little.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from keras.src import backend
from tensorflow.python.ops import stateless_random_ops

from gorbit_export.models.recording import replaced

COUNT = 12
"""Number of examples tried."""
TOLERANCES = {"float32": 1e-5, "bf16": 2e-2, "fp16": 2e-2}
"""The relative error that a precision leaves."""

Batch = dict[str, np.ndarray]
Sums = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the probe found.

    Attributes:
        evaluation: the sum of the evaluation that does not add up, or "".
        prediction: the prediction of an example that depends on the others, or "".
        training: whether training adds up.
        padding: whether padding leaves the evaluation as it is.
        finite: whether the loss is a finite number.
    """

    evaluation: str
    prediction: str
    training: bool
    padding: bool
    finite: bool


def probe(
    train: Callable[[Batch], Sums],
    evaluate: Callable[[Batch], Sums],
    predict: Callable[[Batch], Sums],
    batch: Callable[[int], Batch],
    weights: str,
    precision: str,
) -> Finding:
    """Compares a batch with its parts.

    Args:
        train: sums and gradients of the training pass, with randomness held still.
        evaluate: sums of the evaluation.
        predict: predictions.
        batch: makes COUNT examples, with a number of positions of padding added.
        weights: name of the feature that weighs examples.
        precision: what the model computes in.
    """
    tolerance = TOLERANCES[precision]
    plain = batch(0)
    rng = np.random.default_rng(3)
    drawn = rng.choice(np.array([0.5, 1, 2], np.float32), COUNT)
    weighted = {**plain, weights: (plain[weights].T * drawn).T}
    whole = evaluate(plain)
    uneven, _ = _largest(evaluate, plain, tolerance)
    evaluation = uneven
    training = not any(_largest(train, data, tolerance)[0] for data in (plain, weighted))
    if not evaluation and _largest(evaluate, weighted, tolerance)[0]:
        training = False
    padded = evaluate(batch(3))
    padding = not _differences(padded, whole, tolerance)
    answers = predict(plain)
    order = np.split(np.arange(COUNT), [COUNT // 3])
    parts = [predict({name: v[index] for name, v in plain.items()}) for index in order]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in answers}
    prediction = next((n for n in answers if _apart(joined[n], answers[n], tolerance)), "")
    longer = predict(batch(3))
    for name, value in answers.items():
        # What a token at padding gets may be anything.
        if value.shape == longer[name].shape and _apart(longer[name], value, tolerance):
            padding = False
    finite = bool(np.isfinite(whole["loss_sum"]).all())
    return Finding(evaluation, prediction, training, padding, finite)


def _largest(function: Callable[[Batch], Sums], data: Batch, tolerance: float) -> tuple[str, Any]:
    order = np.random.default_rng(5).permutation(COUNT)
    whole = function(data)
    parts = [
        function({name: value[index] for name, value in data.items()})
        for index in np.split(order, [COUNT // 3])
    ]
    total = {name: sum(part[name].astype(np.float64) for part in parts) for name in whole}
    different = _differences(total, whole, tolerance)
    return (different[0] if different else ""), whole


def _differences(got: Sums, want: Sums, tolerance: float) -> list[str]:
    """Names the sums that differ; gradients are compared with the norm of all of them."""

    def norm(value: np.ndarray) -> float:
        return float(np.linalg.norm(np.asarray(value, np.float64)))

    gradients = [name for name in want if name.startswith("gradient/")]
    scale = max(norm(np.array([norm(want[name]) for name in gradients])), 1e-30)
    error = norm(np.array([norm(got[name] - want[name]) for name in gradients]))
    found = ["gradients"] if gradients and not error <= tolerance * scale else []
    for name in want:
        if name.startswith("gradient/"):
            continue
        # Sums of numbers of both signs may be next to nothing.
        size = max(norm(want[name]), 1e-3 * norm(want["weight_sum"]))
        if not norm(got[name] - want[name]) <= 10 * tolerance * size:
            found.append(name)
    return found


def _apart(got: np.ndarray, want: np.ndarray, tolerance: float) -> bool:
    """Whether predictions differ by more than rounding does."""
    size = float(np.linalg.norm(np.asarray(want, np.float64)))
    error = float(np.linalg.norm(np.asarray(got, np.float64) - want))
    return not error <= 10 * tolerance * max(size, 1e-6)


@contextlib.contextmanager
def still(generators: list[Any]) -> Iterator[None]:
    """Turns dropout into identity, and random numbers into one number, for a trace.

    Args:
        generators: the model's generators, of Keras 3 or tf-keras.
    """

    def fill(shape: Any, value: Any, dtype: Any) -> tf.Tensor:
        return tf.fill(shape, tf.cast(value, dtype or "float32"))

    def uniform(
        shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, **_: Any
    ) -> Any:
        return fill(shape, minval + 0.3 * ((1.0 if maxval is None else maxval) - minval), dtype)

    def normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, **_: Any) -> Any:
        return fill(shape, mean + 0.3 * stddev, dtype)

    def randint(shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", **_: Any) -> Any:
        return fill(shape, minval, dtype)

    def identity(x: Any, *args: Any, **kwargs: Any) -> Any:
        return x

    drawn = {
        "dropout": identity,
        "shuffle": identity,
        "uniform": uniform,
        "normal": normal,
        "truncated_normal": normal,
        "randint": randint,
    }
    plain = {
        "uniform": lambda shape, seed, *args, **more: uniform(shape, *args, **more),
        "normal": lambda shape, seed, *args, **more: normal(shape, *args, **more),
        "truncated_normal": lambda shape, seed, *args, **more: normal(shape, *args, **more),
    }
    legacy = {
        "dropout": identity,
        "random_uniform": uniform,
        "random_normal": normal,
        "truncated_normal": normal,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(tf.nn.experimental, "stateless_dropout", identity))
        for name in ("uniform", "normal", "truncated_normal"):
            stack.enter_context(replaced(tf.random, f"stateless_{name}", plain[name]))
            # What tf.image draws with, for the augmentation layers of tf-keras.
            inner = {"uniform": "random_uniform", "normal": "random_normal"}.get(name, name)
            stack.enter_context(replaced(stateless_random_ops, f"stateless_{inner}", plain[name]))
        for name, value in drawn.items():
            stack.enter_context(replaced(backend.random, name, value))
        for generator in generators:
            for name, value in legacy.items():
                if hasattr(generator, name):
                    stack.enter_context(replaced(generator, name, value))
        yield
