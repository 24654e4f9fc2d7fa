"""Write the golden files of this folder with TensorFlow itself.

Run from anywhere, with TensorFlow 2.18:

    .venv/bin/python tfrecord/testdata/generate.py

  records.tfrecord, .gz, .zz   the byte strings of records(), framed by TensorFlow
  examples.tfrecord            the Examples of examples(), serialized deterministically
  examples.json                what they hold, bytes in base64, floats as their bits
  sequences.tfrecord           the SequenceExamples of sequences(), serialized deterministically
  sequences.json               what they hold, in the same way
"""

import base64
import json
import pathlib
import struct

import tensorflow as tf

HERE = pathlib.Path(__file__).parent


def records() -> list[bytes]:
    """Return byte strings of many sizes; the Go tests make the same ones."""
    return [
        bytes((i * 7 + j) % 251 for j in range(n))
        for i, n in enumerate([0, 1, 11, 12, 13, 376, 1000, 4096, 2])
    ]


def ints(*v: int) -> tf.train.Feature:
    """Return a feature of int64 values."""
    return tf.train.Feature(int64_list=tf.train.Int64List(value=v))


def floats(*v: float) -> tf.train.Feature:
    """Return a feature of float32 values."""
    return tf.train.Feature(float_list=tf.train.FloatList(value=v))


def strings(*v: bytes) -> tf.train.Feature:
    """Return a feature of byte strings."""
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=v))


def examples() -> list[dict[str, tf.train.Feature]]:
    """Return the features of each Example: all kinds, extreme values, nothing."""
    fixed = {  # Model Garden's fixed-length BERT record
        "input_ids": ints(101, 7592, 2088, 102, *[0] * 124),
        "input_mask": ints(1, 1, 1, 1, *[0] * 124),
        "segment_ids": ints(*[0] * 128),
        "label_ids": ints(1),
    }
    kinds = {
        "ints": ints(0, 1, -1, 127, 128, 16383, 16384, 2**63 - 1, -(2**63)),
        "floats": floats(
            0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 3.4028235e38, 1e-45
        ),
        "strings": strings(b"", b"plain", b"\x00\xff\xfe", "größe 数".encode()),
        "größe 数": ints(1),
    }
    empty = {"ints": ints(), "floats": floats(), "strings": strings(), "none": tf.train.Feature()}
    return [fixed, kinds, empty, {}]


def describe(features: dict[str, tf.train.Feature]) -> dict[str, dict]:
    """Return what the features hold, in what JSON can say."""
    out = {}
    for name, f in features.items():
        kind = f.WhichOneof("kind")
        if kind == "int64_list":
            out[name] = {"kind": "int64", "int64": list(f.int64_list.value)}
        elif kind == "float_list":
            bits = [struct.unpack("<I", struct.pack("<f", x))[0] for x in f.float_list.value]
            out[name] = {"kind": "float", "float": bits}
        elif kind == "bytes_list":
            out[name] = {
                "kind": "bytes",
                "bytes": [base64.b64encode(b).decode() for b in f.bytes_list.value],
            }
        else:
            out[name] = {"kind": "none"}
    return out


def sequences() -> list[tuple[dict, dict]]:
    """Return the context and the lists of features of each SequenceExample."""
    full = {"id": ints(7), "name": strings(b"clip")}
    lists = {
        "ids": [ints(1), ints(300), ints(-1)],
        "points": [floats(0.5, 1.5), floats(-2.5, 3.5)],
        "frames": [strings(b"a"), strings(b"", b"bc")],
        "uneven": [ints(), ints(1, 2), tf.train.Feature(), ints(3)],
        "empty": [],
    }
    return [(full, lists), ({}, {"ids": [ints(5)]}), (full, {}), ({}, {})]


def main() -> None:
    """Write all files."""
    for suffix, compression in [("", ""), (".gz", "GZIP"), (".zz", "ZLIB")]:
        with tf.io.TFRecordWriter(str(HERE / f"records.tfrecord{suffix}"), compression) as w:
            for r in records():
                w.write(r)
    with tf.io.TFRecordWriter(str(HERE / "examples.tfrecord")) as w:
        for features in examples():
            e = tf.train.Example(features=tf.train.Features(feature=features))
            w.write(e.SerializeToString(deterministic=True))
    text = json.dumps([describe(e) for e in examples()], ensure_ascii=True, indent=1)
    (HERE / "examples.json").write_text(text + "\n")
    with tf.io.TFRecordWriter(str(HERE / "sequences.tfrecord")) as w:
        for context, lists in sequences():
            e = tf.train.SequenceExample()
            if context:
                e.context.CopyFrom(tf.train.Features(feature=context))
            for name, steps in lists.items():
                e.feature_lists.feature_list[name].CopyFrom(tf.train.FeatureList(feature=steps))
            w.write(e.SerializeToString(deterministic=True))
    held = [
        {
            "context": describe(context),
            "lists": {n: [describe({"": s})[""] for s in steps] for n, steps in lists.items()},
        }
        for context, lists in sequences()
    ]
    (HERE / "sequences.json").write_text(json.dumps(held, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
