"""Gorbit itself: the built program."""

from __future__ import annotations

import os
import re

from harness import lines, plan
from peers.base import Variant

_ANSWER = re.compile(r"\t([\d.e+-]+)$")
_STEP = re.compile(r"train \| step:\s+(\d+) \| steps/sec:")
_BENCHMARK = re.compile(r"BenchmarkNext/\S+\s.*?([\d.e+]+) cpu-ns/example\s+([\d.e+]+) examples/s")


class Train:
    """gorbit train, a line per step, without evaluations."""

    name = "gorbit"
    venv = ""
    variants = (Variant("train", "**gorbit**"),)

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Trains into the scratch folder."""
        return [
            *(job.options["gorbit"], "train", "--progress", "off"),
            *("--graph", job.options["graph"], "--data", os.path.join(job.data, "gorbit")),
            *("--run", os.path.join(job.scratch, "run"), "--steps", str(job.total_steps)),
            *("--steps-per-loop", "1", "--eval-interval", "-2"),
            *("--batch-size", str(plan.BATCH), "--learning-rate", str(plan.LEARNING_RATE)),
            *("--warmup-steps", str(job.warmup_steps)),
            *("--set", f"optimizer.weight_decay={plan.WEIGHT_DECAY}"),
            *("--set", f"optimizer.clip_norm={plan.CLIP_NORM}"),
            *("--set", f"data.row_length={plan.LENGTH}", "--set", "summary.enabled=false"),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Reads the line of a loop, which is one step."""
        match = _STEP.match(line)
        return lines.Mark(int(match[1])) if match else None


class Input:
    """The benchmark of gorbit's reader."""

    name = "gorbit-input"
    venv = ""
    variants = (
        Variant("readers=1", "**gorbit**, 1 reader"),
        Variant("readers=2", "**gorbit**, 2 readers"),
    )

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Runs the test binary of package dataset."""
        return [
            *(job.options["dataset_test"], "-test.run", "^$", "-test.benchtime", "2s"),
            *("-test.bench", f"Next$/^shuffle=full$/^batch={plan.BATCH}$/^{job.variant}$"),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Reads the benchmark's line."""
        match = _BENCHMARK.match(line)
        if not match:
            return None
        return lines.Info({"rate": float(match[2]), "cpu_us": float(match[1]) / 1000})


class Predict:
    """gorbit predict on a file of pairs."""

    name = "gorbit-predict"
    venv = ""
    variants = (Variant("predict", "**gorbit predict**"),)

    def __init__(self) -> None:
        """Has seen no answer."""
        self._scores: list[float] = []

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Answers in lines of tab-separated values, one per question."""
        self._scores = []
        return [
            *(job.options["gorbit"], "predict", "--progress", "off", "--format", "tsv"),
            *("--run", job.options["run"], "--file", job.options["pairs"]),
            *("--vocab", job.options["vocab"], "--lowercase"),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Counts the answers and takes the mean of their scores."""
        match = _ANSWER.search(line)
        if not match:
            return None
        self._scores.append(float(match[1]))
        return lines.answers(self._scores)
