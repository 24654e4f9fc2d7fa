"""Lion."""

from __future__ import annotations

import tensorflow as tf

from gorbit_export.optimizers.base import Optimizer, read
from gorbit_export.task import Hyperparameter

Tensor = tf.Tensor


class Lion(Optimizer):
    """Lion: algorithm 2 of Chen et al. (2023). Its state is half of Adam's.

    theta <- theta - lr * (sign(beta_1 * m + (1 - beta_1) * g) + weight_decay * theta)
    m     <- beta_2 * m + (1 - beta_2) * g

    Every element moves by the learning rate, so that should be 3 to 10 times smaller than for
    AdamW, and the weight decay as many times larger.
    """

    name = "lion"
    slots = ("m",)
    elementwise = True

    def __init__(self) -> None:
        """Uses the constants of the paper as defaults."""
        self.hyperparameters = [
            Hyperparameter("beta_1", 0.9, "weight of the past in the direction", below=1.0),
            Hyperparameter("beta_2", 0.99, "decay of the moment", below=1.0),
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
        """See Rule."""
        g = gradient * gradient_scale
        m, value = read(slots["m"]), read(variable)
        direction = tf.sign(m + (g - m) * (1 - hyperparameters["beta_1"]))
        value -= value * (learning_rate * weight_decay)
        tf.raw_ops.AssignVariableOp(resource=variable, value=value - direction * learning_rate)
        m += (g - m) * (1 - hyperparameters["beta_2"])
        tf.raw_ops.AssignVariableOp(resource=slots["m"], value=m)
