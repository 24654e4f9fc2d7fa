"""Records of images, numbers and tokens: their maker, and readers of them without a model."""

from __future__ import annotations

import os
from typing import Any

from harness import lines, plan
from peers import gorbit, tfdata
from peers.base import Variant, Worker

KINDS = {
    "digits": ("images of 28 x 28 x 1, raw bytes", 60_000),
    "photos": ("images of 224 x 224 x 3, raw bytes", 1_000),
    "png": ("images of 28 x 28 x 1, PNG", 20_000),
    "jpeg": ("images of 224 x 224 x 3, JPEG", 1_000),
    "table": ("30 numbers, float32", 100_000),
    "tokens": ("16 to 90 tokens, padded to the longest", 100_000),
}
"""What the records hold, and how many there are. BenchmarkNext of dataset/dense reads them, too."""

BATCHES = {
    "digits": 4000,
    "photos": 200,
    "png": 1000,
    "jpeg": 60,
    "table": 4000,
    "tokens": 4000,
}


class Data(Worker):
    """Writes KIND.tfrecord of every kind into job.data."""

    name = "dense-data"
    venv = "tfm"
    variants = (Variant("data", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Writes all files."""
        del report
        import numpy as np
        import tensorflow as tf

        rng = np.random.default_rng(1234)

        def picture(side: int, channels: int) -> Any:
            y, x = np.mgrid[0:side, 0:side]
            waves = np.stack(
                [np.sin(x / (9 + c)) + np.cos(y / (7 + c)) for c in range(channels)], -1
            )
            shift = rng.integers(0, 255)
            return ((waves * 60 + shift + rng.integers(0, 9, waves.shape)) % 256).astype(np.uint8)

        def strings(value: bytes) -> Any:
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

        def ints(*values: int) -> Any:
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

        def features(kind: str) -> dict[str, Any]:
            if kind == "table":
                x = rng.random(30).astype(np.float32)
                return {"x": tf.train.Feature(float_list=tf.train.FloatList(value=x))}
            if kind == "tokens":
                return {"ids": ints(*rng.integers(0, plan.VOCAB, rng.integers(16, 91)).tolist())}
            pixels = picture(*((224, 3) if kind in ("photos", "jpeg") else (28, 1)))
            encode = {"png": tf.io.encode_png, "jpeg": tf.io.encode_jpeg}.get(kind)
            return {"image": strings(encode(pixels).numpy() if encode else pixels.tobytes())}

        os.makedirs(job.data, exist_ok=True)
        for kind, (_, count) in KINDS.items():
            partial = os.path.join(job.data, f"{kind}.partial")
            with tf.io.TFRecordWriter(partial) as out:
                for _ in range(count):
                    held = features(kind) | {"label": ints(int(rng.integers(10)))}
                    example = tf.train.Example(features=tf.train.Features(feature=held))
                    out.write(example.SerializeToString())
            os.rename(partial, os.path.join(job.data, f"{kind}.tfrecord"))


class Gorbit(gorbit.Input):
    """The benchmark of gorbit's reader, two readers."""

    name = "gorbit-dense"
    variants = tuple(Variant(kind, f"**gorbit**, {what}") for kind, (what, _) in KINDS.items())

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Runs the test binary of package dataset/dense."""
        del python
        return [
            *(job.options["dense_test"], "-test.run", "^$", "-test.benchtime", "2s"),
            *("-test.bench", f"Next$/^{job.variant}$/^readers=2$", "-records", job.data),
        ]


class Reader(tfdata.Reader):
    """tf.data over the same records, drained in the graph."""

    name = "tfdata-dense"
    variants = tuple(Variant(kind, f"tf.data, {what}") for kind, (what, _) in KINDS.items())
    warm_batches = 20
    batches = BATCHES

    def pipeline(self, job: plan.Job) -> Any:
        """See tfdata.Reader."""
        return _pipeline(job)


def _pipeline(job: plan.Job) -> Any:
    import tensorflow as tf

    kind = job.variant
    records = tf.data.TFRecordDataset(os.path.join(job.data, f"{kind}.tfrecord"))
    records = records.repeat().shuffle(1000, seed=1)
    spec: dict[str, Any] = {"label": tf.io.FixedLenFeature([], tf.int64)}
    if kind == "table":
        spec["x"] = tf.io.FixedLenFeature([30], tf.float32)
    elif kind == "tokens":
        spec["ids"] = tf.io.RaggedFeature(tf.int64)
    else:
        spec["image"] = tf.io.FixedLenFeature([], tf.string)

    def one(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, spec)
        decode = tf.io.decode_png if kind == "png" else tf.io.decode_jpeg
        side, channels = (28, 1) if kind == "png" else (224, 3)
        image = tf.ensure_shape(decode(parsed["image"], channels=channels), [side, side, channels])
        return image, tf.cast(parsed["label"], tf.int32)

    def many(batch: Any) -> Any:
        parsed = tf.io.parse_example(batch, spec)
        label = tf.cast(parsed["label"], tf.int32)
        if kind == "table":
            return parsed["x"], label
        if kind == "tokens":
            ids = tf.cast(parsed["ids"], tf.int32)
            return ids.to_tensor(), tf.sequence_mask(ids.row_lengths(), dtype=tf.int32), label
        side, channels = (28, 1) if kind == "digits" else (224, 3)
        image = tf.io.decode_raw(parsed["image"], tf.uint8)
        return tf.reshape(image, [-1, side, side, channels]), label

    auto = tf.data.AUTOTUNE
    if kind in ("png", "jpeg"):
        made = records.map(one, num_parallel_calls=auto).batch(plan.BATCH, drop_remainder=True)
    else:
        made = records.batch(plan.BATCH, drop_remainder=True).map(many, num_parallel_calls=auto)
    return made.prefetch(auto)
