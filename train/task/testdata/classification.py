"""Writes classification.json: metrics from outside Go.

Run from this folder with the checkout's Python:  ../../../.venv/bin/python classification.py

From lists of single predictions by their textbook definitions, F1 also by Keras, and the
correlation coefficient as Gorodkin defines it, by covariances of one-hot vectors.
"""

import json
import math
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf


def ratio(a, b):
    return a / b if b else 0.0


def metrics_of(labels, predictions, weights, classes):
    """By definition, one example at a time."""
    labels, predictions, weights = map(np.asarray, (labels, predictions, weights))
    out = {"accuracy": ratio(weights[labels == predictions].sum(), weights.sum())}
    per_class = []
    for k in range(classes):
        tp = weights[(labels == k) & (predictions == k)].sum()
        fp = weights[(labels != k) & (predictions == k)].sum()
        fn = weights[(labels == k) & (predictions != k)].sum()
        per_class.append(
            (
                ratio(tp, tp + fp),
                ratio(tp, tp + fn),
                ratio(2 * tp, 2 * tp + fp + fn),
                tp + fp + fn > 0,
            )
        )
    if classes == 2:
        out["precision"], out["recall"], out["f1"] = per_class[1][:3]
    else:
        there = [c[:3] for c in per_class if c[3]]
        out["macro_precision"], out["macro_recall"], out["macro_f1"] = (
            float(v) for v in np.mean(there, axis=0)
        )

    # Gorodkin: cov(X, Y) / sqrt(cov(X, X) cov(Y, Y)) over one-hot rows.
    x, y = np.eye(classes)[labels], np.eye(classes)[predictions]

    def cov(a, b):
        a = a - np.average(a, axis=0, weights=weights)
        b = b - np.average(b, axis=0, weights=weights)
        return sum((weights[:, None] * a * b).sum(axis=0))

    constant = (
        len(set(labels[weights > 0])) < 2 or len(set(predictions[weights > 0])) < 2
    )
    out["mcc"] = 0.0 if constant else cov(x, y) / math.sqrt(cov(x, x) * cov(y, y))
    return {k: float(v) for k, v in out.items()}


def metrics():
    cases = []
    rng = np.random.default_rng(7)

    def add(name, labels, predictions, classes, weights=None):
        weights = (
            np.ones(len(labels)) if weights is None else np.asarray(weights, float)
        )
        confusion = np.zeros((classes, classes))
        for t, p, w in zip(labels, predictions, weights):
            confusion[t, p] += w
        want = metrics_of(labels, predictions, weights, classes)
        keras = tf.keras.metrics.F1Score(average=None)
        keras.update_state(
            np.eye(classes)[labels].astype("float32"),
            np.eye(classes)[predictions].astype("float32"),
            sample_weight=weights.astype("float32"),
        )
        f1 = keras.result().numpy()
        if classes == 2:
            assert abs(f1[1] - want["f1"]) < 1e-6, name
        elif len(set(labels) | set(predictions)) == classes:
            assert abs(f1.mean() - want["macro_f1"]) < 1e-6, name
        cases.append(
            {"name": name, "confusion": confusion.flatten().tolist(), "want": want}
        )

    for classes in (2, 3, 5):
        labels = rng.integers(0, classes, 200)
        predictions = np.where(
            rng.random(200) < 0.6, labels, rng.integers(0, classes, 200)
        )
        add(f"{classes} classes", labels, predictions, classes)
        add(
            f"{classes} classes, weighted",
            labels,
            predictions,
            classes,
            rng.random(200),
        )
        add(f"{classes} classes, perfect", labels, labels, classes)
        add(f"{classes} classes, always class 0", labels, labels * 0, classes)
        add(
            f"{classes} classes, always class 0, weighted",
            labels,
            labels * 0,
            classes,
            rng.random(200),
        )
    add("never positive, none predicted", [0] * 5, [0] * 5, 2)
    add("all positive", [1] * 5, [1] * 5, 2)
    add("no true positive", [1, 1, 0], [0, 0, 1], 2)
    add("all wrong", [0, 1, 2], [1, 2, 0], 3)
    add("a class that never occurs", [0, 1, 3, 3], [0, 1, 1, 3], 5)
    return cases


if __name__ == "__main__":
    with open(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "classification.json"), "w"
    ) as f:
        json.dump(metrics(), f, indent=None, separators=(",", ":"))
        f.write("\n")
