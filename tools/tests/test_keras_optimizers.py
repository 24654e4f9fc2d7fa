"""Optimizers of Keras as update functions, next to Keras' own three steps."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, optimizers

from gorbit_export import Feature, Model, Refusal, export
from gorbit_export import optimizers as own
from gorbit_export.models import optimizer as keras_optimizers
from gorbit_export.models import task

SHAPES = [(6, 5), (5,), (3, 3, 2, 4)]
STEPS = 3
FACTORIES = {
    "SGD": optimizers.SGD,
    "SGD nesterov": lambda: optimizers.SGD(momentum=0.9, nesterov=True),
    "RMSprop": lambda: optimizers.RMSprop(centered=True, momentum=0.9),
    "Adam": optimizers.Adam,
    "Adam amsgrad": lambda: optimizers.Adam(amsgrad=True),
    "AdamW": lambda: optimizers.AdamW(weight_decay=0.1),
    "Adadelta": optimizers.Adadelta,
    "Adagrad": optimizers.Adagrad,
    "Adamax": optimizers.Adamax,
    "Ftrl": optimizers.Ftrl,
    "Adafactor": optimizers.Adafactor,
    "Lion": optimizers.Lion,
    "Lamb": optimizers.Lamb,
    "Muon": optimizers.Muon,
    "Nadam": optimizers.Nadam,
}
ANY_SHAPE = {"SGD", "SGD nesterov", "Adam", "Adam amsgrad", "AdamW", "Adagrad", "Adamax", "Lamb"}


@pytest.mark.parametrize("name", FACTORIES)
def test_updates_are_those_of_keras(name):
    rng = np.random.default_rng(0)
    make = FACTORIES[name]
    optimizer = keras_optimizers.make(make(), {})
    rules = {shape: optimizer.rule(f"model/v{i}", shape) for i, shape in enumerate(SHAPES)}
    functions = {rule.function for rule in rules.values()}
    assert len(functions) == (1 if name in ANY_SHAPE else len(SHAPES))
    traced = {}
    scalars = [tf.TensorSpec([], tf.float32, n) for n in ("learning_rate", "weight_decay")]
    for shape in SHAPES:
        rule = rules[shape]
        if rule.function not in traced:
            traced[rule.function] = export._function(
                rule.function,
                lambda rule=rule, **inputs: export._update(rule, **inputs),
                export._update_specs(rule, scalars),
                False,
            ).get_concrete_function()
        function = traced[rule.function]
        assert not function.captured_inputs
        value = rng.normal(size=shape).astype("float32")
        theirs, reference = keras.Variable(value, name="variable"), make()
        reference.build([theirs])
        reference.learning_rate = 0.01
        mine = tf.Variable(value)
        slots = {
            slot: tf.Variable(tf.fill(rule.slot_shape(slot, shape), rule.initial(slot)))
            for slot in rule.slots
        }
        decay = float(reference.weight_decay or 0)
        for step in range(1, STEPS + 1):
            gradient = rng.normal(size=shape).astype("float32")
            reference.apply([tf.constant(gradient)], [theirs])
            function(
                variable=mine.handle,
                **{slot: v.handle for slot, v in slots.items()},
                gradient=tf.constant(gradient * 4),
                gradient_scale=tf.constant(0.25),
                iteration=tf.constant(step, tf.int64),
                learning_rate=tf.constant(0.01),
                weight_decay=tf.constant(decay),
            )
        np.testing.assert_allclose(mine, theirs.numpy(), atol=2e-6, err_msg=str(shape))


def test_names_are_those_of_keras():
    made = keras_optimizers.make("AdamW", {})
    assert made.name == "keras-adamw"
    assert made.defaults == {
        "learning_rate": 0.001,
        "schedule": "constant",
        "warmup_ratio": 0,
        "clip_norm": 0,
        "weight_decay": 0.004,
    }
    assert isinstance(keras_optimizers.make(None, {}), own.AdamW)


def test_a_slot_that_begins_as_the_variable_is_refused():
    made = keras_optimizers.make("schedulefreeadamw", {})
    with pytest.raises(Refusal, match="begins with different numbers in momentum"):
        made.rule("model/v", (1,))


def constrained() -> Model:
    maximum = keras.constraints.MaxNorm(0.8, axis=0)
    return Model(
        model=keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(5, kernel_constraint=maximum, bias_constraint="non_neg"),
                layers.Dense(5, kernel_constraint="unit_norm"),
                layers.Dense(1, kernel_constraint=lambda w: tf.clip_by_value(w, -0.1, 0.1)),
            ]
        ),
        features=[
            Feature("x", "float32", (None, 6)),
            Feature("y", "float32", (None, 1), label=True),
        ],
        loss="mse",
        labels="y",
    )


@pytest.mark.parametrize("theirs", [True, False])
def test_constraints_hold_after_each_step_as_in_keras(theirs):
    user = constrained()
    user.optimizer = optimizers.SGD(momentum=0.9) if theirs else own.SGD()
    made = task.ModelTask(user)
    module = export.Export(made, made.optimizer)
    made.inspect(module)
    twin = constrained().model
    twin.set_weights(user.model.get_weights())
    twin.compile(optimizers.SGD(0.05, momentum=0.9), "mse", jit_compile=False)
    scalars = {h.name: h.default for h in made.optimizer.hyperparameters}
    scalars |= {"learning_rate": 0.05, "weight_decay": 0.0, "clip_norm": 0.0}
    for seed in range(STEPS):
        rng = np.random.default_rng(seed)
        batch = {"x": rng.normal(size=(8, 6)), "y": rng.normal(size=(8, 1))}
        batch = {name: value.astype("float32") for name, value in batch.items()}
        twin.train_on_batch(batch["x"], batch["y"])
        module.train_step(
            **{name: tf.constant(value) for name, value in batch.items()},
            example_weights=tf.ones([8]),
            seed=tf.constant([1, seed], tf.int64),
            **{name: tf.constant(value, tf.float32) for name, value in scalars.items()},
        )
        for mine, want in zip(user.model.get_weights(), twin.get_weights()):
            np.testing.assert_allclose(mine, want, atol=2e-6)
    assert (user.model.layers[0].bias.numpy() >= 0).all()


def test_gorbit_does_not_take_them_for_its_own():
    """Gorbit has kernels for its own optimizers, which it recognizes by name."""
    for make in FACTORIES.values():
        assert keras_optimizers.make(make(), {}).name not in own.OPTIMIZERS


def test_muon_treats_embeddings_and_vectors_as_adam():
    optimizer = keras_optimizers.make(optimizers.Muon(exclude_layers=["head"]), {})
    kernel = optimizer.rule("model/dense/kernel", (6, 5))
    again = optimizer.rule("model/dense_1/kernel", (6, 5))
    table = optimizer.rule("model/embedding/embeddings", (6, 5))
    head = optimizer.rule("model/head/kernel", (6, 5))
    assert kernel is again
    assert table is head
    assert kernel is not table


def test_muon_decays_what_it_treats_as_adam_otherwise():
    holders = {
        "model/dense/kernel": keras.Variable(np.ones((6, 5)), name="kernel"),
        "model/dense/bias": keras.Variable(np.ones(5), name="bias"),
    }
    muon = optimizers.Muon(weight_decay=0.1, adam_weight_decay=0.05)
    made = keras_optimizers.make(muon, holders)
    assert [made.decays(path) for path in holders] == [True, 0.5]


class Rising(optimizers.schedules.LearningRateSchedule):
    """A warmup and a decay, as of the first Transformer; it has no get_config()."""

    def __call__(self, step):
        step = tf.cast(step, tf.float32) + 1
        return 0.1 * tf.minimum(tf.math.rsqrt(step), step / 2)


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        (optimizers.AdamW, optimizers.schedules.CosineDecay(0.1, 4)),
        (optimizers.SGD, Rising()),
        (optimizers.RMSprop, optimizers.schedules.PiecewiseConstantDecay([1], [0.1, 0.01])),
    ],
)
def test_schedules_are_those_of_keras(optimizer, rate):
    def build():
        return keras.Sequential([keras.Input((6,)), layers.Dense(3)])

    features = [Feature("x", "float32", (None, 6)), Feature("y", "float32", (None, 3), label=True)]
    made = task.ModelTask(Model(build(), features, "mse", "y", optimizer=optimizer(rate)))
    module = export.Export(made, made.optimizer)
    twin = build()
    twin.set_weights(made.user.model.get_weights())
    twin.compile(optimizer(rate), "mse", jit_compile=False)
    described = module.contract()["optimizer"]
    assert described["scheduled"] is True
    scalars = {"learning_rate": described["defaults"]["learning_rate"], "clip_norm": 0.0}
    scalars["weight_decay"] = described["defaults"]["weight_decay"]
    for seed in range(STEPS):
        rng = np.random.default_rng(seed)
        x, y = (rng.normal(size=(8, n)).astype("float32") for n in (6, 3))
        twin.train_on_batch(x, y)
        module.train_step(
            x=tf.constant(x),
            y=tf.constant(y),
            example_weights=tf.ones([8]),
            seed=tf.constant([1, seed], tf.int64),
            **{name: tf.constant(value, tf.float32) for name, value in scalars.items()},
        )
    for mine, want in zip(made.user.model.get_weights(), twin.get_weights()):
        np.testing.assert_allclose(mine, want, atol=1e-5)


def test_slots_that_do_not_begin_at_zero():
    rule = keras_optimizers.make(optimizers.Adagrad(initial_accumulator_value=0.3), {}).rule(
        "model/v", (3,)
    )
    assert [rule.initial(slot) for slot in rule.slots] == [pytest.approx(0.3)]


def test_what_keras_does_not_decay():
    optimizer = optimizers.AdamW(weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    holders = {
        f"model/{name}": keras.Variable(np.ones(2), name=name) for name in ("bias", "kernel")
    }
    made = keras_optimizers.make(optimizer, holders)
    assert [made.decays(path) for path in holders] == [False, True]
    made = keras_optimizers.make(optimizers.Adam(), holders)
    assert [made.decays(path) for path in holders] == [False, False]


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            optimizers.SGD(use_ema=True),
            "SGD has use_ema=True; moving averages of variables are not kept",
        ),
        (
            optimizers.SGD(gradient_accumulation_steps=2),
            "SGD has gradient_accumulation_steps=2; gorbit div",
        ),
        (optimizers.Adam(clipnorm=1.0), "Adam has clipnorm=1.0; gorbit clips by the global norm"),
        (optimizers.Adam(clipvalue=1.0), "Adam has clipvalue=1.0; gorbit clips by the global norm"),
        (
            optimizers.Adam(loss_scale_factor=2.0),
            "Adam has loss_scale_factor=2.0; gorbit scales the loss",
        ),
        (
            optimizers.LossScaleOptimizer(optimizers.Adam()),
            "LossScaleOptimizer scales the loss, which gorbit does",
        ),
        (optimizers.Adam(lambda: 0.1), "the schedule of Adam is a function without the step, who"),
        (optimizers.Adam(lambda step: 0.1 if step < 3 else 0.01), "the schedule of Adam fails: Op"),
        ("adm", "the optimizer is 'adm'; expected one of adadelta, adafactor, adagrad, adam, "),
        (3, "the optimizer is 3; expected one of keras.optimizers or its name, or one of gorbit"),
    ],
)
def test_settings_of_the_run_are_refused(optimizer, message):
    with pytest.raises(Refusal) as error:
        keras_optimizers.make(optimizer, {})
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
