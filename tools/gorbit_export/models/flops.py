"""Counts the floating point operations of a model's forward pass.

The model runs on small batches, operation by operation, and the products and convolutions are
counted by the shapes that they get. So loops count as often as they run.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

_FILTERED = ("Conv2D", "Conv3D")
_TRANSPOSED = ("Conv2DBackpropInput", "Conv3DBackpropInputV2")
_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")

EXAMPLES = 4
"""The number of examples of a batch that is counted, and half of it once more."""


def operations(kind: str, inputs: Any, attributes: Any, outputs: Any) -> int:
    """Returns what an operation costs: a multiplication and an addition count as one each.

    Args:
        kind: the operation, for instance "MatMul". Only products and convolutions cost anything.
        inputs: its tensors.
        attributes: names and values, one after the other.
        outputs: its results.
    """
    shapes = [tuple(t.shape) if hasattr(t, "shape") else () for t in inputs]
    if kind in _PRODUCTS:
        # The axes of the first factor's matrices are those of the result, and the sum's.
        rows, result = outputs[0].shape[-2], math.prod(outputs[0].shape)
        return 2 * result * (math.prod(shapes[0][-2:]) // rows) if result else 0
    if kind == "Einsum":
        return _einsum(_attribute(attributes, "equation"), shapes)
    if kind in _FILTERED:
        return 2 * math.prod(outputs[0].shape) * math.prod(shapes[1][:-1])
    if kind == "DepthwiseConv2dNative":
        return 2 * math.prod(outputs[0].shape) * math.prod(shapes[1][:2])
    if kind in _TRANSPOSED:
        return 2 * math.prod(shapes[2]) * math.prod(shapes[1][:-1])
    return 0


def _attribute(attributes: Any, name: str) -> str:
    found = dict(zip(map(tf.compat.as_str, attributes[::2]), attributes[1::2]))
    return tf.compat.as_str(found[name])


def _einsum(equation: str, shapes: list[tuple[int, ...]]) -> int:
    """A product of two tensors costs as much as there are combinations of their axes."""
    if len(shapes) != 2:
        return 0
    sizes: dict[str, int] = {}
    for labels, shape in zip(equation.split("->")[0].split(","), shapes):
        before, dots, after = labels.partition("...")
        count = len(shape) - len(before) - len(after)
        # Axes of the ellipsis are counted from the last one, as broadcasting does.
        middle = [f"...{count - i}" for i in range(count)] if dots else []
        for label, size in zip([*before, *middle, *after], shape):
            sizes[label] = max(sizes.get(label, 1), size)
    return 2 * math.prod(sizes.values())


@contextlib.contextmanager
def _counting() -> Iterator[list[int]]:
    """Gives a list that the costs of all operations that run are appended to."""
    costs: list[int] = []

    def count(kind, inputs, attributes, outputs, op_name=None, graph=None):  # noqa: ANN001,ANN202
        if graph is None:
            # Names come as str or bytes.
            costs.append(operations(tf.compat.as_str(kind), inputs, attributes, outputs))

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    op_callbacks.add_op_callback(count)
    try:
        yield costs
    finally:
        op_callbacks.remove_op_callback(count)
        tf.config.run_functions_eagerly(before)


def count(
    forward: Callable[[dict[str, tf.Tensor]], Any],
    batch: Callable[[int, int], dict[str, np.ndarray]],
    length: Callable[[dict[str, np.ndarray]], int | None],
) -> dict[str, int]:
    """Counts the operations of a forward pass.

    Args:
        forward: the pass.
        batch: makes a batch of a number of examples, with a number of positions of padding.
        length: the length of a batch's open axis; None without one.

    Returns:
        "per_example"; with an open axis, "per_token" for each of its positions and
        "per_token_pair" for each pair of them as well: what is spent on attention. Empty if the
        costs of three lengths are not such a sum.
    """

    def cost(examples: int, extra: int) -> tuple[int, int | None]:
        made = batch(examples, extra)
        with _counting() as costs:
            forward({name: tf.constant(value) for name, value in made.items()})
        return sum(costs), length(made)

    def each(extra: int) -> tuple[float, int | None]:
        # What does not depend on the examples, such as a product of variables, is in both.
        (many, at), (few, other) = cost(EXAMPLES, extra), cost(EXAMPLES // 2, extra)
        if at != other:
            return many / EXAMPLES, at
        return (many - few) / (EXAMPLES - EXAMPLES // 2), at

    first, at = each(0)
    if at is None:
        return {"per_example": round(first)}
    points = [(at, first)]
    for extra in (3, 8):
        value, at = each(extra)
        points.append((at, value))
    lengths = np.array([p[0] for p in points], np.float64)
    if len(set(lengths)) < len(points):
        return {}
    terms = np.stack([np.ones(3), lengths, lengths**2], 1)
    found = np.linalg.solve(terms, np.array([p[1] for p in points], np.float64))
    names = ("per_example", "per_token", "per_token_pair")
    counts = {name: round(float(value)) for name, value in zip(names, found)}
    return counts if min(counts.values()) >= 0 else {}
