"""Models of every kind next to Keras: names, losses, masks, states, metrics, weights."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import needs_narrow_products
from keras import layers

from gorbit_export import Feature, Model, Refusal, export, ops, restore
from gorbit_export.models import losses, metrics, names, task, weights

SEED = tf.constant([3, 4], tf.int64)
VECTOR = Feature("x", "float32", (None, 6))
CLASS = Feature("y", "int32", (None,), label=True)
ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def batch(made: task.ModelTask, count: int = 6, extra: int = 0, **changes: object) -> dict:
    drawn = made.example.batch(count, extra) | changes
    return {name: tf.constant(value) for name, value in drawn.items()}


def train(made: task.ModelTask, features: dict) -> tuple[dict, dict]:
    """Returns the sums of a training pass, and gradients by path."""
    trained = {path: leaf.value for path, leaf in made.named.variables.items() if leaf.trained}
    with tf.GradientTape() as tape:
        sums = made.train_sums(features, {}, ops.Random.from_seed(SEED))
    return sums, tape.gradient(sums["loss_sum"], trained, unconnected_gradients="zero")


def assert_gradients(made: task.ModelTask, mine: dict, model: object, theirs: list, scale: float):
    variables = model.trainable_variables
    paths = {id(leaf.holder): path for path, leaf in made.named.variables.items()}
    assert len(variables) == len(mine)
    norm = max(np.sqrt(sum(np.sum(np.square(g)) for g in map(np.array, theirs))), 1e-9)
    for variable, want in zip(variables, theirs):
        got = tf.convert_to_tensor(mine[paths[id(variable)]]) * scale
        np.testing.assert_allclose(got, want, atol=3e-6 * norm, err_msg=paths[id(variable)])


class Block(layers.Layer):
    """A layer of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = layers.Dense(6)
        self.norm = layers.LayerNormalization()

    def call(self, x):
        return self.norm(x + self.inner(x))


class Nested(keras.Model):
    """Layers in lists and dicts, a variable and losses of its own, two outputs."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.blocks = [Block(), Block()]
        self.heads = {"left": layers.Dense(3), "right": layers.Dense(2)}
        self.drop = layers.Dropout(rate)
        self.factor = self.add_weight(shape=(), initializer="ones", name="factor")

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        x = self.drop(x, training=training) * self.factor
        self.add_loss(1e-2 * tf.square(self.factor))
        return {name: head(x) for name, head in self.heads.items()}


def nested(rate: float = 0.0) -> Model:
    return Model(
        model=Nested(rate),
        features=[
            VECTOR,
            Feature("kind", "int32", (None,), label=True),
            Feature("point", "float32", (None, 2), label=True),
        ],
        loss={"left": ENTROPY, "right": "mse"},
        labels={"left": "kind", "right": "point"},
        loss_weights={"right": 0.5},
        metrics={"left": ["accuracy"], "right": ["mae"]},
    )


def test_names_do_not_depend_on_what_was_built_before():
    first = task.ModelTask(nested(0.5)).named
    layers.Dense(3), layers.Dropout(0.5)
    again = task.ModelTask(nested(0.5)).named
    assert list(first.variables) == list(again.variables)
    assert list(first.variables)[:3] == [
        "model/factor",
        "model/blocks/0/inner/kernel",
        "model/blocks/0/inner/bias",
    ]
    assert list(first.variables)[-1] == "model/heads/right/bias"
    assert list(first.generators) == ["model/drop/seed"]


class Running(layers.Layer):
    """Adds up its inputs, in variables of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable(tf.zeros([6]), trainable=False)
        self.factors = [keras.Variable(np.ones(6, "float32")) for _ in range(2)]
        self.other = tf.Module()
        self.other.bias = tf.Variable([2.0], trainable=False)

    def call(self, x, training=False):
        if training:
            self.total.assign_add(tf.reduce_sum(x, 0))
        return x * self.factors[0] * self.factors[1] + self.other.bias


def test_variables_that_keras_does_not_know():
    model = keras.Sequential([keras.Input((6,)), Running(), layers.Dense(3)])
    made = task.ModelTask(Model(model, [VECTOR, CLASS], "crossentropy", "y"))
    assert [(path, leaf.trained) for path, leaf in made.named.variables.items()] == [
        ("model/running/factors/0", True),
        ("model/running/factors/1", True),
        ("model/running/other/bias", False),
        ("model/running/total", False),
        ("model/dense/kernel", True),
        ("model/dense/bias", True),
    ]
    features = batch(made)
    sums, _ = train(made, features)
    total = features["x"].numpy().sum(0)
    np.testing.assert_allclose(sums["state/model/running/total"], total, rtol=1e-5)
    assert not made.named.variables["model/running/total"].value.numpy().any()


def test_a_total_over_a_batch_is_no_mean_of_its_parts():
    model = keras.Sequential([keras.Input((6,)), Running(), layers.Dense(3)])
    made = task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y"))
    made.inspect(export.Export(made, made.optimizer))
    assert made.additive is False


def test_names_of_functional_models():
    def build() -> keras.Model:
        x = keras.Input((6,))
        shared = layers.Dense(6, name="shared: one")
        y = layers.Dense(6)(shared(shared(x)))
        inner = keras.Sequential([keras.Input((6,)), layers.Dense(6), layers.Dense(6)])
        return keras.Model(x, layers.Dense(2, name="variables")(inner(y)))

    expected = [
        *("model/shared__one/kernel", "model/shared__one/bias"),
        *("model/dense/kernel", "model/dense/bias"),
        *("model/sequential/dense/kernel", "model/sequential/dense/bias"),
        *("model/sequential/dense_1/kernel", "model/sequential/dense_1/bias"),
        *("model/variables_/kernel", "model/variables_/bias"),
    ]
    assert list(names.of(build()).variables) == expected
    assert list(names.of(build()).variables) == expected


def test_several_losses_and_what_the_model_adds():
    user = nested()
    made = task.ModelTask(user)
    features = batch(made)
    sums, gradients = train(made, features)
    user.model.compile(loss=user.loss, loss_weights={"left": 1.0, "right": 0.5})
    labels = {"left": features["kind"], "right": features["point"]}
    with tf.GradientTape() as tape:
        y = user.model(features["x"], training=True)
        loss = user.model.compute_loss(features["x"], labels, y)
    theirs = tape.gradient(loss, [v.value for v in user.model.trainable_variables])
    np.testing.assert_allclose(sums["loss_sum"] / sums["weight_sum"], loss, rtol=1e-5)
    assert_gradients(made, gradients, user.model, theirs, 1 / 6)
    assert [m.name for m in made.metrics] == ["accuracy", "mae"]
    error = np.abs(features["point"] - y["right"]).mean()
    results = made.results(sums)
    np.testing.assert_allclose(results["mae"], error, rtol=1e-5)


class Whole(keras.metrics.Metric):
    """The share of sequences whose tokens are all predicted correctly."""

    def __init__(self) -> None:
        super().__init__(name="whole")
        self.right = self.add_variable((), "zeros", name="right")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, labels, outputs, sample_weight=None):
        counts = tf.ones_like(labels, tf.float32) if sample_weight is None else sample_weight
        wrong = tf.cast(tf.argmax(outputs, -1, tf.int32) != labels, tf.float32)
        right = tf.reduce_sum(wrong * counts, 1) == 0
        self.right.assign(self.right + tf.reduce_sum(tf.cast(right, tf.float32)))
        self.count.assign(self.count + tf.cast(tf.shape(labels)[0], tf.float32))

    def result(self):
        return self.right / self.count


def tagger() -> Model:
    words = keras.Input((None,), dtype="int32", name="words")
    x = layers.Embedding(9, 5, mask_zero=True)(words)
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True, dropout=0.2))(x)
    return Model(
        model=keras.Model(words, layers.Dense(3)(x)),
        features=[
            Feature("words", "int32", (None, None)),
            Feature("tags", "int32", (None, None), label=True, pad=-1, minimum=-1),
        ],
        loss=ENTROPY,
        labels="tags",
        metrics=["accuracy", Whole()],
        example=lambda count: {
            "words": np.tile([[1, 2, 3, 4, 0, 0, 0], [5, 6, 7, 8, 1, 2, 3]], (count, 1))[:count],
            "tags": np.tile([[0, 1, 2, 1, 0, 0, 0], [1, 1, 0, 2, 1, 0, 2]], (count, 1))[:count],
        },
    )


def test_tokens_with_a_mask_and_weights():
    user = tagger()
    made = task.ModelTask(user)
    assert next(f for f in made.features if f.name == "words").below == 9
    features = batch(made, 4, example_weights=np.array([1, 2, 0.5, 0], "float32"))
    sums = made.evaluate_sums(features)
    y = user.model(features["words"])
    summed = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    want = summed(features["tags"], y, sample_weight=features["example_weights"][:, None])
    np.testing.assert_allclose(sums["loss_sum"], want, rtol=1e-5)
    assert sums["weight_sum"] == 4 + 2 * 7 + 0.5 * 4
    hits = np.argmax(y, -1) == features["tags"].numpy()
    lengths = np.array([4, 7, 4, 7])[:, None] > np.arange(7)
    count = hits * lengths * features["example_weights"].numpy()[:, None]
    np.testing.assert_allclose(made.results(sums)["accuracy"], count.sum() / 20, rtol=1e-6)

    counted = lengths & (features["example_weights"].numpy() > 0)[:, None]
    assert made.results(sums)["whole"] == (hits | ~counted).all(1).mean()

    padded = {n: tf.pad(v, [[0, 0], [0, 3]]) for n, v in features.items() if n[0] in "wt"}
    longer = made.evaluate_sums({**padded, "example_weights": features["example_weights"]})
    for name, value in sums.items():
        np.testing.assert_allclose(longer[name], value, rtol=1e-5, err_msg=name)
    assert [(o.axes, o.kind, o.of) for o in made.outputs] == [
        (("examples", "length", "classes"), "tokens", "tags")
    ] * 2


def test_a_loss_of_each_value_and_metrics_of_keras():
    """A function that gives a loss per value, as [examples, values], is no loss per token."""
    model = keras.Sequential([keras.Input((6,)), layers.Dense(2)])
    features = [VECTOR, Feature("point", "float32", (None, 2), label=True)]
    user = Model(model, features, lambda y, p: tf.abs(y - p), "point", ["mae", "mse"])
    made = task.ModelTask(user)
    given = batch(made, 4, example_weights=np.array([1, 2, 0.5, 0], "float32"))
    results = made.results(made.evaluate_sums(given))
    errors = np.abs(given["point"] - model(given["x"])) * [[1.0], [2.0], [0.5], [0.0]]
    np.testing.assert_allclose(results["mae"], errors.sum() / 7, rtol=1e-5)


class Centered(tf.Module):
    """A linear map of centered inputs, by TensorFlow alone."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = [tf.Variable(tf.ones([6, 3])), tf.Variable(tf.zeros([3]))]
        self.mean = tf.Variable(tf.zeros([6]), trainable=False)

    @tf.function
    def __call__(self, x, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, 0))
        return (x - self.mean) @ self.maps[0] + self.maps[1]


def test_a_module_of_tensorflow(tmp_path):
    module = Centered()
    user = Model(
        module,
        [VECTOR, CLASS],
        loss=lambda y, logits: tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits),
        labels="y",
        metrics=["accuracy"],
    )
    made = task.ModelTask(user)
    assert list(made.named.variables) == ["model/maps/0", "model/maps/1", "model/mean"]
    export.write(made, made.optimizer, tmp_path / "out")
    assert made.additive is False
    features = batch(made)
    loaded = tf.saved_model.load(str(tmp_path / "out"))
    got = loaded.gradients(**features, seed=SEED)
    assert not module.mean.numpy().any(), "the pass assigned the variable itself"
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(user.loss(features["y"], module(features["x"], training=True)))
    theirs = tape.gradient(loss, module.maps)
    np.testing.assert_allclose(got["loss_sum"], loss, rtol=1e-5)
    for i, want in enumerate(theirs):
        np.testing.assert_allclose(got[f"gradient/model/maps/{i}"], want, atol=1e-5)
    np.testing.assert_allclose(got["state/model/mean"] / 6, module.mean, atol=1e-6)


class Lazy(tf.Module):
    """Makes a variable when it is called, and loops in a function of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.map = None
        self.total = tf.Variable(tf.zeros([6]), trainable=False)

    @tf.function
    def __call__(self, x, training=False):
        if self.map is None:
            self.map = tf.Variable(tf.ones([6, 3]))
        for _ in tf.range(3):
            x = tf.tanh(x)
        if training:
            self.total.assign_add(tf.reduce_sum(x, 0))
        return x @ self.map


def test_a_module_that_makes_variables_when_called():
    made = task.ModelTask(Model(Lazy(), [VECTOR, CLASS], ENTROPY, "y"))
    assert list(made.named.variables) == ["model/map", "model/total"]
    features = batch(made)
    sums, gradients = train(made, features)
    x = np.tanh(np.tanh(np.tanh(features["x"])))
    np.testing.assert_allclose(sums["state/model/total"], x.sum(0), rtol=1e-5, atol=1e-5)
    assert set(gradients) == {"model/map"}


@pytest.mark.parametrize(
    ("loss", "shape", "bounds"),
    [
        (ENTROPY, (None,), (None, 3)),
        (keras.losses.SparseCategoricalCrossentropy(ignore_class=-1), (None,), (-1, 3)),
        (keras.losses.SparseCategoricalCrossentropy(ignore_class=255), (None,), (None, 256)),
        ("binary_crossentropy", (None, 3), (None, 2)),
        ("categorical_crossentropy", (None, 3), (None, 2)),
        ("mse", (None, 3), (None, None)),
    ],
)
def test_labels_are_bounded_by_their_loss(loss, shape, bounds):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3, activation="softmax")])
    made = task.ModelTask(
        Model(model, [VECTOR, Feature("y", "int32", shape, label=True)], loss, "y")
    )
    label = next(f for f in made.features if f.name == "y")
    assert (label.minimum, label.below) == bounds


def test_a_reduction_that_is_not_heeded_is_said():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    made = task.ModelTask(Model(model, [VECTOR, CLASS], loss, "y"))
    assert any(note.startswith("the reduction 'sum' of the loss of") for note in made.notes)
    made = task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y"))
    assert not any("reduction" in note for note in made.notes)


@pytest.mark.parametrize(
    ("activation", "logits", "said"),
    [
        (None, True, ""),
        ("softmax", False, ""),
        (None, False, "the loss of outputs takes probabilities, and the outputs are not between"),
        ("softmax", True, "the loss of outputs takes logits, and the outputs add up to 1"),
    ],
)
def test_logits_that_are_none_are_said(activation, logits, said):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3, activation, name="dense")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
    notes = [
        n for n in task.ModelTask(Model(model, [VECTOR, CLASS], loss, "y")).notes if "loss" in n
    ]
    assert [n[: len(said)] for n in notes] == ([said] if said else [])


class Noisy(tf.Module):
    """Draws by a seed."""

    def __init__(self) -> None:
        super().__init__()
        self.map = tf.Variable(tf.ones([6, 3]) * tf.constant([1.0, 2.0, 3.0]))

    def __call__(self, x, training=False, seed=None):
        if training:
            x = tf.nn.experimental.stateless_dropout(x, 0.5, seed)
            x *= tf.random.stateless_uniform(tf.shape(x), seed, 0.5, 1.5)
        return x @ self.map


def test_a_module_draws_by_its_seed_and_takes_weights():
    features = [VECTOR, CLASS, Feature("share", "float32", (None,), role="weight")]
    made = task.ModelTask(
        Model(
            Noisy(),
            [*features, Feature("id", "int64", (None,), role="id")],
            ENTROPY,
            "y",
            ["accuracy"],
        )
    )
    assert [f.name for f in made.features] == ["x", "y", "share", "id"]
    module = export.Export(made, made.optimizer)
    made.inspect(module)
    assert made.additive
    given = batch(made)

    def loss(*seed: int) -> float:
        return float(module.gradients(**given, seed=tf.constant(seed, tf.int64))["loss_sum"])

    assert loss(1, 2) == loss(1, 2)
    assert len({loss(1, 2), loss(1, 3), loss(2, 2)}) == 3
    halves = module.evaluate(**{**given, "share": given["share"] / 2})
    whole = module.evaluate(**given)
    np.testing.assert_allclose(halves["loss_sum"] * 2, whole["loss_sum"], rtol=1e-6)
    assert halves["weight_sum"] == 3
    answers = module.predict(x=given["x"])
    assert set(answers) == {"logits", "probabilities"}


def test_tf_keras():
    legacy = pytest.importorskip("tf_keras")
    image = legacy.Input((6,), name="x")
    hidden = legacy.layers.Dense(5, kernel_regularizer="l2")(image)
    hidden = legacy.layers.BatchNormalization()(hidden)
    frozen = legacy.layers.Dense(5, name="frozen")
    frozen.trainable = False
    outputs = legacy.layers.Dense(3)(legacy.layers.Dropout(0.0)(frozen(hidden)))
    user = Model(
        legacy.Model(image, outputs),
        [VECTOR, CLASS],
        legacy.losses.SparseCategoricalCrossentropy(from_logits=True),
        "y",
        [legacy.metrics.SparseCategoricalAccuracy(name="accuracy")],
        legacy.optimizers.Adam(),
    )
    made = task.ModelTask(user)
    assert list(made.named.variables) == [
        *("model/dense/kernel", "model/dense/bias"),
        *("model/batch_normalization/gamma", "model/batch_normalization/beta"),
        "model/batch_normalization/moving_mean",
        "model/batch_normalization/moving_variance",
        *("model/frozen/kernel", "model/frozen/bias"),
        *("model/dense_1/kernel", "model/dense_1/bias"),
    ]
    assert made.optimizer.name == "keras-adam"
    features = batch(made)
    sums, gradients = train(made, features)
    with tf.GradientTape() as tape:
        y = user.model(features["x"], training=True)
        loss = user.loss(features["y"], y) + tf.add_n(user.model.losses)
    theirs = tape.gradient(loss, user.model.trainable_variables)
    np.testing.assert_allclose(sums["loss_sum"] / 6, loss, rtol=1e-5)
    assert_gradients(made, gradients, user.model, theirs, 1 / 6)
    for name in ("moving_mean", "moving_variance"):
        path = f"model/batch_normalization/{name}"
        np.testing.assert_allclose(
            sums[f"state/{path}"], made.named.variables[path].value, atol=1e-6
        )
    metric = legacy.metrics.SparseCategoricalAccuracy()
    metric.update_state(features["y"], y)
    np.testing.assert_allclose(made.results(sums)["accuracy"], metric.result())


def test_adapted_layers_of_tf_keras():
    tf_keras = pytest.importorskip("tf_keras")
    norm = tf_keras.layers.Normalization()
    norm.adapt(np.arange(12, dtype="float32").reshape(2, 6))
    model = tf_keras.Sequential([tf_keras.Input((6,)), norm, tf_keras.layers.Dense(3)])
    made = task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y"))
    states = [path for path, leaf in made.named.variables.items() if not leaf.trained]
    assert states == [f"model/normalization/{name}" for name in ("mean", "variance", "count")]


@needs_narrow_products
def test_mixed_precision_of_tf_keras():
    legacy = pytest.importorskip("tf_keras")
    legacy.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = legacy.Sequential(
            [legacy.Input((6,)), legacy.layers.BatchNormalization(), legacy.layers.Dense(3)]
        )
    finally:
        legacy.mixed_precision.set_global_policy("float32")
    made = task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y"))
    assert made.precision == "bf16"
    assert len(made.named.variables) == 6
    sums, gradients = train(made, batch(made))
    assert "state/model/batch_normalization/moving_mean" in sums
    assert float(tf.linalg.global_norm(list(gradients.values()))) > 0


def test_dropout_of_tf_keras_follows_the_seed():
    legacy = pytest.importorskip("tf_keras")
    model = legacy.Sequential(
        [legacy.Input((6,)), legacy.layers.Dropout(0.5), legacy.layers.Dense(3)]
    )
    made = task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y"))
    features = batch(made)
    module = export.Export(made, made.optimizer)
    made.inspect(module)

    def loss(*seed: int) -> float:
        return float(module.gradients(**features, seed=tf.constant(seed, tf.int64))["loss_sum"])

    assert loss(1, 2) == loss(1, 2)
    assert len({loss(1, 2), loss(1, 3), loss(2, 2)}) == 3


def test_augmentation_of_tf_keras_follows_the_seed_and_adds_up():
    legacy = pytest.importorskip("tf_keras")
    model = legacy.Sequential(
        [
            legacy.Input((4, 4, 3)),
            legacy.layers.RandomFlip("horizontal"),
            legacy.layers.RandomContrast(0.3),
            legacy.layers.RandomRotation(0.2),
            legacy.layers.Flatten(),
            legacy.layers.Dense(3),
        ]
    )
    picture = Feature("x", "float32", (None, 4, 4, 3))
    made = task.ModelTask(Model(model, [picture, CLASS], ENTROPY, "y"))
    features = batch(made)

    def loss(seed: int) -> float:
        random = ops.Random.from_seed(tf.constant([seed, 4], tf.int64))
        return float(made.train_sums(features, {}, random)["loss_sum"])

    assert loss(1) == loss(1) != loss(2)
    made.inspect(export.Export(made, made.optimizer))
    assert (made.additive, made.notes) == (True, [])


@needs_narrow_products
def test_mixed_precision_scales_the_loss():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.Dense(3)])
    finally:
        keras.config.set_dtype_policy(before)
    made = task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y", ["accuracy"]))
    assert made.precision == "fp16"
    module = export.Export(made, made.optimizer)
    made.inspect(module)
    assert made.additive
    got = module.gradients(**batch(made), seed=SEED, loss_scale=tf.constant(8.0))
    gradients = {name: v for name, v in got.items() if name.startswith("gradient/")}
    assert len(gradients) == 4
    assert all(v.dtype == tf.float32 for v in got.values())


def test_statistics_of_an_adapted_layer_are_in_the_graph():
    data = np.random.default_rng(0).normal(3, 2, (50, 6)).astype("float32")
    normalization = layers.Normalization()
    normalization.adapt(data)
    constant = tf.constant(np.eye(6, 40, dtype="float32"))
    model = keras.Sequential(
        [keras.Input((6,)), normalization, layers.Lambda(lambda x: x @ constant), layers.Dense(3)]
    )
    made = task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y"))
    module = export.Export(made, made.optimizer)
    made.inspect(module)
    answers = module.predict(x=tf.constant(data[:4]))
    np.testing.assert_allclose(answers["logits"], model(data[:4]), atol=1e-5)


def test_padding_without_a_mask_is_said():
    words = keras.Input((None,), dtype="int32", name="words")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(9, 5)(words))
    features = [Feature("words", "int32", (None, None)), CLASS]
    made = task.ModelTask(Model(keras.Model(words, layers.Dense(3)(x)), features, ENTROPY, "y"))
    made.inspect(export.Export(made, made.optimizer))
    assert made.additive is False
    assert [note.split(";")[0] for note in made.notes] == ["padding changes the results"]


def test_several_inputs_and_a_mask_that_is_made(tmp_path):
    words = keras.Input((None,), dtype="int32", name="words")
    mask = keras.Input((None,), dtype="bool", name="mask")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(9, 5)(words), mask=mask)
    model = keras.Model([words, mask], layers.Dense(1, activation="sigmoid")(x))
    user = Model(
        model,
        [
            Feature("mask", "bool", (None, None), make="mask"),
            Feature("words", "int32", (None, None)),
            Feature("y", "float32", (None,), label=True),
        ],
        "binary_crossentropy",
        "y",
        ["accuracy", keras.metrics.AUC(name="auc")],
        outputs=lambda y: {"probability": y[:, 0]},
        best="auc",
    )
    made = task.ModelTask(user)
    export.write(made, made.optimizer, tmp_path / "out")
    assert made.additive is True
    assert made.best == ("auc", "higher")
    serve = tf.saved_model.load(str(tmp_path / "out")).signatures["serving_default"]
    features = batch(made)
    inputs = {name: features[name] for name in ("words", "mask")}
    got = serve(**inputs)["probability"]
    np.testing.assert_allclose(got, model([*inputs.values()])[:, 0], atol=1e-6)


def classes(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, count).astype("int32")
    logits = rng.normal(size=(count, 3)).astype("float32")
    return labels, np.eye(3, dtype="float32")[labels], tf.nn.softmax(logits).numpy()


LABELS, ONE_HOT, PROBABILITIES = classes(40)
NUMBERS = (PROBABILITIES * 2 + 0.1, ONE_HOT * 0.5 + 1)
BINARY = (ONE_HOT[:, :1], PROBABILITIES[:, :1])
M = keras.metrics


@pytest.mark.parametrize(
    ("metric", "data", "better"),
    [
        (M.SparseCategoricalAccuracy(), (LABELS, PROBABILITIES), "higher"),
        (M.SparseTopKCategoricalAccuracy(2), (LABELS, PROBABILITIES), "higher"),
        (M.CategoricalAccuracy(), (ONE_HOT, PROBABILITIES), "higher"),
        (M.AUC(), BINARY, "higher"),
        (M.AUC(multi_label=True, num_labels=3), (ONE_HOT, PROBABILITIES), "higher"),
        (M.Precision(), BINARY, "higher"),
        (M.Recall(thresholds=0.4), BINARY, "higher"),
        (M.F1Score(average="macro"), (ONE_HOT, PROBABILITIES), "higher"),
        (M.MeanIoU(3, sparse_y_pred=False), (LABELS, PROBABILITIES), "higher"),
        (M.PrecisionAtRecall(0.5), BINARY, "higher"),
        (M.RootMeanSquaredError(), NUMBERS, "lower"),
        (M.MeanAbsolutePercentageError(), NUMBERS, "lower"),
        (M.R2Score(), NUMBERS, "higher"),
        (M.PearsonCorrelation(), NUMBERS, "higher"),
        (M.CosineSimilarity(), NUMBERS, "higher"),
        (M.KLDivergence(), (ONE_HOT, PROBABILITIES), "lower"),
        (M.SparseCategoricalCrossentropy(), (LABELS, PROBABILITIES), "lower"),
        (M.MeanMetricWrapper(lambda a, b: tf.abs(a - b), name="own"), NUMBERS, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, M.Metric) else "",
)
def test_metrics_are_sums_of_parts(metric, data, better):
    labels, outputs = data
    (measured,) = metrics.resolve([[metric]], [labels], [outputs])
    assert measured.better == better
    totals: dict = {}
    for part in np.split(np.random.default_rng(2).permutation(40), [7, 30]):
        y, p = tf.constant(labels[part]), tf.constant(outputs[part])
        for name, value in measured.sums(y, p, tf.ones(len(part))).items():
            totals[name] = totals.get(name, 0) + value
    metric.reset_state()
    metric.update_state(labels, outputs)
    np.testing.assert_allclose(measured.result(totals), metric.result(), rtol=1e-5, atol=1e-6)


NUMBER = [VECTOR, Feature("y", "int32", (None,), label=True)]
SHORT = [VECTOR, Feature("y", "float32", (None, 4, 1), label=True)]


@pytest.mark.parametrize(
    ("outputs", "features", "loss"),
    [
        ((1,), NUMBER, lambda y, p: tf.square(y - p)),  # int32 [B] and [B, 1]
        ((4,), SHORT, lambda y, p: tf.reduce_mean(tf.abs(y - p), -1)),  # [B, 4, 1] and [B, 4]
        ((4, 1), SHORT, lambda y, p: tf.reduce_mean(tf.square(y - p))),  # the mean of a batch
    ],
)
def test_functions_get_labels_as_in_fit(outputs, features, loss):
    size = int(np.prod(outputs))
    model = keras.Sequential([keras.Input((6,)), layers.Dense(size), layers.Reshape(outputs)])
    made = task.ModelTask(Model(model, features, loss, "y"))
    features = batch(made)
    sums, mine = train(made, features)
    model.compile("sgd", loss)
    with tf.GradientTape() as tape:
        value = model.compute_loss(y=features["y"], y_pred=model(features["x"]))
    theirs = tape.gradient(value, [v.value for v in model.trainable_variables])
    weight = float(sums["weight_sum"])
    np.testing.assert_allclose(sums["loss_sum"] / weight, value, rtol=1e-5)
    assert_gradients(made, mine, model, theirs, 1 / weight)


def test_metrics_of_one_number_are_means_of_examples():
    def close(y, p):
        return tf.reduce_mean(tf.cast(tf.abs(y - p) < 1.0, tf.float32))

    def tokens(y, p):  # [B, T, 1] and [B, T, 1], with a loss per token
        return tf.cast(tf.abs(y - p) < 1.0, tf.float32)[..., 0]

    model = keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.Reshape((4, 1))])
    user = Model(model, SHORT, "mse", "y", metrics=[close, tokens])
    made = task.ModelTask(user)
    made.inspect(export.Export(made, made.optimizer))
    features = batch(made, example_weights=np.array([1, 1, 0, 1, 2, 1], "float32"))
    sums = made.evaluate_sums(features)
    hits = np.abs(features["y"] - model(features["x"])) < 1.0
    want = (hits.mean((1, 2)) * features["example_weights"]).numpy().sum() / 6
    for name in ("close", "tokens"):
        got = sums[f"metric/{name}/total"] / sums[f"metric/{name}/count"]
        np.testing.assert_allclose(got, want, rtol=1e-5)


class Inner(layers.Layer):
    """Calls a function of TensorFlow's of its own, with a loop that AutoGraph makes."""

    def build(self, shape):
        self.factor = self.add_weight(shape=(shape[-1],), initializer="ones", name="factor")

    @tf.function(input_signature=[tf.TensorSpec([None, 6])])
    def inner(self, x):
        for _ in tf.range(2):
            x = tf.tanh(x * self.factor)
        return x

    def call(self, x):
        return self.inner(x)


def test_a_layer_with_a_function_of_tensorflow(tmp_path):
    model = keras.Sequential([keras.Input((6,)), Inner(), layers.Dense(3)])
    made = task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y"))
    export.write(made, made.optimizer, tmp_path / "out")
    features = batch(made)
    loaded = tf.saved_model.load(str(tmp_path / "out"))
    got = loaded.gradients(**features, seed=SEED)
    with tf.GradientTape() as tape:
        loss = ENTROPY(features["y"], model(features["x"]))
    theirs = tape.gradient(loss, [v.value for v in model.trainable_variables])
    mine = {p: got[f"gradient/{p}"] for p in made.named.variables}
    assert_gradients(made, mine, model, theirs, 1 / 6)


def test_restored_statistics_are_computed_with(tmp_path):
    def build(shift: float) -> keras.Model:
        normalization = layers.Normalization()
        normalization.adapt(np.random.default_rng(0).normal(shift, 2, (50, 6)))
        return keras.Sequential([keras.Input((6,)), normalization, layers.Dense(3)])

    first, second = build(1), build(5)
    made = task.ModelTask(Model(first, [VECTOR, CLASS], ENTROPY, "y"))
    export.write(made, made.optimizer, tmp_path / "out")
    x = np.ones((2, 6), "float32")
    np.testing.assert_allclose(restore(second, tmp_path / "out")(x), first(x), atol=1e-6)


def test_restored_models_are_those_that_were_trained(tmp_path):
    user = nested()
    made = task.ModelTask(user)
    module = export.Export(made, made.optimizer)
    folder = tmp_path / "run" / "checkpoints"
    for step in (9, 10):
        for i, leaf in enumerate(made.named.variables.values()):
            leaf.value.assign(tf.fill(leaf.value.shape, float(step * 100 + i)))
        tf.train.Checkpoint(root=module).write(str(folder / f"ckpt-{step}"))
    other = Nested()
    with pytest.raises(Refusal, match="has model/blocks/0/inner/bias, which the model lacks"):
        restore(other, tmp_path / "run")
    other(tf.zeros([1, 6]))
    assert restore(other, tmp_path / "run") is other
    for i, leaf in enumerate(names.of(other).variables.values()):
        assert np.unique(leaf.value) == [1000 + i]
    restore(other, folder / "ckpt-9")
    assert float(other.factor) == 900
    wrong = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
    with pytest.raises(Refusal, match="has no model/dense/kernel; expected a checkpoint of this"):
        restore(wrong, tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        restore(other, tmp_path)


@pytest.mark.parametrize(
    ("file", "save"),
    [
        ("model.weights.h5", lambda model, file: model.save_weights(file)),
        ("model.keras", lambda model, file: model.save(file)),
        ("exported", lambda model, file: model.export(file, verbose=False)),
        ("saved", tf.saved_model.save),
        ("checkpoint", lambda model, file: tf.train.Checkpoint(net=model).write(file)),
        ("root", lambda model, file: tf.train.Checkpoint(model).write(file)),
    ],
)
def test_files_of_keras_fill_an_export(tmp_path, file, save):
    def build() -> Model:
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(3)]
        )
        return Model(model, [VECTOR, CLASS], ENTROPY, "y")

    saved, fresh = build(), build()
    file = str(tmp_path / file)
    save(saved.model, file)
    weights.load(fresh, file)
    theirs, mine = (names.of(user.model).variables for user in (saved, fresh))
    for path, leaf in theirs.items():
        np.testing.assert_array_equal(mine[path].value, leaf.value, err_msg=path)
    small = Model(keras.Sequential([keras.Input((5,)), layers.Dense(2)]), [VECTOR, CLASS])
    with pytest.raises(Refusal, match="does not fit the model"):
        weights.load(small, file)


def test_a_checkpoint_without_what_lists_hold_is_refused(tmp_path):
    saved = nested()
    saved.model(tf.zeros([1, 6]))
    file = tf.train.Checkpoint(model=saved.model).write(str(tmp_path / "nested"))
    with pytest.raises(Refusal, match="has no model/blocks/0/inner/kernel, as TensorFlow's check"):
        weights.load(saved, file)
    plain = Model(keras.Sequential([keras.Input((6,)), layers.Dense(3)]), [VECTOR])
    pair = tf.train.Checkpoint(a=tf.Variable(1.0), b=plain.model).write(str(tmp_path / "pair"))
    with pytest.raises(Refusal, match=r"does not fit the model \(it holds a, b\); expected a chec"):
        weights.load(plain, pair)


def test_tf_keras_with_one_output_per_example():
    """Labels [B] and outputs [B, 1] are compared one by one, as tf-keras' fit does."""
    legacy = pytest.importorskip("tf_keras")
    label, y = tf.constant([1.0, 0.0, 1.0]), tf.constant([[0.8], [0.4], [0.3]])
    for loss, expected in (
        (legacy.losses.BinaryCrossentropy(), -np.log([0.8, 0.6, 0.3])),
        (legacy.losses.MeanSquaredError(), np.square([0.2, 0.4, 0.7])),
    ):
        values, _ = losses.of_examples(losses.Term(loss, y, label, 1.0, "y"))
        np.testing.assert_allclose(values, expected, rtol=1e-5)
    measured = metrics.Measured("accuracy", legacy.metrics.BinaryAccuracy(), 0)
    sums = measured.sums(label, y, tf.constant([1.0, 1.0, 2.0]))
    assert sorted(float(v) for v in sums.values()) == [2.0, 4.0]
