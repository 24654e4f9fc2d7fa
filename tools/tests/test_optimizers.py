"""Optimizers against Keras over ten steps, and against their papers."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import scalars

from gorbit_export import __main__, optimizers

SHAPES = {"dense/kernel": (6, 9), "tall/kernel": (9, 4), "dense/bias": (7,), "scale": ()}
"""Variables by path: a wide matrix, a tall one, a vector and a scalar."""
SPARSE = (5, 7)
"""The shape of a variable some of whose rows have no gradient."""


class Updated:
    """Variables with their slots, updated as in an export."""

    def __init__(self, optimizer: optimizers.Optimizer, start: dict[str, np.ndarray]):
        self.optimizer = optimizer
        self.variables = {path: tf.Variable(value) for path, value in start.items()}
        self.rules = {p: optimizer.rule(p, value.shape) for p, value in start.items()}
        self.slots = {
            path: {
                name: tf.Variable(
                    tf.fill(rule.slot_shape(name, start[path].shape), rule.initial(name))
                )
                for name in rule.slots
            }
            for path, rule in self.rules.items()
        }
        self.defaults = {h.name: h.default for h in optimizer.hyperparameters}

    @tf.function(autograph=False)
    def _update(self, gradients, iteration, learning_rate, weight_decay, hyperparameters):
        for path, variable in self.variables.items():
            self.rules[path].update(
                variable.handle,
                {name: slot.handle for name, slot in self.slots[path].items()},
                gradients[path] * 4.0,
                tf.constant(0.25),
                iteration,
                learning_rate,
                weight_decay,
                hyperparameters,
            )

    def step(self, t: int, gradients, learning_rate: float, weight_decay: float, **h: float):
        rates = tf.constant(learning_rate), tf.constant(weight_decay)
        gradients = {path: tf.constant(g) for path, g in gradients.items()}
        self._update(gradients, tf.constant(t, tf.int64), *rates, scalars(**{**self.defaults, **h}))


def start() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {path: rng.normal(size=shape).astype(np.float32) for path, shape in SHAPES.items()}


def gradients(steps: int) -> list[dict[str, np.ndarray]]:
    """Makes gradients of different sizes; one row of the matrices never has any."""
    rng = np.random.default_rng(2)
    out = []
    for t in range(steps):
        g = {
            p: (rng.normal(size=s) * 10.0 ** (t % 3 - 1)).astype(np.float32)
            for p, s in SHAPES.items()
        }
        for value in g.values():
            if value.ndim == 2:
                value[1] = 0
        out.append(g)
    return out


def sparse_gradients(steps: int) -> list[np.ndarray]:
    """Makes gradients of wide range, with rows that are zero in some or all steps."""
    rng = np.random.default_rng(5)
    out = []
    for _ in range(steps):
        g = (rng.normal(size=SPARSE) * 10.0 ** rng.integers(-6, 3, SPARSE)).astype(np.float32)
        g[rng.random(SPARSE[0]) < 0.5] = 0
        g[0] = 0
        out.append(g)
    return out


KERAS = [
    (  # Keras adds epsilon to the uncorrected root, which differs only if epsilon matters.
        "adamw",
        {"epsilon": 1e-20},
        lambda k, wd: k.AdamW(1e-2, weight_decay=wd or 0.0, epsilon=1e-20),
    ),
    ("sgd", {}, lambda k, wd: k.SGD(1e-2, 0.9, weight_decay=wd)),
    (
        "sgd",
        {"nesterov": 1.0, "momentum": 0.8},
        lambda k, wd: k.SGD(1e-2, 0.8, True, weight_decay=wd),
    ),
    ("sgd", {"momentum": 0.0}, lambda k, wd: k.SGD(1e-2, weight_decay=wd)),
    ("lion", {}, lambda k, wd: k.Lion(1e-2, weight_decay=wd)),
    ("lamb", {}, lambda k, wd: k.Lamb(1e-2, epsilon=1e-6, weight_decay=wd)),
    ("adafactor", {}, lambda k, wd: k.Adafactor(1e-2, weight_decay=wd, relative_step=False)),
    (
        "muon",
        {"epsilon": 1e-20},
        lambda k, wd: k.Muon(1e-2, weight_decay=wd, adam_weight_decay=wd, epsilon=1e-20),
    ),
]


@pytest.mark.parametrize("weight_decay", [None, 0.1])
@pytest.mark.parametrize(
    "name, hyperparameters, make", KERAS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_ten_steps_are_those_of_keras(name, hyperparameters, make, weight_decay):
    if name == "lamb" and weight_decay:
        return  # Keras applies it outside of the ratio, the paper inside: see the test below
    got = Updated(optimizers.OPTIMIZERS[name](), start())
    keras = make(tf.keras.optimizers, weight_decay)
    want = {
        path: tf.keras.Variable(value, name=path.replace("/", "_"))
        for path, value in start().items()
    }
    for t, g in enumerate(gradients(10), 1):
        got.step(t, g, 1e-2, weight_decay or 0.0, **hyperparameters)
        keras.apply([tf.constant(g[p]) for p in SHAPES], [want[p] for p in SHAPES])
        for path in SHAPES:
            np.testing.assert_allclose(
                got.variables[path],
                want[path].numpy(),
                rtol=3e-5,
                atol=3e-6,
                err_msg=f"{path}, step {t}",
            )


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
    start = np.random.default_rng(1).normal(size=SPARSE).astype(np.float32)
    got = Updated(optimizers.AdamW(), {"w": start})
    # The graph's inputs are float32; everything after that is exact here.
    b1, b2, eps = (float(np.float32(h[name])) for name in ("beta_1", "beta_2", "epsilon"))
    decay = float(np.float32(weight_decay))
    theta, m, v = start.astype(np.float64), np.zeros(SPARSE), np.zeros(SPARSE)
    largest = np.zeros(SPARSE)
    for t, g in enumerate(sparse_gradients(20), 1):
        lr = 1e-2 / t
        got.step(t, {"w": g}, lr, weight_decay, **h)
        lr, g = float(np.float32(lr)), g.astype(np.float64)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        theta = theta - lr * (m_hat / (np.sqrt(v_hat) + eps) + decay * theta)
        largest = np.maximum(largest, np.abs(g))
        assert np.all(np.abs(got.slots["w"]["m"] - m) <= 1e-6 * largest)
        np.testing.assert_allclose(got.slots["w"]["v"], v, rtol=5e-6)
        np.testing.assert_allclose(got.variables["w"], theta, rtol=1e-6, atol=2e-7)
    # Only decay changes a row that never had a gradient.
    assert np.all((got.variables["w"].numpy()[0] != start[0]) == (weight_decay > 0))
    assert np.all(got.variables["w"].numpy()[1:] != start[1:])


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999, 0.999999])
def test_the_correction_is_that_of_float64(beta):
    beta, t = np.float32(beta), np.arange(1, 5000)
    t = np.concatenate([t, np.geomspace(5000, 1e7, 5000).astype(np.int64)])
    with np.errstate(divide="ignore"):
        want = -np.expm1(t * np.log(np.float64(beta)))
    for compiled in (False, True):
        correction = tf.function(optimizers.correction, jit_compile=compiled)
        np.testing.assert_allclose(correction(tf.constant(beta), tf.constant(t)), want, rtol=1e-6)


def test_an_update_of_ones_own_is_not_elementwise_unless_it_says_so():
    class Own(optimizers.AdamW):
        def update(self, *args, **kwargs):
            super().update(*args, **kwargs)

    class Said(Own):
        elementwise = True

    kinds = [*optimizers.OPTIMIZERS.values(), Own, Said]
    found = {kind.__name__ for kind in kinds if kind.elementwise}
    assert found == {"AdamW", "SGD", "Lion", "Muon", "Said"}
    assert not optimizers.Muon().rule("model/kernel", (2, 2)).elementwise


def test_scalar_and_empty_shapes():
    for value in (np.float32(1), np.zeros((0, 3), np.float32)):
        updated = Updated(optimizers.AdamW(), {"w": value})
        updated.step(1, {"w": value}, 0.5, 0.0, beta_1=0.9, beta_2=0.999, epsilon=0.0)
        np.testing.assert_allclose(updated.variables["w"], value - np.float32(0.5), rtol=1e-6)


def test_lamb_is_the_papers_with_weight_decay():
    got, decay, rate = Updated(optimizers.LAMB(), start()), 0.1, 1e-2
    theta = {p: v.astype(np.float64) for p, v in start().items()}
    m = {p: np.zeros(s) for p, s in SHAPES.items()}
    v = {p: np.zeros(s) for p, s in SHAPES.items()}
    for t, gs in enumerate(gradients(10), 1):
        got.step(t, gs, rate, decay)
        for p, g in gs.items():
            m[p], v[p] = 0.9 * m[p] + 0.1 * g, 0.999 * v[p] + 0.001 * g.astype(np.float64) ** 2
            u = m[p] / (1 - 0.9**t) / (np.sqrt(v[p] / (1 - 0.999**t)) + 1e-6) + decay * theta[p]
            ratio = np.linalg.norm(theta[p]) / np.linalg.norm(u)
            theta[p] = theta[p] - rate * ratio * u
            np.testing.assert_allclose(got.variables[p], theta[p], rtol=2e-5, atol=2e-6)


def test_lamb_moves_a_variable_of_zeros():
    got = Updated(optimizers.LAMB(), {"b": np.zeros(3, np.float32)})
    got.step(1, {"b": np.array([1, -1, 0], np.float32)}, 0.5, 0.1)
    np.testing.assert_allclose(got.variables["b"], [-0.5, 0.5, 0], rtol=1e-5)
    got.step(2, {"b": np.zeros(3, np.float32)}, 0.0, 0.0)
    assert np.isfinite(got.variables["b"]).all()


def test_adafactor_keeps_vectors_of_a_matrix():
    rule = optimizers.Adafactor().rule("kernel", (6, 9))
    assert [rule.slot_shape(s, (6, 9)) for s in rule.slots] == [(6,), (9,)]
    assert [rule.slot_shape(s, (2, 6, 9)) for s in rule.slots] == [(2, 6), (2, 9)]


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (16, 16)])
def test_muon_makes_matrices_orthogonal(shape):
    """The first step of a matrix of zeros is the direction itself."""
    got = Updated(optimizers.Muon(), {"kernel": np.zeros(shape, np.float32)})
    g = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    got.step(1, {"kernel": g}, 1.0, 0.0)
    u = got.variables["kernel"].numpy() / (-0.2 * np.sqrt(max(shape)))
    singular = np.linalg.svd(u, compute_uv=False)
    assert singular.min() > 0.4 and singular.max() < 1.3
    left, _, right = np.linalg.svd(g, full_matrices=False)
    assert np.sum(u * (left @ right)) / np.sqrt(np.sum(u * u) * min(shape)) > 0.95


def test_muon_leaves_embeddings_and_heads_to_adamw():
    muon = optimizers.Muon()
    functions = {
        path: muon.rule(path, shape).function
        for path, shape in {
            "model/encoder/layers/0/attention/query/kernel": (8, 8),
            "model/encoder/embeddings/word/embedding": (30, 8),
            "model/classifier/kernel": (8, 2),
            "model/head/kernel": (8, 2),
            "model/encoder/layers/0/ffn/bias": (8,),
            "model/conv/kernel": (3, 3, 1, 8),
        }.items()
    }
    assert [name == "update_matrix" for name in functions.values()] == [True] + [False] * 5


def test_the_command_knows_all():
    assert tuple(optimizers.OPTIMIZERS) == __main__._OPTIMIZERS


@pytest.mark.parametrize("clip_norm", [-1.0, 0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("norm", [0.0, 0.3, 1.0, 30.0])
def test_clip_scale_is_tensorflows(norm, clip_norm):
    got = float(optimizers.clip_scale(tf.constant(norm), tf.constant(clip_norm)))
    if clip_norm <= 0:
        assert got == 1
        return
    (clipped,), _ = tf.clip_by_global_norm([tf.constant([norm])], clip_norm)
    np.testing.assert_allclose(got * norm, clipped[0], rtol=1e-6)
