"""Evaluation by generation: gorbit evaluate next to predict_with_generate, the same weights."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import peers
from harness import plan, process, report, runs, stats, tables
from peers import translation
from peers.base import variants
from suites import base, translate

NAME = "generate-evaluate"
EXAMPLES, QUICK_EXAMPLES = 500, 24
BATCH = 32
HEADER = (
    "",
    "one text, s",
    "all, s",
    "texts/s between",
    "gorbit's rate is",
    "peak memory, GB",
    "runs",
)


def run(options: base.Options) -> None:
    """Measures and writes the table."""
    if options.settings.rounds:
        publish(options, measured(options))
    elif lines := base.earlier(options, NAME):
        publish(options, lines)


def measured(options: base.Options) -> list[stats.Line]:
    """Runs all rounds and returns their lines."""
    made = translate.models(options)
    records = translate.data(options, made["run"])
    most = QUICK_EXAMPLES if options.quick else EXAMPLES
    columns = os.path.join(options.settings.work, NAME)
    os.makedirs(columns, exist_ok=True)
    needs = {"records": records, "splits": "train,test"}
    base.work(options, peers.COLUMNS, plan.Job("columns", data=columns, options=needs))
    needs = {
        **{"run": made["run"], "weights": made["hf"], "gorbit": options.gorbit, "split": "test"},
        **{"max_new_tokens": str(translation.TOKENS), "batch": str(BATCH), "beams": "1"},
    }
    entries = []
    for peer in peers.TEXT_SCORES:
        for count in (1, most):
            asked = {**needs, "evaluate": str(count)}
            variant = variants(peer, False)[0]
            job = plan.Job(variant.name, steps=0, data=columns, options=asked)
            entries.append(runs.Entry(peer, variant, job, functools.partial(told, count=count)))
    options.settings.say(f"{NAME}: {most} examples, {options.settings.rounds} rounds")
    lines = runs.everything(options.settings, entries)
    for line in lines:
        if line["peer"].startswith("gorbit"):
            line["gorbit"] = options.version
    return lines


def told(seen: process.Observation, count: int) -> stats.Line:
    """Returns the numbers of a run."""
    if not seen.error and seen.info.get("answers") != count:
        seen.error = f"{seen.info.get('answers', 0)} texts for {count} examples"
    if not seen.error:
        seen.info["rate"] = count / seen.seconds
    return {"count": count, **stats.told(seen)}


def publish(options: base.Options, lines: Sequence[stats.Line]) -> None:
    """Writes the table."""
    title = "Evaluating by generated texts"
    only = ["generate", "--parts", "evaluate"]
    base.publish(options, NAME, title, written(lines), lines, only)


def written(lines: Sequence[stats.Line]) -> str:
    """Returns the table and its notes."""
    count = max((line["count"] for line in lines if "count" in line), default=0)
    one, every = ([line for line in lines if line.get("count") == n] for n in (1, count))
    starts = stats.variants(one)
    ours = translate.rates(one, every, ("gorbit-scores", "evaluate"), count)

    def cells(of: stats.Variant) -> list[str]:
        key = of.lines[0]["peer"], of.lines[0]["variant"]
        its = translate.rates(one, every, key, count)
        own = key[0] == "gorbit-scores"
        ratios = None if own else stats.Summary.of(ours[n] / its[n] for n in its if n in ours)
        return [
            tables.spread(starts[key].summary("seconds")) if key in starts else "",
            tables.spread(of.summary("seconds")),
            tables.spread(stats.Summary.of(its.values())),
            f"{tables.spread(ratios)} times" if ratios else "",
            tables.spread(of.summary("peak_gb")),
        ]

    rows = report.rows(peers.TEXT_SCORES, every, cells, len(HEADER) - 2)
    return (
        f"{tables.markdown(HEADER, rows)}\n\nGreedy texts of at most {translation.TOKENS} "
        f"tokens for {count} examples of a split, with the loss and, of gorbit, BLEU and chrF; the "
        f"Trainer in batches of {BATCH}, padded to the longest. Seconds are from the start of a "
        "process to its end; between is without the start and the first text. Median (least to "
        f"greatest). {report.surroundings(lines)}"
    )
