"""Stochastic gradient descent with momentum."""

from __future__ import annotations

import tensorflow as tf

from gorbit_export.optimizers.base import Optimizer, read
from gorbit_export.task import Hyperparameter

Tensor = tf.Tensor


class SGD(Optimizer):
    """Stochastic gradient descent with momentum (Sutskever et al. 2013), as Keras has it.

    theta <- theta - lr * weight_decay * theta
    m     <- momentum * m - lr * g
    theta <- theta + m                         classical momentum (nesterov 0)
    theta <- theta + momentum * m - lr * g     Nesterov's (nesterov 1)
    """

    name = "sgd"
    slots = ("m",)
    elementwise = True

    def __init__(self) -> None:
        """Uses a momentum of 0.9 by default."""
        self.hyperparameters = [
            Hyperparameter("momentum", 0.9, "decay of the sum of steps; 0 is off", below=1.0),
            Hyperparameter(
                "nesterov",
                0.0,
                "1 for Nesterov's momentum, 0 for the classical; a number between mixes both",
                below=1.0 + 1e-6,
            ),
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
        momentum, nesterov = hyperparameters["momentum"], hyperparameters["nesterov"]
        step = gradient * (gradient_scale * learning_rate)
        m = momentum * read(slots["m"]) - step
        tf.raw_ops.AssignVariableOp(resource=slots["m"], value=m)
        ahead = m + nesterov * (momentum * m - step - m)
        value = read(variable)
        value -= value * (learning_rate * weight_decay)
        tf.raw_ops.AssignVariableOp(resource=variable, value=value + ahead)
