"""Text: the tokenizer against the Rust library, by text/bench/compare.py."""

from __future__ import annotations

import json
import os
import pathlib
import shlex

from harness import process, report, stats, tables
from suites import base

COMPARED = (
    ("encode_batch", "tokenizers, encode_batch"),
    ("encode_batch_fast", "tokenizers, encode_batch_fast"),
)


def run(options: base.Options) -> None:
    """Measures and publishes; says so where there is no text."""
    settings = options.settings
    text = options.text or _reviews(options)
    if text is None or not os.path.exists(options.vocab):
        missing = options.vocab if text else "a file of texts"
        settings.say(f"text: skipped, {missing} is not there: make fetch, or --text and --vocab")
        return
    venv = settings.venvs["hf"]
    if venv.error:
        publish(options, text, [_failed(venv.error)])
        return
    command = [venv.python, "text/bench/compare.py", "speed", "--vocab", options.vocab]
    command += ["--text", text, "--rounds", str(settings.rounds)]
    settings.say(f"text: {settings.rounds} rounds")
    try:
        with process.exclusive(settings.lock):
            said = base.call(options, ["bash", "-c", f"source .tf/env && {shlex.join(command)}"])
        lines = parse(said)
    except base.PrepareError as err:
        lines = [_failed(str(err))]
    publish(options, text, lines)


def parse(said: str) -> list[stats.Line]:
    """The lines of compare.py's rounds, in sentences per processor second."""
    lines: list[stats.Line] = []
    for raw in said.splitlines():
        told = json.loads(raw)
        if "go" not in told:
            continue
        number = len(lines) // (1 + len(COMPARED)) + 1
        rates = {"gorbit": told["go"]["sentences_per_cpu"]}
        rates.update({name: told["rust"][name] for name, _ in COMPARED})
        for name, rate in rates.items():
            lines.append({"peer": name, "variant": "", "round": number, "rate": round(rate)})
    return lines


def publish(options: base.Options, text: str, lines: list[stats.Line]) -> None:
    """Writes the table."""
    by = stats.variants(lines)
    ours = by.get(("gorbit", ""))
    own = ours.summary("rate") if ours else None
    rows = []
    for name, title in (("gorbit", "**gorbit**"), *COMPARED):
        runs = by.get((name, ""))
        rate = runs.summary("rate") if runs else None
        if not runs or not rate:
            reason = next((line["error"] for line in lines if "error" in line), "was not run")
            rows.append([title, "", "", f"failed: {tables.cell(reason)}"])
            continue
        ratio = f"{own.median / rate.median:.1f} times" if own and name != "gorbit" else ""
        rows.append([title, tables.spread(rate), ratio, report.counted(runs)])
    header = ("", "sentences per second of processor time", "gorbit's rate is", "runs")
    note = (
        f"One core each, texts of {os.path.basename(text)}, cut to 128 ids; "
        f"median (least to greatest). {report.surroundings(lines)}"
    )
    base.publish(options, "text", "Tokenizing", f"{tables.markdown(header, rows)}\n\n{note}", lines)


def _failed(reason: str) -> stats.Line:
    return {"peer": "encode_batch", "variant": "", "round": 1, "error": reason}


def _reviews(options: base.Options) -> str | None:
    """The demo's reviews without ids and scores, if they have been fetched."""
    source = pathlib.Path(options.settings.root, ".cache", "reviews", "reviews.txt")
    if not source.exists():
        return None
    path = pathlib.Path(options.settings.work, "reviews.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    with source.open(encoding="utf-8", errors="replace") as lines:
        path.write_text("".join(line.split("\t")[-1] for line in lines), encoding="utf-8")
    return str(path)
