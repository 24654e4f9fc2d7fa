"""Measures the same training steps with each peer, and the machine's peak."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import peers
from harness import plan, report, runs, stats, tables
from peers.base import Peer, Variant, variants
from suites import base

HEADER = (
    "",
    "examples/s",
    "real tokens/s",
    "share of the GEMM peak",
    "gorbit's rate is",
    "first step done after, s",
    "peak memory, GB",
    "gorbit's memory is",
    "runs",
)
TF32 = "in TF32 in all rows and in the peak, which is TensorFlow's default and not torch's"
NO_TF32 = "in float32 in all rows and in the peak: this GPU has no TF32"
DESCRIPTION = {
    "mrpc": "pairs of MRPC's lengths, {mean:.0f} tokens on average",
    "full": "pairs of 128 tokens",
}


def run(options: base.Options) -> None:
    """Measures every size with all lengths."""
    gpu = options.settings.on_gpu
    some = [p for p in peers.TRAIN if variants(p, gpu)]
    chosen = [p for p in some if not options.peers or p.name in options.peers]
    if options.settings.rounds:
        warm(options, chosen)
    for size in options.sizes:
        for lengths in options.lengths:
            measure(options, chosen, size, lengths)


def parts(options: base.Options) -> list[base.Part]:
    """Returns a part for each size and kind of lengths."""
    return [
        base.Part(f"train-{size}-{lengths}", options.steps_of(size), options.peers)
        for size in options.sizes
        for lengths in options.lengths
    ]


def warm(options: base.Options, chosen: Sequence[Peer]) -> None:
    """Runs each peer for a moment, so that the first measured run finds warm caches."""
    base.data(options, "mrpc")
    base.graph(options, "tiny")
    options.settings.say("warm-up, not counted")
    for peer in chosen:
        first, *_ = variants(peer, options.settings.on_gpu)
        entry = training(options, peer, first, "tiny", "mrpc", 1)
        options.settings.say(runs.told(runs.once(options.settings, entry, 0)))


def training(
    options: base.Options, peer: Peer, variant: Variant, size: str, lengths: str, steps: int
) -> runs.Entry:
    """Returns the entry of a training."""
    folder, mean = base.data(options, lengths)
    precision = "bf16" if peer.name == "gorbit-bf16" else "float32"
    needs = {"graph": base.graph(options, size, precision=precision), "gorbit": options.gorbit}
    gpu = options.settings.on_gpu
    job = plan.Job(variant.name, size, lengths, steps, folder, options=needs, gpu=gpu)
    numbers = functools.partial(stats.training, job=job, mean_tokens=mean)
    return runs.Entry(peer, variant, job, numbers)


def measure(options: base.Options, chosen: Sequence[Peer], size: str, lengths: str) -> None:
    """Measures one size with one kind of lengths, and writes its table."""
    name, steps = f"train-{size}-{lengths}", options.steps_of(size)
    if options.settings.rounds:
        lines = base.kept(options, name, measured(options, chosen, size, lengths), steps)
    elif not (lines := base.earlier(options, name)):
        return
    known = {line["peer"] for line in lines}
    rows = [p for p in peers.TRAIN if p.name in known]
    rates = (line for line in lines if "tokens_per_s" in line)
    mean = next((line["tokens_per_s"] / line["examples_per_s"] for line in rates), 0.0)
    only = ["train", "--sizes", size, "--lengths", lengths]
    if longest := max((line["steps"] for line in lines if "steps" in line), default=0):
        only += ["--steps", str(longest)]
    if rows != list(peers.TRAIN):
        only += ["--peers", *(p.name for p in rows)]
    base.publish(
        options,
        name,
        f"Training {size}, {DESCRIPTION[lengths].format(mean=mean)}",
        written(options, rows, lines, size, steps),
        lines,
        only,
    )


def measured(
    options: base.Options, chosen: Sequence[Peer], size: str, lengths: str
) -> list[stats.Line]:
    """Runs all rounds: the products, the peers, and the products again; returns their lines."""
    _, mean = base.data(options, lengths)
    steps, rows = options.steps_of(size), str(round(plan.BATCH * mean))
    gpu = options.settings.on_gpu
    peaks = [
        runs.Entry(
            peers.GEMM,
            variant,
            plan.Job(variant.name, size, lengths, options={"rows": rows}, gpu=gpu),
            stats.told,
        )
        for variant in variants(peers.GEMM, gpu)
    ]
    training_entries = [
        training(options, peer, variant, size, lengths, steps)
        for peer in chosen
        for variant in variants(peer, gpu)
    ]
    options.settings.say(
        f"{size}, {lengths}: {steps} steps a run, {options.settings.rounds} rounds"
    )
    # The speed of the machine changes within minutes, so the products run before and after.
    return runs.everything(options.settings, [*peaks, *training_entries, *peaks])


def peak(lines: Sequence[stats.Line]) -> dict[int, float]:
    """Returns the fastest products of each round. Disturbed runs count: they are never too fast."""
    fastest: dict[int, float] = {}
    for line in lines:
        if line["peer"] == "gemm" and "rate" in line:
            fastest[line["round"]] = max(fastest.get(line["round"], 0.0), line["rate"])
    return fastest


def written(
    options: base.Options,
    chosen: Sequence[Peer],
    lines: Sequence[stats.Line],
    size: str,
    steps: int,
) -> str:
    """Returns the table and its notes."""
    by, gpu = stats.variants(lines), options.settings.gpu
    peaks = [
        variant
        for variant in variants(peers.GEMM, options.settings.on_gpu)
        if ("gemm", variant.name) in by
    ]
    wide, narrow = by.get(("gorbit", "train")), by.get(("gorbit-bf16", "bf16"))
    # The speed of the machine changes between rounds, so only runs of one round are compared.
    fastest = peak(lines)

    def share(runs: stats.Variant) -> stats.Summary | None:
        return stats.Summary.of(
            line["tflops"] * 1e12 / fastest[line["round"]]
            for line in runs.lines
            if line["round"] in fastest
        )

    def ours_by(runs: stats.Variant, name: str) -> str:
        ours = narrow if "bf16" in runs.lines[0]["variant"] else wide
        if not ours or runs.lines[0]["peer"].startswith("gorbit"):
            return ""
        if same := stats.ratio(ours, runs, name):
            return f"{tables.spread(same)} times"
        mine, its = ours.summary(name), runs.summary(name)
        return f"{mine.median / its.median:.2f} times, of other rounds" if mine and its else ""

    def cells(runs: stats.Variant) -> list[str]:
        return [
            tables.spread(runs.summary("examples_per_s")),
            tables.middle(runs.summary("tokens_per_s")),
            tables.spread(share(runs), tables.percent),
            ours_by(runs, "examples_per_s"),
            tables.spread(runs.summary("first_step_s")),
            tables.spread(runs.summary("peak_gb")),
            ours_by(runs, "peak_gb"),
        ]

    def told(variant: Variant) -> str:
        some = [line for line in lines if (line["peer"], line["variant"]) == ("gemm", variant.name)]
        good = stats.Summary.of(rate / 1e9 for rate in peak(some).values())
        if good is None:
            return f"{variant.title} failed: {tables.cell(some[0]['error'])}"
        return f"{variant.title} {tables.spread(good)}"

    # In Python, TensorFlow takes nearly all memory of a GPU at its start.
    header = [h.replace("peak memory", "peak memory of the host") if gpu else h for h in HEADER]
    rows = report.rows(chosen, lines, cells, len(HEADER) - 2, gpu is not None)
    table = tables.markdown(header, rows)
    flop = plan.SIZES[size].train_flop_per_token / 1e6
    timed = sorted({line.get("steps", steps) for line in lines})
    repeated = sum(line.get("repeated", 0) for line in lines)
    notes = [
        f"Batches of {plan.BATCH}, float32 where no other is told, "
        f"{' or '.join(map(str, timed))} steps a run after "
        f"{plan.GPU_WARM_STEPS if gpu else plan.WARM_STEPS} that do not count; "
        "median (least to greatest); shares and ratios are those within a round.",
        f"Products {TF32 if gpu.tf32 else NO_TF32}." if gpu else "",
        "GEMM peak in these shapes, the fastest run of a round, GFLOP/s: "
        f"{', '.join(map(told, peaks))}. "
        f"A token takes {flop:.3g} MFLOP of dense products.",
        f"Disturbed runs that were repeated: {repeated}." if repeated else "",
        report.surroundings(lines, gpu),
    ]
    return f"{table}\n\n{' '.join(note for note in notes if note)}"
