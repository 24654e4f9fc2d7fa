"""What a model must not do is refused in one sentence, before anything is written."""

from __future__ import annotations

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from gorbit_export import Feature, Model, Refusal, export
from gorbit_export.__main__ import main
from gorbit_export.models import task

VECTOR = Feature("x", "float32", (None, 6))
CLASS = Feature("y", "int32", (None,), label=True)
ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def stack(*more: layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((6,)), *more, layers.Dense(3)])


def described(model: object, **changes: object) -> Model:
    defaults = {"features": [VECTOR, CLASS], "loss": ENTROPY, "labels": "y"}
    return Model(**{"model": model, **defaults, **changes})


def refused(user: Model) -> str:
    """Returns the message with which a model is refused."""
    with pytest.raises(Refusal) as error:
        made = task.ModelTask(user)
        made.inspect(export.Export(made, made.optimizer))
    text = str(error.value)
    assert "\n" not in text
    return text


class Later(keras.Model):
    """Has a layer that only training calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers.Dense(3), layers.Dense(3, name="second")

    def call(self, x, training=False):
        return self.first(x) + (self.second(x) if training else 0)


class Table(layers.Layer):
    """Looks up numbers in a table."""

    def __init__(self) -> None:
        super().__init__()
        pairs = tf.constant([0, 1], tf.int64), tf.constant([1.0, 2.0])
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(*pairs), 0.0)

    def call(self, x):
        return x * self.table.lookup(tf.zeros(tf.shape(x), tf.int64))


class Noise(layers.Layer):
    """Adds noise, by TensorFlow or by Keras, in training or always."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        if how == "always":
            self.generator = keras.random.SeedGenerator(1)

    def call(self, x, training=False):
        if self.how == "always":
            return x + keras.random.normal(tf.shape(x), seed=self.generator)
        if not training:
            return x
        return x + (tf.random if self.how == "tensorflow" else keras.random).normal(tf.shape(x))


class OwnStep(keras.Model):
    """Trains by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        return {}


class Largest(keras.metrics.Metric):
    """The largest output so far."""

    def __init__(self, first: float) -> None:
        super().__init__(name="largest")
        start = keras.initializers.Constant(first)
        self.value = self.add_variable((), start, name="value")
        self.first = first

    def update_state(self, labels, outputs, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.reduce_max(outputs)))

    def result(self):
        return self.value

    def reset_state(self):
        self.value.assign(self.first)


class Watched(layers.Layer):
    """Keeps a metric of its inputs."""

    def __init__(self) -> None:
        super().__init__(name="watched")
        self.size = keras.metrics.Mean(name="size")

    def call(self, x):
        self.size.update_state(tf.reduce_mean(tf.abs(x)))
        return x


class Bfloat(tf.Module):
    """Trains a variable of bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable(tf.ones([6], tf.bfloat16))

    def __call__(self, x):
        return tf.cast(x, tf.bfloat16) * self.factor


class Linear(tf.Module):
    """A linear map, and what the call does in addition."""

    def __init__(self, beside) -> None:
        super().__init__()
        self.factor, self.beside = tf.Variable(tf.ones([6, 3])), beside
        self.mean = tf.Variable(tf.zeros([6]), trainable=False)
        self.size = keras.metrics.Mean(name="size")

    def __call__(self, x):
        return self.beside(self, x) @ self.factor


class Unreached(keras.Model):
    """Has a constrained layer whose result nothing needs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = layers.Dense(3)
        self.second = layers.Dense(3, kernel_constraint="unit_norm")

    def call(self, x):
        self.second(x)
        return self.first(x)


class Slim(Linear):
    """Gives one number for each example, as a column."""

    def __init__(self) -> None:
        super().__init__(lambda module, x: x)

    def __call__(self, x):
        return super().__call__(x)[:, :1]


class Holding(tf.Module):
    """Holds a layer of Keras 3."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = layers.Dense(3)

    def __call__(self, x):
        return self.inner(x)


def counted(module: Linear, x):
    module.size.update_state(tf.reduce_mean(x))
    return x


def centered(module: Linear, x):
    module.mean.assign(0.9 * module.mean + 0.1 * tf.reduce_mean(x, 0))
    return x - module.mean


class Plain(layers.Layer):
    """Holds a tf.Variable."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable(1.0)

    def call(self, x):
        return x * self.factor


def with_policy(policy: str) -> keras.Model:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return stack()
    finally:
        keras.config.set_dtype_policy(before)


def quantized() -> keras.Model:
    model = stack(layers.Dense(4))
    model.quantize("int8")
    return model


def frozen() -> keras.Model:
    model = stack()
    model.trainable = False
    return model


def two_inputs() -> keras.Model:
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    return keras.Model([a, b], layers.Dense(3)(layers.Add()([a, b])))


def similarity(labels, outputs):
    products = tf.matmul(outputs, outputs, transpose_b=True)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(outputs)[0]), products)


def products(x):
    return tf.matmul(x, x, transpose_b=True)


OUTSIDE = keras.Variable(np.ones(6, "float32"), name="outside")
ONE_HOT = [VECTOR, Feature("y", "float32", (None, 3), label=True)]
IDS = [Feature("x", "int32", (None, 6)), CLASS]


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (Later, {}, "layer second makes its variables in training only; expected build() to call"),
        (stack, {"features": [Feature("x", "string", (None,)), CLASS]}, "feature x is string; exp"),
        (
            stack,
            {"features": [Feature("class", "int32", (None,))]},
            "feature 'class' cannot be the",
        ),
        (
            stack,
            {"features": [Feature("seed", "int32", (None,))]},
            "feature seed has the name of an",
        ),
        (stack, {"features": [Feature("x", "float32", (6,)), CLASS]}, "feature x has the shape (6"),
        (
            stack,
            {"features": [Feature("x", "float32", (None, None, None)), CLASS]},
            "feature x has the shape (None, None, None); expected at most one open axis",
        ),
        (
            stack,
            {
                "features": [
                    Feature("x", "float32", (None, None, None), axes=("examples", "a", "a")),
                    CLASS,
                ]
            },
            "feature x has the shape (None, None, None); expected at most one open axis",
        ),
        (
            lambda: keras.Sequential(
                [keras.Input((6,), dtype="int32"), layers.IntegerLookup(vocabulary=[1, 2])]
            ),
            {"features": IDS},
            "layer integer_lookup is a IntegerLookup, which keeps a table; expected its numbers as "
            "a feature, as gorbit convert makes them by a schema: kind category, with categories",
        ),
        (Unreached, {}, "the loss does not reach model/second/kernel, so that Keras leaves it as"),
        (lambda: stack(Table()), {}, "gradients takes a table or another resource from outside"),
        (lambda: with_policy("bfloat16"), {}, "layer sequential"),
        (lambda: with_policy("float64"), {}, "layer sequential"),
        (quantized, {}, "layer dense"),
        (lambda: stack(Noise("tensorflow")), {}, "gradients draws random numbers with RandomStand"),
        (lambda: stack(Noise("global")), {}, "gradients draws from Keras' global generator"),
        (lambda: stack(Noise("always")), {}, "evaluation draws random numbers; expected them in t"),
        (OwnStep, {}, "OwnStep has a train_step of its own, which gorbit does not call"),
        (
            stack,
            {"loss": lambda y, p: tf.reduce_max(ENTROPY.call(y, p))},
            "loss <lambda> gives one number for a whole batch, which is not the mean of its exam",
        ),
        (
            stack,
            {"metrics": [lambda y, p: tf.reduce_max(ENTROPY.call(y, p))]},
            "metric lambda gives one number for a whole batch, which is not the mean of its exa",
        ),
        (
            stack,
            {"loss": [ENTROPY, "mse"]},
            "2 losses are given for outputs; expected one, for instance a function of labels",
        ),
        (
            lambda: keras.Sequential([keras.Input((6,)), layers.Dense(3), layers.Lambda(products)]),
            {"loss": lambda y, p: tf.reduce_logsumexp(p, -1)},
            "output outputs has a number for each pair of examples of a batch, so that",
        ),
        (
            stack,
            {"loss": lambda y, p: products(p)},
            "the loss of outputs has a number for each pair of examples of a batch, so that",
        ),
        (
            Slim,
            {"loss": lambda y, p: tf.square(tf.cast(y, tf.float32) - p)},
            "loss <lambda> compares labels of the shape [5] with outputs of the shape [5, 1] each",
        ),
        (
            stack,
            {"loss": keras.losses.Dice(), "features": ONE_HOT},
            "loss dice gives one number for a whole batch",
        ),
        (stack, {"loss": similarity}, "the evaluation's loss_sum of a batch is not the sum of its"),
        (
            lambda: stack(layers.Lambda(lambda x: x - tf.reduce_mean(x, 0))),
            {"loss": lambda y, p: tf.zeros_like(p[:, 0])},
            "the prediction outputs of an example depends on the other examples of its batch",
        ),
        (
            lambda: stack(layers.BatchNormalization(synchronized=True)),
            {},
            "layer batch_normalization",
        ),
        (stack, {"metrics": [Largest(1.0)]}, "metric largest begins with value other than 0"),
        (stack, {"metrics": [Largest(0.0)]}, "the evaluation's metric/largest/value of a batch is"),
        (
            stack,
            {"metrics": [keras.metrics.F1Score()], "features": ONE_HOT, "loss": "mse"},
            "metric f1_score gives more than one number; expected one",
        ),
        (stack, {"metrics": ["acuracy"]}, "metric 'acuracy' is not one of keras.metrics"),
        (stack, {"metrics": ["accuracy", "accuracy"]}, "two metrics are called accuracy"),
        (lambda: stack(Watched()), {}, "gradients updates the metric size of layer watched; expec"),
        (
            lambda: Linear(counted),
            {},
            "gradients updates the metric size of Linear; expected it among metrics= of build()",
        ),
        (lambda: Linear(centered), {}, "evaluation assigns model/mean; expected that in training"),
        (Holding, {}, "a tf.Module holds inner, a layer of Keras 3; expected a keras.Model"),
        (
            lambda: stack(layers.Dense(4, kernel_constraint=lambda w: w[:1])),
            {},
            "the constraint of model/dense/kernel fails: ValueError: ",
        ),
        (lambda: stack(Plain()), {}, "Plain.factor is a tf.Variable, which Keras does not train"),
        (
            lambda: stack(layers.Lambda(lambda x: x * OUTSIDE)),
            {},
            "gradients reads variable outside",
        ),
        (
            lambda: stack(
                layers.Lambda(
                    lambda x: tf.ensure_shape(
                        tf.numpy_function(lambda a: a, [x], tf.float32), [None, 6]
                    )
                )
            ),
            {},
            "gradients calls Python",
        ),
        (stack, {"labels": "z"}, "labels are 'z'; the features are x, y, example_weights"),
        (stack, {"labels": None}, "there is a loss but no labels; expected labels='NAME'"),
        (stack, {"groups": [("nose", {"weight_decay": 0})]}, "group 'nose' is found in no variab"),
        (stack, {"groups": [("dense", {"momentum": 0})]}, "group 'dense' sets momentum; expected"),
        (stack, {"best": "auc"}, "best is 'auc'; expected one of loss"),
        (stack, {"features": [Feature("x", "float32", (None, 5)), CLASS]}, "the model fails on a"),
        (two_inputs, {}, "the model's inputs are a, b and the features x; expected features with"),
        (lambda: 3, {}, "the model is a int; expected a keras.Model, a tf_keras.Model or a tf.Mod"),
        (
            lambda: stack(layers.Lambda(lambda x: tf.reshape(x, [5, 6]))),
            {},
            "the model fails on batches of other sizes: InvalidArgumentError: Input to reshape is",
        ),
        (
            Bfloat,
            {"loss": lambda y, p: tf.reduce_sum(tf.cast(p, tf.float32), -1)},
            "variable model/factor is bfloat16; expected float32",
        ),
        (frozen, {}, "no variable of the model is trained"),
    ],
)
def test_refused(make, changes, message):
    assert refused(described(make(), **changes)).startswith(message)


def test_names_that_are_alike_stay_apart():
    class Clash(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.a = layers.Dense(6)
            self.weights_of = {"a/kernel": layers.Dense(6)}

        def build(self, shape):
            self.kernel = self.add_weight(shape=(6,), name="a")

        def call(self, x):
            return self.weights_of["a/kernel"](self.a(x)) * self.kernel

    model = stack(Clash())
    names_of = task.ModelTask(described(model)).named.variables
    assert len(names_of) == len(model.variables)


MODEL = """
import keras
from gorbit_export import Feature, Model


def build(width: int = 4, rate=0.0, name: str = "dense", wrong=False) -> Model:
    {body}
    dense = keras.layers.Dense(3, name=name)
    return Model(
        model=keras.Sequential([keras.Input((width,)), keras.layers.Dropout(rate), dense]),
        features=[Feature("x", "float32", (None, width)), Feature("y", "int32", (None,), True)],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        labels="y",
        optimizer=keras.optimizers.SGD(use_ema=True) if wrong else None,
    )
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL.format(body="pass"))
    return path


def test_check_says_what_is_wrong_and_writes_nothing(file, tmp_path, capsys):
    assert main(["check", str(file), "--set", "width=5"]) == 0
    assert capsys.readouterr().out == f"{file}: keeps to all rules\n"
    assert main(["check", str(file), "--set", "wrong=true"]) == 1
    assert capsys.readouterr().err == (
        f"gorbit_export: {file}: SGD has use_ema=True; moving averages of variables are not kept\n"
    )
    assert main(["check", str(file), "--weights", str(tmp_path / "lacking.weights.h5")]) != 0
    assert "lacking.weights.h5: no such file" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["model.py"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--set", "width"], 2, "--set width: expected NAME=VALUE"),
        (["--set", "depth=3"], 2, "--set depth=3: build() has no such parameter; it has width, r"),
        (["--set", "width=wide"], 2, "--set width=wide: expected a value of type int"),
        (["--set", "wrong=perhaps"], 2, "--set wrong=perhaps: expected a value of type bool"),
        (["--set", "rate=2"], 1, "build() of "),
        (["--weights", "none.weights.h5"], 1, "none.weights.h5: no such file"),
    ],
)
def test_wrong_arguments_of_build(file, tmp_path, capsys, words, code, message):
    assert main(["keras", str(file), "--out", str(tmp_path / "out"), *words]) == code
    err = capsys.readouterr().err
    *trace, last = err.splitlines()
    assert last.startswith(f"gorbit_export: {message}")
    assert bool(trace) == ("fails:" in last)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "import tf_keras",
            "fails: tf-keras is not installed; run pip install --no-deps 'tf-keras==2.18.*'",
        ),
        ("return 3", "returns a int; expected a gorbit_export.Model"),
        ("1 / 0", "fails: ZeroDivisionError: division by zero (line 7)"),
        ("return build", "returns a function; expected a gorbit_export.Model"),
    ],
)
def test_wrong_files(tmp_path, capsys, monkeypatch, body, message):
    monkeypatch.setitem(sys.modules, "tf_keras", None)
    path = tmp_path / "model.py"
    path.write_text(MODEL.format(body=body))
    assert main(["check", str(path)]) == 1
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == f"gorbit_export: build() of {path} {message}"
    if "line 7" not in message:
        assert not trace
        return
    assert trace[0].startswith("Traceback")
    assert trace[1] == f'  File "{path}", line 7, in build'  # none of what called it
    assert trace[-1] == "ZeroDivisionError: division by zero"


def test_files_that_are_no_models(tmp_path, capsys):
    path = tmp_path / "model.py"
    assert main(["check", str(path)]) == 1
    path.write_text("def build(:")
    assert main(["check", str(path)]) == 1
    path.write_text("x = 1")
    assert main(["check", str(path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0] == f"gorbit_export: {path}: no such file"
    assert "fails: SyntaxError" in lines[1]
    assert lines[2].endswith("has no function build(); expected one that returns a Model")
