"""Adafactor."""

from __future__ import annotations

import tensorflow as tf

from gorbit_export.optimizers.base import Optimizer, Rule, read
from gorbit_export.task import Hyperparameter

Tensor = tf.Tensor


class Adafactor(Optimizer):
    """Adafactor (Shazeer & Stern 2018), algorithms 4 and 5, with the learning rate that is given.

    Of a matrix it keeps the means of the squared gradient over rows and over columns, r and c,
    instead of every element: n + m numbers instead of 2 n m for AdamW. With s = g^2 + epsilon_1
    and d = 1 - t^-decay_exponent:

    r <- d r + (1 - d) mean(s, last axis)      c <- d c + (1 - d) mean(s, last axis but one)
    v  = r c / mean(r)                         of vectors and scalars: v <- d v + (1 - d) s
    u  = g / sqrt(v)                           u <- u / max(1, rms(u) / clip_threshold)
    theta <- theta - lr * weight_decay * theta
    theta <- theta - lr * max(epsilon_2, rms(theta)) * u

    The learning rate is relative to the variable's own scale: 0.01 is a usual peak. It is Keras'
    Adafactor with relative_step=False, which keeps a full-size v as well.
    """

    name = "adafactor"
    slots = ("v",)

    def __init__(self) -> None:
        """Uses the constants of the paper as defaults."""
        self.hyperparameters = [
            Hyperparameter(
                "decay_exponent", 0.8, "the second moment decays by 1 - step^-decay_exponent"
            ),
            Hyperparameter("epsilon_1", 1e-30, "added to the squared gradient"),
            Hyperparameter("epsilon_2", 1e-3, "the least scale of a variable"),
            Hyperparameter(
                "clip_threshold", 1.0, "root mean square that an update is clipped to", 1e-6
            ),
        ]
        self._factored = _Factored()

    def rule(self, path: str, shape: tuple[int, ...]) -> Rule:
        """See Optimizer: matrices, and stacks of them, are factored."""
        return self._factored if len(shape) >= 2 else self

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
        """See Rule."""
        g = gradient * gradient_scale
        rest = _rest(iteration, hyperparameters)
        v = _toward(slots["v"], tf.square(g) + hyperparameters["epsilon_1"], rest)
        _move(variable, g * tf.math.rsqrt(v), learning_rate, weight_decay, hyperparameters)


class _Factored(Rule):
    """Updates a matrix from the means of its rows and columns."""

    function = "update_factored"
    slots = ("r", "c")

    def slot_shape(self, slot: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """See Rule."""
        return shape[:-1] if slot == "r" else shape[:-2] + shape[-1:]

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
        """See Rule."""
        g = gradient * gradient_scale
        rest = _rest(iteration, hyperparameters)
        square = tf.square(g) + hyperparameters["epsilon_1"]
        r = _toward(slots["r"], tf.reduce_mean(square, -1), rest)
        c = _toward(slots["c"], tf.reduce_mean(square, -2), rest)
        # The roots are taken before the product: r and c may be near epsilon_1, and their product
        # would be 0.
        rows = tf.math.rsqrt(r / tf.reduce_mean(r, -1, keepdims=True))
        u = g * tf.expand_dims(rows, -1) * tf.expand_dims(tf.math.rsqrt(c), -2)
        _move(variable, u, learning_rate, weight_decay, hyperparameters)


def _move(
    variable: Tensor,
    u: Tensor,
    learning_rate: Tensor,
    weight_decay: Tensor,
    hyperparameters: dict[str, Tensor],
) -> None:
    """Clips the update `u` and applies it."""
    u /= tf.maximum(1.0, _rms(u) / hyperparameters["clip_threshold"])
    value = read(variable)
    value -= value * (learning_rate * weight_decay)
    rate = learning_rate * tf.maximum(hyperparameters["epsilon_2"], _rms(value))
    tf.raw_ops.AssignVariableOp(resource=variable, value=value - u * rate)


def _rest(iteration: Tensor, hyperparameters: dict[str, Tensor]) -> Tensor:
    """Returns 1 - d, the weight of the new in the second moment."""
    return tf.pow(tf.cast(iteration, tf.float32), -hyperparameters["decay_exponent"])


def _toward(slot: Tensor, new: Tensor, weight: Tensor) -> Tensor:
    """Moves a slot toward `new`, and returns it."""
    old = read(slot)
    # At the first step the weight is 1: the value is `new`, exactly.
    value = tf.where(weight < 1, old + (new - old) * weight, new)
    tf.raw_ops.AssignVariableOp(resource=slot, value=value)
    return value


def _rms(x: Tensor) -> Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(x)))
