"""An optimizer of the user's own class: its update_step() is called as fit calls it.

fit builds an optimizer on all trained variables and hands update_step() the variables of
TensorFlow. What it does may depend on a variable's name or number, so each variable has an
update of its own, and the slots are those that its update_step() takes.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework import func_graph

from gorbit_export.models import Refusal, rules
from gorbit_export.models import optimizer as keras_optimizers

Tensor = tf.Tensor


class UsersRule(keras_optimizers.KerasRule):
    """The update of one variable by the user's own optimizer, which holds all of them."""

    def __init__(
        self, function: str, optimizer: Any, path: str, holder: Any, slots: list[Any]
    ) -> None:
        """Takes the built optimizer, a variable and its slots."""
        self._decaying, self._any_shape = True, False
        self.function, self.shape = function, tuple(holder.shape)
        self._optimizer, self._variable = optimizer, holder
        self._schedule = keras_optimizers.schedule(optimizer)
        self._take(slots, getattr(holder, "path", path))

    def _step(
        self,
        variable: Tensor,
        slots: dict[str, Tensor],
        gradient: Tensor,
        iteration: Tensor,
        learning_rate: Tensor,
    ) -> None:
        given = keras_optimizers.proxy(self._variable, variable)
        proxies = [(slot, self._proxy(slot, slots[name])) for name, slot in self._slots.items()]
        proxies.append((self._variable, given))
        with keras_optimizers.standing_in(self._optimizer, proxies, iteration, learning_rate):
            self._optimizer.update_step(gradient, given, learning_rate)


def make(optimizer: Any, holders: dict[str, Any]) -> dict[str, UsersRule]:
    """Builds an optimizer as fit does, and returns the rule of each variable by path.

    Raises:
        Refusal: if update_step() fails, or takes a slot for several variables.
    """
    kind = type(optimizer).__name__
    if isinstance(optimizer, keras.optimizers.Nadam):
        raise Refusal(
            f"{kind} is a Nadam, which keeps one number for all variables; expected "
            "keras.optimizers.Nadam itself"
        )
    try:
        if not optimizer.built:
            optimizer.build(list(holders.values()))
        slots = _slots(optimizer, holders)
    except Exception as err:  # the user's
        raise Refusal(f"the update_step() of {kind} fails: {rules.sentence(err)}") from err
    owners: dict[int, str] = {}
    for path, taken in slots.items():
        for slot in taken:
            if (other := owners.setdefault(id(slot), path)) != path:
                raise Refusal(
                    f"{kind} keeps {slot.name} for {other} and for {path}; expected a variable "
                    "of the optimizer for each variable of the model"
                )
    return {
        path: UsersRule(f"update_{i}", optimizer, path, holder, slots[path])
        for i, (path, holder) in enumerate(holders.items())
    }


def _slots(optimizer: Any, holders: dict[str, Any]) -> dict[str, list[Any]]:
    """Finds out which variables of the optimizer update_step() takes for each of the model's."""
    own = {id(optimizer._iterations), id(optimizer._learning_rate)}
    graph = func_graph.FuncGraph("update_steps")
    found = {}
    with graph.as_default():
        scalars = [tf.compat.v1.placeholder(t, []) for t in (tf.int64, tf.float32)]
        slots = [
            (slot, keras_optimizers.proxy(slot, tf.compat.v1.placeholder(tf.resource, [])))
            for slot in optimizer.variables
            if id(slot) not in own
        ]
        for path, holder in holders.items():
            before = len(graph.get_operations())
            handle = tf.compat.v1.placeholder(tf.resource, [])
            gradient = tf.compat.v1.placeholder(tf.float32, holder.shape)
            given = keras_optimizers.proxy(holder, handle)
            proxies = [*slots, (holder, given)]
            with keras_optimizers.standing_in(optimizer, proxies, *scalars):
                optimizer.update_step(gradient, given, scalars[1])
            taken = {t.name for op in graph.get_operations()[before:] for t in op.inputs}
            found[path] = [slot for slot, standin in slots if standin.handle.name in taken]
    return found
