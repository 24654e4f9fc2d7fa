"""Serving: answers to concurrent requests, the same weights and cores for all."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Sequence

import peers
from harness import plan, process, report, runs, stats, tables
from suites import base, predict

CLIENTS, QUICK_CLIENTS = (1, 4, 16, 64), (1, 16)
"""Numbers of clients, each of which waits for an answer before it asks again."""
SECONDS = 4
"""How long they ask, after a quarter of it that does not count."""
BATCHES = (8, 32)
"""The most requests of a batch of the peers; the best of each number of clients counts."""


def run(options: base.Options) -> None:
    """Measures and writes the table, or prints that there is nothing to ask."""
    size = "minilm"
    if not options.settings.rounds:
        if lines := base.earlier(options, "serve"):
            publish(options, lines)
        return
    for needed in (options.vocab, options.pairs or base.REVIEWS):
        if not os.path.exists(needed):
            options.settings.say(
                f"serve: skipped, {needed} is not there: make fetch, or --vocab and --pairs"
            )
            return
    publish(options, measured(options, size))


def parts(options: base.Options) -> list[base.Part]:
    """Returns the only part."""
    del options
    return [base.Part("serve")]


def measured(options: base.Options, size: str) -> list[stats.Line]:
    """Runs all rounds and returns their lines."""
    asked = predict.pairs(options)
    settings = options.settings
    clients = QUICK_CLIENTS if options.quick else CLIENTS
    needs = {
        **{"vocab": options.vocab, "gorbit": options.gorbit, "pairs": asked.file},
        **predict.models(options, size, asked.data),
        "load": os.path.join(settings.work, "serve.load"),
        "clients": ",".join(map(str, clients)),
        "seconds": str(SECONDS),
    }
    build = f"source .tf/env && go build -o {shlex.quote(needs['load'])} ./internal/app/serve/bench"
    base.call(options, ["bash", "-c", build])
    batches = {"": [0], "hf": BATCHES[1:], "ort": BATCHES[1:] if options.quick else BATCHES}
    entries = [
        runs.Entry(
            peer,
            variant,
            plan.Job(variant.name, size, options={**needs, "batch": str(most)}),
            functools.partial(numbers, batch=most),
        )
        for peer in peers.SERVE
        for variant in peer.variants
        for most in batches[peer.venv]
    ]
    settings.say(f"serve {size}: {asked.count} pairs, {settings.rounds} rounds")
    lines = runs.everything(settings, entries)
    for line in lines:
        line["asked"] = asked.name
        if line["peer"].startswith("gorbit"):
            line["gorbit"] = options.version
    return lines


def numbers(seen: process.Observation, batch: int) -> stats.Line:
    """Returns the numbers of a run, which reports rates and times itself."""
    return {**stats.told(seen), "batch": batch}


def publish(options: base.Options, lines: Sequence[stats.Line]) -> None:
    """Writes the table."""
    title = "Answering concurrent requests with minilm"
    base.publish(options, "serve", title, written(options, lines), lines, ["serve"])


def named(clients: int) -> str:
    """Returns a number of clients in words."""
    return "1 client" if clients == 1 else f"{clients} clients"


def counts(lines: Sequence[stats.Line]) -> list[int]:
    """Returns the numbers of clients that the lines have."""
    return sorted({int(key[5:]) for line in lines for key in line if key.startswith("rate_")})


def written(options: base.Options, lines: Sequence[stats.Line]) -> str:
    """Returns the table, the ratios and the notes."""
    clients = counts(lines)
    header = ["", *(f"{named(n)}: pairs/s; p50, p99 in ms" for n in clients), "runs"]

    def cells(variant: stats.Variant) -> list[str]:
        out = []
        for n in clients:
            best = fastest(variant.lines, n)
            times = ", ".join(f"{1000 * best[f'p{p}_{n}']:.0f}" for p in (50, 99)) if best else ""
            out.append(f"{best[f'rate_{n}']:.4g}; {times}" if best else "")
        return out

    table = tables.markdown(header, report.rows(peers.SERVE, lines, cells, len(clients)))
    asked = next((line["asked"] for line in lines if "asked" in line), "")
    return (
        f"{table}\n\n{ratios(lines, clients)} {asked}, one in a request; each client waits for its "
        "answer before it asks again. gorbit serve is asked over HTTP by a program on the same "
        "cores. The others have a batcher in their own process, without HTTP or JSON, padded "
        "batches of what waits, and the tokenizers library. ONNX Runtime's operations were fused "
        "by its optimizer of transformers; in int8 its quantize_dynamic rounded the matrices, with "
        "a scale for each column; of its batches of "
        f"{' or '.join(map(str, BATCHES))} requests at most, the best counts. Fastest run of each. "
        f"{report.surroundings(lines, options.settings.gpu)}"
    )


def fastest(lines: Sequence[stats.Line], clients: int) -> stats.Line | None:
    """Returns the line with the most answers for a number of clients."""
    return max(
        (line for line in lines if f"rate_{clients}" in line),
        key=lambda line: line[f"rate_{clients}"],
        default=None,
    )


def ratios(lines: Sequence[stats.Line], clients: Sequence[int]) -> str:
    """Returns the ratios of gorbit's answers and times to ONNX Runtime's, by precision."""
    out = []
    for name, int8 in (("", False), (" in int8", True)):
        told = []
        some = [line for line in lines if line["variant"].endswith("8") == int8]
        for n in clients:
            own = fastest([line for line in some if line["peer"].startswith("gorbit")], n)
            other = fastest([line for line in some if line["peer"].startswith("ort")], n)
            if own and other:
                rate = own[f"rate_{n}"] / other[f"rate_{n}"]
                p50 = own[f"p50_{n}"] / other[f"p50_{n}"]
                with_n = f"its p50 with {named(n)}"
                told.append(f"{rate:.2f} times its answers at {p50:.2f} times {with_n}")
        if told:
            out.append(f"gorbit's best{name} beside ONNX Runtime's: {'; '.join(told)}.")
    return " ".join(out)
