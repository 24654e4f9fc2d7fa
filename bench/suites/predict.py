"""Prediction: labels for a file of text pairs, the same weights everywhere."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
from collections.abc import Sequence

import peers
from harness import plan, process, report, runs, stats, tables
from peers import gorbit
from peers.base import variants
from suites import base

HEADER = ("", "one pair, s", "all pairs, s", "pairs/s between", "peak memory, GB", "runs")


def run(options: base.Options) -> None:
    """Measures every size and publishes; says so where there is nothing to classify."""
    say = options.settings.say
    if not options.pairs:
        say("predict: skipped, no pairs were given: --pairs FILE, two texts a line, a tab between")
        return
    if not os.path.exists(options.vocab):
        say(f"predict: skipped, {options.vocab} is not there: make fetch, or --vocab")
        return
    count, path = pairs(options)
    for size in options.sizes:
        measure(options, size, path, count)


def measure(options: base.Options, size: str, path: str, count: int) -> None:
    """Measures one size: with a single pair, which is the start, and with all."""
    chosen = {"vocab": options.vocab, "gorbit": options.gorbit}
    chosen["weights"] = os.path.join(options.settings.work, "weights", size)
    initial = os.path.join(chosen["weights"], "model.safetensors")
    try:
        if not os.path.exists(initial):
            base.work(options, peers.WEIGHTS, plan.Job("weights", size, options=chosen))
    except base.PrepareError as err:
        # Gorbit is measured all the same, with the weights of its export.
        initial = ""
        options.settings.say(f"predict: {err}")
    chosen["run"] = trained(options, size, initial)
    gpu = options.settings.on_gpu
    entries = [
        runs.Entry(
            peer,
            variant,
            plan.Job(variant.name, size, options={**chosen, "pairs": file}, gpu=gpu),
            functools.partial(timed, pairs=number),
        )
        for peer in peers.PREDICT
        for variant in variants(peer, gpu)
        for number, file in ((1, f"{path}.first"), (count, path))
    ]
    options.settings.say(f"predict {size}: {count} pairs, {options.settings.rounds} rounds")
    for entry in entries[::2]:
        options.settings.say("  warm-up" + runs.told(runs.once(options.settings, entry, 0)))
    lines = runs.everything(options.settings, entries)
    title = f"Classifying {count} pairs with {size}"
    base.publish(options, f"predict-{size}", title, written(options, lines, count), lines)


def timed(seen: process.Observation, pairs: int) -> stats.Line:
    """The numbers of a run that answers some pairs."""
    if not seen.error and seen.info.get("answers") != pairs:
        return {"error": f"{seen.info.get('answers', 0)} answers to {pairs} pairs"}
    seen.info["rate"] = pairs / seen.seconds
    return {**stats.told(seen), "pairs": pairs}


def written(options: base.Options, lines: Sequence[stats.Line], count: int) -> str:
    """The table and what belongs to it."""
    starts = stats.variants(line for line in lines if line.get("pairs") == 1)
    scores = {
        f"{line['peer']} {line['variant']}": line["mean_score"]
        for line in lines
        if line.get("pairs") == count
    }

    def cells(variant: stats.Variant) -> list[str]:
        line = variant.lines[0]
        start = starts.get((line["peer"], line["variant"]))
        one, every = start and start.summary("seconds"), variant.summary("seconds")
        known = one and every and every.median > one.median
        return [
            tables.spread(one or None),
            tables.spread(every),
            tables.number((count - 1) / (every.median - one.median)) if known else "",
            tables.spread(variant.summary("peak_gb")),
        ]

    rest = [line for line in lines if line.get("pairs") != 1]
    gpu = options.settings.gpu
    rows = report.rows(peers.PREDICT, rest, cells, len(HEADER) - 2, gpu is not None)
    table = tables.markdown(HEADER, rows)
    told = ", ".join(f"{name} {score:.5f}" for name, score in scores.items())
    return (
        f"{table}\n\nPairs of {os.path.basename(options.pairs or '')}; from the start of the "
        "process to its end, texts to labels; median (least to greatest). The same random weights "
        f"everywhere; mean probability of the answers: {told}. {report.surroundings(lines, gpu)}"
    )


def pairs(options: base.Options) -> tuple[int, str]:
    """The pairs as lines of two texts, out of such a file or one of GLUE's form."""
    source = pathlib.Path(options.pairs or "")
    rows = [line.split("\t") for line in source.read_text(encoding="utf-8-sig").splitlines()]
    first, second = 0, 1
    if rows and "#1 String" in rows[0]:
        first, second = rows[0].index("#1 String"), rows[0].index("#2 String")
        rows = rows[1:]
    path = os.path.join(options.settings.work, "pairs.tsv")
    os.makedirs(options.settings.work, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{row[first]}\t{row[second]}\n" for row in rows)
    with open(f"{path}.first", "w", encoding="utf-8") as file:
        file.write(f"{rows[0][first]}\t{rows[0][second]}\n")
    return len(rows), path


def trained(options: base.Options, size: str, initial: str) -> str:
    """A run folder whose checkpoint holds the weights, unchanged by a step that is next to none."""
    folder, _ = base.data(options, "mrpc")
    graph = base.graph(options, size)
    run = os.path.join(options.settings.work, "runs", size)
    shutil.rmtree(run, ignore_errors=True)
    job = plan.Job(
        "train",
        size,
        "mrpc",
        data=folder,
        scratch=run,
        options={"graph": graph, "gorbit": options.gorbit},
    )
    command = [
        *gorbit.Train().command(job, ""),
        *("--learning-rate", "1e-30", "--set", "optimizer.weight_decay=0"),
    ]
    if initial:
        command += ["--init", initial]
    base.call(options, command)
    return os.path.join(run, "run")
