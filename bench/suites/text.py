"""Text: the tokenizer against the Rust library, and conversion against both."""

from __future__ import annotations

import os
import pathlib
import shlex
from collections.abc import Sequence

import peers
from harness import plan, report, runs, stats, tables
from suites import base

DOCUMENT = "benchmarks-text.md"
CONVERTED_MB = 100
"""Texts are repeated until there is as much to convert: less is over before all is warm."""

HEADER = (
    "",
    "one core: sentences per second of processor time",
    "gorbit's rate is",
    "two cores: sentences/s",
    "MB/s",
    "gorbit's rate is",
    "runs",
)
CONVERT_HEADER = (
    "",
    "MB/s",
    "tokenizer alone, MB/s",
    "share of it",
    "tokenizers' fastest on two cores, MB/s",
    "times that",
    "runs",
)
RUST = ("encode_batch", "encode_batch_fast")


def run(options: base.Options) -> None:
    """Measures and writes the tables, or prints that there is no text."""
    if not options.settings.rounds:
        if lines := base.earlier(options, "text"):
            publish(options, lines)
        return
    for needed in (options.text or base.REVIEWS, options.vocab):
        if not os.path.exists(needed):
            options.settings.say(
                f"text: skipped, {needed} is not there: make fetch, or --text and --vocab"
            )
            return
    publish(options, measured(options))


def parts(options: base.Options) -> list[base.Part]:
    """Returns the only part."""
    del options
    return [base.Part("text")]


def measured(options: base.Options) -> list[stats.Line]:
    """Runs all rounds and returns their lines."""
    name, sentences = texts(options)
    work = options.settings.work
    os.makedirs(work, exist_ok=True)
    needs = {"vocab": options.vocab, "text": os.path.join(work, "sentences.txt")}
    needs |= {"table": os.path.join(work, "sentences.tsv")}
    needs["text_bench"] = os.path.join(work, "text.bench")
    needs["convert_test"] = base.go_test(options, "convert")
    build = f"source .tf/env && go build -o {shlex.quote(needs['text_bench'])} ./text/bench"
    base.call(options, ["bash", "-c", build])
    size = sum(len(s.encode()) + 1 for s in sentences)
    pathlib.Path(needs["text"]).write_text("".join(f"{s}\n" for s in sentences), encoding="utf-8")
    with open(needs["table"], "w", encoding="utf-8") as file:
        file.write("text\tlabel\n")
        for _ in range(1 if options.quick else -(-CONVERTED_MB * 10**6 // size)):
            file.writelines(f"{s}\t{i % 2}\n" for i, s in enumerate(sentences))
    entries = [
        runs.Entry(peer, variant, plan.Job(variant.name, options=needs), stats.told)
        for peer in (*peers.TEXT, *peers.CONVERT)
        for variant in peer.variants
    ]
    options.settings.say(f"text: {name}, {options.settings.rounds} rounds")
    lines = runs.everything(options.settings, entries)
    about = f"{name}, {len(sentences):,} of {size / len(sentences):.0f} bytes on average"
    for line in lines:
        line["asked"] = about
        if line["peer"].startswith("gorbit"):
            line["gorbit"] = options.version
    return lines


def texts(options: base.Options) -> tuple[str, list[str]]:
    """Returns a description of the sentences for the reader, and the sentences.

    A file whose name ends in .tokens is one of WikiText's and is cut into sentences.
    """
    if not options.text:
        return "Snippets of the demo's reviews", base.reviews()
    path = pathlib.Path(options.text)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if path.suffix == ".tokens":
        return f"Sentences of {path.name} (WikiText)", list(sentences(lines))
    return f"Lines of {path.name}", [line.replace("\t", " ") for line in lines if line.strip()]


def sentences(lines: Sequence[str]) -> list[str]:
    """Returns the sentences of WikiText's paragraphs, without headings and marks within words."""
    found = []
    for line in lines:
        if line.startswith(" ="):
            continue
        for sentence in line.strip().split(" . "):
            for mark in "-,.":
                sentence = sentence.replace(f" @{mark}@ ", mark)
            if len(sentence) > 10:
                found.append(sentence.rstrip(" .") + " .")
    return found


def publish(options: base.Options, lines: Sequence[stats.Line]) -> None:
    """Writes the two tables."""
    only = ["text"]
    if options.text:
        only += ["--text", os.path.basename(options.text)]
    ours, texts = tokenizers(lines), conversion(lines)
    asked = next((line["asked"] for line in lines if "asked" in line), "")
    agreed = sorted({line["tokens"] for line in lines if "tokens" in line})
    same = f"tokens DIFFER: {agreed}"
    if len(agreed) == 1:
        same = f"{agreed[0]:,} tokens in every row"
    text = (
        f"{ours}\n\n{asked}, cut to {peers.text.LENGTH} ids, {same}. The fastest of three passes "
        "a run, each run a process of its own; of the library, batches of 1,000 or 10,000, "
        "whichever is faster. Ratios are those within a round; median (least to greatest)."
        f"\n\n{texts}\n\nConverting the same sentences, repeated, to records with vocabulary, "
        "manifest and checksums, disk included; the tokenizer alone encodes them from memory "
        f"before each conversion, on two goroutines. {report.surroundings(lines)}"
    )
    base.publish(options, "text", "Tokenizing and converting", text, lines, only, DOCUMENT)


def tokenizers(lines: Sequence[stats.Line]) -> str:
    """Returns the table of tokenizers. Each row has runs on one core and on two."""
    by = stats.variants(lines)
    nothing = stats.Variant((), 0, False, ("was not run",))
    ours = [by.get(("gorbit-text", cores), nothing) for cores in ("one", "two")]

    def row(title: str, one: stats.Variant, two: stats.Variant) -> list[str]:
        def ahead(top: stats.Variant, bottom: stats.Variant, name: str) -> str:
            same = stats.ratio(top, bottom, name) if top is not bottom else None
            return f"{tables.spread(same)} times" if same else ""

        counts = dict.fromkeys(report.counted(v) for v in (one, two))
        return [
            title,
            tables.spread(one.summary("per_cpu")),
            ahead(ours[0], one, "per_cpu"),
            tables.spread(two.summary("rate")),
            tables.spread(two.summary("mb")),
            ahead(ours[1], two, "rate"),
            " and ".join(counts),
        ]

    rows = [row("**gorbit**", *ours)]
    for name in RUST:
        both = [by.get(("tokenizers", f"{name} {cores}"), nothing) for cores in ("one", "two")]
        rows.append(row(f"tokenizers, {name}", *both))
    return tables.markdown(HEADER, rows)


def conversion(lines: Sequence[stats.Line]) -> str:
    """Returns the table of conversion, with the tokenizers of the same rounds."""
    fastest: dict[int, float] = {}
    for line in lines:
        if line["peer"] == "tokenizers" and line["variant"].endswith("two") and "mb" in line:
            fastest[line["round"]] = max(fastest.get(line["round"], 0.0), line["mb"])

    def cells(variant: stats.Variant) -> list[str]:
        beside = [line for line in variant.lines if line["round"] in fastest]
        ahead = stats.Summary.of(line["rate"] / fastest[line["round"]] for line in beside)
        share = stats.Summary.of(line["rate"] / line["alone"] for line in variant.lines)
        return [
            tables.spread(variant.summary("rate")),
            tables.spread(variant.summary("alone")),
            tables.spread(share, tables.percent),
            tables.spread(stats.Summary.of(fastest.values())),
            f"{tables.spread(ahead)} times" if ahead else "",
        ]

    rows = report.rows(peers.CONVERT, lines, cells, len(CONVERT_HEADER) - 2)
    return tables.markdown(CONVERT_HEADER, rows)
