"""TensorFlow's input pipelines, without a model."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from typing import Any

from harness import lines, plan
from peers.base import Variant, Worker

WARM_BATCHES = 200
BATCHES = {"batched": 8000, "ragged": 8000, "garden": 2000}


class Reader(Worker):
    """tf.data over TFRecords, read to the end within the graph."""

    name = "tfdata"
    venv = "tfm"
    variants = (
        Variant("batched", "tf.data, batched parse_example, padded to 128"),
        Variant("ragged", "tf.data, batched parse_example, ragged, padded to the longest"),
        Variant("garden", "Model Garden's loader, record by record"),
    )

    warm_batches = WARM_BATCHES
    batches = BATCHES

    def pipeline(self, job: plan.Job) -> Any:
        """Returns batches in shuffled order, without end."""
        return {"batched": batched, "ragged": _ragged, "garden": _garden}[job.variant](job)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Reads batches and reports the number of examples."""
        import tensorflow as tf

        report.info(tensorflow=tf.__version__)
        data = self.pipeline(job)

        @tf.function
        def drain(iterator: Any, batches: tf.Tensor) -> tf.Tensor:
            total = tf.constant(0)
            for _ in tf.range(batches):
                total += tf.reduce_sum([tf.size(t) for t in tf.nest.flatten(next(iterator))])
            return total

        iterator = iter(data)
        drain(iterator, tf.constant(self.warm_batches)).numpy()
        report.step(0)
        drain(iterator, tf.constant(self.batches[job.variant])).numpy()
        report.step(self.batches[job.variant] * plan.BATCH)


def batched(job: plan.Job, arrange: Callable[[dict[str, Any]], Any] = dict) -> Any:
    """Returns padded records, parsed by batch; arrange converts a batch to a model's input."""
    import tensorflow as tf

    names = ("input_ids", "input_mask", "segment_ids")
    spec = {name: tf.io.FixedLenFeature([plan.LENGTH], tf.int64) for name in names}
    spec["label_ids"] = tf.io.FixedLenFeature([], tf.int64)

    def parse(records: Any) -> Any:
        parsed = tf.io.parse_example(records, spec)
        return arrange({name: tf.cast(value, tf.int32) for name, value in parsed.items()})

    return _pipeline(job, "padded", parse)


def _ragged(job: plan.Job) -> Any:
    import tensorflow as tf

    spec: dict[str, Any] = {
        name: tf.io.RaggedFeature(tf.int64) for name in ("input_ids", "segment_ids")
    }
    spec["label_ids"] = tf.io.FixedLenFeature([], tf.int64)

    def parse(records: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(records, spec)
        ids = tf.cast(parsed["input_ids"], tf.int32)
        return {
            "input_ids": ids.to_tensor(),
            "input_mask": tf.sequence_mask(ids.row_lengths(), dtype=tf.int32),
            "segment_ids": tf.cast(parsed["segment_ids"], tf.int32).to_tensor(),
            "label_ids": tf.cast(parsed["label_ids"], tf.int32),
        }

    return _pipeline(job, "gorbit", parse)


def _pipeline(job: plan.Job, folder: str, parse: Any) -> Any:
    import tensorflow as tf

    return (
        tf.data.TFRecordDataset(_files(job, folder))
        .repeat()
        .shuffle(1000, seed=1)
        .batch(plan.BATCH, drop_remainder=True)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def garden(job: plan.Job) -> Any:
    """Returns the settings of the Model Garden's loader."""
    from official.nlp.data import sentence_prediction_dataloader as loader

    return loader.SentencePredictionDataConfig(
        input_path=",".join(_files(job, "padded")),
        global_batch_size=plan.BATCH,
        is_training=True,
        seq_length=plan.LENGTH,
        drop_remainder=True,
    )


def _garden(job: plan.Job) -> Any:
    from official.nlp.data import sentence_prediction_dataloader as loader

    return loader.SentencePredictionDataLoader(garden(job)).load()


def _files(job: plan.Job, folder: str) -> list[str]:
    return sorted(glob.glob(os.path.join(job.data, folder, "*.tfrecord")))
