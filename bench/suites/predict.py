"""Prediction: labels for a file of text pairs, the same weights everywhere."""

from __future__ import annotations

import os
import pathlib
import shutil

import peers
from harness import plan, report, runs, stats, tables
from peers import gorbit
from suites import base

HEADER = ("", "seconds from start to end", "pairs/s once started", "peak memory, GB", "runs")


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
    """Measures one size."""
    chosen = {"pairs": path, "vocab": options.vocab, "gorbit": options.gorbit}
    chosen["weights"] = os.path.join(options.settings.work, "weights", size)
    problem = ""
    try:
        if not os.path.exists(os.path.join(chosen["weights"], "model.safetensors")):
            base.work(options, peers.WEIGHTS, plan.Job("weights", size, options=chosen))
    except base.PrepareError as err:
        # Gorbit is measured all the same, with the weights of its export.
        problem = str(err)
        options.settings.say(f"predict: {err}")
    chosen["run"] = trained(options, size, "" if problem else chosen["weights"])
    entries = [
        runs.Entry(peer, variant, plan.Job(variant.name, size, options=chosen), stats.told)
        for peer in peers.PREDICT
        for variant in peer.variants
    ]
    options.settings.say(f"predict {size}: {count} pairs, {options.settings.rounds} rounds")
    for peer in peers.PREDICT:
        entry = next(e for e in entries if e.peer is peer)
        options.settings.say(runs.told(runs.once(options.settings, entry, 0)))
    lines = runs.everything(options.settings, entries)

    def cells(variant: stats.Variant) -> list[str]:
        return [tables.spread(variant.summary(name)) for name in ("seconds", "rate", "peak_gb")]

    table = tables.markdown(HEADER, report.rows(peers.PREDICT, lines, cells, len(HEADER) - 2))
    note = f"{count} pairs of {os.path.basename(options.pairs or '')}; median (least to greatest). "
    ones = {
        line["peer"] if line["peer"] != "hf-predict" else line["variant"]: line["ones"]
        for line in lines
        if "ones" in line
    }
    if ones:
        told = ", ".join(f"{name} {number}" for name, number in ones.items())
        note += f"Answers that are the second label: {told}. "
    base.publish(
        options,
        f"predict-{size}",
        f"Prediction with {size}",
        f"{table}\n\n{note}{report.surroundings(lines)}",
        lines,
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
    return len(rows), path


def trained(options: base.Options, size: str, weights: str) -> str:
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
    if weights:
        command += ["--init", os.path.join(weights, "model.safetensors")]
    base.call(options, command)
    return os.path.join(run, "run")
