"""A batch to try a model on: the user's own, or numbers that fit the features."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from gorbit_export import task
from gorbit_export.models import Model, Refusal

LENGTH = 7
"""Length of open axes."""


class Example:
    """Makes batches of a given number of examples, the same at every call."""

    def __init__(self, user: Model, features: list[task.Feature]) -> None:
        """Takes the user's function, if there is one, and the features."""
        self._user, self._features = user, features

    def batch(self, count: int, extra: int = 0) -> dict[str, np.ndarray]:
        """Returns arrays by feature name.

        Args:
            count: number of examples.
            extra: positions of padding to add to open axes.

        Raises:
            Refusal: if the user's function gives something else than the features.
        """
        given = {} if self._user.example is None else dict(self._user.example(count))
        if unknown := set(given) - {f.name for f in self._features}:
            raise Refusal(f"example() gives {sorted(unknown)[0]}, which is no feature")
        rng = np.random.default_rng(1)
        lengths = rng.integers(3, LENGTH + 1, count)
        lengths[-1] = LENGTH
        out = {}
        for feature in self._features:
            if feature.name in given:
                value = np.asarray(given[feature.name]).astype(feature.dtype.as_numpy_dtype)
                if value.ndim != len(feature.shape) or len(value) != count:
                    raise Refusal(
                        f"example() gives {feature.name} in the shape {value.shape}; expected "
                        f"{(count, *feature.shape[1:])}"
                    )
            elif given and feature.role != "weight":
                raise Refusal(f"example() gives no {feature.name}")
            else:
                value = _drawn(feature, count, lengths)
            out[feature.name] = _padded(feature, value, extra)
        return out


def _drawn(feature: task.Feature, count: int, lengths: np.ndarray) -> np.ndarray:
    """Draws numbers within the bounds, with padding after each example's length."""
    rng = np.random.default_rng(zlib.crc32(feature.name.encode()))
    if feature.role == "weight":
        return np.ones((count, *(LENGTH if n is None else n for n in feature.shape[1:])), "f")
    shape = (count, *(LENGTH if n is None else n for n in feature.shape[1:]))
    kind = feature.dtype.as_numpy_dtype
    value: Any
    if feature.make == "length":
        return lengths.astype(kind)
    if feature.make == "mask":
        value = np.ones(shape)
    elif feature.dtype.name == "bool":
        value = rng.integers(0, 2, shape)
    elif feature.dtype.name == "float32":
        value = rng.integers(0, 2, shape) if feature.label else rng.normal(size=shape)
    else:
        low = feature.minimum or 0
        is_image = feature.role == "input" and feature.dtype.name == "uint8"
        high = feature.below or (256 if is_image else low + 2)
        value = rng.integers(low, high, shape)
        if feature.role == "input" and feature.pad in value and high - low > 1:
            # So that masks made of the numbers have their gaps at the end only.
            value[value == feature.pad] = high - 1 if feature.pad != high - 1 else low
    fill = 0 if feature.make == "mask" else feature.pad
    for axis, length in enumerate(feature.shape[1:], 1):
        if length is None:
            at = np.arange(LENGTH).reshape([-1 if i == axis else 1 for i in range(len(shape))])
            ends = lengths.reshape([-1] + [1] * (len(shape) - 1))
            value = np.where(at < ends, value, fill)
    return value.astype(kind)


def _padded(feature: task.Feature, value: np.ndarray, extra: int) -> np.ndarray:
    if not extra:
        return value
    widths = [(0, 0)] + [(0, extra if n is None else 0) for n in feature.shape[1:]]
    fill = 0 if feature.make == "mask" else feature.pad
    return np.pad(value, widths, constant_values=fill).astype(value.dtype)
