"""Strategies: what two replicas cost, against one device of as many threads."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import peers
from harness import plan, report, runs, stats, tables
from suites import base

SIZES = ("tiny", "minilm")
LENGTHS = "mrpc"
ONE = "one"
"""The variant of every peer that the others are held against."""

HEADER = (
    "",
    "examples/s",
    "rate : one device",
    "cores busy",
    "first step done after, s",
    "peak memory, GB",
    "runs",
)


def run(options: base.Options) -> None:
    """Measures the selected sizes of SIZES."""
    sizes = [size for size in options.sizes if size in SIZES]
    if not sizes:
        options.settings.say(f"strategy: skipped, it is measured with {' and '.join(SIZES)} only")
        return
    if options.settings.rounds:
        options.settings.say("warm-up, not counted")
        for peer in peers.STRATEGY:
            [first, *_] = entries(options, [peer], "tiny", 1)
            options.settings.say(runs.told(runs.once(options.settings, first, 0)))
    for size in sizes:
        measure(options, size)


def parts(options: base.Options) -> list[base.Part]:
    """Returns a part for every selected size."""
    sizes = [size for size in options.sizes if size in SIZES]
    return [base.Part(f"strategy-{size}", options.steps_of(size)) for size in sizes]


def entries(
    options: base.Options, chosen: Sequence[peers.Peer], size: str, steps: int
) -> list[runs.Entry]:
    """Returns every variant of the peers, all with the same job."""
    folder, mean = base.data(options, LENGTHS)
    needs = {"graph": base.graph(options, size), "gorbit": options.gorbit}
    made = []
    for peer in chosen:
        for variant in peer.variants:
            job = plan.Job(variant.name, size, LENGTHS, steps, folder, options=needs)
            numbers = functools.partial(stats.training, job=job, mean_tokens=mean)
            made.append(runs.Entry(peer, variant, job, numbers))
    return made


def measure(options: base.Options, size: str) -> None:
    """Measures one size and writes its table."""
    name, steps, rounds = f"strategy-{size}", options.steps_of(size), options.settings.rounds
    if rounds:
        options.settings.say(f"strategies, {size}: {steps} steps a run, {rounds} rounds")
        lines = runs.everything(options.settings, entries(options, peers.STRATEGY, size, steps))
        lines = base.kept(options, name, lines, steps)
    elif not (lines := base.earlier(options, name)):
        return
    title = f"Two replicas against one device, {size}"
    only = ["strategy", "--sizes", size, "--steps", str(max(line["steps"] for line in lines))]
    base.publish(options, name, title, written(lines), lines, only)


def written(lines: Sequence[stats.Line]) -> str:
    """Returns the table and its notes."""
    by = stats.variants(lines)

    def cells(runs: stats.Variant) -> list[str]:
        own = by.get((runs.lines[0]["peer"], ONE))
        alone = runs.lines[0]["variant"] == ONE
        return [
            tables.spread(runs.summary("examples_per_s")),
            tables.spread(stats.ratio(runs, own, "examples_per_s")) if own and not alone else "",
            tables.middle(runs.summary("cores")),
            tables.spread(runs.summary("first_step_s")),
            tables.spread(runs.summary("peak_gb")),
        ]

    table = tables.markdown(HEADER, report.rows(peers.STRATEGY, lines, cells, len(HEADER) - 2))
    timed = " or ".join(str(n) for n in sorted({line["steps"] for line in lines}))
    return (
        f"{table}\n\nThe same global batches of {plan.BATCH} in every row, float32, {timed} steps "
        f"a run after {plan.WARM_STEPS} that do not count; median (least to greatest). Ratios are "
        "taken within a round and within a library. Pairs of MRPC's lengths: gorbit packs them, "
        f"tf.distribute takes them padded to {plan.LENGTH}, with oneDNN on in all of its rows. "
        "Memory is the sum of what each process of a run held at most. "
        f"{report.surroundings(lines)}"
    )
