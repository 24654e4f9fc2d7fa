"""Shows gorbit's graphs for GPUs to TensorFlow's own placer and optimizer, without a GPU.

    make check-gpu-passes
    make check-gpu-passes PASSES="--only tiny --details"

`gorbit graph` writes the graph of a training for GPUs, and the calls of its session. A master of
the CUDA wheel, whose libraries need no driver to be loaded, runs each call: it places and rewrites
the graph, as it does for real GPUs, and registers the result with a worker. That worker is this
program. It has GPUs by name only and runs nothing. What it is sent is judged by the kernels that
the wheel's libraries register: which nodes are on the CPU, and why, what is copied between host and
GPU, and how many kernels a step starts. The exit code is 1 if a graph is refused, if a GPU has no
kernel for a node, or if a call does more than limits.json says.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, kernel_def_pb2
from tensorflow.core.protobuf import config_pb2

from check_gpu import placed
from check_tpu import passes
from check_tpu.common import CACHE, TOOLS, CheckError, command, ended, environment, say
from check_tpu.worker import Worker

WORK = CACHE / "check-gpu"
LIMITS = pathlib.Path(__file__).parent / "limits.json"
"""The most that a call may do: by case and call, a number for each of COLUMNS."""
COLUMNS = ("on CPU", "on host", "to GPU", "read back", "passes", "sums", "update", "programs")
GPUS = 3
TASK = f"/job:{passes.JOB}/replica:0/task:0"
TASKS = {
    "qa": ["--task", "qa"],
    "tokens": ["--task", "tokens", "--num-labels", "5"],
    "multilabel": ["--task", "multilabel", "--num-labels", "4"],
    "regression": ["--task", "regression"],
}
"""Tasks of the configuration tiny, in addition to the classifier, with the exporter's arguments."""
CONFIGS = {"modernbert": str(TOOLS / "tests" / "goldens" / "modernbert" / "mean.json")}
"""Configurations that are not called tiny or base, by the model of a case."""
SHOWN = 6
"""Operations that a line of details names."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and where it trains.

    Attributes:
        model: a configuration of BERT or of CONFIGS, a task of TASKS, or one of check_tpu.passes.
        precision: of the export.
        xla: whether XLA compiles its passes.
        gpus: how many.
        flags: of gorbit graph.
        ring: whether the GPUs exchange gradients by the ring, as the virtual ones of one GPU do.
        calls: those that are judged.
    """

    model: str
    precision: str = "bf16"
    xla: bool = False
    gpus: int = 1
    flags: tuple[str, ...] = ()
    ring: bool = False
    calls: tuple[str, ...] = ("train", "evaluate", "predict")

    def __str__(self) -> str:
        """The case as the table and the limits name it."""
        how = [self.model, self.precision, "XLA"][: 3 if self.xla else 2]
        how.append(f"{self.gpus} GPUs, {'ring' if self.ring else 'NCCL'}" if self.gpus > 1 else "")
        how += [flag.removeprefix("--").replace("-", " ") for flag in self.flags]
        return ", ".join(word for word in how if word)


ALL = ("initialize", "assign", "read", "train", "accumulate", "apply", "evaluate", "predict")
CASES = (
    *(Case("tiny", p, calls=ALL) for p in ("float32", "bf16", "fp16")),
    *(Case("tiny", p, xla=True) for p in ("float32", "bf16", "fp16")),
    Case("tiny", gpus=2),
    Case("tiny", xla=True, gpus=2, calls=("train",)),
    Case("tiny", gpus=2, flags=("--shard-optimizer",), calls=("train",)),
    Case("tiny", gpus=3, ring=True, calls=("train",)),
    Case("tiny", flags=("--steps-per-call=4",), calls=("loop",)),
    Case("tiny", xla=True, flags=("--steps-per-call=4",), calls=("loop",)),
    Case("tiny", gpus=2, flags=("--steps-per-call=4",), calls=("loop",)),
    Case(passes.MASKED),
    *(Case(task) for task in TASKS),
    *(Case(model, "float32") for model in passes.DENSE),
    Case("modernbert"),
    Case("base", calls=("train",)),
    Case("base", xla=True, calls=("train",)),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Checks what the arguments say."""
    p = argparse.ArgumentParser(prog="check_gpu.passes", description=__doc__.splitlines()[0])
    add = p.add_argument
    add("--only", nargs="+", metavar="WORD", help="cases whose names have all of these words")
    add("--details", action="store_true", help="name the operations that are counted")
    add("--set-limits", action="store_true", help="make what is counted the limits of these cases")
    add("--gorbit", default=str(TOOLS.parent / "bin" / "gorbit"), help="(default: bin/gorbit)")
    add("--keep", metavar="FOLDER", help="keep exports and graphs in this folder")
    add("--timeout", type=int, default=600, help="seconds for a call or a command (default: 600)")
    args = p.parse_args(argv)
    return ended("check-gpu-passes", lambda: check(args))


def check(args: argparse.Namespace) -> int:
    """Runs everything and prints the report, which is kept in WORK as well."""
    cases = [case for case in CASES if all(word in str(case) for word in args.only or ())]
    if not cases:
        raise CheckError(f"no case has the words {args.only}; expected words of {CASES[0]}")
    python = environment("passes", "check_gpu")
    kernels = registered(python)
    limits = json.loads(LIMITS.read_text(encoding="utf-8"))
    lines = [
        f"{datetime.date.today()}, tensorflow {version()}, {len(kernels)} kernels for GPUs, "
        f"client TensorFlow {tf.__version__}.",
        "",
        f"| case | call | {' | '.join(COLUMNS)} |",
        "| --- | --- |" + " --- |" * len(COLUMNS),
    ]
    faults = []
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(
            args.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="check-gpu-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        worker = Worker(passes.JOB, GPUS, "GPU")
        stack.callback(worker.close)
        target = stack.enter_context(passes.master(python, worker.port))
        judge = passes.Judge(target, worker, args.timeout)
        details = []
        for case in cases:
            for call, found, wrong, said in judged(args, folder, judge, case, kernels):
                name, numbers = f"{case}, {call}", counted(found)
                lines.append(f"| {case} | {call} | {' | '.join(map(str, numbers))} |")
                details += said
                if args.set_limits:
                    limits[name] = numbers
                faults += [f"{name}: {why}" for why in (*wrong, *over(limits.get(name), numbers))]
    if args.set_limits:
        LIMITS.write_text(written(limits), encoding="utf-8")
    report = "\n".join([*lines, *(["", *details] if args.details else [])]) + "\n"
    (WORK / "passes.md").write_text(report, encoding="utf-8")
    print(report, end="")
    for fault in faults:
        print(f"check-gpu-passes: {fault}", file=sys.stderr)
    return 1 if faults else 0


def version() -> str:
    """The version of TensorFlow whose libraries run the graphs."""
    text = (TOOLS / "check_gpu" / "requirements" / "passes.txt").read_text(encoding="utf-8")
    return text.partition("tensorflow==")[2].split()[0]


def written(limits: dict[str, list[int]]) -> str:
    """Limits as JSON, a line for each call, those of CASES."""
    known = {f"{case}, {call}" for case in CASES for call in case.calls}
    lines = [f"  {json.dumps(name)}: {limits[name]}" for name in sorted(known & limits.keys())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def registered(python: str) -> placed.Kernels:
    """Returns the kernels of an environment's TensorFlow."""
    done = subprocess.run([python, passes.SERVER, "kernels"], capture_output=True, check=False)
    if done.returncode:
        raise CheckError(f"the CUDA wheel cannot be loaded: {done.stderr.decode()[-300:].strip()}")
    return placed.Kernels(kernel_def_pb2.KernelList.FromString(done.stdout))


def counted(found: placed.Counts) -> list[int]:
    """The numbers of COLUMNS."""
    listed = (found.to_device, found.read_back, found.passes, found.sums, found.update)
    many = [len(part) for part in (*listed, found.programs)]
    return [sum(found.cpu.values()), sum(found.host.values()), *many]


def over(limit: Sequence[int] | None, numbers: Sequence[int]) -> list[str]:
    """Returns what is more than the limit."""
    if limit is None:
        return ["has no limits; set them with --set-limits"]
    return [
        f"{column}: {number}; expected at most {most}"
        for column, number, most in zip(COLUMNS, numbers, limit)
        if number > most
    ]


def exported(folder: pathlib.Path, case: Case, timeout: int) -> pathlib.Path:
    """Exports a case's model, with random weights, unless it is there."""
    if case.model in passes.DENSE:
        out = folder / case.model
        passes.exported(out, case.model, case.precision, timeout)
        return out
    out = folder / "-".join([case.model, case.precision, *(["xla"] if case.xla else [])])
    if out.exists():
        return out
    say(f"export {out.name}")
    kind = ["bert-classifier"]
    if case.model == passes.MASKED:
        kind = ["bert", "--task", "mlm", "--data", str(passes.vocabulary(folder))]
    elif case.model in TASKS:
        kind = ["bert", *TASKS[case.model]]
    config = CONFIGS.get(case.model, "base" if case.model == "base" else "tiny")
    words = [*kind, "--config", config, "--precision", case.precision, "--out", str(out)]
    words += ["--xla"] * case.xla
    command([sys.executable, "-m", "gorbit_export", *words], timeout)
    return out


def composed(
    args: argparse.Namespace, folder: pathlib.Path, case: Case
) -> tuple[graph_pb2.GraphDef, bytes, dict[str, dict]]:
    """Returns the graph of a case, its session's configuration, and its calls by name."""
    export = exported(folder, case, args.timeout)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        out = pathlib.Path(made) / "graph"
        words = ["--graph", str(export), "--devices", f"gpu:{case.gpus}", "--out", str(out)]
        command([args.gorbit, "graph", *words, *case.flags], args.timeout)
        graph = graph_pb2.GraphDef.FromString((out / "graph.pb").read_bytes())
        runs = json.loads((out / "runs.json").read_text(encoding="utf-8"))["runs"]
        config = (out / "config.pb").read_bytes()
    for node in graph.node:
        node.device = TASK + node.device  # the master has a CPU, too
        if case.ring and "communication_hint" in node.attr:
            node.attr["communication_hint"].s = b"ring"
    for function in graph.library.function:
        for node in function.node_def:
            if node.device:
                node.device = TASK + node.device
    return graph, config, {run["name"]: run for run in runs}


def judged(
    args: argparse.Namespace,
    folder: pathlib.Path,
    judge: passes.Judge,
    case: Case,
    kernels: placed.Kernels,
) -> Iterator[tuple[str, placed.Counts, list[str], list[str]]]:
    """Yields of each call its name, what it does, what is wrong, and lines of details."""
    graph, config, runs = composed(args, folder, case)
    for call in case.calls:
        say(f"{case}, {call}")
        verdict = judge.run(graph, runs[call], config_pb2.ConfigProto.FromString(config))
        if args.keep:
            for i, sent in enumerate(verdict.graphs):
                name = f"{case}-{call}-{i}.pb".replace(", ", "-").replace(" ", "-")
                (folder / name).write_bytes(sent.SerializeToString())
        found = placed.counts(verdict.graphs, graph, kernels)
        wrong = [verdict.refused] if verdict.refused else []
        for what, names in (("no kernel for", found.missing), ("not on a GPU:", found.moved)):
            wrong += [f"{what} {len(names)} nodes, such as {names[0]}"] if names else []
        ops = {node.name: node.op for sent in verdict.graphs for node in sent.node}
        yield call, found, wrong, [f"{case}, {call}:", *detailed(found, ops), ""]


def detailed(found: placed.Counts, ops: dict[str, str]) -> Iterator[str]:
    """Says which operations were counted, the most frequent first."""
    for what, of in (
        ("on CPU", Counter({f"{op} ({why})": n for (why, op), n in found.cpu.items()})),
        ("on host", Counter({f"{op} of {dtype}": n for (op, dtype), n in found.host.items()})),
        *(
            (column, Counter(ops.get(name.split(":")[0], "?") for name in getattr(found, field)))
            for column, field in (
                ("to GPU", "to_device"),
                ("read back", "read_back"),
                ("results", "results"),
                ("passes", "passes"),
                ("sums", "sums"),
                ("update", "update"),
            )
        ),
    ):
        words = [f"{n} {op}" for op, n in of.most_common(SHOWN)]
        rest = sum(of.values()) - sum(n for _, n in of.most_common(SHOWN))
        if words:
            yield f"- {what}: {', '.join(words)}{f', {rest} others' if rest else ''}"


if __name__ == "__main__":
    sys.exit(main())
