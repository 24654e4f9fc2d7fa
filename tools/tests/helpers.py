"""Small models and packed batches for the tests."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from gorbit_export import config

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = config.BertConfig(32, 2, 4, 64, vocab_size=50, max_position_embeddings=16)
NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0}

# Below what the processor has, oneDNN may have no way to multiply in bf16 or fp16, and TensorFlow
# ends the process.
needs_narrow_products = pytest.mark.skipif(
    os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper() != "ALL",
    reason="ONEDNN_MAX_CPU_ISA may leave no way to compute in bf16 and fp16",
)


def run_script(
    script: str, args: list[str], env: dict[str, str] | None = None
) -> subprocess.CompletedProcess:
    """Runs the text of a script in a Python of its own."""
    command = [sys.executable, "-c", script, *args]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def pack(examples: list[tuple[list[int], list[int]]], rows: list[list[int]]) -> dict:
    """Packs (ids, type ids) into rows, each a list of example numbers, one example or more."""
    length = max(sum(len(examples[i][0]) for i in row) for row in rows)
    shape = (len(rows), length)
    names = ("input_ids", "type_ids", "sequence_ids", "position_ids")
    features = {name: np.zeros(shape, np.int32) for name in names}
    positions = np.zeros(len(examples), np.int32)
    for r, row in enumerate(rows):
        at = 0
        for sequence, i in enumerate(row, 1):
            ids, types = examples[i]
            part = slice(at, at + len(ids))
            features["input_ids"][r, part] = ids
            features["type_ids"][r, part] = types
            features["sequence_ids"][r, part] = sequence
            features["position_ids"][r, part] = np.arange(len(ids))
            positions[i] = r * length + at
            at += len(ids)
    features["cls_positions"] = positions
    return features


def random_examples(count: int, vocab: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Makes sequences of 3 to 12 ids, the second half of each in segment 1."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        n = int(rng.integers(3, 13))
        ids = rng.integers(0, vocab, n).tolist()
        out.append((ids, [0] * (n // 2) + [1] * (n - n // 2)))
    return out


def batch(seed: int = 0, count: int = 6) -> tuple[list, dict, dict]:
    """Returns examples, the packed features, and the features with one example per row."""
    examples = random_examples(count, SMALL.vocab_size, seed)
    labels = {
        "labels": np.arange(count, dtype=np.int32) % 3,
        "example_weights": np.linspace(0.5, 2, count).astype(np.float32),
    }
    packed = pack(examples, [[0, 3], [2, 1, 5], [4]]) | labels
    return examples, packed, pack(examples, [[i] for i in range(count)]) | labels


def tensors(features: dict) -> dict:
    return {name: tf.constant(value) for name, value in features.items()}


def scalars(**values: float) -> dict:
    return {name: tf.constant(value, tf.float32) for name, value in values.items()}


def jitter(module: tf.Module) -> None:
    """Moves variables away from the special values 0 and 1."""
    for i, v in enumerate(module.variables):
        v.assign_add(tf.random.stateless_normal(v.shape, [i, 1]) * 0.1)


def safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a safetensors file."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    dtypes = {"F32": np.float32, "I64": np.int64}
    weights = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        data = raw[8 + size + start : 8 + size + end]
        weights[name] = np.frombuffer(data, dtypes[entry["dtype"]]).reshape(entry["shape"])
    return weights
