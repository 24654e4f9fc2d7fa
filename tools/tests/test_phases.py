"""A model with phases is refused in one sentence, or has them in its contract."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
from keras import layers

from gorbit_export import Feature, Model, Phase, Refusal, export
from gorbit_export.errors import UsageError
from gorbit_export.models import task

FEATURES = [
    Feature("image", "float32", (None, 6), label=True),
    Feature("noise", "float32", (None, 2)),
]
cross = tf.nn.sigmoid_cross_entropy_with_logits


class GAN(keras.Model):
    """A generator and a discriminator of a layer each."""

    def __init__(self, *more: layers.Layer) -> None:
        super().__init__()
        self.generator = keras.Sequential([keras.Input((2,)), *more, layers.Dense(6)])
        self.discriminator = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, noise, training=False):
        return self.generator(noise, training=training)

    def of_discriminator(self, batch, training):
        real = self.discriminator(batch["image"])[:, 0]
        fake = self.discriminator(self.generator(batch["noise"], training=training))[:, 0]
        return cross(tf.ones_like(real), real) + cross(tf.zeros_like(fake), fake)

    def of_generator(self, batch, training):
        fake = self.discriminator(self.generator(batch["noise"], training=training))[:, 0]
        return cross(tf.ones_like(fake), fake)


class OwnStep(GAN):
    """Has a train_step, as in Keras."""

    def train_step(self, data):
        raise NotImplementedError


def gan(model: GAN, first: dict[str, Any], second: dict[str, Any], **more: Any) -> Model:
    one = {
        "name": "discriminator",
        "loss": model.of_discriminator,
        "variables": model.discriminator.trainable_variables,
        "optimizer": keras.optimizers.Adam(4e-3),
    }
    two = {
        "name": "generator",
        "loss": model.of_generator,
        "variables": model.generator.trainable_variables,
        "optimizer": keras.optimizers.Adam(1e-3),
    }
    phases = [Phase(**{**one, **first}), Phase(**{**two, **second})]
    given = {"features": FEATURES, "phases": phases, "evaluate": model.of_generator}
    return Model(model=model, **{**given, **more})


def refused(user: Model) -> str:
    with pytest.raises(Refusal) as error:
        made = task.ModelTask(user)
        made.inspect(export.Export(made, made.optimizer))
    text = str(error.value)
    assert "\n" not in text
    return text


shared = keras.optimizers.Adam()
scheduled = keras.optimizers.schedules.ExponentialDecay(1e-3, 10, 0.9)


@pytest.mark.parametrize(
    ("first", "second", "more", "want"),
    [
        ({"name": "a b"}, {}, {}, "a phase is called 'a b'; expected letters, digits and _"),
        ({"name": "generator"}, {}, {}, "two phases are called generator"),
        ({"loss": 1}, {}, {}, "the loss of phase discriminator is 1; expected a function"),
        ({"every": 0}, {}, {}, "phase discriminator has every=0; expected a number of steps"),
        ({"every": True}, {}, {}, "phase discriminator has every=True; expected a number of steps"),
        ({}, {"every": 2, "offset": True}, {}, "phase generator has every=2 and offset=True"),
        ({"every": 2}, {"every": 2}, {}, "no phase has every=1"),
        ({}, {"every": 2, "offset": 2}, {}, "phase generator has every=2 and offset=2"),
        ({"optimizer": shared}, {"optimizer": shared}, {}, "have one optimizer; expected one of"),
        ({"optimizer": 3}, {}, {}, "the optimizer of phase discriminator is 3"),
        ({"optimizer": keras.optimizers.Adam(scheduled)}, {}, {}, "one optimizer has a schedule"),
        ({"optimizer": keras.optimizers.Adam(global_clipnorm=1.0)}, {}, {}, "global_clipnorm"),
        ({"variables": []}, {}, {}, "is trained and in no phase; expected it in the variables of"),
        ({}, {}, {"optimizer": "adam"}, "there are an optimizer= and phases="),
        ({}, {}, {"evaluate": None}, "phases say how to train and not how to evaluate"),
        ({}, {}, {"loss": "mse", "labels": "image"}, "an evaluate= and a loss= or metrics="),
    ],
)
def test_refused(first: dict, second: dict, more: dict, want: str) -> None:
    assert want in refused(gan(GAN(), first, second, **more))


def test_refused_losses() -> None:
    model = GAN()

    def mean(batch, training):
        return tf.reduce_mean(model.of_generator(batch, training))

    def twice(batch, training):
        return tf.concat([model.of_generator(batch, training)] * 2, 0)

    def named(batch, training):
        losses = model.of_generator(batch, training)
        return losses, {"loss": losses}

    def drawn(batch, training):
        noise = keras.random.normal(tf.shape(batch["noise"]), seed=model.seeds)
        return model.of_generator({**batch, "noise": noise}, training)

    def unseeded(batch, training):
        noise = tf.random.normal(tf.shape(batch["noise"]))
        return model.of_generator({**batch, "noise": noise}, training)

    what = "the loss of phase generator gives"
    for loss, want in (
        (mean, f"{what} a loss of the shape []; expected a number per example, [examples]"),
        (twice, f"{what} 10 numbers as loss for 5 examples; expected one of each"),
        (named, f"{what} a metric called 'loss'"),
        (unseeded, "gradients_generator draws random numbers with RandomStandardNormal"),
    ):
        assert want in refused(gan(model, {}, {"loss": loss}))
    text = refused(gan(model, {}, {}, evaluate=drawn))
    assert "evaluate draws random numbers for loss; expected them in training only" in text
    both = model.generator.trainable_variables + model.discriminator.trainable_variables
    assert "is in the phases discriminator and generator" in refused(
        gan(model, {}, {"variables": both})
    )
    model = GAN(layers.SpectralNormalization(layers.Dense(4)))
    assert "assigns the trained variable model/generator" in refused(gan(model, {}, {}))
    plain = Model(keras.Sequential([keras.Input((2,)), layers.Dense(1)]), FEATURES)
    plain.evaluate = model.of_generator
    assert "there is an evaluate= and no phases=" in refused(plain)


def test_contract(tmp_path) -> None:
    """The contract of phases, whose rates are factors of the largest."""
    made = task.ModelTask(gan(OwnStep(), {}, {"every": 3, "offset": 2}))
    assert any("the train_step of OwnStep is not called" in note for note in made.notes)
    with pytest.raises(UsageError, match="XLA compiles no step of several phases"):
        export.write(made, made.optimizer, tmp_path / "xla", xla=True)
    contract = export.write(made, made.optimizer, tmp_path / "gan").contract()
    assert contract["phases"] == [
        {"name": "discriminator", "every": 1, "offset": 0},
        {"name": "generator", "every": 3, "offset": 2},
    ]
    assert contract["optimizer"]["defaults"]["learning_rate"] == 0.004
    rates = {v["name"]: (v["phase"], v.get("learning_rate", 1)) for v in contract["variables"]}
    assert rates["model/generator/dense/kernel"] == ("generator", 0.25)
    assert rates["model/discriminator/dense/kernel"] == ("discriminator", 1)
    loaded = tf.saved_model.load(str(tmp_path / "gan"))
    assert not hasattr(loaded, "gradients") and not hasattr(loaded, "train_step")


def test_own_train_step_is_refused() -> None:
    model = OwnStep()
    text = refused(Model(model, FEATURES, loss="mse", labels="image"))
    assert "OwnStep has a train_step of its own" in text and "phases= for losses" in text


def test_patterns_of_optimizers() -> None:
    """Several optimizers of one loss, by the names of variables."""
    net = keras.Sequential([keras.Input((2,)), layers.Dense(3, name="a"), layers.Dense(6)])
    user = Model(net, FEATURES, loss="mse", labels="image")
    user.optimizer = [("dense", keras.optimizers.SGD())]
    assert "no pattern of optimizer= is found in model/a/" in refused(user)
    user.optimizer = [("a", keras.optimizers.SGD()), ("", keras.optimizers.Adam())]
    assert "the optimizer of 'a' updates no variable" in refused(user)
