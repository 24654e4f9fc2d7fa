"""Layers that hold variables. The attribute names become the names of the variables."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
import zlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from gorbit_export import ops

Tensor = tf.Tensor


@dataclasses.dataclass(frozen=True)
class Foreign:
    """How other releases store a variable, so that gorbit can read their weights.

    Attributes:
        names: possible names of the tensor, the most likely first.
        transpose: whether the stored matrix has its axes swapped.
        tensorflow: possible names in TensorFlow's own releases. They store matrices as they
            are here, but may store an axis as several, such as heads and their width.
    """

    names: tuple[str, ...]
    transpose: bool = False
    tensorflow: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Initializer:
    """How the initial value of a variable is drawn, so that gorbit can draw another one.

    Attributes:
        kind: `normal`, `truncated_normal`, cut off at two deviations, `uniform`, or `unknown`:
            it was drawn in another way.
        scale: the deviation of the normal distribution before it is cut off, or the bound below
            which the absolute value of uniform numbers is, before the mean is added.
        mean: what is added.
    """

    kind: str
    scale: float = 0.0
    mean: float = 0.0

    def described(self) -> dict[str, Any]:
        """The variable's `initializer` in gorbit.json."""
        if self == UNKNOWN:
            return {"kind": self.kind}
        mean = {"mean": self.mean} if self.mean else {}
        return {"kind": self.kind, "scale": self.scale, **mean}


UNKNOWN = Initializer("unknown")
"""Drawn in a way that gorbit cannot follow."""


def initial(shape: list[int], stddev: float, seed: int, name: str) -> Tensor:
    """Draws float32 from a normal distribution.

    It is not cut off: what is within two deviations has 0.88 of the deviation, with which a new
    head learns more slowly than in Hugging Face's models. The numbers depend only on the seed and
    the name, so a layer has the same initial values in every model that has a layer of that name
    and shape.
    """
    key = [seed, zlib.crc32(name.encode())]
    return tf.random.stateless_normal(shape, key, stddev=stddev)


_without_adapters = contextvars.ContextVar("_without_adapters", default=False)


@contextlib.contextmanager
def without_adapters() -> Iterator[None]:
    """Makes Dense.adapter return None: what is traced takes kernels that were merged."""
    token = _without_adapters.set(True)
    try:
        yield
    finally:
        _without_adapters.reset(token)


class Layer(tf.Module):
    """A module that knows the names of its variables in other releases."""

    def __init__(self) -> None:
        """Makes a layer without variables."""
        super().__init__()
        self._foreign: tuple[tuple[str, Foreign], ...] = ()
        self._initializers: tuple[tuple[str, Initializer], ...] = ()

    def _add(
        self, name: str, value: Tensor, foreign: Foreign, initializer: Initializer | None = None
    ) -> None:
        """Makes a variable with an initial value, and sets it as the attribute `name`.

        `initializer` says how the value was drawn; None: it was not.
        """
        setattr(self, name, tf.Variable(value, name=name))
        self._foreign = (*self._foreign, (name, foreign))
        if initializer and initializer.scale > 0:
            self._initializers = (*self._initializers, (name, initializer))

    def freeze(self) -> None:
        """Makes the layer's variables states: passes read them, and nothing trains them."""
        for name, _ in self._foreign:
            value = getattr(self, name)
            setattr(self, name, tf.Variable(value, trainable=False, name=name))

    def foreign(self) -> Iterator[tuple[tf.Variable, Foreign]]:
        """Yields the layer's own variables with their names in other releases."""
        for name, foreign in self._foreign:
            yield getattr(self, name), foreign

    def initializers(self) -> Iterator[tuple[tf.Variable, Initializer]]:
        """Yields the layer's own variables whose initial values are drawn, with how they are."""
        for name, initializer in self._initializers:
            yield getattr(self, name), initializer


class Embedding(Layer):
    """A table of vectors."""

    def __init__(
        self,
        rows: int,
        width: int,
        stddev: float,
        seed: int,
        foreign: str,
        tensorflow: tuple[str, ...] = (),
        others: tuple[str, ...] = (),
    ) -> None:
        """Makes the table, float32 [rows, width], filled with random numbers.

        `tensorflow` holds names of the table in TensorFlow's releases, and `others` names of the
        layer under which other releases may have it instead.
        """
        super().__init__()
        weight = f"{foreign}.weight"
        paths = (weight, *(f"{name}.weight" for name in others))
        names = Foreign(paths, tensorflow=tensorflow)
        value = initial([rows, width], stddev, seed, weight)
        self._add("table", value, names, Initializer("normal", stddev))

    def __call__(self, ids: Tensor) -> Tensor:
        """Looks up int [N], and returns float32 [N, width]."""
        return ops.embedding(self.table, ids)


class Dense(Layer):
    """An affine map; the kernel is stored [inputs, outputs]."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stddev: float,
        seed: int,
        foreign: str,
        tensorflow: tuple[str, ...] = (),
        bias: bool = True,
        transpose: bool = True,
    ) -> None:
        """Makes a random kernel and a bias of zeros; without `bias` it is None.

        `tensorflow` holds names of the layer in TensorFlow's releases, and `transpose` says that
        the others have the kernel the other way round.
        """
        super().__init__()
        weight = f"{foreign}.weight"
        kernel = initial([inputs, outputs], stddev, seed, weight)
        paths = tuple(f"{path}/kernel" for path in tensorflow)
        names = Foreign((weight,), transpose=transpose, tensorflow=paths)
        self._add("kernel", kernel, names, Initializer("normal", stddev))
        self.bias: tf.Variable | None = None
        if bias:
            paths = tuple(f"{path}/bias" for path in tensorflow)
            self._add("bias", tf.zeros([outputs]), Foreign((f"{foreign}.bias",), tensorflow=paths))
        self._called, self._scale = foreign, 0.0

    def __call__(self, x: Tensor) -> Tensor:
        """Maps float32 [N, inputs] to [N, outputs]."""
        y = tf.matmul(x, self.kernel)
        return y if self.bias is None else tf.nn.bias_add(y, self.bias)

    def adapt(self, rank: int, scale: float, seed: int) -> None:
        """Freezes the layer and adds a trained product of low rank to its kernel.

        kernel + scale * lora_down @ lora_up (Hu et al. 2021). As in the authors' code, lora_down
        is uniform within 1 / sqrt(inputs), and lora_up is 0, so that the layer computes the same
        at first. A caller of the layer that does not use `__call__` takes them from `adapter`.

        Args:
            rank: the rank of the product.
            scale: its factor.
            seed: seed of lora_down.
        """
        self.freeze()
        self._scale = scale
        inputs, outputs = self.kernel.shape
        down, up = f"{self._called}.lora_A.weight", f"{self._called}.lora_B.weight"
        key = [seed, zlib.crc32(down.encode())]
        bound = 1 / math.sqrt(inputs)
        value = tf.random.stateless_uniform([inputs, rank], key, -bound, bound)
        names = Foreign((down,), transpose=True)
        self._add("lora_down", value, names, Initializer("uniform", bound))
        self._add("lora_up", tf.zeros([rank, outputs]), Foreign((up,), transpose=True))

    @property
    def adapter(self) -> tuple[tf.Variable, tf.Variable] | None:
        """lora_down and lora_up of an adapted layer."""
        return (self.lora_down, self.lora_up) if self._adapted else None

    @property
    def _adapted(self) -> bool:
        return self._scale != 0 and not _without_adapters.get()

    def merged(self) -> Tensor | None:
        """Returns the kernel with the adapter in it, or None for a layer without one."""
        if not self._adapted:
            return None
        return self.kernel + self._scale * tf.matmul(self.lora_down, self.lora_up)


class LayerNorm(Layer):
    """Layer normalization over the last axis."""

    def __init__(
        self,
        width: int,
        epsilon: float,
        foreign: str,
        tensorflow: tuple[str, ...] = (),
        bias: bool = True,
    ) -> None:
        """Makes a scale of ones and a bias of zeros; without `bias` it is None.

        `tensorflow` holds names of the layer in TensorFlow's releases.
        """
        super().__init__()
        self._epsilon = epsilon
        self.bias: tf.Variable | None = None
        for name, value, now, then in (
            ("scale", tf.ones([width]), "weight", "gamma"),
            *([("bias", tf.zeros([width]), "bias", "beta")] if bias else []),
        ):
            paths = tuple(f"{path}/{then}" for path in tensorflow)
            names = Foreign((f"{foreign}.{now}", f"{foreign}.{then}"), tensorflow=paths)
            self._add(name, value, names)

    def __call__(self, x: Tensor) -> Tensor:
        """Normalizes float32 [..., width]."""
        offset = tf.zeros_like(self.scale) if self.bias is None else self.bias
        return ops.layer_norm(x, self.scale, offset, self._epsilon)


class Bias(Layer):
    """A vector that is added to logits."""

    def __init__(self, width: int, foreign: tuple[str, ...]) -> None:
        """Makes zeros."""
        super().__init__()
        self._add("bias", tf.zeros([width]), Foreign(foreign))
