"""Input: batches of 32 out of TFRecords, without a model."""

from __future__ import annotations

from collections.abc import Sequence

import peers
from harness import plan, report, runs, stats, tables
from peers.base import Peer
from suites import base

HEADER = ("", "examples/s", "processor time per example, µs", "runs")


def run(options: base.Options) -> None:
    """Measures the readers and writes their table."""
    lines = measured(options) if options.settings.rounds else base.earlier(options, "input")
    note = (
        "Examples of MRPC's lengths, shuffled, decoded, made into batches of 32; gorbit packs "
        "them into rows, too."
    )
    publish(options, "input", "Reading batches of 32", note, peers.INPUT, lines)


def publish(
    options: base.Options,
    name: str,
    title: str,
    note: str,
    readers: Sequence[Peer],
    lines: Sequence[stats.Line],
) -> None:
    """Writes the table of a part, unless there are no lines."""
    if not lines:
        return

    def cells(variant: stats.Variant) -> list[str]:
        return [tables.spread(variant.summary(name)) for name in ("rate", "cpu_us")]

    table = tables.markdown(HEADER, report.rows(readers, lines, cells, len(HEADER) - 2))
    text = f"{table}\n\n{note} Median (least to greatest). {report.surroundings(lines)}"
    base.publish(options, name, title, text, lines, [name])


def parts(options: base.Options) -> list[base.Part]:
    """Returns the only part."""
    del options
    return [base.Part("input")]


def measured(options: base.Options) -> list[stats.Line]:
    """Runs all rounds and returns their lines."""
    folder, _ = base.data(options, "mrpc")
    test = base.go_test(options, "dataset")
    entries = [
        runs.Entry(
            peer,
            variant,
            plan.Job(variant.name, data=folder, options={"dataset_test": test}),
            stats.told,
        )
        for peer in peers.INPUT
        for variant in peer.variants
    ]
    options.settings.say(f"input: {options.settings.rounds} rounds")
    return runs.everything(options.settings, entries)
