"""Measures the parts of a step, each alone, and the step itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

import peers
from harness import plan, report, runs, stats, tables
from suites import base, train

DOCUMENT = "performance.md"
SIZES = ("tiny", "minilm", "base")
LENGTHS = "mrpc"

HEADER = ("", "ms a step", "share of the step")
KERNELS = {
    "attention": "attention, forward",
    "attention_gradient": "attention, backward",
    "gelu": "GELU, forward",
    "gelu_gradient": "GELU, backward",
    "residual_norm": "dropout, residual and layer norm, forward",
    "residual_norm_gradient": "dropout, residual and layer norm, backward",
    "squares": "squares, for the norm of the gradient",
    "adamw": "AdamW",
}
ADAMW_ACCESSES = 7
"""Numbers that AdamW reads (4) and writes (3) for each parameter."""


def run(options: base.Options) -> None:
    """Measures each size and writes the tables."""
    for size in options.sizes:
        name = f"limit-{size}"
        if options.settings.rounds:
            lines = base.kept(options, name, measured(options, size), options.steps_of(size))
        elif not (lines := base.earlier(options, name)):
            continue
        only = ["limit", "--sizes", size]
        title = f"What a step of {size} is made of, pairs of MRPC's lengths"
        base.publish(options, name, title, written(lines, size), lines, only, DOCUMENT)


def parts(options: base.Options) -> list[base.Part]:
    """Returns a part for each size."""
    return [base.Part(f"limit-{size}", options.steps_of(size)) for size in options.sizes]


def measured(options: base.Options, size: str) -> list[stats.Line]:
    """Runs all rounds of the products, the kernels and gorbit's step, and returns their lines."""
    folder, mean = base.data(options, LENGTHS)
    rows = packed(typical(folder))
    binary = base.go_test(options, "internal/exec/kernels")
    told = ";".join(",".join(map(str, row)) for row in rows)
    positions = len(rows) * max(map(sum, rows))
    onednn, *_ = peers.GEMM.variants
    needs = {"rows": str(positions)}
    [kernels] = peers.KERNELS.variants
    [gorbit] = peers.TRAIN[0].variants
    entries = [
        runs.Entry(
            peers.GEMM, onednn, plan.Job(onednn.name, size, LENGTHS, options=needs), stats.told
        ),
        runs.Entry(
            peers.KERNELS,
            kernels,
            plan.Job(kernels.name, size, options={"kernels_test": binary, "rows": told}),
            stats.told,
        ),
        train.training(options, peers.TRAIN[0], gorbit, size, LENGTHS, options.steps_of(size)),
    ]
    options.settings.say(f"limit {size}: {options.settings.rounds} rounds")
    lines = runs.everything(options.settings, entries)
    for line in lines:
        line |= {"positions": positions, "rows": len(rows), "tokens": round(plan.BATCH * mean)}
    return lines


def typical(folder: str) -> list[int]:
    """Lengths of a batch: one of every thirty-second part of all lengths."""
    with open(os.path.join(folder, "examples.json")) as file:
        lengths = sorted(map(len, json.load(file)["input_ids"]))
    return [lengths[(2 * i + 1) * len(lengths) // (2 * plan.BATCH)] for i in range(plan.BATCH)]


def packed(lengths: Sequence[int]) -> list[list[int]]:
    """As few rows of at most plan.LENGTH as the lengths fit into, about equally full."""
    count = -(-sum(lengths) // plan.LENGTH)
    while True:
        rows: list[list[int]] = [[] for _ in range(count)]
        for length in sorted(lengths, reverse=True):
            min(rows, key=sum).append(length)
        if max(map(sum, rows)) <= plan.LENGTH:
            return rows
        count += 1


def written(lines: Sequence[stats.Line], size: str) -> str:
    """Returns the table and its notes."""
    by: dict[int, dict[str, stats.Line]] = {}
    for line in lines:
        if "error" not in line:
            by.setdefault(line["round"], {})[line["peer"]] = line
    whole = [r for r in by.values() if {"gemm", "gorbit-kernels", "gorbit"} <= r.keys()]
    if not whole:
        errors = [line["error"] for line in lines if "error" in line]
        return f"failed: {tables.cell(errors[0]) if errors else 'was not run'}"
    flop = plan.SIZES[size].train_flop_per_token

    def products(r: dict[str, stats.Line]) -> float:
        return r["gemm"]["positions"] * flop / r["gemm"]["rate"]

    def step(r: dict[str, stats.Line]) -> float:
        return plan.BATCH / r["gorbit"]["examples_per_s"]

    def kernel(name: str) -> Callable[[dict[str, stats.Line]], float]:
        return lambda r: r["gorbit-kernels"][name]

    def total(r: dict[str, stats.Line]) -> float:
        return products(r) + sum(r["gorbit-kernels"][name] for name in KERNELS)

    def row(title: str, seconds: Callable[[dict[str, stats.Line]], float]) -> list[str]:
        times = stats.Summary.of(1000 * seconds(r) for r in whole)
        shares = stats.Summary.of(seconds(r) / step(r) for r in whole)
        return [title, tables.spread(times), tables.spread(shares, tables.percent)]

    rows = [
        row("matrix products", products),
        *(row(title, kernel(name)) for name, title in KERNELS.items()),
        row("sum", total),
        row("the step, measured", step),
        row(
            "not in the sum: embeddings, sums, the executor, waiting", lambda r: step(r) - total(r)
        ),
    ]
    shape, first = plan.SIZES[size], whole[0]["gemm"]
    moved = ADAMW_ACCESSES * 4 * parameters(shape)
    bandwidth = stats.Summary.of(r["gorbit-kernels"]["bandwidth"] / 1e9 for r in whole)
    pure = stats.Summary.of(1000 * moved / r["gorbit-kernels"]["bandwidth"] for r in whole)
    disturbed = sum(map(stats.disturbed, lines))
    reached = stats.Summary.of(
        products(r) / total(r) * first["tokens"] / first["positions"] for r in whole
    )
    return (
        f"{tables.markdown(HEADER, rows)}\n\n{plan.BATCH} pairs, {first['tokens']:,} tokens, "
        f"in {first['rows']} rows, {first['positions']:,} positions in all. Each part alone "
        "in a process that does nothing else, on all cores, as many calls as a step makes; the "
        "products with oneDNN at their fastest. One after the other, these parts alone reach "
        f"{tables.spread(reached, tables.percent)} of the products' rate. Memory: "
        f"{tables.spread(bandwidth)} GB/s (half a gigabyte copied, read and written); AdamW moves "
        f"{moved / 1e6:,.0f} MB, which are {tables.spread(pure)} ms at that rate. "
        f"Rounds: {len(whole)}, runs disturbed: {disturbed}; median (least to greatest). "
        f"{report.surroundings(lines)}"
    )


def parameters(shape: plan.Size) -> int:
    """Numbers that a model of this size learns, as the kernels' benchmark has them."""
    h, inner = shape.hidden, shape.inner
    layer = 4 * h * h + 4 * h + 2 * h * inner + inner + h + 4 * h
    return (plan.VOCAB + plan.POSITIONS + 2) * h + 2 * h + shape.layers * layer
