"""Translation with the same weights: files and single sentences, by beams of four."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import shutil
from collections.abc import Sequence

import debian
import peers
from harness import plan, process, report, runs, stats, tables
from peers import translation
from peers.base import Peer, Variant
from suites import base, predict

NAME = "generate-translate"
SENTENCES, QUICK_SENTENCES = 256, 32
"""Sentences of a file."""
SINGLE, QUICK_SINGLE = 100, 12
"""Sentences that are translated one after the other."""
TRAINED, QUICK_TRAINED = (1500, 16), (20, 16)
"""Steps of the training that makes the weights, and examples of a batch."""
CONFIG = {
    "model_type": "bart",
    "d_model": 256,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "max_position_embeddings": 256,
    "activation_function": "relu",
    "scale_embedding": True,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
VOCABULARY = 8000
FILE = ("", "one, s", "all, s", "sentences/s between", "gorbit's rate is", "texts as gorbit's")
ALONE = (
    "",
    "p50, ms",
    "p99, ms",
    "gorbit's p50 is",
    "first token p50, p99, ms",
    "texts as gorbit's",
)
END = ("peak memory, GB", "runs")


def run(options: base.Options) -> None:
    """Measures and writes the tables."""
    if options.settings.rounds:
        publish(options, measured(options))
    elif lines := base.earlier(options, NAME):
        publish(options, lines)


def measured(options: base.Options) -> list[stats.Line]:
    """Runs all rounds and returns their lines."""
    needs = models(options)
    most = QUICK_SENTENCES if options.quick else SENTENCES
    single = QUICK_SINGLE if options.quick else SINGLE
    files = {count: sentences(options, count) for count in (1, single, most)}
    jobs: list[tuple[Peer, Variant, dict[str, str]]] = []
    for peer in peers.TRANSLATE:
        for variant in peer.variants:
            if peer.name != "gorbit-translate-serve":
                for workers in ("1", "2") if peer.venv == "ct2" else ("1",):
                    for count in (1, most):
                        jobs.append((peer, variant, about("file", count, files[count], workers)))
            if peer.name not in ("gorbit-translate", "gorbit-translate-tfgo"):
                jobs.append((peer, variant, about("alone", single, files[single], "1")))
    entries = []
    for peer, variant, asked in jobs:
        options_of = {**needs, **asked, "gorbit": options.gorbit}
        name = "-".join(
            (peer.name, variant.name, *(asked[k] for k in ("kind", "count", "workers")))
        )
        options_of["texts"] = os.path.join(options.settings.work, f"{NAME}-{name}.json")
        job = plan.Job(variant.name, options=options_of)
        entries.append(runs.Entry(peer, variant, job, functools.partial(told, job=job)))
    options.settings.say(f"{NAME}: {most} sentences, {options.settings.rounds} rounds")
    lines = runs.everything(options.settings, entries)
    for line in lines:
        if line["peer"].startswith("gorbit"):
            line["gorbit"] = options.version
    return lines


def about(kind: str, count: int, file: str, workers: str) -> dict[str, str]:
    """Returns the options of a job that differ between jobs."""
    return {"kind": kind, "count": str(count), "file": file, "workers": workers}


def told(seen: process.Observation, job: plan.Job) -> stats.Line:
    """Returns the numbers of a run, with the share of its texts that are those of gorbit's last."""
    asked = job.options
    file, count = pathlib.Path(asked["texts"]), int(asked["count"])
    line: stats.Line = {"kind": asked["kind"], "count": count, "workers": int(asked["workers"])}
    answers = pathlib.Path(f"{file}l")
    if not seen.error and answers.exists():  # of gorbit's programs
        rows = answers.read_text(encoding="utf-8").splitlines()
        file.write_text(json.dumps([json.loads(row)["generated"] for row in rows]))
        answers.unlink()
        seen.info["answers"] = len(rows)
    if seen.error:
        return {**line, "error": seen.error}
    if seen.info.get("answers") != count:
        return {**line, "error": f"{seen.info.get('answers', 0)} answers to {count} sentences"}
    seen.info.setdefault("rate", count / seen.seconds)
    own = "gorbit-translate-predict" if asked["kind"] == "file" else "gorbit-translate-serve-serve"
    reference = file.with_name(f"{NAME}-{own}-{asked['kind']}-{count}-1.json")
    if reference.exists() and reference != file:
        ours, theirs = (json.loads(path.read_text()) for path in (reference, file))
        line["equal"] = base.equal_share(ours, theirs)
    return {**line, **stats.told(seen)}


def models(options: base.Options) -> dict[str, str]:
    """Returns the places of the same weights in the form of each peer."""
    work = os.path.join(options.settings.work, "translate")
    made = {"run": options.run or trained(options, work)}
    for name in ("exported", "hf", "ct2"):
        made[name] = os.path.join(work, name)
        shutil.rmtree(made[name], ignore_errors=True)
    export = [options.gorbit, "export", "--run", made["run"]]
    base.call(options, [*export, "--out", made["exported"]])
    base.call(options, [*export, "--format", "huggingface", "--out", made["hf"]])
    try:
        packages = predict.packages(options.settings.venvs["ct2"].python)
        base.work(options, peers.CT2, plan.Job("convert", options={**made, "packages": packages}))
    except base.PrepareError as err:
        options.settings.say(f"{NAME}: {err}")
    return made


def translations(options: base.Options) -> str:
    """Returns the folder of Debian's translations, made if needed."""
    folder = pathlib.Path(options.settings.work, "debian")
    if not (folder / "summaries.test.tsv").exists():
        options.settings.say("fetching the descriptions of Debian's packages")
        try:
            debian.make(folder)
        except (OSError, ValueError, debian.subprocess.CalledProcessError) as err:
            raise base.PrepareError(f"debian: {err}") from err
    return str(folder)


def trained(options: base.Options, work: str) -> str:
    """Returns a run that learned from Debian's translations for a moment, made if needed."""
    steps, batch = QUICK_TRAINED if options.quick else TRAINED
    run = os.path.join(work, f"run-{steps}")
    if os.path.exists(os.path.join(run, "checkpoints", f"ckpt-{steps}.index")):
        return run
    shutil.rmtree(work, ignore_errors=True)
    folder, gorbit = translations(options), options.gorbit
    train, test = (os.path.join(folder, f"en-de.{split}.tsv") for split in ("train", "test"))
    text = os.path.join(work, "text.txt")
    os.makedirs(work)
    both = pathlib.Path(train).read_text(encoding="utf-8").replace("\t", "\n")
    pathlib.Path(text).write_text(both, encoding="utf-8")
    options.settings.say(f"training a model of translations for {steps} steps")
    base.call(
        options,
        [
            *(gorbit, "tokenizer", "train", "--type", "bpe", "--template", "roberta"),
            *("--vocab-size", str(VOCABULARY), "--out", f"{work}/tok", text),
        ],
    )
    base.call(
        options,
        [
            *(gorbit, "convert", "--task", "seq2seq", "--tokenizer", f"{work}/tok"),
            *("--source-column", "en", "--target-column", "de"),
            *("--train", train, "--test", test),
            *("--max-length", "128", "--max-target-length", "128", "--out", f"{work}/data"),
        ],
    )
    manifest = json.loads(pathlib.Path(work, "data", "manifest.json").read_text())
    config = {**CONFIG, "vocab_size": manifest["vocab"]["size"]}
    pathlib.Path(work, "config.json").write_text(json.dumps(config))
    graph = base.exported(options, "translate", "seq2seq", f"{work}/config.json", f"{work}/data")
    base.call(
        options,
        [
            *(gorbit, "train", "--progress", "off", "--graph", graph, "--data", f"{work}/data"),
            *("--run", run, "--steps", str(steps), "--batch-size", str(batch)),
            *("--eval-interval", "-2", "--learning-rate", "1e-3"),
            *("--set", "optimizer.warmup_ratio=0.1"),
        ],
    )
    return run


def data(options: base.Options, run: str) -> str:
    """Returns the folder of the data of a run, as the run's params say."""
    params = pathlib.Path(run, "params.yaml").read_text(encoding="utf-8")
    found = re.search(r"^data:\n(?:  .*\n)*?  dir: (.+)$", params, re.MULTILINE)
    if not found:
        raise base.PrepareError(
            f"{run}/params.yaml has no data.dir; expected a run of gorbit train"
        )
    return found[1]


def sentences(options: base.Options, count: int) -> str:
    """Returns a file of English sentences that the training had none of."""
    rows = pathlib.Path(translations(options), "en-de.test.tsv").read_text(encoding="utf-8")
    texts = [row.split("\t")[0] for row in rows.splitlines()[1:]]
    chosen = texts[:: len(texts) // count][:count]
    file = os.path.join(options.settings.work, f"{NAME}-{count}.txt")
    pathlib.Path(file).write_text("".join(f"{text}\n" for text in chosen), encoding="utf-8")
    return file


def publish(options: base.Options, lines: Sequence[stats.Line]) -> None:
    """Writes the tables."""
    only = ["generate", "--parts", "translate", *(["--run", options.run] if options.run else [])]
    title = "Translating with the same weights"
    base.publish(options, NAME, title, written(lines), lines, only)


def written(lines: Sequence[stats.Line]) -> str:
    """Returns the tables and their notes."""
    count = max((line["count"] for line in lines if line.get("kind") == "file"), default=0)
    file = tables.markdown([*FILE, *END], files(lines, count))
    alone = tables.markdown([*ALONE, *END], singles(lines))
    return (
        f"{count} sentences in a file, beams of {translation.BEAMS}, batches of "
        f"{translation.BATCH} sentences:\n\n{file}\n\nOne sentence after the other, beams of "
        f"{translation.BEAMS}, and the first token of a greedy search:\n\n{alone}\n\n"
        f"{translation.TOKENS} new tokens at most. Of files, seconds "
        "are from the start of a process to its end, and between is without the start and the "
        "first sentence. gorbit serve answers over HTTP, the others in their process. CTranslate2 "
        "has one model on all cores, and for files also one on each. Median (least to greatest). "
        f"{report.surroundings(lines)}"
    )


def files(lines: Sequence[stats.Line], count: int) -> list[list[str]]:
    """Returns the rows of files."""

    def some(n: int, workers: int) -> list[stats.Line]:
        what = {"kind": "file", "count": n, "workers": workers}
        return [line for line in lines if what.items() <= line.items()]

    table = []
    ours = rates(some(1, 1), some(count, 1), ("gorbit-translate", "predict"), count)
    for workers in sorted({line["workers"] for line in lines if "workers" in line}):
        starts = stats.variants(some(1, workers))
        known = {line["peer"] for line in some(count, workers)}

        def cells(of: stats.Variant, starts: dict = starts, workers: int = workers) -> list[str]:
            key = of.lines[0]["peer"], of.lines[0]["variant"]
            its = rates(some(1, workers), some(count, workers), key, count)
            times = {} if key[0] == "gorbit-translate" else ours
            ratios = stats.Summary.of(times[n] / its[n] for n in its if n in times)
            return [
                tables.spread(starts[key].summary("seconds")) if key in starts else "",
                tables.spread(of.summary("seconds")),
                tables.spread(stats.Summary.of(its.values())),
                f"{tables.spread(ratios)} times" if ratios else "",
                tables.spread(of.summary("equal"), tables.percent),
                tables.spread(of.summary("peak_gb")),
            ]

        rows = report.rows(
            [peer for peer in peers.TRANSLATE if peer.name in known],
            some(count, workers),
            cells,
            len(FILE) + len(END) - 2,
        )
        table += [
            [row[0] + (", a model on each core" if workers > 1 else ""), *row[1:]] for row in rows
        ]
    return table


def rates(
    one: Sequence[stats.Line], every: Sequence[stats.Line], key: tuple[str, str], count: int
) -> dict[int, float]:
    """Returns sentences per second after the start, by round."""
    starts, ends = (
        {
            line["round"]: line["seconds"]
            for line in some
            if (line["peer"], line["variant"]) == key and "error" not in line
        }
        for some in (one, every)
    )
    found = {n: ends[n] - starts[n] for n in ends if n in starts}
    return {n: (count - 1) / seconds for n, seconds in found.items() if seconds > 0}


def singles(lines: Sequence[stats.Line]) -> list[list[str]]:
    """Returns the rows of single sentences."""
    alone = [line for line in lines if line.get("kind") == "alone"]
    ours = stats.variants(alone).get(("gorbit-translate-serve", "serve"))

    def ms(of: stats.Variant, name: str) -> str:
        return tables.spread(stats.Summary.of(1000 * line[name] for line in of.lines))

    def cells(of: stats.Variant) -> list[str]:
        own = ours is None or of.lines[0]["peer"] == "gorbit-translate-serve"
        times = None if own else stats.ratio(ours, of, "p50")
        return [
            ms(of, "p50"),
            ms(of, "p99"),
            f"{tables.spread(times)} times" if times else "",
            f"{ms(of, 'first_p50')}, {ms(of, 'first_p99')}",
            tables.spread(of.summary("equal"), tables.percent),
            tables.spread(of.summary("peak_gb")),
        ]

    known = {line["peer"] for line in alone}
    rows = [peer for peer in peers.TRANSLATE if peer.name in known]
    return report.rows(rows, alone, cells, len(ALONE) + len(END) - 2)
