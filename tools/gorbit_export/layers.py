"""Layers that hold variables. Their attribute names are the variables' names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import tensorflow as tf

from gorbit_export import ops

Tensor = tf.Tensor


@dataclasses.dataclass(frozen=True)
class Foreign:
    """How other releases store a variable, so that their weights can be read.

    Attributes:
        names: the tensor's possible names, the likeliest first.
        transpose: whether the stored matrix has its axes the other way round.
    """

    names: tuple[str, ...]
    transpose: bool = False


class Layer(tf.Module):
    """A module that knows what its variables are called elsewhere."""

    def __init__(self) -> None:
        """Makes a layer without variables."""
        super().__init__()
        self._foreign: tuple[tuple[str, Foreign], ...] = ()

    def _add(
        self,
        name: str,
        shape: list[int],
        initializer: tf.keras.initializers.Initializer,
        foreign: Foreign,
    ) -> None:
        """Makes a float32 variable and sets it as the attribute `name`."""
        setattr(self, name, tf.Variable(initializer(shape, tf.float32), name=name))
        self._foreign = (*self._foreign, (name, foreign))

    def foreign(self) -> Iterator[tuple[tf.Variable, Foreign]]:
        """Yields the layer's own variables with what they are called elsewhere."""
        for name, foreign in self._foreign:
            yield getattr(self, name), foreign


class Embedding(Layer):
    """A table of vectors."""

    def __init__(self, rows: int, width: int, stddev: float, seed: int, foreign: str) -> None:
        """Makes the table, float32 [rows, width], from a truncated normal distribution."""
        super().__init__()
        initializer = tf.keras.initializers.TruncatedNormal(stddev=stddev, seed=seed)
        self._add("table", [rows, width], initializer, Foreign((foreign + ".weight",)))

    def __call__(self, ids: Tensor) -> Tensor:
        """Looks up int [N], giving float32 [N, width]."""
        return ops.embedding(self.table, ids)


class Dense(Layer):
    """An affine map; the kernel is stored [inputs, outputs]."""

    def __init__(self, inputs: int, outputs: int, stddev: float, seed: int, foreign: str) -> None:
        """Makes the kernel from a truncated normal distribution, and the bias of zeros."""
        super().__init__()
        initializer = tf.keras.initializers.TruncatedNormal(stddev=stddev, seed=seed)
        self._add("kernel", [inputs, outputs], initializer, Foreign((foreign + ".weight",), True))
        zeros = tf.keras.initializers.Zeros()
        self._add("bias", [outputs], zeros, Foreign((foreign + ".bias",)))

    def __call__(self, x: Tensor) -> Tensor:
        """Maps float32 [N, inputs] to [N, outputs]."""
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)


class LayerNorm(Layer):
    """Layer normalization over the last axis."""

    def __init__(self, width: int, epsilon: float, foreign: str) -> None:
        """Makes a scale of ones and a bias of zeros."""
        super().__init__()
        self._epsilon = epsilon
        ones, zeros = tf.keras.initializers.Ones(), tf.keras.initializers.Zeros()
        self._add("scale", [width], ones, Foreign((foreign + ".weight", foreign + ".gamma")))
        self._add("bias", [width], zeros, Foreign((foreign + ".bias", foreign + ".beta")))

    def __call__(self, x: Tensor) -> Tensor:
        """Normalizes float32 [..., width]."""
        return ops.layer_norm(x, self.scale, self.bias, self._epsilon)
