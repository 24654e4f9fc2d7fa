"""Makes the examples that all peers train on."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Sequence
from typing import Any

from harness import lines, plan
from peers.base import Variant, Worker

SEED = 1234
CLS, SEP, FIRST_WORD = 101, 102, 1000


class Data(Worker):
    """Writes the same random examples in the form of each peer.

    gorbit/train-*.tfrecord: records of gorbit's form, without padding
    padded/train-*.tfrecord: records of the Model Garden's form, 128 positions each
    examples.json: columns for Hugging Face's datasets
    about.json: the number of examples and tokens, written last
    """

    name = "data"
    venv = ""
    variants = (Variant("data", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Writes into job.data."""
        import numpy as np

        rng = np.random.default_rng(SEED)
        if job.lengths == "full":
            lengths = np.full(plan.EXAMPLES, plan.LENGTH)
        else:
            lengths = np.clip(np.rint(rng.normal(53, 16, plan.EXAMPLES)), 16, 104).astype(int)
        columns: dict[str, list[Any]] = {
            name: [] for name in ("input_ids", "token_type_ids", "attention_mask", "labels")
        }
        for length in lengths.tolist():
            first = length // 2
            ids = rng.integers(FIRST_WORD, plan.VOCAB, length)
            ids[0], ids[first], ids[-1] = CLS, SEP, SEP
            columns["input_ids"].append(ids.tolist())
            columns["token_type_ids"].append([0] * (first + 1) + [1] * (length - first - 1))
            columns["attention_mask"].append([1] * length)
            columns["labels"].append(int(rng.integers(2)))

        for folder in ("gorbit", "padded"):
            os.makedirs(os.path.join(job.data, folder), exist_ok=True)
        _write(os.path.join(job.data, "gorbit"), map(_record, *_rows(columns)))
        _write(os.path.join(job.data, "padded"), map(_padded_record, *_rows(columns)))
        with open(os.path.join(job.data, "examples.json"), "w") as file:
            json.dump(columns, file)
        about = {"examples": plan.EXAMPLES, "tokens": int(lengths.sum())}
        with open(os.path.join(job.data, "about.json"), "w") as file:
            json.dump(about, file)


class Blocks(Worker):
    """Writes the full blocks that gorbit convert made as columns for the other peers.

    blocks.json: columns, of 128 positions a block
    """

    name = "blocks"
    venv = ""
    variants = (Variant("blocks", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Reads job.data/gorbit and writes into job.data."""
        import tensorflow as tf

        blocks = []
        files = sorted(glob.glob(os.path.join(job.data, "gorbit", "train-*.tfrecord")))
        for record in tf.data.TFRecordDataset(files).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            ids = list(feature["input_ids"].int64_list.value)
            if len(ids) == plan.LENGTH:
                blocks.append(ids)
        columns = {
            "input_ids": blocks,
            "token_type_ids": [[0] * plan.LENGTH for _ in blocks],
            "attention_mask": [[1] * plan.LENGTH for _ in blocks],
        }
        with open(os.path.join(job.data, "blocks.json"), "w") as file:
            json.dump(columns, file)


def _rows(columns: dict[str, list[Any]]) -> tuple[Sequence[Any], ...]:
    ids = columns["input_ids"]
    return range(len(ids)), ids, columns["token_type_ids"], columns["labels"]


def _record(number: int, ids: list[int], types: list[int], label: int) -> bytes:
    return _example(input_ids=ids, segment_ids=types, label_ids=[label], example_id=[number])


def _padded_record(number: int, ids: list[int], types: list[int], label: int) -> bytes:
    del number
    padding = [0] * (plan.LENGTH - len(ids))
    return _example(
        input_ids=ids + padding,
        input_mask=[1] * len(ids) + padding,
        segment_ids=types + padding,
        label_ids=[label],
    )


def _example(**features: list[int]) -> bytes:
    import tensorflow as tf

    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in features.items()
            }
        )
    ).SerializeToString()


def _write(folder: str, records: Any) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(os.path.join(folder, "train-00000-of-00001.tfrecord")) as writer:
        for record in records:
            writer.write(record)
