"""Muon."""

from __future__ import annotations

import re

import tensorflow as tf

from gorbit_export.optimizers.adamw import AdamW
from gorbit_export.optimizers.base import Rule, read
from gorbit_export.task import Hyperparameter

Tensor = tf.Tensor

_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
"""Coefficients of Jordan et al.; they maximize the slope at 0."""
_ITERATIONS = 5
_OTHERS = re.compile(r"embedding|classifier|(^|[/_])head")
"""Matches paths of matrices that AdamW updates."""


class Muon(AdamW):
    """Muon (Jordan et al. 2024) for matrices, AdamW for the rest.

    The momentum of a matrix is made nearly orthogonal by five Newton-Schulz iterations, and
    scaled as Liu et al. (2025) do, so that learning rate and weight decay are those of AdamW:

    m     <- momentum * m + g
    u     = orthogonal(g + momentum * m)
    theta <- theta - lr * (0.2 * sqrt(max(rows, columns)) * u + weight_decay * theta)

    orthogonal(x): x <- x / (|x| + 1e-7), and then five times
        a = x x^T, x <- 3.4445 x + (-4.775 a + 2.0315 a a) x

    Embeddings, heads, vectors and everything that is no matrix are updated by AdamW.
    """

    name = "muon"

    def __init__(self) -> None:
        """Uses the constants of the papers as defaults."""
        super().__init__()
        self.hyperparameters.append(
            Hyperparameter("momentum", 0.95, "decay of the momentum of matrices", below=1.0)
        )
        self._matrix = _Matrix()

    def rule(self, path: str, shape: tuple[int, ...]) -> Rule:
        """See Optimizer."""
        matrix = len(shape) == 2 and not _OTHERS.search(path)
        return self._matrix if matrix else self


class _Matrix(Rule):
    """Updates a matrix by its orthogonalized momentum."""

    function = "update_matrix"
    slots = ("m",)

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
        g, momentum = gradient * gradient_scale, hyperparameters["momentum"]
        m = momentum * read(slots["m"]) + g
        tf.raw_ops.AssignVariableOp(resource=slots["m"], value=m)
        u = _orthogonal(g + momentum * m)
        value = read(variable)
        longer = tf.cast(tf.reduce_max(tf.shape(value)), tf.float32)
        value -= value * (learning_rate * weight_decay)
        value -= u * (learning_rate * 0.2 * tf.sqrt(longer))
        tf.raw_ops.AssignVariableOp(resource=variable, value=value)


def _orthogonal(x: Tensor) -> Tensor:
    """Makes a matrix nearly orthogonal: its singular values become about 1."""
    shape = tf.shape(x)
    tall = shape[0] > shape[1]
    # The products with the shorter side outside are the cheaper ones.
    x = tf.cond(tall, lambda: tf.transpose(x), lambda: x)
    x /= tf.norm(x) + 1e-7
    a, b, c = _POLYNOMIAL
    for _ in range(_ITERATIONS):
        square = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * square + c * tf.matmul(square, square), x)
    return tf.cond(tall, lambda: tf.transpose(x), lambda: x)
