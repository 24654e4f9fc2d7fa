"""LAMB."""

from __future__ import annotations

import tensorflow as tf

from gorbit_export.optimizers.base import Optimizer, correction, read
from gorbit_export.task import Hyperparameter

Tensor = tf.Tensor


class LAMB(Optimizer):
    """LAMB: algorithm 2 of You et al. (2020), for large batches.

    Adam's direction, weight decay included, is scaled to the norm of each variable:

    u     = m_hat / (sqrt(v_hat) + epsilon) + weight_decay * theta
    theta <- theta - lr * ratio * u,   ratio = |theta| / |u|, or 1 if either norm is 0

    m_hat = m / (1 - beta_1^t), v_hat = v / (1 - beta_2^t) as in AdamW. Keras' Lamb is the same
    but for the decay, which it applies before and outside of the ratio. As in the authors' code,
    variables without weight decay, which are biases and norms, are scaled as well.
    """

    name = "lamb"
    slots = ("m", "v")

    def __init__(self) -> None:
        """Uses the constants of the paper as defaults."""
        self.hyperparameters = [
            Hyperparameter("beta_1", 0.9, "decay of the first moment", below=1.0),
            Hyperparameter("beta_2", 0.999, "decay of the second moment", below=1.0),
            Hyperparameter("epsilon", 1e-6, "added to the root of the second moment"),
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
        beta_1, beta_2 = hyperparameters["beta_1"], hyperparameters["beta_2"]
        g = gradient * gradient_scale
        m, v, value = read(slots["m"]), read(slots["v"]), read(variable)
        m += (g - m) * (1 - beta_1)
        v += (tf.square(g) - v) * (1 - beta_2)
        tf.raw_ops.AssignVariableOp(resource=slots["m"], value=m)
        tf.raw_ops.AssignVariableOp(resource=slots["v"], value=v)
        m_hat, v_hat = m / correction(beta_1, iteration), v / correction(beta_2, iteration)
        u = m_hat / (tf.sqrt(v_hat) + hyperparameters["epsilon"])
        u += value * weight_decay
        old, new = tf.norm(value), tf.norm(u)
        ratio = tf.where((old > 0) & (new > 0), old / tf.where(new > 0, new, 1.0), 1.0)
        tf.raw_ops.AssignVariableOp(resource=variable, value=value - u * (learning_rate * ratio))
