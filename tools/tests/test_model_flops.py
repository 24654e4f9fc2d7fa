"""The floating point operations of models, counted by what runs."""

import keras
import pytest
import tensorflow as tf
from keras import layers

from gorbit_export import Feature, Model, Refusal, export
from gorbit_export.models import flops, task

IMAGE = Feature("x", "float32", (None, 8, 8, 4))
VECTOR = Feature("x", "float32", (None, 6))
TOKENS = Feature("x", "int32", (None, None), below=11)
SERIES = Feature("x", "float32", (None, None, 6))
CLASS = Feature("y", "int32", (None,), label=True)
ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def counted(model: object, feature: Feature) -> dict:
    made = task.ModelTask(Model(model, [feature, CLASS], ENTROPY, "y"))
    assert not made.notes, made.notes
    return made.description()["flops"]


def image(*inner: layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((8, 8, 4)), *inner, layers.GlobalMaxPool2D()])


@pytest.mark.parametrize(
    ("layer", "want"),
    [
        (layers.Conv2D(5, 3, padding="same"), 2 * 64 * 5 * 9 * 4),
        (layers.Conv2D(5, 3, strides=2), 2 * 9 * 5 * 9 * 4),
        (layers.Conv2D(5, 3, dilation_rate=2), 2 * 16 * 5 * 9 * 4),
        (layers.DepthwiseConv2D(3, depth_multiplier=2), 2 * 36 * 8 * 9),
        (layers.SeparableConv2D(5, 3), 2 * 36 * 4 * 9 + 2 * 36 * 4 * 5),
        # Every input number is multiplied by every number of the kernel.
        (layers.Conv2DTranspose(5, 3, strides=2), 2 * 64 * 4 * 9 * 5),
        (layers.Dense(5), 2 * 64 * 4 * 5),
    ],
)
def test_images(layer, want):
    assert counted(image(layer), IMAGE) == {"per_example": want}


def test_a_series_costs_by_its_length():
    conv = keras.Sequential(
        [keras.Input((None, 6)), layers.Conv1D(4, 3, padding="same"), layers.GlobalMaxPool1D()]
    )
    assert counted(conv, SERIES) == {
        "per_example": 0,
        "per_token": 2 * 3 * 6 * 4,
        "per_token_pair": 0,
    }


@pytest.mark.parametrize(("layer", "gates"), [(layers.LSTM(5), 4), (layers.GRU(5), 3)])
def test_a_loop_counts_as_often_as_it_runs(layer, gates):
    model = keras.Sequential([keras.Input((None, 6)), layer, layers.Dense(3)])
    each = 2 * gates * 5 * (6 + 5)
    # Keras calls the cell once before the loop, to see what it returns.
    want = {"per_example": 2 * 5 * 3 + each, "per_token": each, "per_token_pair": 0}
    assert counted(model, SERIES) == want


def test_attention_costs_by_pairs():
    x = keras.Input((None,), dtype="int32", name="x")
    h = layers.Embedding(11, 8, mask_zero=True)(x)
    h = layers.MultiHeadAttention(2, 3)(h, h)
    y = layers.Dense(3)(layers.GlobalAveragePooling1D()(h))
    want = {"per_example": 2 * 8 * 3, "per_token": 4 * 2 * 8 * 6, "per_token_pair": 2 * 2 * 6}
    assert counted(keras.Model(x, y), TOKENS) == want


class Plain(tf.Module):
    """A module of TensorFlow, with a function, a loop and an einsum; and a product of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.eye(6))
        self.out = tf.Variable(tf.ones([6, 3]))

    @tf.function
    def twice(self, x):
        w = tf.matmul(self.w, self.w)  # once for a batch, not for an example
        for _ in tf.range(2):
            x = tf.einsum("bi,ij->bj", x, w)
        return x

    def __call__(self, x):
        return tf.matmul(self.twice(x), self.out)


def test_a_module():
    assert counted(Plain(), VECTOR) == {"per_example": 2 * (2 * 6 * 6) + 2 * 6 * 3}


def test_tf_keras():
    legacy = pytest.importorskip("tf_keras")
    model = legacy.Sequential(
        [legacy.Input((6,)), legacy.layers.Dense(5), legacy.layers.Dropout(0.5)]
    )
    assert counted(model, VECTOR) == {"per_example": 2 * 6 * 5}


@pytest.mark.parametrize(
    ("equation", "shapes", "want"),
    [
        ("abc,cd->abd", [(2, 3, 4), (4, 5)], 2 * 2 * 3 * 4 * 5),
        ("...ij,...jk->...ik", [(2, 7, 3, 4), (7, 4, 5)], 2 * 2 * 7 * 3 * 4 * 5),
        ("ij->ji", [(3, 4)], 0),
    ],
)
def test_einsum(equation, shapes, want):
    tensors = [tf.zeros(shape) for shape in shapes]
    result = tf.einsum(equation, *tensors)
    attributes = ("equation", equation.encode(), "N", len(shapes))
    assert flops.operations("Einsum", tensors, attributes, [result]) == want


def test_the_profiler_of_tensorflow_counts_the_same():
    model = image(layers.Conv2D(5, 3, use_bias=False), layers.DepthwiseConv2D(3, use_bias=False))
    mine = counted(model, IMAGE)["per_example"]
    concrete = tf.function(lambda x: model.layers[1](model.layers[0](x))).get_concrete_function(
        tf.TensorSpec([1, 8, 8, 4])
    )
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    theirs = tf.compat.v1.profiler.profile(concrete.graph, options=options)
    assert mine == theirs.total_float_ops > 0


class Stubborn(tf.Module):
    """Can only run as a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones([6, 3]))
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        if self.calls == 6:  # the first five make variables and look at the outputs
            raise RuntimeError("no more")
        return tf.matmul(x, self.w)


def test_what_cannot_be_counted_is_said():
    made = task.ModelTask(Model(Stubborn(), [VECTOR, CLASS], ENTROPY, "y"))
    assert "flops" not in made.description()
    assert made.notes == ["floating point operations are not counted: RuntimeError: no more"]


def test_names_of_others():
    def made(foreign: dict) -> task.ModelTask:
        model = keras.Sequential([keras.Input((6,)), layers.Dense(3, name="fc")])
        return task.ModelTask(Model(model, [VECTOR, CLASS], ENTROPY, "y", foreign=foreign))

    kernel = {"name": "fc.weight", "transpose": True}
    one = made({"model/fc/kernel": [kernel, "old.kernel"], "model/fc/bias": "fc.bias"})
    assert one.foreign("model/fc/kernel") == [kernel, "old.kernel"]
    contract = export.Export(one, one.optimizer).contract()
    found = {v["name"]: v["foreign"] for v in contract["variables"]}
    assert found == {"model/fc/kernel": [kernel, "old.kernel"], "model/fc/bias": ["fc.bias"]}
    assert contract["model"]["flops"] == {"per_example": 2 * 6 * 3}
    for foreign, message in (
        ({"fc/kernel": "a"}, "foreign has fc/kernel, which is no variable; expected some of model"),
        ({"model/fc/kernel": {"transpose": True}}, "expected a name, or a dict of it"),
        ({"model/fc/kernel": {"name": "a", "permute": 1}}, "foreign has permute for model/fc/ker"),
        ({"model/fc/bias": {"name": "a", "transpose": True}}, "of 1 axes; expected a matrix"),
    ):
        with pytest.raises(Refusal, match=message):
            made(foreign)
