"""The machine's peak: the model's own products and nothing else, through TensorFlow."""

from __future__ import annotations

import time

from harness import lines, plan
from peers.base import Variant, Worker

SECONDS = 0.4
"""How long each product is repeated."""


class Gemm(Worker):
    """The dense layers' products, forward and both backward, in float32."""

    name = "gemm"
    venv = ""
    variants = (
        Variant("onednn", "oneDNN on", {"TF_ENABLE_ONEDNN_OPTS": "1"}),
        Variant("eigen", "oneDNN off", {"TF_ENABLE_ONEDNN_OPTS": "0"}),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Tells operations per second, each product at its fastest of many repeats."""
        import tensorflow as tf

        report.info(tensorflow=tf.__version__)
        rows = int(job.options["rows"])

        @tf.function
        def forward(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
            return tf.matmul(x, w)

        @tf.function
        def to_input(dy: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
            return tf.matmul(dy, w, transpose_b=True)

        @tf.function
        def to_weights(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
            return tf.matmul(x, dy, transpose_a=True)

        flop = seconds = 0.0
        for inner, outer in products(job.shape):
            x = tf.random.normal([rows, inner])
            w = tf.random.normal([inner, outer])
            dy = tf.random.normal([rows, outer])
            for product, a, b in ((forward, x, w), (to_input, dy, w), (to_weights, x, dy)):
                product(a, b)
                best, until = float("inf"), time.perf_counter() + SECONDS
                while time.perf_counter() < until:
                    start = time.perf_counter()
                    product(a, b).numpy()
                    best = min(best, time.perf_counter() - start)
                flop += 2 * rows * inner * outer
                seconds += best
        report.info(rate=flop / seconds)


def products(shape: plan.Size) -> list[tuple[int, int]]:
    """Widths of the four products of a layer: q, k and v; output; up; down."""
    hidden, inner = shape.hidden, shape.inner
    return [(hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)]
