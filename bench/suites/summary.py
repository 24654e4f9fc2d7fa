"""Where gorbit is ahead, level and behind, from the raw lines of the other suites."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence

from harness import plan, runs, stats, tables
from suites import base, serve, train

LEVEL = (0.95, 1.05)
"""Between these ratios the two are level."""
STANDINGS = ("Behind", "Level", "Ahead")
AMD = "benchmarks.md#on-the-amd-epyc"
MASKED = "benchmarks.md#training-minilm-as-a-masked-language-model-blocks-of-128-tokens"
NAMES = {
    **{"hf": "Hugging Face Trainer", "hf-settings": "Hugging Face Trainer"},
    **{"orbit": "Orbit", "keras": "Keras", "jax": "JAX"},
    **{"hf-mlm": "Hugging Face Trainer", "keras-mlm": "Keras", "hf-predict": "Hugging Face"},
    **{"llama": "llama.cpp", "hf-streams": "Hugging Face", "tokenizers": "tokenizers"},
    **{"ort-serve": "ONNX Runtime", "ort-predict": "ONNX Runtime", "hf-serve": "Hugging Face"},
    **{"tfdata": "tf.data", "tfdata-dense": "tf.data", "distribute": "tf.distribute"},
    **{"hf-learn": "Hugging Face Trainer", "hf-scores": "Hugging Face Trainer"},
    **{"ct2": "CTranslate2", "hf-translate": "Hugging Face"},
}
PRECISIONS = {
    **{"f32": "float32", "float32": "float32", "bf16": "bf16", "bfloat16": "bf16"},
    **{"q4_1": "Q4_1"},
}
DENSE = {
    **{"digits": "small images, raw", "photos": "images, raw", "png": "small images, PNG"},
    **{"jpeg": "images, JPEG", "table": "numbers", "tokens": "padded tokens"},
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """Gorbit beside a peer at some work.

    Attributes:
        work: what both do.
        peer: the peer, with its setting where several stand here.
        ratio: gorbit's rate by the peer's.
        limit: the share of the machine's limit that gorbit reaches, "" if none was measured.
        machine: the processor.
        link: where the table and its command stand.
    """

    work: str
    peer: str
    ratio: stats.Summary
    limit: str
    machine: str
    link: str


Rate = Callable[[stats.Line], float | None]


def run(options: base.Options) -> None:
    """Writes the table; nothing is measured."""
    text = written([entry for part in PARTS for entry in part(options)])
    options.settings.say(f"\n{text}\n")
    if docs := options.document("summary.md"):
        content = f'{text}\n\n    make bench BENCH="--only summary"'
        tables.write(docs, "summary", content, "Ahead, level and behind")
        options.settings.say(f"table: {docs}")


def parts(options: base.Options) -> list[base.Part]:
    """Returns none: nothing is measured."""
    del options
    return []


def lines_of(options: base.Options, name: str) -> list[stats.Line]:
    """Returns the raw lines of a table that have numbers."""
    path = os.path.join(options.results, f"{name}.jsonl")
    return [line for line in runs.load(path) if "error" not in line]


def beside(
    lines: Sequence[stats.Line],
    ours: tuple[str, str],
    rate: Rate,
    theirs: Callable[[stats.Line], str],
) -> Iterator[tuple[str, stats.Summary]]:
    """Yields the ratio to the best variant of every group of the other lines.

    theirs returns the group of a line, "" for those that do not count.
    """
    groups: dict[str, list[stats.Summary]] = {}
    lines = [{**line, "value": value} for line in lines if (value := rate(line))]
    variants = stats.variants(lines)
    for (peer, variant), its in variants.items():
        group = theirs(its.lines[0])
        if not group or (peer, variant) == ours or ours not in variants:
            continue
        if ratio := stats.ratio(variants[ours], its, "value"):
            groups.setdefault(group, []).append(ratio)
    for group, ratios in groups.items():
        yield group, min(ratios, key=lambda ratio: ratio.median)


def named(line: stats.Line) -> str:
    """Returns the name of a line's peer, "" for gorbit and for the products alone."""
    return NAMES.get(line["peer"], "")


def key(name: str) -> Rate:
    """Returns a rate that a line has by name."""
    return lambda line: line.get(name)


def entries(
    options: base.Options,
    table: str,
    work: str,
    link: str,
    ours: tuple[str, str],
    rate: Rate,
    theirs: Callable[[stats.Line], str] = named,
    flop: float | None = 0.0,
) -> Iterator[Entry]:
    """Yields the entries of a table.

    flop are those of a token, where products are the limit; None if lines say what they compute.
    """
    lines, limit = lines_of(options, table), ""
    peak = train.peak(lines)
    shares = stats.Summary.of(
        (1e12 * line["tflops"] if flop is None else line["tokens_per_s"] * flop)
        / peak[line["round"]]
        for line in lines
        if flop != 0 and (line["peer"], line["variant"]) == ours and line["round"] in peak
    )
    if shares:
        limit = f"{shares.median:.0%} of the products' peak"
    for peer, ratio in beside(lines, ours, rate, theirs):
        yield Entry(work, peer, ratio, limit, processor(lines), link)


def processor(lines: Sequence[stats.Line]) -> str:
    """Returns the processors of lines, without memory and kernel."""
    told = (re.sub(r"( cores), .*", r"\1", line["machine"]) for line in lines if "machine" in line)
    return " and ".join(dict.fromkeys(told))


def trained(options: base.Options) -> Iterator[Entry]:
    """Yields the entries of trainings."""
    for size, shape in plan.SIZES.items():
        for lengths, described in (("mrpc", "53 tokens"), ("full", "128 tokens")):
            for end, kept in (("", ""), ("-avx2", ", kept to AVX2")):
                table = f"train-{size}-{lengths}{end}"
                work, rate = f"training {size}, pairs of {described}{kept}", key("examples_per_s")
                flop = shape.train_flop_per_token
                yield from entries(
                    *(options, table, work, AMD, ("gorbit", "train"), rate),
                    lambda line: "" if "bf16" in line["variant"] else named(line),
                    flop=flop,
                )
                yield from entries(
                    *(options, table, f"{work}, bf16", AMD, ("gorbit-bf16", "bf16"), rate),
                    lambda line: named(line) if "bf16" in line["variant"] else "",
                )
        work, rate = f"pretraining {size}, masked tokens", key("tokens_per_s")
        flop = shape.masked_flop_per_token
        own = ("gorbit-mlm", "train")
        yield from entries(options, f"mlm-{size}", work, MASKED, own, rate, flop=flop)
        table, own = f"strategy-{size}", ("gorbit", "mirrored")
        yield from entries(
            *(options, table, f"training {size}, two replicas", "benchmarks.md#strategies", own),
            key("examples_per_s"),
            lambda line: named(line) if line["variant"] == "mirrored" else "",
        )


def others(options: base.Options) -> Iterator[Entry]:
    """Yields the entries of reading, tokenizing, prediction and generation."""
    reading, own = "benchmarks.md#reading", ("gorbit-input", "readers=2")
    yield from entries(options, "input", "reading texts", reading, own, key("rate"))
    for kind, what in DENSE.items():
        yield from entries(
            *(options, "dense", "reading records", reading, ("gorbit-dense", kind), key("rate")),
            lambda line, kind=kind, what=what: (
                f"{named(line)}, {what}," if named(line) and line["variant"] == kind else ""
            ),
        )
    for number, cores, rate in (("one", "one core", "per_cpu"), ("two", "two cores", "rate")):
        yield from entries(
            *(options, "text", "tokenizing", "benchmarks-text.md", ("gorbit-text", number)),
            key(rate),
            lambda line, number=number, cores=cores: (
                f"{named(line)}, {cores}," if named(line) and number in line["variant"] else ""
            ),
        )
    for size in plan.SIZES:
        between = after_start(lines_of(options, f"predict-{size}"), "pairs")
        for own, kept in (("gorbit-predict", ""), ("gorbit-int8", " in int8")):
            yield from entries(
                *(options, f"predict-{size}", f"answering a file with {size}{kept}"),
                *("benchmarks.md#prediction-and-evaluation", (own, "predict"), between),
                lambda line, kept=kept: (
                    named(line) if ("int8" in line["variant"]) == bool(kept) else ""
                ),
            )
    for (streams, rate), own in itertools.product(
        (("one stream", "rate"), ("16 streams", "rate_all")), ("f32", "bf16")
    ):

        def of(line: stats.Line, streams: str = streams, own: str = own) -> str | None:
            kept = PRECISIONS[line["variant"]]
            same = (kept == "bf16") == (own == "bf16")
            return f"{named(line)} in {kept}, {streams}," if named(line) and same else None

        work = f"continuing texts, SmolLM2-135M in {PRECISIONS[own]}"
        link = "benchmarks.md#continuing-texts-with-smollm2-135m"
        yield from entries(
            options, "generate-smollm", work, link, ("gorbit-streams", own), key(rate), of
        )


def after_start(lines: Sequence[stats.Line], count: str) -> Rate:
    """Returns the rate of a run of many, by the field `count`, after what a run of one takes."""

    def run(line: stats.Line) -> tuple[object, ...]:
        return tuple(line.get(name) for name in ("peer", "variant", "round", "workers"))

    starts = {run(line): line["seconds"] for line in lines if line.get(count) == 1}

    def rate(line: stats.Line) -> float | None:
        more = line["seconds"] - starts.get(run(line), math.inf) if line.get(count, 0) > 1 else 0
        return (line[count] - 1) / more if more > 0 else None

    return rate


def texts(options: base.Options) -> Iterator[Entry]:
    """Yields the entries of models that make texts, but SmolLM2."""
    for kind, model, link in (
        ("gpt2", "GPT-2", "training-a-small-gpt-2-descriptions-of-debians-packages"),
        ("t5", "T5", "training-a-small-t5-their-translations-into-german"),
    ):
        yield from entries(
            *(options, f"generate-{kind}", f"training a small {model}", f"benchmarks.md#{link}"),
            *(("gorbit-text", "train"), key("tokens_per_s")),
            flop=None,
        )
    rate = after_start(lines_of(options, "generate-evaluate"), "count")
    yield from entries(
        *(options, "generate-evaluate", "evaluating by generated texts"),
        *("benchmarks.md#evaluating-by-generated-texts", ("gorbit-scores", "evaluate"), rate),
    )
    table, link = "generate-translate", "benchmarks.md#translating-with-the-same-weights"

    def of(line: stats.Line) -> str:
        kept = f" in {line['variant'].split()[0]}" if line["peer"] == "ct2" else ""
        return f"{named(line)}{kept}" if named(line) else ""

    lines = lines_of(options, table)
    # A setting of the peer, of which the best one counts.
    files = [
        {**line, "variant": f"{line['variant']} {line['workers']}"}
        for line in lines
        if line["kind"] == "file"
    ]
    alone = [{**line, "rate": 1 / line["p50"]} for line in lines if line["kind"] == "alone"]
    for work, some, own, rate in (
        ("a file", files, ("gorbit-translate", "predict 1"), after_start(files, "count")),
        ("a sentence", alone, ("gorbit-translate-serve", "serve"), key("rate")),
    ):
        for peer, ratio in beside(some, own, rate, of):
            yield Entry(f"translating {work}, 4 beams", peer, ratio, "", processor(lines), link)


def served(options: base.Options) -> Iterator[Entry]:
    """Yields the entries of servers: the fastest run of each, as in their table."""
    lines = lines_of(options, "serve")
    for end, kept in ((False, "float32"), (True, "int8")):
        some = [line for line in lines if line["variant"].endswith("8") == end]
        own = [line for line in some if line["peer"] == "gorbit-serve"]
        for n in serve.counts(lines):
            ours = serve.fastest(own, n)
            for peer in dict.fromkeys(line["peer"] for line in some if named(line)):
                its = serve.fastest([line for line in some if line["peer"] == peer], n)
                if ours and its:
                    work, who = f"serving minilm in {kept}", f"{NAMES[peer]}, {serve.named(n)},"
                    ratio = stats.Summary.of([ours[f"rate_{n}"] / its[f"rate_{n}"]])
                    link = "benchmarks.md#serving"
                    yield Entry(work, who, ratio, "", processor(lines), link)


PARTS = (trained, others, texts, served)


def standing(entry: Entry) -> str:
    """Returns whether gorbit is behind, level or ahead."""
    low, high = LEVEL
    return STANDINGS[(entry.ratio.median >= low) + (entry.ratio.median > high)]


def written(found: Sequence[Entry]) -> str:
    """Returns the table: what gorbit is behind in first, a row for each work."""
    rows: dict[tuple[str, str], list[Entry]] = {}
    for entry in sorted(found, key=lambda entry: STANDINGS.index(standing(entry))):
        rows.setdefault((standing(entry), entry.work), []).append(entry)
    machines = list(dict.fromkeys(entry.machine for entry in found))
    header = ("", "work", "times the rate of", "of the limit", "processor", "with its command")
    cells = []
    for (told, work), some in rows.items():
        some.sort(key=lambda entry: entry.ratio.median)
        ratios = "; ".join(f"{entry.peer} {tables.number(entry.ratio.median)}" for entry in some)
        shown = str(machines.index(some[0].machine) + 1)
        cells.append([told, work, ratios, some[0].limit, shown, f"[table]({some[0].link})"])
    processors = "; ".join(f"{i}: {machine}" for i, machine in enumerate(machines, 1))
    low, high = LEVEL
    return (
        f"{tables.markdown(header, cells)}\n\nThe best setting of each peer, medians of the ratios "
        f"within a round; level is {low} to {high}. The limit is the rate of the matrix products "
        f"alone; where it is empty, none was measured. Processors: {processors}."
    )
