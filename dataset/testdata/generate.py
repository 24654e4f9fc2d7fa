"""Writes the goldens of this folder; run it in the folder itself.

model_garden.tfrecord   records of a fixed length, written by TensorFlow with the
                        features of the Model Garden's
                        official/nlp/data/classifier_data_lib.py
model_garden.json       the examples in them without padding
permutations.json       beginnings of the permutations of docs/design/input.md, by a
                        second implementation of them
"""

import json
import math

import tensorflow as tf

LENGTH = 128
MASK64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
ROUNDS = 20


def ints(values: list) -> tf.train.Feature:
    """Returns a feature of int64 numbers."""
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def model_garden() -> None:
    """Writes the records and what is in them."""
    examples = []
    with tf.io.TFRecordWriter("model_garden.tfrecord") as out:
        for n in range(9):
            first, second = 3 + 7 * n % 60, 2 + 5 * n % 40
            ids = [101] + [1000 + 13 * n + i for i in range(first)] + [102]
            types = [0] * len(ids)
            ids += [2000 + 17 * n + i for i in range(second)] + [102]
            types += [1] * (len(ids) - len(types))
            real = n != 8  # the last one only fills up a batch
            if not real:
                ids, types = [], []
            padding = [0] * (LENGTH - len(ids))
            features = {
                "input_ids": ints(ids + padding),
                "input_mask": ints([1] * len(ids) + padding),
                "segment_ids": ints(types + padding),
                "label_ids": ints([n % 2]),
                "is_real_example": ints([int(real)]),
                "example_id": ints([100 + n]),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            out.write(example.SerializeToString())
            if real:
                examples.append({"ids": ids, "types": types, "label": n % 2})
    with open("model_garden.json", "w") as out:
        json.dump(examples, out)
        out.write("\n")


def mix(x: int) -> int:
    """SplitMix64's finalizer."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK64
    return x ^ x >> 31


def make_key(seed: int, *uses: int) -> int:
    """Hashes a seed with what the key is for."""
    k = mix(seed + GOLDEN & MASK64)
    for u in uses:
        k = mix((k ^ mix(u + GOLDEN & MASK64)) + GOLDEN & MASK64)
    return k


def permuted(n: int, key: int, i: int) -> int:
    """Returns the number below n that i is taken to."""
    a = math.isqrt(n - 1) + 1
    b = -(-n // a)
    keys = [mix(key + (k + 1) * GOLDEN & MASK64) for k in range(ROUNDS)]
    while True:
        left, right = i % a, i // a
        for k in range(0, ROUNDS, 2):
            left = (left + (mix(right + keys[k] & MASK64) * a >> 64)) % a
            right = (right + (mix(left + keys[k + 1] & MASK64) * b >> 64)) % b
        i = right * a + left
        if i < n:
            return i


def permutations() -> None:
    """Writes the beginnings of some permutations."""
    cases = []
    for n, seed, uses in [
        (10, 0, [0, 0]),
        (10, 0, [0, 1]),
        (10, 1, [0, 0]),
        (3668, 42, [0, 2]),
        (1_000_000, 42, [1, 7]),
        (65536, (1 << 64) - 1, [2, 3, 5]),
        ((1 << 40) + 15, 7, [0, 0]),
    ]:
        key = make_key(seed, *uses)
        first = [permuted(n, key, i) for i in range(min(n, 12))]
        cases.append({"n": n, "seed": seed, "uses": uses, "first": first})
    with open("permutations.json", "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


model_garden()
permutations()
