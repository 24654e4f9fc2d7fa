"""How initial values are drawn, as an export describes it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from keras import initializers as init

from gorbit_export import layers
from gorbit_export.__main__ import main
from gorbit_export.models import initializers, userfile

SHAPE = (3, 3, 40, 200)


@pytest.mark.parametrize(
    ("initializer", "kind", "mean"),
    [
        (init.RandomNormal(0.5, 0.2), "normal", 0.5),
        (init.TruncatedNormal(-1.0, 0.3), "truncated_normal", -1.0),
        (init.RandomUniform(0.0, 4.0), "uniform", 2.0),
        (init.GlorotUniform(), "uniform", 0),
        (init.GlorotNormal(), "truncated_normal", 0),
        (init.HeUniform(), "uniform", 0),
        (init.HeNormal(), "truncated_normal", 0),
        (init.LecunUniform(), "uniform", 0),
        (init.LecunNormal(), "truncated_normal", 0),
        (init.VarianceScaling(2.0, "fan_out", "untruncated_normal"), "normal", 0),
        (
            init.VarianceScaling(input_axes=(0,), output_axes=(1, 2), distribution="uniform"),
            "uniform",
            0,
        ),
    ],
)
def test_distributions_are_those_of_keras(initializer, kind, mean):
    found = initializers.of(initializer, SHAPE)
    assert (found.kind, found.mean) == (kind, mean)
    values = np.asarray(initializer(SHAPE), "float64")
    # The standard deviation of the draws, and their largest distance from the mean.
    deviation, most = {
        "normal": (found.scale, None),
        "truncated_normal": (0.87962566 * found.scale, 2 * found.scale),
        "uniform": (found.scale / 3**0.5, found.scale),
    }[kind]
    assert values.std() == pytest.approx(deviation, rel=0.02)
    assert values.mean() == pytest.approx(mean, abs=0.02 * deviation)
    if most:
        assert 0.99 * most < np.abs(values - mean).max() <= most * (1 + 1e-6)


class Mine(init.GlorotUniform):
    """A subclass may draw values in any way."""


@pytest.mark.parametrize(
    ("initializer", "expected"),
    [
        (init.Zeros(), None),
        (init.Constant(3.0), None),
        (init.Identity(), None),
        (init.RandomNormal(1.0, 0.0), None),
        (init.RandomUniform(1.0, 1.0), None),
        (init.Orthogonal(), layers.UNKNOWN),
        (Mine(), layers.UNKNOWN),
        (lambda shape, dtype: init.Zeros()(shape, dtype), layers.UNKNOWN),
    ],
)
def test_what_is_given_and_what_is_unknown(initializer, expected):
    assert initializers.of(initializer, (4, 4)) == expected


MODEL = """
import keras
import numpy as np
from keras import layers
from gorbit_export import Feature, Model


class Net(keras.Model):
    def __init__(self, given):
        super().__init__()
        self.scale = self.add_weight(shape=(6,), initializer="random_uniform", name="scale")
        self.shift = keras.Variable(np.arange(6.0), dtype="float32")
        self.one, self.two = layers.Dense(8), layers.Dense(8, kernel_initializer="orthogonal")
        self.lstm, self.given = layers.LSTM(8), given
        self.norm, self.head = layers.BatchNormalization(), layers.Dense(3)

    def call(self, x):
        y = self.two(self.one(x * self.scale + self.shift))
        y = self.norm(self.given(y))
        return self.head(self.lstm(y[:, None]))


def build() -> Model:
    given = layers.Dense(8)
    given.build((None, 8))
    given.kernel.assign(np.eye(8))  # what the user's file gives is kept
    return Model(
        model=Net(given),
        features=[Feature("x", "float32", (None, 6)), Feature("y", "int32", (None,), True)],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        labels="y",
        optimizer="sgd",
    )
"""


def exported(tmp_path, name, *words):
    """Exports MODEL, and returns the variables' initializers by name."""
    assert main(["keras", str(tmp_path / "model.py"), "--out", str(tmp_path / name), *words]) == 0
    contract = json.loads((tmp_path / name / "assets" / "gorbit.json").read_text())
    return {v["name"]: v.get("initializer") for v in contract["variables"]}


def test_an_export_tells_how_its_variables_are_drawn(only_contract, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    found = exported(tmp_path, "drawn")
    assert {name.removeprefix("model/"): how for name, how in found.items() if how} == {
        "scale": {"kind": "uniform", "scale": 0.05},
        "one/kernel": {"kind": "uniform", "scale": pytest.approx((6 / (6 + 8)) ** 0.5)},
        "two/kernel": {"kind": "unknown"},
        "lstm/cell/kernel": {"kind": "uniform", "scale": pytest.approx((6 / (8 + 32)) ** 0.5)},
        "lstm/cell/recurrent_kernel": {"kind": "unknown"},
        "head/kernel": {"kind": "uniform", "scale": pytest.approx((6 / (8 + 3)) ** 0.5)},
    }


def test_values_of_a_file_are_not_drawn(only_contract, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    net = userfile.load(str(tmp_path / "model.py"))().model
    net(np.zeros((1, 6), "float32"))
    for variable in net.trainable_variables:
        variable.assign(variable + 0.5)
    net.save_weights(tmp_path / "net.weights.h5")
    found = exported(tmp_path, "loaded", "--weights", str(tmp_path / "net.weights.h5"))
    assert not any(found.values())
