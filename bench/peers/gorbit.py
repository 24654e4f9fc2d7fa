"""Gorbit itself: the built program."""

from __future__ import annotations

import dataclasses
import os
import re

from harness import lines, plan
from harness.companions import Companion
from peers.base import Alone, Variant

_ANSWER = re.compile(r"\t([\d.e+-]+)$")
_STEP = re.compile(r"train \| step:\s+(\d+) \| steps/sec:")
_KERNEL = re.compile(r"BenchmarkKernels/(\w+)-\d+\s+\d+\s+([\d.e+]+) ns/op")
_COPY = re.compile(r"BenchmarkCopy-\d+\s.*?([\d.e+]+) MB/s")
_FORWARD = re.compile(r"BenchmarkPredict/\S+\s.*?([\d.e+]+) examples/s")
_BENCHMARK = re.compile(r"BenchmarkNext/\S+\s.*?([\d.e+]+) cpu-ns/example\s+([\d.e+]+) examples/s")


class Train(Alone):
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
            *("--batch-size", str(job.batch), "--learning-rate", str(plan.LEARNING_RATE)),
            *("--warmup-steps", str(job.warmup_steps)),
            *("--set", f"optimizer.weight_decay={plan.WEIGHT_DECAY}"),
            *("--set", f"optimizer.clip_norm={plan.CLIP_NORM}"),
            *("--set", f"data.row_length={plan.LENGTH}", "--set", "summary.enabled=false"),
            *("--set", "data.drop_remainder=true"),
            *(("--set", "runtime.device=/device:GPU:0") if job.gpu else ()),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Reads the line of a loop, which is one step."""
        match = _STEP.match(line)
        return lines.Mark(int(match[1])) if match else None


class Narrow(Train):
    """gorbit train on an export in bf16."""

    name = "gorbit-bf16"
    variants = (Variant("bf16", "**gorbit**, bf16", on=("cpu",)),)


class Masked(Train):
    """gorbit train on blocks of text."""

    name = "gorbit-mlm"

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Trains into the scratch folder."""
        asked = {
            "--init": job.options.get("weights"),
            "--learning-rate": job.options.get("learning_rate"),
            "--steps-per-loop": job.options.get("losses"),
        }
        chosen = [word for flag, value in asked.items() if value for word in (flag, value)]
        return [*super().command(job, python), *chosen]


class Text(Train):
    """gorbit train on a model that makes texts, with the first weights that its peers have."""

    name = "gorbit-text"

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Trains into the scratch folder."""
        weights = os.path.join(job.options["weights"], "model.safetensors")
        return [*super().command(job, python), "--init", weights]


class Strategies(Train):
    """gorbit train with each of its strategies, two threads in all."""

    variants = (
        Variant("one", "**gorbit**, one device of two threads"),
        Variant("lanes", "**gorbit**, one device as it runs unasked, two lanes of one thread"),
        Variant("mirrored", "**gorbit**, mirrored, two devices of one thread"),
        Variant("workers", "**gorbit**, multiworker, two processes of one thread"),
    )

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Trains into the scratch folder."""
        workers = ",".join(_addresses(job))
        chosen = {
            "one": _threads(2),
            "lanes": [],
            "mirrored": [*_threads(1), "--strategy", "mirrored", "--devices", "cpu:2"],
            "workers": [*_threads(1), "--strategy", "multiworker", "--workers", workers],
        }[job.variant]
        return [*super().command(job, python), *chosen]

    def beside(self, job: plan.Job, python: str) -> list[Companion]:
        """The two workers."""
        if job.variant != "workers":
            return []
        return [
            Companion(
                [job.options["gorbit"], "worker", "--listen", address, "--threads", "1"], port
            )
            for address, port in zip(_addresses(job), job.ports)
        ]


def _threads(n: int) -> list[str]:
    return ["--set", f"runtime.intra_op_threads={n}"]


def _addresses(job: plan.Job) -> list[str]:
    return [f"127.0.0.1:{port}" for port in job.ports]


class Input(Alone):
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


class Predict(Alone):
    """gorbit predict on a file of pairs."""

    name = "gorbit-predict"
    venv = ""
    variants = (Variant("predict", "**gorbit predict**"),)

    def __init__(self) -> None:
        """Starts without answers."""
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


class Exported(Predict):
    """gorbit-predict, the program on tfgo, on a file of pairs with an exported model."""

    name = "gorbit-tfgo"
    variants = (Variant("predict", "**gorbit-predict**, an exported model", on=("cpu",)),)

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Answers in lines of tab-separated values, one per question."""
        del python
        self._scores = []
        return [
            *(f"{job.options['gorbit']}-predict", "--format", "tsv"),
            *("--model", job.options["exported"], "--file", job.options["pairs"]),
        ]


class Int8(Predict):
    """gorbit predict on a file of pairs with an exported model in int8."""

    name = "gorbit-int8"
    variants = (Variant("predict", "**gorbit predict**, an exported model in int8", on=("cpu",)),)

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Answers in lines of tab-separated values, one per question."""
        del python
        self._scores = []
        return [
            *(job.options["gorbit"], "predict", "--progress", "off", "--format", "tsv"),
            *("--model", job.options["exported8"], "--file", job.options["pairs"]),
        ]


class Evaluate(Alone):
    """gorbit evaluate on a split; it reports the metrics and not the number of examples."""

    name = "gorbit-evaluate"
    venv = ""
    variants = (Variant("evaluate", "**gorbit evaluate**"),)

    def __init__(self) -> None:
        """Starts without a split."""
        self._count = 0

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Evaluates the split that holds the job's pairs."""
        self._count = int(job.options["count"])
        return [
            *(job.options["gorbit"], "evaluate", "--progress", "off", "--json"),
            *("--run", job.options["run"], "--split", job.options["split"]),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Reads the line of metrics, which stands for all examples."""
        return lines.Info({"answers": self._count}) if line.startswith('{"outputs"') else None


class Scores(Evaluate):
    """gorbit evaluate with texts for some examples of a split, and their scores."""

    name = "gorbit-scores"
    variants = (Variant("evaluate", "**gorbit evaluate**"),)

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Evaluates the split, with as many texts as the job asks for."""
        count, new = job.options["evaluate"], job.options["max_new_tokens"]
        needs = {**job.options, "count": count}
        return [
            *super().command(dataclasses.replace(job, options=needs), python),
            *("--generate", "--set", "eval.generate.metrics=bleu,chrf"),
            *("--set", f"eval.generate.examples={count}"),
            *("--set", f"eval.generate.max_new_tokens={new}"),
            *("--set", f"eval.generate.num_beams={job.options['beams']}"),
        ]


class Forward(Alone):
    """The model's calls that answer a split and nothing else, made up beforehand."""

    name = "gorbit-forward"
    venv = ""
    variants = (Variant("forward", "gorbit, the forward passes alone, one after the other"),)

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Runs the test binary of package job."""
        return [
            *("env", f"GORBIT_BENCH_RUN={job.options['run']}"),
            *(f"GORBIT_BENCH_SPLIT={job.options['split']}", job.options["job_test"]),
            *("-test.run", "^$", "-test.bench", "Predict$/calls", "-test.benchtime", "2x"),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Reads the benchmark's line."""
        match = _FORWARD.match(line)
        return lines.Info({"rate": float(match[1])}) if match else None


class Kernels(Alone):
    """The calls of each kernel that a step makes, alone, and a copy of memory."""

    name = "gorbit-kernels"
    venv = ""
    variants = (Variant("kernels", ""),)

    def __init__(self) -> None:
        """Starts without results."""
        self._seen: dict[str, float] = {}

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Runs the test binary of package kernels on the rows of a batch."""
        self._seen = {}
        shape = job.shape
        sizes = (shape.layers, shape.hidden, shape.heads, shape.inner)
        return [
            *(job.options["kernels_test"], "-test.run", "^$", "-test.bench", "Kernels|Copy"),
            *("-test.benchtime", "1s", "-shape", ",".join(map(str, sizes))),
            *("-rows", job.options["rows"]),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Reads seconds a step of a kernel, and bytes a second of the copy.

        The rate, for people, is that of all kernels of a step.
        """
        if match := _KERNEL.match(line):
            self._seen[match[1]] = float(match[2]) / 1e9
            return lines.Info({**self._seen, "rate": 1 / sum(self._seen.values())})
        match = _COPY.match(line)
        return lines.Info({"bandwidth": float(match[1]) * 1e6}) if match else None
