"""Computes products of int8 numbers with numpy, as package dense and the kernels do.

Usage: int8.py FOLDER ROWS INPUTS OUTPUTS. Writes float32 matrices x and w, a vector bias, w packed
(bytes), and y, y + bias and gelu(y + bias).
"""

import math
import sys

import numpy as np

out, (rows, inputs, outputs) = sys.argv[1], map(int, sys.argv[2:])
rng = np.random.default_rng(rows)
x = rng.normal(0, 2, (rows, inputs)).astype(np.float32)
w = rng.normal(0, 0.05, (inputs, outputs)).astype(np.float32)
bias = rng.normal(0, 1, outputs).astype(np.float32)
w[:, 3] = 0
w[:, 5] = rng.choice([-1, 1], inputs)  # the largest sums
if rows > 4:
    x[1] = 0
    x[2] *= 1e-36  # too small to have steps
    x[3, 7], x[4, 0] = np.nan, -np.inf
    x[rows - 1] = rng.choice([-3, 3], inputs)

step = np.abs(w).max(0) / np.float32(127)
whole = np.rint(
    np.divide(w, step, out=np.zeros(w.shape), where=step > 0, dtype=np.float64)
)
whole = whole.astype(np.int64)
panels = outputs // 16
packed = np.zeros((panels, inputs // 4 + 2, 16, 4), np.int8)
packed[:, :-2] = whole.reshape(inputs // 4, 4, panels, 16).transpose(2, 0, 3, 1)
packed[:, -2] = step.reshape(panels, 16, 1).view(np.int8)
packed[:, -1] = whole.sum(0).astype(np.int32).reshape(panels, 16, 1).view(np.int8)

largest = np.abs(x).max(1, keepdims=True)
finite = np.isfinite(largest)
some = finite & (largest >= np.float32(1e-30))
factor = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=some)
q = np.rint(np.where(some, x, 0) * factor).astype(np.int64)
steps = np.where(
    some,
    largest * (np.float32(1) / np.float32(127)),
    np.where(finite, np.float32(0), np.float32(np.nan)),
)
y = (q @ whole).astype(np.int32).astype(np.float32) * (steps * step)
biased = y + bias
gelu = [
    v * (0.5 + 0.5 * math.erf(v * math.sqrt(0.5)))
    for v in biased.astype(np.float64).flat
]
gelu = np.array(gelu).astype(np.float32)
names = ("x", "w", "bias", "packed", "y", "biased", "gelu")
for name, value in zip(names, (x, w, bias, packed, y, biased, gelu)):
    value.tofile(f"{out}/{name}")
