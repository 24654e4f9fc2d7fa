"""Measures tf.data on records of MRPC's lengths, as the peer of the Go benchmark.

    tfdata.py write --out DIR
    tfdata.py run --data DIR --seconds 5 --pipeline batch-fixed

`write` makes two files of the same examples: `plain.tfrecord`, unpadded as
gorbit convert writes them, and `padded.tfrecord`, padded to 128 with a mask as the
Model Garden's tools write them. `run` drains one pipeline for some seconds and
prints a JSON line with examples per second and processor time per example:

    batch-fixed    read, shuffle, batch, parse_example of padded records, prefetch
    batch-ragged   the same with unpadded records and RaggedFeature
    per-record     the Model Garden's order: read, shuffle, parse_single_example,
                   batch, prefetch, with padded records
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

ROW_LENGTH = 128
VOCABULARY = 30522


def example(**lists: list[int]) -> bytes:
    """Returns a serialized tf.train.Example of int64 lists."""
    feature = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in lists.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def write(out: Path, records: int) -> None:
    """Writes the same examples unpadded and padded."""
    lengths = mrpc_lengths()
    draw = random.Random(1)
    draw.shuffle(lengths)
    out.mkdir(parents=True, exist_ok=True)
    with (
        tf.io.TFRecordWriter(str(out / "plain.tfrecord")) as plain,
        tf.io.TFRecordWriter(str(out / "padded.tfrecord")) as padded,
    ):
        for i in range(records):
            n = lengths[i % len(lengths)]
            ids = [draw.randrange(VOCABULARY) for _ in range(n)]
            types = [2 * k // n for k in range(n)]
            plain.write(
                example(input_ids=ids, segment_ids=types, label_ids=[i % 2], example_id=[i])
            )
            pad = [0] * (ROW_LENGTH - n)
            padded.write(
                example(
                    input_ids=ids + pad,
                    segment_ids=types + pad,
                    input_mask=[1] * n + pad,
                    label_ids=[i % 2],
                )
            )


def mrpc_lengths() -> list[int]:
    """Returns the tokens of MRPC's training pairs, which the Go tests list as counts."""
    source = Path(__file__).parent.parent / "pack_test.go"
    block = source.read_text(encoding="utf-8").split("var mrpcLengths = []int{")[1].split("}")[0]
    counts = [int(word) for word in block.replace(",", " ").split()]
    return [19 + i for i, count in enumerate(counts) for _ in range(count)]


def int32(features: dict[str, Any]) -> dict[str, Any]:
    """Casts to int32, as the Model Garden's loader does and models want."""
    return {name: tf.cast(value, tf.int32) for name, value in features.items()}


def pipeline(kind: str, data: Path, batch: int, buffer: int) -> tf.data.Dataset:
    """Returns the batches of a pipeline, without end."""
    name = "plain" if kind == "batch-ragged" else "padded"
    records = tf.data.TFRecordDataset(str(data / f"{name}.tfrecord")).repeat()
    records = records.shuffle(buffer)
    if kind == "batch-ragged":
        names = ("input_ids", "segment_ids", "label_ids")
        spec = {name: tf.io.RaggedFeature(tf.int64) for name in names}
    else:
        names = ("input_ids", "segment_ids", "input_mask")
        spec = {name: tf.io.FixedLenFeature([ROW_LENGTH], tf.int64) for name in names}
        spec["label_ids"] = tf.io.FixedLenFeature([], tf.int64)
    if kind == "per-record":
        parsed = records.map(
            lambda record: int32(tf.io.parse_single_example(record, spec)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return parsed.batch(batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    return (
        records.batch(batch, drop_remainder=True)
        .map(
            lambda record: int32(tf.io.parse_example(record, spec)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        .prefetch(tf.data.AUTOTUNE)
    )


@tf.function
def drain(batches: tf.data.Dataset) -> tf.Tensor:
    """Counts the examples of batches inside a graph, where iterating costs least."""
    count = tf.constant(0, tf.int64)
    for features in batches:
        count += tf.shape(features["label_ids"], out_type=tf.int64)[0]
    return count


def processor_seconds() -> float:
    """Returns the processor time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(kind: str, data: Path, batch: int, buffer: int, seconds: float) -> None:
    """Drains a pipeline and prints what it gave."""
    tf.config.set_visible_devices([], "GPU")
    batches = pipeline(kind, data, batch, buffer)
    rate, wanted = 1e4, 0.5
    for wanted in (0.5, 0.5, seconds):
        steps = max(1, int(rate * wanted / batch))
        start, used = time.perf_counter(), processor_seconds()
        count = int(drain(batches.take(steps)))
        wall = time.perf_counter() - start
        used = processor_seconds() - used
        rate = count / wall
    print(
        json.dumps(
            {
                "pipeline": kind,
                "batch": batch,
                "examples": count,
                "examples_per_second": round(rate),
                "cpu_us_per_example": round(1e6 * used / count, 3),
                "tensorflow": tf.__version__,
            }
        )
    )


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("write", help="write the records")
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--records", type=int, default=100_000)
    measure = commands.add_parser("run", help="measure a pipeline")
    measure.add_argument("--data", type=Path, required=True)
    measure.add_argument(
        "--pipeline", choices=("batch-fixed", "batch-ragged", "per-record"), required=True
    )
    measure.add_argument("--batch", type=int, default=32)
    measure.add_argument("--buffer", type=int, default=10_000, help="of the shuffle, in records")
    measure.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    if args.command == "write":
        write(args.out, args.records)
    else:
        run(args.pipeline, args.data, args.batch, args.buffer, args.seconds)


if __name__ == "__main__":
    main()
