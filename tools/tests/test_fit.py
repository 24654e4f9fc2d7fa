"""Exports next to Keras' fit: the same batches give the same variables."""

from __future__ import annotations

import dataclasses
import re
from typing import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from gorbit_export import Feature, Model, Refusal, export
from gorbit_export.models import task

X = Feature("x", "float32", (None, 6))
Y = Feature("y", "float32", (None, 1), label=True)
STEPS, BATCH = 4, 8


def network() -> keras.Model:
    x = keras.Input((6,), name="x")
    slow = layers.Dense(6, activation="tanh", name="slow")(x)
    fast = layers.Dense(6, activation="tanh", name="fast")(slow)
    return keras.Model(x, layers.Dense(1, name="head")(fast))


def described(optimizer: object, model: keras.Model | None = None) -> Model:
    return Model(model or network(), [X, Y], "mse", "y", ["mae"], optimizer)


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS, BATCH, 6)).astype("float32")
    return [{"x": v, "y": v[:, :1] - v[:, 1:2] * v[:, 2:3]} for v in x]


def named(made: task.ModelTask) -> dict[str, np.ndarray]:
    return {path: leaf.value.numpy() for path, leaf in made.named.variables.items()}


def assert_trains_as_fit(make: Callable[[], Model], data: list[dict] | None = None) -> None:
    """Makes a model twice, and trains one as an export and the other by fit."""
    data = data or batches()
    made, other = task.ModelTask(make()), task.ModelTask(make())
    module = export.Export(made, made.optimizer)
    made.inspect(module)
    before = named(made)
    for path, value in before.items():
        other.named.variables[path].value.assign(value)
    model, user = other.user.model, other.user
    if not getattr(model, "compiled", False) and not hasattr(model, "_is_compiled"):
        model.compile(user.optimizer, user.loss, metrics=list(user.metrics))
    defaults = made.optimizer.defaults
    scalars = {name: defaults[name] for name in ("learning_rate", "weight_decay", "clip_norm")}
    for batch in data:
        features = {"example_weights": np.ones(BATCH, "float32"), **batch}
        sums = module.train_step(
            **{name: tf.constant(v) for name, v in {**features, **scalars}.items()},
            seed=tf.constant([3, 4], tf.int64),
        )
        y = {name: v for name, v in batch.items() if name != "x"}
        y = y["y"] if list(y) == ["y"] else y
        loss = model.fit(batch["x"], y, BATCH, shuffle=False, verbose=0).history["loss"][0]
        np.testing.assert_allclose(sums["loss_sum"] / sums["weight_sum"], loss, rtol=1e-5)
    after = named(other)
    moved = max(np.abs(after[path] - before[path]).max() for path in after)
    for path, value in named(made).items():
        np.testing.assert_allclose(value, after[path], atol=1e-4 * moved, err_msg=path)
    assert moved > 1e-4
    sums = module.evaluate(**{name: tf.constant(v) for name, v in features.items()})
    got = made.results(sums) if made.metrics else {}
    want = model.evaluate(batch["x"], y, BATCH, verbose=0, return_dict=True)
    for name, value in {**got, "loss": sums["loss_sum"] / sums["weight_sum"]}.items():
        theirs = want.get(name) or next(v for k, v in want.items() if k.endswith(f"_{name}"))
        np.testing.assert_allclose(value, theirs, rtol=1e-5, err_msg=name)


def refused(user: Model) -> str:
    """Returns the message with which a model is refused."""
    with pytest.raises(Refusal) as error:
        made = task.ModelTask(user)
        made.inspect(export.Export(made, made.optimizer))
    return str(error.value)


class Head(keras.Model):
    """Says which variables it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = layers.Dense(8, activation="tanh"), layers.Dense(1)

    def call(self, x):
        return self.head(self.body(x))

    @property
    def trainable_weights(self):
        return self.head.trainable_weights


def test_a_model_says_which_variables_it_trains():
    assert_trains_as_fit(lambda: described(keras.optimizers.Adam(1e-2), Head()))
    made = task.ModelTask(described("adamw", Head()))
    assert "Head trains what its own trainable_weights lists: 2 of 4 variables" in made.notes


class Centered(keras.optimizers.SGD):
    """Takes the mean from gradients, and its own rate."""

    def update_step(self, gradient, variable, learning_rate):
        if len(gradient.shape) > 1:
            gradient -= ops.mean(gradient, axis=0, keepdims=True)
        super().update_step(gradient, variable, 0.5 * self.learning_rate)


class Path(keras.optimizers.SGD):
    """Looks at what fit gives it, a tf.Variable, which has no path."""

    def update_step(self, gradient, variable, learning_rate):
        slow = "slow" in getattr(variable, "path", "") or "fast/kernel" in variable.name
        super().update_step(gradient, variable, learning_rate * (0.1 if slow else 1.0))


class Deep(keras.optimizers.Optimizer):
    """A rate by the number of the variable, a slot of another shape, a factor without config."""

    def __init__(self, learning_rate=0.1, factor=1.0):
        super().__init__(learning_rate)
        self.factor = factor

    def build(self, variables):
        super().build(variables)
        self.sizes = [self.add_variable((), name="size") for _ in variables]

    def update_step(self, gradient, variable, learning_rate):
        i = self._get_variable_index(variable)
        self.assign(self.sizes[i], 0.5 * self.sizes[i] + ops.mean(ops.abs(gradient)))
        rate = learning_rate * self.factor * (i + 1) / len(self.sizes)
        self.assign_sub(variable, rate * gradient / (self.sizes[i] + 1e-2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Centered(0.1, momentum=0.9),
        lambda: Path(0.1),
        lambda: Deep(0.01, factor=0.5),
    ],
)
def test_update_steps_of_the_users(make):
    assert_trains_as_fit(lambda: described(make()))


class Elsewhere(keras.optimizers.SGD):
    """Reads the model in update_step()."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient * self._trainable_variables[0][0, 0], variable, learning_rate)


class Shared(keras.optimizers.SGD):
    """Keeps one slot for all variables."""

    def build(self, variables):
        super().build(variables)
        self.count = self.add_variable((), name="count")

    def update_step(self, gradient, variable, learning_rate):
        self.assign_add(self.count, 1.0)
        super().update_step(gradient / self.count, variable, learning_rate)


class Noisy(keras.optimizers.SGD):
    """Draws in update_step()."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient + tf.random.normal(gradient.shape), variable, learning_rate)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Elsewhere, "the update of model/fast/bias takes slow/kernel:0 from outside; expected an "),
        (Shared, "Shared keeps count for model/slow/kernel and for model/slow/bias; expected a v"),
        (Noisy, "the update of model/fast/bias draws random numbers with RandomStandardNorm"),
    ],
)
def test_update_steps_that_an_export_cannot_have(kind, message):
    assert refused(described(kind())).startswith(message)


def overriding(base: type, method: str, value: object = lambda self, *_: None) -> object:
    return type("Mine", (base,), {method: value})


class Named(keras.Model):
    """Holds layers under other names than theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = layers.Dense(6, activation="tanh", name="first")
        self.first = layers.Dense(6, activation="tanh", name="second")
        self.out = layers.Dense(1, name="last")

    def call(self, x):
        return self.out(self.first(self.body(x)))


OF_MODELS = (
    *("test_step", "predict_step", "compute_loss", "compute_metrics", "get_metrics_result"),
    *("_aggregate_additional_loss", "make_train_function", "fit"),
)
OF_OPTIMIZERS = (
    *("apply", "apply_gradients", "_apply_weight_decay", "_clip_gradients", "scale_loss"),
    *("_backend_update_step", "_filter_empty_gradients", "_get_current_learning_rate"),
    *("_update_model_variables_moving_average", "finalize_variable_values"),
)


@pytest.mark.parametrize(
    ("field", "base", "methods"),
    [
        ("model", Named, OF_MODELS),
        ("optimizer", keras.optimizers.SGD, OF_OPTIMIZERS),
        ("loss", keras.losses.MeanSquaredError, ["__call__"]),
    ],
)
def test_methods_that_an_export_does_not_call(field, base, methods):
    for method in methods:
        own = type("Mine", (base,), {method: lambda self, *_: 0.1})()
        user = dataclasses.replace(described("sgd"), **{field: own})
        assert re.match(
            rf"Mine has an? {method} of its own, which gorbit does not call; expected ",
            refused(user),
        )


class Unweighted(keras.metrics.Metric):
    """Does not look at the weights."""

    def __init__(self) -> None:
        super().__init__(name="size")
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, labels, outputs, sample_weight=None):
        self.total.assign_add(ops.sum(ops.abs(outputs)))
        self.count.assign_add(ops.cast(ops.shape(outputs)[0], "float32"))

    def result(self):
        return self.total / self.count


def test_a_metric_that_counts_what_fills_a_batch():
    message = refused(Model(network(), [X, Y], "mse", "y", [Unweighted()]))
    assert message == (
        "metric size counts examples of weight 0, which fill batches; expected an update_state() "
        "that heeds its sample_weight"
    )


def excluding(**exclusions: list[str]) -> keras.optimizers.Optimizer:
    optimizer = keras.optimizers.AdamW(1e-2, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(**exclusions)
    return optimizer


@pytest.mark.parametrize(
    ("make", "model"),
    [
        (lambda: excluding(var_names=["fast/", "bias"]), network),
        (lambda: keras.optimizers.Muon(1e-2), network),
        (lambda: keras.optimizers.Muon(1e-2, weight_decay=0.2, adam_weight_decay=0.4), network),
        (lambda: keras.optimizers.Muon(1e-2, weight_decay=None, adam_weight_decay=0.4), network),
        (lambda: keras.optimizers.Muon(1e-2, weight_decay=0.4, adam_weight_decay=None), network),
        (lambda: keras.optimizers.Muon(1e-2, exclude_layers=["first"]), Named),
    ],
)
def test_which_variables_an_optimizer_treats_otherwise(make, model):
    assert_trains_as_fit(lambda: described(make(), model()))


def alone(optimizer: object = "adam", **more: object) -> Model:
    model = network()
    model.compile(optimizer, **more)
    return Model(model, [X, Y])


def pair(**more: object) -> Model:
    x = keras.Input((6,), name="x")
    left, right = layers.Dense(1, name="left")(x), layers.Dense(2, name="right")(x)
    model = keras.Model(x, [left, right])
    model.compile(keras.optimizers.SGD(0.1), **more)
    labels = [
        Feature("right", "float32", (None, 2), label=True),
        Feature("left", "float32", (None, 1), label=True),
    ]
    return Model(model, [X, *labels])


def legacy() -> Model:
    tf_keras = pytest.importorskip("tf_keras")
    model = tf_keras.Sequential([tf_keras.Input((6,)), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.RMSprop(0.02), "mae", ["mse"], weighted_metrics=["mape"])
    return Model(model, [X, Y])


MEAN = keras.metrics.RootMeanSquaredError


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (
            lambda: alone(loss="mse", metrics=["mae"], weighted_metrics=[MEAN(name="root")]),
            "loss mse of y, metrics [mae, RootMeanSquaredError], optimizer Adam",
        ),
        (
            lambda: alone(keras.optimizers.Muon(1e-2), loss=[keras.losses.Huber()]),
            "loss Huber of y, optimizer Muon",
        ),
        (
            lambda: pair(
                loss={"left": "mse", "right": "mae"},
                loss_weights={"left": 0.5, "right": 2.0},
                metrics={"left": "mape"},
                weighted_metrics={"left": [MEAN(name="left_root")]},
            ),
            "loss {left: mse, right: mae} of {left: left, right: right}, loss_weights "
            "{left: 0.5, right: 2.0}, metrics {left: [mape, RootMeanSquaredError]}, optimizer SGD",
        ),
        (
            lambda: pair(loss=["mse", "mae"], loss_weights=[1.0, 3.0], metrics=["mae", "mse"]),
            "loss [mse, mae] of {left: left, right: right}, loss_weights [1.0, 3.0], metrics "
            "[[mae], [mse]], optimizer SGD",
        ),
        (legacy, "loss mae of y, metrics [mse, mape], optimizer RMSprop"),
    ],
)
def test_what_a_model_was_compiled_with(make, note):
    assert task.ModelTask(make()).notes[0] == f"taken from compile(): {note}"
    data = batches()
    if len(make().features) == 3:
        data = [{"x": b["x"], "left": b["y"], "right": b["x"][:, :2]} for b in data]
    assert_trains_as_fit(make, data)


def test_what_a_model_was_not_compiled_with():
    weight = Feature("w", "float32", (None,), role="weight")
    user = alone(loss="mse", metrics=["mae"])
    notes = task.ModelTask(dataclasses.replace(user, features=[X, Y, weight])).notes
    assert (
        "all metrics are weighted by w; Keras weighs those of compile(weighted_metrics=) alone"
        in notes
    )
    made = task.ModelTask(dataclasses.replace(user, loss="mae", labels="y", optimizer="sgd"))
    assert (made.user.loss, made.optimizer.name) == ("mae", "keras-sgd")
    assert made.notes[0] == "taken from compile(): metrics [mae]"
    labels = [Y, Feature("z", "float32", (None, 1), label=True)]
    assert refused(dataclasses.replace(user, features=[X, *labels])) == (
        "the model is compiled with a loss, and build() does not say of which feature; expected "
        "labels='NAME', or a dict of them by the names of the outputs"
    )
    assert (
        refused(Model(network(), [X]))
        == refused(alone())
        == ("the model has no loss; expected loss= in build(), compile(loss=) or add_loss()")
    )


class Halving(layers.Layer):
    """Assigns a trained variable and reads it before and after, next to a regularizer."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(6,), initializer="ones", regularizer="l2")
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        before = x * self.scale
        if training:
            self.scale.assign(0.9 * self.scale + 0.1 * ops.tanh(self.scale))
            self.steps.assign(self.steps + 1)
        return before + ops.sin(self.scale) * x


def normalized(*more: layers.Layer) -> keras.Model:
    normal = layers.SpectralNormalization
    wide = layers.Dense(6, activation="tanh", kernel_regularizer="l2")
    inner = [normal(wide), layers.Reshape((6, 1)), normal(layers.Conv1D(4, 3), power_iterations=2)]
    return keras.Sequential([keras.Input((6,)), *more, *inner, layers.Flatten(), layers.Dense(1)])


@pytest.mark.parametrize(
    ("model", "assigned"),
    [
        (normalized, ["spectral_normalization/kernel", "spectral_normalization_1/kernel"]),
        (
            lambda: keras.Sequential([keras.Input((6,)), Halving(), layers.Dense(1)]),
            ["halving/scale"],
        ),
    ],
)
def test_a_layer_that_assigns_what_is_trained(model, assigned):
    assert_trains_as_fit(lambda: described(keras.optimizers.AdamW(1e-2, 0.1), model()))
    made = task.ModelTask(described("sgd", model()))
    variables = export.Export(made, made.optimizer).contract()["variables"]
    assert [v["name"] for v in variables if v.get("assigned")] == [f"model/{n}" for n in assigned]
    assert not made.notes[1:]


class Counting(layers.Layer):
    """Counts calls, in evaluation, too."""

    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.calls.assign_add(1.0)
        return x


def test_a_layer_that_assigns_in_evaluation():
    message = refused(described("sgd", normalized(Counting())))
    assert message.startswith("evaluation assigns model/counting/calls; expected that in training")
