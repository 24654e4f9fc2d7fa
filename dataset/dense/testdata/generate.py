"""Write SequenceExamples and the batch that TensorFlow makes of them.

Run from anywhere, with TensorFlow 2.18:

    .venv/bin/python dataset/dense/testdata/generate.py

  clips.tfrecord   records with a context (label, image, scale) and lists (ids, points, frames)
  clips.json       the batch of all of them: flat values and shape of each feature
"""

import json
import pathlib

import numpy as np
import tensorflow as tf

HERE = pathlib.Path(__file__).parent


def ints(*v: int) -> tf.train.Feature:
    """Return a feature of int64 values."""
    return tf.train.Feature(int64_list=tf.train.Int64List(value=v))


def floats(*v: float) -> tf.train.Feature:
    """Return a feature of float32 values."""
    return tf.train.Feature(float_list=tf.train.FloatList(value=v))


def strings(*v: bytes) -> tf.train.Feature:
    """Return a feature of byte strings."""
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=v))


def records() -> list[bytes]:
    """Return the records, of 1 to 6 steps."""
    rng = np.random.default_rng(3)
    out = []
    for n, steps in enumerate([4, 1, 6, 2, 3]):
        frames = [rng.integers(0, 256, (3, 2, 1)).astype(np.uint8) for _ in range(steps)]
        lists = {
            "ids": [ints(int(rng.integers(1, 100))) for _ in range(steps)],
            "points": [floats(*rng.random(2).astype(np.float32)) for _ in range(steps)],
            "frames": [strings(tf.io.encode_png(f).numpy()) for f in frames],
        }
        e = tf.train.SequenceExample()
        context = {
            "label": ints(n % 3),
            "image": strings(rng.integers(0, 256, 12).astype(np.uint8).tobytes()),
            "scale": strings(rng.random(2).astype("<f4").tobytes()),
        }
        e.context.CopyFrom(tf.train.Features(feature=context))
        for name, features in lists.items():
            e.feature_lists.feature_list[name].CopyFrom(tf.train.FeatureList(feature=features))
        out.append(e.SerializeToString(deterministic=True))
    return out


def batch(serialized: list[bytes]) -> dict[str, tf.Tensor]:
    """Return what tf.io makes of the records."""
    context, lists, lengths = tf.io.parse_sequence_example(
        serialized,
        context_features={
            "label": tf.io.FixedLenFeature([], tf.int64),
            "image": tf.io.FixedLenFeature([], tf.string),
            "scale": tf.io.FixedLenFeature([], tf.string),
        },
        sequence_features={
            "ids": tf.io.FixedLenSequenceFeature([], tf.int64),
            "points": tf.io.FixedLenSequenceFeature([2], tf.float32),
            "frames": tf.io.FixedLenSequenceFeature([], tf.string),
        },
    )
    longest = int(tf.reduce_max(lengths["ids"]))
    empty = tf.zeros([3, 2, 1], tf.uint8)
    frames = [
        tf.stack([tf.io.decode_png(f, channels=1) if f != b"" else empty for f in row])
        for row in lists["frames"].numpy()
    ]
    return {
        "ids": tf.cast(lists["ids"], tf.int32),
        "points": lists["points"],
        "frames": tf.stack(frames),
        "mask": tf.sequence_mask(lengths["ids"], longest),
        "lengths": lengths["ids"],
        "label": tf.cast(context["label"], tf.int32),
        "image": tf.reshape(tf.io.decode_raw(context["image"], tf.uint8), [-1, 2, 2, 3]),
        "scale": tf.io.decode_raw(context["scale"], tf.float32),
    }


def main() -> None:
    """Write both files."""
    serialized = records()
    with tf.io.TFRecordWriter(str(HERE / "clips.tfrecord")) as w:
        for record in serialized:
            w.write(record)
    made = {
        name: {"Shape": list(t.shape), "Values": t.numpy().astype(float).ravel().tolist()}
        for name, t in batch(serialized).items()
    }
    (HERE / "clips.json").write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
