"""What an optimizer is: the update of one variable of any shape."""

from __future__ import annotations

import abc
from typing import Any, Callable

import tensorflow as tf

from gorbit_export.task import Hyperparameter

Tensor = tf.Tensor


class Rule(abc.ABC):
    """Updates one variable from its gradient: one graph function of an export.

    Its arguments are the handles of the variable and of its slots, so that one function
    serves all variables that it can update.
    """

    function: str = "update"
    """Name of the graph function, unlike those of the optimizer's other rules."""
    slots: tuple[str, ...]
    """Names of the float32 variables kept for each variable that the rule updates."""
    shape: tuple[int, ...] | None = None
    """The shape of the variables that the function takes; None for any shape."""
    elementwise: bool = False
    """Whether each new element of the variable and of its slots depends on the old ones and on
    the gradient at its place alone, whatever the shape, which is that of the slots. Variables
    may then be updated as one vector."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Does not inherit what is said of another update."""
        super().__init_subclass__(**kwargs)
        if "update" in vars(cls) and "elementwise" not in vars(cls):
            cls.elementwise = False

    def initial(self, slot: str) -> float:
        """Returns the number that a slot is filled with at first."""
        return 0.0

    def slot_shape(self, slot: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the slot of a variable of the given shape."""
        return shape

    @abc.abstractmethod
    def update(
        self,
        variable: Tensor,
        slots: dict[str, Tensor],
        gradient: Tensor,
        gradient_scale: Tensor,
        iteration: Tensor,
        learning_rate: Tensor,
        weight_decay: Tensor,
        hyperparameters: dict[str, Tensor],
    ) -> None:
        """Assigns the variable and its slots.

        Args:
            variable: resource handle of a float32 variable.
            slots: handles by slot name.
            gradient: gradient of the sum of losses, float32 in the variable's shape.
            gradient_scale: float32 scalar that turns it into the clipped gradient of the
                mean loss.
            iteration: int64, 1 at the first update.
            learning_rate: float32 scalar.
            weight_decay: float32 scalar, 0 for variables without decay.
            hyperparameters: scalars by name.
        """


class Constrained(Rule):
    """The update of another rule, and after it what a constraint makes of the variable."""

    def __init__(
        self, rule: Rule, constraint: Callable[[Tensor], Tensor], shape: tuple[int, ...], name: str
    ) -> None:
        """Takes the rule, and the shape of the one variable that the update is for."""
        self._rule, self._constraint = rule, constraint
        self.function, self.slots, self.shape = name, rule.slots, shape

    def initial(self, slot: str) -> float:
        """See Rule."""
        return self._rule.initial(slot)

    def slot_shape(self, slot: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """See Rule."""
        return self._rule.slot_shape(slot, shape)

    def update(self, variable: Tensor, *args: Any, **kwargs: Any) -> None:
        """See Rule."""
        self._rule.update(variable, *args, **kwargs)
        value = self._constraint(tf.ensure_shape(read(variable), self.shape))
        tf.raw_ops.AssignVariableOp(resource=variable, value=value)


class Optimizer(Rule):
    """Updates the variables of a model. A new optimizer is one subclass.

    Most have one rule for all variables and are that rule themselves. One that treats
    variables differently overrides `rule`.
    """

    name: str
    hyperparameters: list[Hyperparameter]
    """Scalars in addition to learning_rate and weight_decay, which every optimizer has. All
    rules take them."""

    scheduled: bool = False
    """Whether updates multiply the learning rate by a schedule of their own, of the iteration."""

    @property
    def defaults(self) -> dict[str, float | str]:
        """Params of a run's optimizer that runs have unless they are set, such as learning_rate."""
        return {}

    def rule(self, path: str, shape: tuple[int, ...]) -> Rule:
        """Returns what updates a variable. Rules of one `function` are one object."""
        return self


def read(handle: Tensor) -> Tensor:
    """Reads a float32 variable by its handle."""
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


def correction(beta: Tensor, iteration: Tensor) -> Tensor:
    """Returns 1 - beta^iteration, by which a moment that began with 0 is divided.

    The difference itself would lose four of float32's seven digits in the first steps at a beta
    of 0.999, and TPUs have no float64. This is right to 1e-6 of it for every iteration.
    """
    return -tf.math.expm1(tf.cast(iteration, tf.float32) * tf.math.log1p(beta - 1))


def clip_scale(norm: Tensor, clip_norm: Tensor) -> Tensor:
    """Returns the factor that clips gradients of global norm `norm` to `clip_norm`.

    It is clip_norm / max(norm, clip_norm) (Pascanu et al. 2013, as tf.clip_by_global_norm),
    or 1 if clip_norm is 0 or less.
    """
    return tf.where(clip_norm > 0, clip_norm / tf.maximum(norm, clip_norm), 1.0)
