"""Optimizers: the update of one variable of any shape."""

from __future__ import annotations

import abc

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


class Optimizer(Rule):
    """Updates the variables of a model. A new optimizer is one subclass.

    Most have one rule for all variables and are that rule themselves. One that treats
    variables differently overrides `rule`.
    """

    name: str
    hyperparameters: list[Hyperparameter]
    """Scalars in addition to learning_rate and weight_decay, which every optimizer has. All
    rules take them."""

    def rule(self, path: str, shape: tuple[int, ...]) -> Rule:
        """Returns what updates a variable. Rules of one `function` are one object."""
        return self


class AdamW(Optimizer):
    """Adam with decoupled weight decay: algorithm 2 of Loshchilov & Hutter (2019).

    theta <- theta - lr * (m_hat / (sqrt(v_hat) + epsilon) + weight_decay * theta),
    m_hat = m / (1 - beta_1^t), v_hat = v / (1 - beta_2^t).
    """

    name = "adamw"
    slots = ("m", "v")

    def __init__(self) -> None:
        """Uses the constants of the paper as defaults."""
        self.hyperparameters = [
            Hyperparameter("beta_1", 0.9, "decay of the first moment", below=1.0),
            Hyperparameter("beta_2", 0.999, "decay of the second moment", below=1.0),
            Hyperparameter("epsilon", 1e-8, "added to the root of the second moment"),
        ]

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
        """See Optimizer."""
        beta_1, beta_2 = hyperparameters["beta_1"], hyperparameters["beta_2"]
        # In float64, because 1 - 0.999^t loses four of float32's seven digits in the first steps.
        t = tf.cast(iteration, tf.float64)
        power_1 = tf.pow(tf.cast(beta_1, tf.float64), t)
        power_2 = tf.pow(tf.cast(beta_2, tf.float64), t)
        root = tf.sqrt(1 - power_2)
        epsilon = tf.cast(hyperparameters["epsilon"], tf.float64) * root
        rate = tf.cast(learning_rate, tf.float64) * root / (1 - power_1)
        value = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.float32)
        tf.raw_ops.AssignSubVariableOp(
            resource=variable, value=value * (learning_rate * weight_decay)
        )
        # Powers of 0 turn off the kernel's own bias correction. The kernel adds epsilon
        # to sqrt(v), and the paper to sqrt(v_hat), hence the root.
        tf.raw_ops.ResourceApplyAdam(
            var=variable,
            m=slots["m"],
            v=slots["v"],
            beta1_power=0.0,
            beta2_power=0.0,
            lr=tf.cast(rate, tf.float32),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(epsilon, tf.float32),
            grad=gradient * gradient_scale,
        )


OPTIMIZERS: dict[str, type[Optimizer]] = {"adamw": AdamW}
"""Optimizers by their names on the command line."""


def clip_scale(norm: Tensor, clip_norm: Tensor) -> Tensor:
    """Returns the factor that clips gradients of global norm `norm` to `clip_norm`.

    It is clip_norm / max(norm, clip_norm) (Pascanu et al. 2013, as tf.clip_by_global_norm),
    or 1 if clip_norm is 0 or less.
    """
    return tf.where(clip_norm > 0, clip_norm / tf.maximum(norm, clip_norm), 1.0)
