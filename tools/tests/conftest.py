"""Shared by the tests: quiet TensorFlow, real data beside the checkout, packed batches."""

from __future__ import annotations

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def shared_data() -> pathlib.Path:
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"real data is not beside the checkout: {path}")
    return path


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
