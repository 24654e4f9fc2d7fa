"""The update of one variable against the paper's formula, and against Keras."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import scalars

from gorbit_export.optimizers import AdamW, clip_scale

SHAPE = (5, 7)


def gradients(steps: int) -> list[np.ndarray]:
    """Makes gradients of wide range, with rows that are zero in some or all steps."""
    rng = np.random.default_rng(5)
    out = []
    for _ in range(steps):
        g = (rng.normal(size=SHAPE) * 10.0 ** rng.integers(-6, 3, SHAPE)).astype(np.float32)
        g[rng.random(SHAPE[0]) < 0.5] = 0
        g[0] = 0
        out.append(g)
    return out


class Updated:
    """A variable with its slots, updated as in an export."""

    def __init__(self, value: np.ndarray):
        self.adamw = AdamW()
        self.variable = tf.Variable(value)
        self.slots = {name: tf.Variable(tf.zeros(value.shape)) for name in self.adamw.slots}

    @tf.function(autograph=False)
    def _update(self, gradient, iteration, learning_rate, weight_decay, hyperparameters):
        slots = {name: slot.handle for name, slot in self.slots.items()}
        self.adamw.update(
            self.variable.handle,
            slots,
            gradient * 4.0,
            tf.constant(0.25),
            iteration,
            learning_rate,
            weight_decay,
            hyperparameters,
        )

    def step(self, t: int, gradient, learning_rate: float, weight_decay: float, **h: float):
        rates = tf.constant(learning_rate), tf.constant(weight_decay)
        self._update(tf.constant(gradient), tf.constant(t, tf.int64), *rates, scalars(**h))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(
    "h",
    [
        {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8},
        {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-2},
        {"beta_1": 0.0, "beta_2": 0.9999, "epsilon": 1e-6},
    ],
)
def test_adamw_is_the_papers(h, weight_decay):
    start = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    got = Updated(start)
    # The graph's inputs are float32; everything after that is exact here.
    b1, b2, eps = (float(np.float32(h[name])) for name in ("beta_1", "beta_2", "epsilon"))
    decay = float(np.float32(weight_decay))
    theta, m, v = start.astype(np.float64), np.zeros(SHAPE), np.zeros(SHAPE)
    largest = np.zeros(SHAPE)
    for t, g in enumerate(gradients(20), 1):
        lr = 1e-2 / t
        got.step(t, g, lr, weight_decay, **h)
        lr, g = float(np.float32(lr)), g.astype(np.float64)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        theta = theta - lr * (m_hat / (np.sqrt(v_hat) + eps) + decay * theta)
        largest = np.maximum(largest, np.abs(g))
        assert np.all(np.abs(got.slots["m"] - m) <= 1e-6 * largest)
        np.testing.assert_allclose(got.slots["v"], v, rtol=5e-6)
        np.testing.assert_allclose(got.variable, theta, rtol=1e-6, atol=2e-7)
    # Only decay changes a row that never had a gradient.
    assert np.all((got.variable.numpy()[0] != start[0]) == (weight_decay > 0))
    assert np.all(got.variable.numpy()[1:] != start[1:])


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_is_keras_with_a_small_epsilon(weight_decay):
    """Keras adds epsilon to the uncorrected root, which differs only if epsilon matters."""
    start = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    got, want = Updated(start), tf.keras.Variable(start)
    h = {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-20}
    keras = tf.keras.optimizers.AdamW(1e-2, weight_decay, **h)
    rng = np.random.default_rng(2)
    for t in range(1, 21):
        g = rng.normal(size=SHAPE).astype(np.float32)
        got.step(t, g, 1e-2, weight_decay, **h)
        keras.apply([tf.constant(g)], [want])
        np.testing.assert_allclose(got.variable, want.numpy(), rtol=2e-5, atol=2e-6)


def test_scalar_and_empty_shapes():
    for value in (np.float32(1), np.zeros((0, 3), np.float32)):
        updated = Updated(value)
        updated.step(1, value, 0.5, 0.0, beta_1=0.9, beta_2=0.999, epsilon=0.0)
        np.testing.assert_allclose(updated.variable, value - np.float32(0.5), rtol=1e-6)


@pytest.mark.parametrize("clip_norm", [-1.0, 0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("norm", [0.0, 0.3, 1.0, 30.0])
def test_clip_scale_is_tensorflows(norm, clip_norm):
    got = float(clip_scale(tf.constant(norm), tf.constant(clip_norm)))
    if clip_norm <= 0:
        assert got == 1
        return
    (clipped,), _ = tf.clip_by_global_norm([tf.constant([norm])], clip_norm)
    np.testing.assert_allclose(got * norm, clipped[0], rtol=1e-6)
