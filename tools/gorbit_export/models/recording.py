"""Reads and assignments of variables, held back while a pass is traced.

Keras 3 has StatelessScope for its own variables. This is the same for a tf.Variable: reads
give the value last assigned, assignments change no variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import tensorflow as tf
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import resource_variable_ops

Tensor = tf.Tensor
_Base = resource_variable_ops.ResourceVariable


class Recording:
    """The values of variables within `recording`."""

    def __init__(self, values: Iterable[tuple[tf.Variable, Tensor]]) -> None:
        """Begins with given values."""
        self._values = {id(variable): (variable, value) for variable, value in values}
        self._assigned: set[int] = set()

    def holds(self, variable: tf.Variable) -> bool:
        """Whether the variable's assignments are held back."""
        return id(variable) in self._values

    def get(self, variable: tf.Variable) -> Tensor:
        """Returns the value last assigned, or the first one."""
        return self._values[id(variable)][1]

    def set(self, variable: tf.Variable, value: Any) -> Tensor:
        """Assigns a value."""
        value = tf.ensure_shape(tf.cast(value, variable.dtype), variable.shape)
        self._values[id(variable)] = (variable, value)
        self._assigned.add(id(variable))
        return value

    def assigned(self, variable: tf.Variable) -> bool:
        """Whether the variable was assigned."""
        return id(variable) in self._assigned


@contextlib.contextmanager
def recording(values: Iterable[tuple[tf.Variable, Tensor]]) -> Iterator[Recording]:
    """Holds back the assignments of the given variables, and gives them the given values."""
    record = Recording(values)

    def method(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(_Base, name)

        def call(self: tf.Variable, *args: Any, **kwargs: Any) -> Any:
            held = record.holds(self)
            return body(self, *args, **kwargs) if held else original(self, *args, **kwargs)

        return call

    def read(variable: tf.Variable, *args: Any, **kwargs: Any) -> Tensor:
        return record.get(variable)

    def assign(variable: tf.Variable, value: Any, *args: Any, **kwargs: Any) -> Tensor:
        return record.set(variable, value)

    def add(variable: tf.Variable, delta: Any, *args: Any, **kwargs: Any) -> Tensor:
        return record.set(variable, record.get(variable) + tf.cast(delta, variable.dtype))

    def subtract(variable: tf.Variable, delta: Any, *args: Any, **kwargs: Any) -> Tensor:
        return record.set(variable, record.get(variable) - tf.cast(delta, variable.dtype))

    def gather(variable: tf.Variable, indices: Any, *args: Any, **kwargs: Any) -> Tensor:
        return tf.gather(record.get(variable), indices)

    bodies = {
        "_read_variable_op": read,
        "value": read,
        "read_value": read,
        "sparse_read": gather,
        "assign": assign,
        "assign_add": add,
        "assign_sub": subtract,
    }
    with contextlib.ExitStack() as stack:
        for name, body in bodies.items():
            stack.enter_context(replaced(_Base, name, method(name, body)))
        yield record


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute for a while."""
    missing = object()
    old = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if old is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, old)


@contextlib.contextmanager
def constants() -> Iterator[None]:
    """Copies tensors that a pass takes from outside, such as statistics, into its graph.

    TensorFlow makes them arguments of the function, which an export has no values for.
    """
    original = func_graph.FuncGraph.capture
    copies: dict[tuple[int, int], tuple[Any, Any, Tensor]] = {}

    def capture(self: Any, tensor: Any, name: Any = None, shape: Any = None) -> Any:
        if not isinstance(tensor, tf.__internal__.EagerTensor) or tensor.dtype in (
            tf.resource,
            tf.variant,
        ):
            return original(self, tensor, name, shape)
        key = (id(self), id(tensor))
        if key not in copies:
            with self.as_default(), tf.control_dependencies(None):
                copies[key] = (self, tensor, tf.constant(tensor.numpy(), tensor.dtype))
        return copies[key][2]

    with replaced(func_graph.FuncGraph, "capture", capture):
        yield
