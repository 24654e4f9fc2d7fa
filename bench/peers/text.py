"""Tokenizers on one core and on two, and conversion, which includes a tokenizer."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from harness import lines, plan
from peers.base import ROOT, Alone, Variant

COMPARE = os.path.join(ROOT, "text", "bench", "compare.py")
LENGTH = "128"

_CONVERTED = re.compile(r"BenchmarkRun/.*?([\d.]+) MB/s.*?([\d.]+) tokenizer-MB/s")


class Tokenizer(Alone):
    """Package text, through text/bench: on one goroutine, or batches on two cores."""

    name = "gorbit-text"
    venv = ""
    variants = (
        Variant("one", "**gorbit**", {"GOMAXPROCS": "1"}),
        Variant("two", "**gorbit**", {"GOMAXPROCS": "2"}),
    )

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Returns the command of the program built from text/bench."""
        batch = ["-batch"] if job.variant == "two" else []
        return [
            *(job.options["text_bench"], "-vocab", job.options["vocab"], "-max-len", LENGTH),
            *(*batch, job.options["text"]),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Parses the program's output."""
        return lines.Info(told(json.loads(line))) if line.startswith("{") else None


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the numbers of a program. Those per processor second are disturbed least."""
    return {
        "rate": answer["sentences_per_sec"],
        "per_cpu": answer["sentences_per_cpu"],
        "mb": answer["mb_per_sec"],
        "tokens": answer["tokens"],
    }


class Rust(Alone):
    """The tokenizers library, through text/bench/compare.py."""

    name = "tokenizers"
    venv = "hf"
    variants = tuple(
        Variant(
            f"{encode} {cores}",
            f"tokenizers, {encode}",
            {"TOKENIZERS_PARALLELISM": parallel, "RAYON_NUM_THREADS": threads},
        )
        for encode in ("encode_batch", "encode_batch_fast")
        for cores, parallel, threads in (("one", "false", "1"), ("two", "true", "2"))
    )

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Returns the command for one of the library's two ways to encode batches."""
        return [
            *(python, COMPARE, "rust", "--vocab", job.options["vocab"], "--max-len", LENGTH),
            *("--encode", job.variant.split()[0], "--text", job.options["text"]),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Parses the script's output."""
        if not line.startswith("{"):
            return None
        answer = json.loads(line)
        return lines.Info({"tokenizers": answer["version"], **told(answer)})


class Convert(Alone):
    """The work of gorbit convert on two workers, after the tokenizer alone."""

    name = "gorbit-convert"
    venv = ""
    variants = (Variant("two", "**gorbit convert**, two workers"),)

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Returns the command of the test binary of package convert."""
        return [
            *(job.options["convert_test"], "-test.run", "^$", "-test.bench", "Run/workers=2"),
            *("-test.benchtime", "3x", "-text", job.options["table"]),
            *("-vocab", job.options["vocab"]),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Parses the benchmark's line."""
        match = _CONVERTED.match(line)
        return lines.Info({"rate": float(match[1]), "alone": float(match[2])}) if match else None
