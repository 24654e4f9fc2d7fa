"""Tries whether an example is computed by itself next to examples that are not like it.

Numbers of one distribution hide what a batch's largest or smallest number decides: a cut
so many decibels below the loudest, or a division by 255 where any number is above 1. So
four groups of examples, each of another scale, are computed together and by themselves.
"""

from __future__ import annotations

import zlib
from typing import Callable

import numpy as np
import tensorflow as tf

from gorbit_export import task
from gorbit_export.models.probe import COUNT, TOLERANCES, Batch, Sums

_GROUPS = np.split(np.arange(COUNT), [4, 6, 8])
_NEAR = np.float32(1 + 1e-6)
"""What floats are multiplied by to see how much rounding matters."""


def vary(features: list[task.Feature], batch: Batch, known: bool) -> Batch:
    """Returns a batch of COUNT examples with other numbers in each of the groups.

    Args:
        features: those of the batch.
        batch: what the numbers are made of. Weights and what is padding stay.
        known: whether the user gave the batch, so that its range is that of the features.
    """
    out = dict(batch)
    for feature in features:
        if feature.make or feature.role not in ("input", "label"):
            continue
        value, rng = batch[feature.name], np.random.default_rng(zlib.crc32(feature.name.encode()))
        if feature.dtype == tf.bool:
            new = _constants(value, False, True)
        elif not feature.dtype.is_floating:
            new = _integers(feature, value, known, rng)
        elif known:
            new = _within(value, rng)
        else:
            new = _labels(value, rng) if feature.label else _floats(value, rng)
        if None in feature.shape[1:]:
            new = np.where(value == feature.pad, value, new)
        out[feature.name] = new.astype(value.dtype)
    return out


def _constants(value: np.ndarray, low: float, high: float) -> np.ndarray:
    out = value.copy()
    out[_GROUPS[0]], out[_GROUPS[3][:2]] = low, high
    return out


def _integers(
    feature: task.Feature, value: np.ndarray, known: bool, rng: np.random.Generator
) -> np.ndarray:
    low, high = feature.minimum or 0, feature.below
    if high is None and known and value.size:
        low, high = int(value.min()), int(value.max()) + 1
    if high is None and (feature.dtype != tf.uint8 or feature.label):
        return value
    high = 256 if high is None else high
    if None in feature.shape[1:] and low == feature.pad:
        low += 1
    if high - low < 2:
        return value
    out = _constants(value, low, high - 1)
    few = max(1, (high - low) // 8)
    out[_GROUPS[2]] = rng.integers(low, low + few, out[_GROUPS[2]].shape)
    out[_GROUPS[3][2:]] = rng.integers(high - few, high, out[_GROUPS[3][2:]].shape)
    return out


def _floats(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shape, out = value.shape[1:], np.zeros(value.shape)
    flat = [rng.uniform(size=shape) for _ in range(4)]
    normal = [rng.normal(size=shape) for _ in range(4)]
    wave = np.sin(np.linspace(0, 60, flat[0].size)).reshape(shape)
    heavy = np.clip(rng.standard_cauchy(size=shape), -1e4, 1e4)
    kinds = [flat[0], np.full(shape, 0.5), flat[1] > 0.9, np.zeros(shape)]
    kinds += [normal[0], wave]
    kinds += [1e-4 * normal[1], 1e-3 * flat[2]]
    kinds += [255 * flat[3], rng.exponential(10, shape), heavy, 100 * normal[2]]
    out[:] = kinds
    return out


def _labels(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels stay positive, which logarithms of them may need."""
    uniform, out = rng.uniform(size=value.shape), value.copy()
    for group, scale in zip(_GROUPS, (1, None, 1e-3, 10)):
        if scale is not None:
            out[group] = scale * uniform[group]
    return out


def _within(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers between the least and the largest of a batch."""
    if not value.size:
        return value
    low, high = value.min(), value.max()
    uniform, out = rng.uniform(size=value.shape), value.copy()
    quiet = min(max(0.0, low), high)
    first, _, third, last = _GROUPS
    out[first[1:]] = np.stack([np.full(value.shape[1:], x) for x in (low, quiet, high)])
    out[third] = quiet + 1e-4 * (value[third] - quiet)
    out[last[:2]] = low + (high - low) * uniform[last[:2]]
    out[last[2]] = low + (high - low) * uniform[last[2]] ** 8
    return out


def dependent(
    evaluate: Callable[[Batch], Sums],
    predict: Callable[[Batch], Sums],
    batch: Batch,
    precision: str,
) -> str:
    """Returns what depends on the other groups: the name of a prediction, "loss_sum" or "".

    What fails, or is no finite number, for a group by itself is left out.

    Args:
        evaluate: sums of the evaluation.
        predict: predictions.
        batch: what `vary` gives.
        precision: what the model computes in.
    """
    tolerance = 10 * TOLERANCES[precision]
    kept, alone = [], []
    for group in _GROUPS:
        answers = _tried(predict, _rows(batch, group))
        finite = np.ones(len(group), bool)
        for value in answers.values():
            finite &= np.isfinite(value.reshape(len(group), -1).astype(np.float64)).all(1)
        if answers and finite.any():
            kept.append(group[finite])
            alone.append({name: value[finite] for name, value in answers.items()})
    if len(kept) < 2:
        return ""
    together = _rows(batch, np.concatenate(kept))
    whole, near = predict(together), predict(_near(together))
    for name in whole:
        joined = np.concatenate([answers[name] for answers in alone])
        flat = [v.reshape(len(joined), -1).astype(np.float64) for v in (whole[name], joined)]
        sizes, errors = np.linalg.norm(flat[0], axis=1), np.linalg.norm(flat[1] - flat[0], axis=1)
        rounding = np.linalg.norm(near[name].reshape(len(joined), -1) - flat[0], axis=1)
        allowed = tolerance * np.maximum(sizes, 1e-3 * np.median(sizes) + 1e-6) + 10 * rounding
        if (np.isfinite(errors + allowed) & (errors > allowed)).any():
            return name
    return "" if adds_up(evaluate, batch, precision, kept) else "loss_sum"


def adds_up(
    function: Callable[[Batch], Sums],
    batch: Batch,
    precision: str,
    groups: list[np.ndarray] = _GROUPS,
) -> bool:
    """Whether the losses of groups add up to that of all of them, where they are finite."""
    losses = [_tried(function, _rows(batch, group)).get("loss_sum", np.nan) for group in groups]
    kept = [group for group, loss in zip(groups, losses) if np.isfinite(loss)]
    if len(kept) < 2:
        return True
    together = _rows(batch, np.concatenate(kept))
    whole, near = (float(function(b)["loss_sum"]) for b in (together, _near(together)))
    error = abs(whole - float(np.nansum(losses, dtype=np.float64)))
    size = float(np.nansum(np.abs(losses), dtype=np.float64)) + 1e-3
    return not error > 10 * TOLERANCES[precision] * size + 10 * abs(near - whole)


def _tried(function: Callable[[Batch], Sums], batch: Batch) -> Sums:
    """Calls a function; what it cannot compute gives nothing."""
    try:
        return function(batch)
    except tf.errors.OpError:
        return {}


def _rows(batch: Batch, rows: np.ndarray) -> Batch:
    return {name: value[rows] for name, value in batch.items()}


def _near(batch: Batch) -> Batch:
    return {n: v * _NEAR if v.dtype == np.float32 else v for n, v in batch.items()}
