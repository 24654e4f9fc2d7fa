"""Prediction and evaluation: labels for text pairs, the same weights everywhere."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shutil
from collections.abc import Sequence

import peers
from harness import plan, process, report, runs, stats, tables
from peers import gorbit
from peers.base import Peer, variants
from suites import base

HEADER = ("", "one pair, s", "all pairs, s", "pairs/s between", "peak memory, GB", "runs")
FIRST, ALL = "dev", "train"
"""Splits of the converted pairs: the first one alone, and all."""


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The pairs, in the forms that the peers take.

    Attributes:
        name: what they are, for the reader.
        count: how many.
        file: two texts a line, a tab between; with ".first" after its name, the first pair.
        data: folder of gorbit's records, as Job.data.
    """

    name: str
    count: int
    file: str
    data: str


def run(options: base.Options) -> None:
    """Measures every size and writes its table, or prints that there is nothing to classify."""
    if not options.settings.rounds:
        for size in options.sizes:
            if lines := base.earlier(options, f"predict-{size}"):
                publish(options, size, lines)
        return
    for needed in (options.vocab, options.pairs or base.REVIEWS):
        if not os.path.exists(needed):
            options.settings.say(
                f"predict: skipped, {needed} is not there: make fetch, or --vocab and --pairs"
            )
            return
    asked = pairs(options)
    for size in options.sizes:
        publish(options, size, measured(options, size, asked))


def parts(options: base.Options) -> list[base.Part]:
    """Returns a part for every size."""
    return [base.Part(f"predict-{size}") for size in options.sizes]


def measured(options: base.Options, size: str, asked: Pairs) -> list[stats.Line]:
    """Returns the lines of one size: of a single pair, for the start, and of all pairs."""
    chosen = {
        **{"vocab": options.vocab, "gorbit": options.gorbit},
        **models(options, size, asked.data),
        "job_test": base.go_test(options, "train"),
    }
    first = {"pairs": f"{asked.file}.first", "split": FIRST, "count": "1"}
    every = {"pairs": asked.file, "split": ALL, "count": str(asked.count)}

    def entries(peer: Peer) -> list[runs.Entry]:
        gpu, alone = options.settings.on_gpu, peer.name == gorbit.Forward.name
        return [
            runs.Entry(
                peer,
                variant,
                plan.Job(variant.name, size, options={**chosen, **which}, gpu=gpu),
                functools.partial(told if alone else timed, pairs=int(which["count"])),
            )
            for variant in variants(peer, gpu)
            for which in ([every] if alone else [first, every])
        ]

    planned = [entry for peer in peers.PREDICT for entry in entries(peer)]
    rounds = options.settings.rounds
    options.settings.say(f"predict {size}: {asked.count} pairs, {rounds} rounds")
    for entry in planned:
        if entry.job.options["split"] == FIRST:
            options.settings.say("  warm-up" + runs.told(runs.once(options.settings, entry, 0)))
    lines = runs.everything(options.settings, planned)
    for line in lines:
        line["asked"] = asked.name
        if line["peer"].startswith("gorbit"):
            line["gorbit"] = options.version
    return lines


def models(options: base.Options, size: str, data: str) -> dict[str, str]:
    """Returns the places of the same weights in the form of each peer.

    What cannot be made is said, and its peers fail; gorbit then has the weights of its export.
    """
    folder = os.path.join(options.settings.work, "weights", size)
    made = {
        "weights": folder,
        "onnx": os.path.join(folder, "model.onnx"),
        "onnx8": os.path.join(folder, "model8.onnx"),
        "exported": os.path.join(options.settings.work, "served", size),
        "exported8": os.path.join(options.settings.work, "served", f"{size}-int8"),
    }
    initial = os.path.join(folder, "model.safetensors")
    try:
        if not os.path.exists(initial):
            base.work(options, peers.WEIGHTS, plan.Job("weights", size, options=made))
        if not options.settings.on_gpu and not os.path.exists(made["onnx"]):
            python = options.settings.venvs["ort"].python
            needs = {**made, "packages": packages(python)}
            base.work(options, peers.ONNX, plan.Job("onnx", size, options=needs))
        if not options.settings.on_gpu and not os.path.exists(made["onnx8"]):
            base.work(options, peers.ONNX8, plan.Job("onnx8", size, options=made))
    except base.PrepareError as err:
        options.settings.say(f"{size}: {err}")
    made["run"] = trained(options, size, initial if os.path.exists(initial) else "", data)
    for name, flags in (("exported", []), ("exported8", ["--precision", "int8", "--unmeasured"])):
        shutil.rmtree(made[name], ignore_errors=True)
        command = [options.gorbit, "export", "--run", made["run"], "--out", made[name], *flags]
        base.call(options, command)
    return made


def packages(python: str) -> str:
    """The folder of the packages of an environment."""
    lib = pathlib.Path(python).parent.parent / "lib"
    return str(next(lib.glob("python*/site-packages"), lib))


def timed(seen: process.Observation, pairs: int) -> stats.Line:
    """Returns the numbers of a run that answers some pairs."""
    if not seen.error and seen.info.get("answers") != pairs:
        return {"error": f"{seen.info.get('answers', 0)} answers to {pairs} pairs"}
    seen.info["rate"] = pairs / seen.seconds
    return told(seen, pairs)


def told(seen: process.Observation, pairs: int) -> stats.Line:
    """Returns the numbers of a run that reports its rate itself."""
    return {**stats.told(seen), "pairs": pairs}


def publish(options: base.Options, size: str, lines: Sequence[stats.Line]) -> None:
    """Writes the table of one size."""
    count = max((line["pairs"] for line in lines if "pairs" in line), default=0)
    title = f"Classifying {count:,} pairs with {size}"
    only = ["predict", "--sizes", size]
    base.publish(options, f"predict-{size}", title, written(options, lines, count), lines, only)


def written(options: base.Options, lines: Sequence[stats.Line], count: int) -> str:
    """Returns the table and its notes."""
    starts = stats.variants(line for line in lines if line.get("pairs") == 1)
    scores = {
        f"{line['peer']} {line['variant']}": line["mean_score"]
        for line in lines
        if line.get("pairs") == count and "mean_score" in line
    }

    def cells(variant: stats.Variant) -> list[str]:
        line, every = variant.lines[0], variant.summary("seconds")
        memory = tables.spread(variant.summary("peak_gb"))
        if line["peer"] == gorbit.Forward.name:
            return ["", "", tables.spread(variant.summary("rate")), memory]
        start = starts.get((line["peer"], line["variant"]))
        rates = stats.Summary.of(between(start, variant, count)) if start else None
        one = start.summary("seconds") if start else None
        return [tables.spread(one), tables.spread(every), tables.spread(rates), memory]

    rest = [line for line in lines if line.get("pairs") != 1]
    gpu = options.settings.gpu
    rows = report.rows(peers.PREDICT, rest, cells, len(HEADER) - 2, gpu is not None)
    table = tables.markdown(HEADER, rows)
    agreed = ", ".join(f"{name} {score:.5f}" for name, score in scores.items())
    asked = next((line["asked"] for line in lines if "asked" in line), "")
    return (
        f"{table}\n\n{asked}; seconds from the start of a process to its end. Prediction is "
        "texts to labels, evaluation records to metrics; the forward passes alone are those of "
        "prediction, without start, input and output. Between: the pairs but the first, by "
        "the time that all take longer than one, within a round. Median (least to greatest). The "
        "same random weights "
        f"everywhere; mean probability of the answers: {agreed}. {report.surroundings(lines, gpu)}"
    )


def between(one: stats.Variant, every: stats.Variant, count: int) -> list[float]:
    """Returns pairs per second after the start, of every round that has both runs."""
    starts = {line["round"]: line["seconds"] for line in one.lines}
    more = [
        line["seconds"] - starts[line["round"]] for line in every.lines if line["round"] in starts
    ]
    return [(count - 1) / seconds for seconds in more if seconds > 0]


def pairs(options: base.Options) -> Pairs:
    """The pairs out of a file of two texts a line, or one of GLUE's form.

    Without a file they are neighbours among the demo's reviews.
    """
    if options.pairs:
        name = f"Pairs of {os.path.basename(options.pairs)}"
        text = pathlib.Path(options.pairs).read_text(encoding="utf-8-sig")
        rows = [line.split("\t") for line in text.splitlines()]
        first, second = 0, 1
        if rows and "#1 String" in rows[0]:
            first, second = rows[0].index("#1 String"), rows[0].index("#2 String")
            rows = rows[1:]
        found = [(row[first], row[second]) for row in rows]
    else:
        name = "Neighbours among the demo's reviews as pairs"
        texts = base.reviews()[:3000]
        found = list(zip(texts[::2], texts[1::2]))
    folder = os.path.join(options.settings.work, "pairs")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    made = Pairs(name, len(found), os.path.join(folder, "pairs.txt"), folder)
    for end, some in ((".first", found[:1]), ("", found)):
        bare = "".join(f"{a}\t{b}\n" for a, b in some)
        labelled = "".join(f"{a}\t{b}\t{i % 2}\n" for i, (a, b) in enumerate(some))
        pathlib.Path(made.file + end).write_text(bare, encoding="utf-8")
        pathlib.Path(f"{made.file}{end}.labelled").write_text(
            f"first\tsecond\tlabel\n{labelled}", encoding="utf-8"
        )
    command = [
        *(options.gorbit, "convert", "--vocab", options.vocab, "--format", "tsv"),
        *(f"--{ALL}", f"{made.file}.labelled", f"--{FIRST}", f"{made.file}.first.labelled"),
        *("--text-column", "first", "--pair-column", "second", "--label-column", "label"),
    ]
    base.call(options, [*command, "--out", os.path.join(folder, "gorbit")])
    return made


def trained(options: base.Options, size: str, initial: str, data: str) -> str:
    """A run folder whose checkpoint holds the weights, unchanged by steps that are next to none."""
    run = os.path.join(options.settings.work, "runs", size)
    shutil.rmtree(run, ignore_errors=True)
    needs = {"graph": base.graph(options, size), "gorbit": options.gorbit}
    job = plan.Job("train", size, "mrpc", data=data, scratch=run, options=needs)
    command = [
        *gorbit.Train().command(job, ""),
        *("--learning-rate", "1e-30", "--set", "optimizer.weight_decay=0"),
    ]
    if initial:
        command += ["--init", initial]
    base.call(options, command)
    return os.path.join(run, "run")
