"""How the initial values of Keras' variables are drawn.

Keras forgets a variable's initializer once it has called it. So it is written down when it is
called, with a checksum of the values: a variable whose values changed since was given others,
by a file or by `assign`, and is not drawn again.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import initializers
from keras.src.backend.tensorflow.core import Variable
from keras.src.initializers.random_initializers import compute_fans

from gorbit_export.layers import UNKNOWN, Initializer

_CONSTANT = (
    initializers.Zeros,
    initializers.Ones,
    initializers.Constant,
    initializers.Identity,
    initializers.STFT,
)
_SCALED = (
    initializers.VarianceScaling,
    initializers.GlorotNormal,
    initializers.GlorotUniform,
    initializers.HeNormal,
    initializers.HeUniform,
    initializers.LecunNormal,
    initializers.LecunUniform,
)
_CUT = 0.87962566103423978
"""The deviation of a standard normal distribution that is cut off at two."""


class Record:
    """The initializers of the variables that were made within `recorded`."""

    def __init__(self) -> None:
        """Begins without variables."""
        self._made: dict[int, tuple[Any, Initializer | None, bytes]] = {}

    def add(self, variable: Any, initializer: Any) -> None:
        """Takes a variable that has just been given its first values."""
        how = of(initializer, tuple(variable.shape))
        self._made[id(variable)] = variable, how, _checksum(variable)

    def of(self, variable: Any) -> Initializer | None:
        """Returns how the values of a variable were drawn; None if they were not."""
        made, how, checksum = self._made.get(id(variable), (None, None, b""))
        return how if made is variable and _checksum(variable) == checksum else None


@contextlib.contextmanager
def recorded() -> Iterator[Record]:
    """Writes down the initializer of every keras.Variable that is made."""
    record = Record()
    original = Variable._initialize_with_initializer

    def initialize(self: Any, initializer: Any) -> None:
        original(self, initializer)
        record.add(self, initializer)

    Variable._initialize_with_initializer = initialize
    try:
        yield record
    finally:
        Variable._initialize_with_initializer = original


def of(initializer: Any, shape: tuple[int, ...]) -> Initializer | None:
    """Returns what an initializer of Keras draws for a shape.

    None: nothing is drawn, as all values are given. UNKNOWN: it is none of those that
    gorbit can draw from. A subclass counts as unknown, as it may do anything.
    """
    kind = type(initializer)
    if kind in _CONSTANT or _is_forget_bias(initializer):
        return None
    if kind is initializers.RandomNormal:
        found = Initializer("normal", float(initializer.stddev), float(initializer.mean))
    elif kind is initializers.TruncatedNormal:
        found = Initializer("truncated_normal", float(initializer.stddev), float(initializer.mean))
    elif kind is initializers.RandomUniform:
        low, high = float(initializer.minval), float(initializer.maxval)
        found = Initializer("uniform", (high - low) / 2, (high + low) / 2)
    elif kind in _SCALED:
        found = _scaled(initializer, shape)
    else:
        return UNKNOWN
    return found if found.scale > 0 else None


def _scaled(initializer: Any, shape: tuple[int, ...]) -> Initializer:
    """See keras.initializers.VarianceScaling."""
    fan_in, fan_out = compute_fans(
        shape, input_axes=initializer.input_axes, output_axes=initializer.output_axes
    )
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    variance = initializer.scale / max(1.0, fans[initializer.mode])
    if initializer.distribution == "uniform":
        return Initializer("uniform", math.sqrt(3 * variance))
    if initializer.distribution == "untruncated_normal":
        return Initializer("normal", math.sqrt(variance))
    return Initializer("truncated_normal", math.sqrt(variance) / _CUT)


def _is_forget_bias(initializer: Any) -> bool:
    """Whether it is an LSTM's function for a bias of zeros, and ones at the forget gates."""
    if not inspect.isfunction(initializer) or not initializer.__module__.startswith("keras.src."):
        return False
    cell = inspect.getclosurevars(initializer).nonlocals.get("self")
    return type(getattr(cell, "bias_initializer", None)) in _CONSTANT


def _checksum(variable: keras.Variable) -> bytes:
    with tf.init_scope():  # a variable may be made while a function is traced
        value = np.ascontiguousarray(variable.value.numpy())
    return hashlib.blake2b(value.tobytes(), digest_size=16).digest()
