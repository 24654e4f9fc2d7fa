"""AdamW."""

from __future__ import annotations

import tensorflow as tf

from gorbit_export.optimizers.base import Optimizer, correction, read
from gorbit_export.task import Hyperparameter

Tensor = tf.Tensor


class AdamW(Optimizer):
    """Adam with decoupled weight decay: algorithm 2 of Loshchilov & Hutter (2019).

    theta <- theta - lr * (m_hat / (sqrt(v_hat) + epsilon) + weight_decay * theta),
    m_hat = m / (1 - beta_1^t), v_hat = v / (1 - beta_2^t).
    """

    name = "adamw"
    slots = ("m", "v")
    elementwise = True

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
        root = tf.sqrt(correction(beta_2, iteration))
        value = read(variable)
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
            lr=learning_rate * (root / correction(beta_1, iteration)),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=hyperparameters["epsilon"] * root,
            grad=gradient * gradient_scale,
        )
