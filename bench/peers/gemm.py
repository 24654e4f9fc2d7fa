"""The machine's peak: the model's own products and nothing else, through TensorFlow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from harness import lines, plan
from peers import device
from peers.base import Variant, Worker

SECONDS = 0.4
"""How long each product is repeated."""

SIDE_BY_SIDE, IN_A_ROW = 16, 8
"""Products in a call, and calls before a GPU is waited for: one alone would measure the call."""


class Gemm(Worker):
    """The dense layers' products, forward and both backward, in float32.

    With the option `masked`, the number of masked tokens, also those of the head of a masked
    language model. With `shapes`, those of another model: rows, both widths, and how many.
    """

    name = "gemm"
    venv = ""
    variants = (
        Variant("onednn", "oneDNN on", {"TF_ENABLE_ONEDNN_OPTS": "1"}, on=("cpu",)),
        Variant("eigen", "oneDNN off", {"TF_ENABLE_ONEDNN_OPTS": "0"}, on=("cpu",)),
        Variant("gpu", "TensorFlow on the GPU", on=("gpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Reports operations per second, with the fastest of many repeats of each product."""
        import tensorflow as tf

        device.tensorflow(job)
        report.info(tensorflow=tf.__version__)

        @tf.function
        def forward(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
            return tf.matmul(x, w)

        @tf.function
        def to_input(dy: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
            return tf.matmul(dy, w, transpose_b=True)

        @tf.function
        def to_weights(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
            return tf.matmul(x, dy, transpose_a=True)

        if "shapes" in job.options:
            shapes = json.loads(job.options["shapes"])
        else:
            rows = int(job.options["rows"])
            shapes = [(rows, *widths, job.shape.layers) for widths in products(job.shape)]
        if masked := int(job.options.get("masked", 0)):
            hidden = job.shape.hidden
            shapes += [(masked, hidden, hidden, 1), (masked, hidden, plan.VOCAB, 1)]
        flop = seconds = 0.0
        for rows, inner, outer, times in shapes:
            x = tf.random.normal([rows, inner])
            w = tf.random.normal([inner, outer])
            dy = tf.random.normal([rows, outer])
            for product, a, b in ((forward, x, w), (to_input, dy, w), (to_weights, x, dy)):
                flop += times * 2 * rows * inner * outer
                seconds += times * (on_gpu if job.gpu else on_cpu)(product, a, b)
        report.info(rate=flop / seconds)


def on_cpu(product: Callable[[Any, Any], Any], a: Any, b: Any) -> float:
    """Seconds of a product on the CPU, at its fastest."""
    product(a, b)
    best, until = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        start = time.perf_counter()
        product(a, b).numpy()
        best = min(best, time.perf_counter() - start)
    return best


def on_gpu(product: Callable[[Any, Any], Any], a: Any, b: Any) -> float:
    """Seconds of a product on the GPU, at its fastest, results left there.

    Every product of a call has a left operand of its own: equal ones would be done once.
    """
    import tensorflow as tf

    many = [tf.random.normal(a.shape) for _ in range(SIDE_BY_SIDE)]

    @tf.function
    def call(many: list[tf.Tensor], b: tf.Tensor) -> list[tf.Tensor]:
        return [product(a, b) for a in many]

    def wait() -> float:
        for _ in range(IN_A_ROW):
            call(many, b)
        tf.test.experimental.sync_devices()
        return time.perf_counter()

    best, before = float("inf"), wait()
    until = before + SECONDS
    while before < until:
        after = wait()
        best, before = min(best, after - before), after
    return best / (SIDE_BY_SIDE * IN_A_ROW)


def products(shape: plan.Size) -> list[tuple[int, int]]:
    """Widths of the four products of a layer: q, k and v; output; up; down."""
    hidden, inner = shape.hidden, shape.inner
    return [(hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)]
