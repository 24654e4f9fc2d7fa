"""Writes golden.json: schedules and number formats from outside Go.

Run from this folder with the checkout's Python:  ../../.venv/bin/python golden.py

Schedules: Keras' own where it has them, else the multipliers that Hugging
Face's get_*_schedule functions hand to LambdaLR, written down from their
documentation (neither torch nor transformers is needed). Plateaus: Keras'
ReduceLROnPlateau. Formats: NumPy's repr.
"""

import json
import math
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

PEAK = 5e-5


def hf_warmup(step, warmup):
    return step / max(1, warmup)


def hf_constant(step, warmup):
    return hf_warmup(step, warmup) if step < warmup else 1.0


def hf_linear(step, warmup, total):
    if step < warmup:
        return hf_warmup(step, warmup)
    return max(0.0, (total - step) / max(1, total - warmup))


def hf_polynomial(step, warmup, total, end, power):
    if step < warmup:
        return hf_warmup(step, warmup)
    if step > total:
        return end / PEAK
    remaining = 1 - (step - warmup) / (total - warmup)
    return ((PEAK - end) * remaining**power + end) / PEAK


def hf_cosine(step, warmup, total, cycles=0.5, min_rate=0.0):
    if step < warmup:
        return hf_warmup(step, warmup)
    progress = (step - warmup) / max(1, total - warmup)
    factor = 0.5 * (1 + math.cos(math.pi * cycles * 2 * progress))
    return max(0.0, factor * (1 - min_rate) + min_rate)


def hf_restarts(step, warmup, total, cycles=1):
    if step < warmup:
        return hf_warmup(step, warmup)
    progress = (step - warmup) / max(1, total - warmup)
    if progress >= 1:
        return 0.0
    return max(0.0, 0.5 * (1 + math.cos(math.pi * ((cycles * progress) % 1.0))))


def hf_inverse_sqrt(step, warmup, timescale=None):
    if step < warmup:
        return hf_warmup(step, warmup)
    timescale = timescale or warmup or 10_000
    return 1 / math.sqrt((step + timescale - warmup) / timescale)


def hf_wsd(step, warmup, total, decay, shape):
    stable = total - warmup - decay
    if step < warmup:
        return hf_warmup(step, warmup)
    if step < warmup + stable:
        return 1.0
    if step >= warmup + stable + decay:
        return 0.0
    progress = (step - warmup - stable) / max(1, decay)
    if shape == "linear":
        return 1.0 - progress
    if shape == "1-sqrt":
        return 1.0 - math.sqrt(progress)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def points(step, at, factors):
    return float(np.interp(step, at, factors))


def schedules():
    cases = []

    def add(source, config, steps, rate, tolerance=1e-12):
        config = {"peak_learning_rate": PEAK, **config}
        values = [[s, float(rate(s))] for s in steps]
        cases.append(
            {
                "source": source,
                "config": config,
                "values": values,
                "tolerance": tolerance,
            }
        )

    def hf(config, steps, multiplier):
        add("transformers", config, steps, lambda s: PEAK * multiplier(s))

    # What MRPC makes of 3 epochs of 3,668 pairs in batches of 32.
    total, warmup = 345, math.ceil(345 * 0.1)
    steps = [
        0,
        1,
        2,
        17,
        warmup - 1,
        warmup,
        warmup + 1,
        100,
        200,
        300,
        total - 1,
        total,
    ]
    beyond = [total + 1, total + 50]
    ratio = {"total_steps": total, "warmup_ratio": 0.1}
    hf({"name": "constant"}, steps + beyond, lambda s: hf_constant(s, 0))
    hf(
        {"name": "constant", "warmup_steps": 10},
        steps + beyond,
        lambda s: hf_constant(s, 10),
    )
    hf(
        {"name": "plateau", "warmup_steps": 10},
        steps + beyond,
        lambda s: hf_constant(s, 10),
    )
    hf(
        {"name": "linear", **ratio},
        steps + beyond,
        lambda s: hf_linear(s, warmup, total),
    )
    hf(
        {"name": "linear", "total_steps": total},
        steps + beyond,
        lambda s: hf_linear(s, 0, total),
    )
    hf(
        {"name": "linear", "total_steps": 10, "warmup_steps": 10},
        [0, 9, 10, 11],
        lambda s: hf_linear(s, 10, 10),
    )
    for power in (1.0, 2.0, 0.5):
        hf(
            {"name": "polynomial", **ratio, "power": power, "end_learning_rate": 1e-7},
            steps + beyond,
            lambda s, power=power: hf_polynomial(s, warmup, total, 1e-7, power),
        )
    hf({"name": "cosine", **ratio}, steps, lambda s: hf_cosine(s, warmup, total))
    hf(
        {"name": "cosine", **ratio, "cycles": 1.5},
        steps,
        lambda s: hf_cosine(s, warmup, total, 1.5),
    )
    hf(
        {"name": "cosine", **ratio, "end_learning_rate": PEAK / 10},
        steps,
        lambda s: hf_cosine(s, warmup, total, 0.5, 0.1),
    )
    hf(
        {"name": "cosine_with_restarts", **ratio},
        steps + beyond,
        lambda s: hf_restarts(s, warmup, total),
    )
    hf(
        {"name": "cosine_with_restarts", **ratio, "cycles": 4},
        steps + beyond,
        lambda s: hf_restarts(s, warmup, total, 4),
    )
    hf(
        {"name": "inverse_sqrt", "warmup_steps": 35},
        steps + beyond,
        lambda s: hf_inverse_sqrt(s, 35),
    )
    hf({"name": "inverse_sqrt"}, steps + [20_000], lambda s: hf_inverse_sqrt(s, 0))
    hf(
        {"name": "inverse_sqrt", "warmup_steps": 35, "timescale": 500},
        steps,
        lambda s: hf_inverse_sqrt(s, 35, 500),
    )

    for shape in ("cosine", "linear", "1-sqrt"):
        decay = math.ceil(total * 0.2)
        hf(
            {"name": "wsd", **ratio, "decay_ratio": 0.2, "decay_shape": shape},
            [*steps, 275, 276, 277, *beyond],
            lambda s, shape=shape, decay=decay: hf_wsd(s, warmup, total, decay, shape),
        )
    hf(
        {"name": "wsd", "total_steps": total, "decay_steps": 10},
        [*steps, *beyond],
        lambda s: hf_wsd(s, 0, total, 10, "cosine"),
    )
    at, factors = [5, 35, 200, 345], [0.1, 1.0, 0.5, 0.0]
    add(
        "numpy.interp",
        {
            "name": "points",
            "total_steps": total,
            "points": [{"step": s, "factor": f} for s, f in zip(at, factors)],
        },
        [*steps, 5, 6, 34, 35, 199, *beyond],
        lambda s: PEAK * points(s, at, factors),
    )

    keras = tf.keras.optimizers.schedules  # float32 inside
    plain = [0, 1, 50, 172, 173, 300, 344, 345, 346, 1000]
    add(
        "keras PolynomialDecay",
        {
            "name": "polynomial",
            "total_steps": total,
            "power": 2.0,
            "end_learning_rate": 1e-6,
        },
        plain,
        keras.PolynomialDecay(PEAK, total, 1e-6, power=2.0),
        1e-5,
    )
    add(
        "keras PolynomialDecay",
        {"name": "linear", "total_steps": total, "end_learning_rate": 1e-6},
        plain,
        keras.PolynomialDecay(PEAK, total, 1e-6),
        1e-5,
    )
    add(
        "keras CosineDecay",
        {"name": "cosine", "total_steps": total, "end_learning_rate": PEAK / 4},
        plain,
        keras.CosineDecay(PEAK, total, alpha=0.25),
        1e-5,
    )
    add(
        "keras CosineDecay with warmup",
        {"name": "cosine", "total_steps": total + 20, "warmup_steps": 20},
        plain,
        keras.CosineDecay(0.0, total, warmup_target=PEAK, warmup_steps=20),
        1e-5,
    )
    # Keras' restarts go on for ever: compared up to the total only.
    add(
        "keras CosineDecayRestarts",
        {
            "name": "cosine_with_restarts",
            "total_steps": 400,
            "cycles": 4,
            "end_learning_rate": PEAK / 10,
        },
        [0, 1, 50, 99, 100, 101, 250, 399],
        keras.CosineDecayRestarts(PEAK, 100, t_mul=1.0, m_mul=1.0, alpha=0.1),
        1e-5,
    )
    # Keras' decay goes on for ever: compared up to the total only.
    add(
        "keras ExponentialDecay",
        {"name": "exponential", "total_steps": total, "end_learning_rate": PEAK * 10},
        [0, 1, 50, 172, 173, 300, 344, 345],
        keras.ExponentialDecay(PEAK, total, 10.0),
        1e-4,
    )
    return cases


def plateaus():
    """The learning rates that Keras' ReduceLROnPlateau sets, evaluation by evaluation."""
    draw = np.random.default_rng(7)
    falling = (1 / np.arange(1, 41) + draw.normal(0, 0.02, 40)).round(6).tolist()
    rising = (1 - 1 / np.arange(1, 41) + draw.normal(0, 0.02, 40)).round(6).tolist()
    flat = [0.5] * 20
    cases = []
    for mode, metrics, options in [
        ("min", falling, {"patience": 2}),
        ("min", falling, {"patience": 3, "factor": 0.5, "cooldown": 2}),
        ("min", falling, {"patience": 1, "factor": 0.2, "cooldown": 1, "min_lr": 1e-6}),
        ("min", falling, {"patience": 3, "factor": 0.7, "min_delta": 0.01}),
        ("max", rising, {"patience": 2, "factor": 0.3, "min_delta": 0.0}),
        ("max", rising, {"patience": 4, "factor": 0.5, "cooldown": 3, "min_lr": 2e-6}),
        ("min", flat, {"patience": 1, "factor": 0.5, "min_lr": 3e-6}),
        ("max", flat, {"patience": 5, "factor": 0.1, "cooldown": 5}),
        ("min", flat, {"patience": 2, "min_lr": PEAK}),
    ]:
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(optimizer=tf.keras.optimizers.SGD(PEAK), loss="mse")
        callback = tf.keras.callbacks.ReduceLROnPlateau(
            monitor="metric", mode=mode, **options
        )
        callback.set_model(model)
        callback.on_train_begin()
        rates = []
        for epoch, value in enumerate(metrics):
            callback.on_epoch_end(epoch, {"metric": value})
            rates.append(float(model.optimizer.learning_rate.numpy()))
        cases.append(
            {
                "lower_is_better": mode == "min",
                "factor": callback.factor,
                "patience": callback.patience,
                "min_delta": abs(callback.min_delta),
                "cooldown": callback.cooldown,
                "end_learning_rate": callback.min_lr,
                "metrics": metrics,
                "rates": rates,
            }
        )
    return cases


def formats():
    values = [
        0.0,
        -0.0,
        1.0,
        -2.0,
        0.1,
        0.6931472,
        1 / 3,
        2e-5,
        5e-05,
        1e-4,
        9.9999e-5,
        123456.789,
        1e7,
        16777216.0,
        1e15,
        1e16,
        3.4e38,
        1e-38,
        0.84,
        0.7573529411764706,
        100.0,
        1e-45,
    ]
    return [[v, repr(float(str(np.float32(v))))] for v in values]


if __name__ == "__main__":
    golden = {
        "schedules": schedules(),
        "plateaus": plateaus(),
        "formats": formats(),
    }
    with open(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.json"), "w"
    ) as f:
        json.dump(golden, f, indent=None, separators=(",", ":"))
        f.write("\n")
