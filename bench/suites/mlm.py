"""Measures steps of a masked language model with each peer, and the machine's peak."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
from collections.abc import Sequence

import peers
from harness import plan, report, runs, stats, tables
from peers import data as making
from peers.base import Peer, Variant, variants
from suites import base, train

HEADER = (
    "",
    "tokens/s",
    "share of the GEMM peak",
    "gorbit's rate is",
    "first step done after, s",
    "peak memory, GB",
    "runs",
)


def run(options: base.Options) -> None:
    """Measures every size and writes its table."""
    if options.settings.rounds:
        options.settings.say("warm-up, not counted")
        for peer in peers.MASKED:
            entry = training(options, peer, peer.variants[0], "tiny", 1)
            options.settings.say(runs.told(runs.once(options.settings, entry, 0)))
    for size in options.sizes:
        name, steps = f"mlm-{size}", options.steps_of(size)
        if options.settings.rounds:
            lines = base.kept(options, name, measured(options, size), steps)
        elif not (lines := base.earlier(options, name)):
            continue
        title = f"Training {size} as a masked language model, blocks of {plan.LENGTH} tokens"
        only = ["mlm", "--sizes", size]
        if longest := max((line["steps"] for line in lines if "steps" in line), default=0):
            only += ["--steps", str(longest)]
        base.publish(options, name, title, written(options, lines, size), lines, only)


def parts(options: base.Options) -> list[base.Part]:
    """Returns a part for each size."""
    return [base.Part(f"mlm-{size}", options.steps_of(size)) for size in options.sizes]


def measured(options: base.Options, size: str) -> list[stats.Line]:
    """Runs all rounds: the products, the peers, and the products again; returns their lines."""
    steps, positions = options.steps_of(size), plan.BATCH * plan.LENGTH
    counted = {"rows": str(positions), "masked": str(round(plan.MASKED * positions))}
    peaks = [
        runs.Entry(
            peers.GEMM, variant, plan.Job(variant.name, size, "full", options=counted), stats.told
        )
        for variant in variants(peers.GEMM, False)
    ]
    entries = [
        training(options, peer, variant, size, steps)
        for peer in peers.MASKED
        for variant in variants(peer, False)
    ]
    options.settings.say(f"mlm {size}: {steps} steps a run, {options.settings.rounds} rounds")
    return runs.everything(options.settings, [*peaks, *entries, *peaks])


def training(
    options: base.Options,
    peer: Peer,
    variant: Variant,
    size: str,
    steps: int,
    more: dict[str, str] | None = None,
) -> runs.Entry:
    """Returns the entry of a training, with more options of its job."""
    folder = data(options)
    needs = {
        "graph": base.graph(options, size, "mlm", os.path.join(folder, "gorbit")),
        "gorbit": options.gorbit,
        "vocab": options.vocab,
    }
    job = plan.Job(variant.name, size, "full", steps, folder, options=needs | (more or {}))
    numbers = functools.partial(stats.training, job=job, mean_tokens=plan.LENGTH)
    return runs.Entry(peer, variant, job, numbers)


def data(options: base.Options) -> str:
    """Returns the folder of the blocks, made from the text if needed."""
    lines = base.reviews() if options.text is None else None
    source = options.text or base.REVIEWS
    key = base.digest(
        pathlib.Path(source).read_bytes() + pathlib.Path(making.__file__).read_bytes()
    )
    folder = os.path.join(options.settings.work, "data", f"mlm-{key}")
    if os.path.exists(os.path.join(folder, "blocks.json")):
        return folder
    options.settings.say(f"making blocks of {os.path.basename(source)}")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if lines is not None:
        source = os.path.join(folder, "documents.txt")
        pathlib.Path(source).write_text("\n".join(lines))
    convert = [options.gorbit, "convert", "--task", "mlm", "--vocab", options.vocab]
    convert += ["--train", source, "--max-length", str(plan.LENGTH)]
    base.call(options, [*convert, "--out", os.path.join(folder, "gorbit")])
    base.work(options, peers.BLOCKS, plan.Job("blocks", data=folder))
    return folder


def written(options: base.Options, lines: Sequence[stats.Line], size: str) -> str:
    """Returns the table and its notes."""
    by = stats.variants(lines)
    ours = by.get(("gorbit-mlm", "train"))
    fastest = train.peak(lines)
    flop = plan.SIZES[size].masked_flop_per_token

    def cells(of: stats.Variant) -> list[str]:
        shares = (
            line["tokens_per_s"] * flop / fastest[line["round"]]
            for line in of.lines
            if line["round"] in fastest
        )
        is_peer = ours is not None and of.lines[0]["peer"] != "gorbit-mlm"
        times = stats.ratio(ours, of, "tokens_per_s") if is_peer else None
        return [
            tables.spread(of.summary("tokens_per_s")),
            tables.spread(stats.Summary.of(shares), tables.percent),
            f"{tables.spread(times)} times" if times else "",
            tables.spread(of.summary("first_step_s")),
            tables.spread(of.summary("peak_gb")),
        ]

    rows = report.rows(peers.MASKED, lines, cells, len(HEADER) - 2)
    timed = sorted({line["steps"] for line in lines if "steps" in line})
    peaks = stats.Summary.of(rate / 1e9 for rate in fastest.values())
    return (
        f"{tables.markdown(HEADER, rows)}\n\nThe same blocks for all, {plan.BATCH} a batch, "
        f"{plan.MASKED:.0%} of their tokens masked, float32, "
        f"{' or '.join(map(str, timed))} steps a run after {plan.WARM_STEPS} that do not count; "
        "median (least to greatest). GEMM peak in the shapes of the encoder and of the head, "
        f"GFLOP/s: {tables.spread(peaks)}. A token takes {flop / 1e6:.3g} MFLOP of dense products, "
        "with the head for the masked tokens alone; Hugging Face's model computes it for all. "
        f"{report.surroundings(lines)}"
    )
