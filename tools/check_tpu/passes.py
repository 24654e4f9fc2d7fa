"""Shows gorbit's TPU graphs to TensorFlow's TPU passes, without a TPU.

    make check-tpu-passes
    make check-tpu-passes PASSES="--configs tiny --replicas 8"

`gorbit tpu graph` writes the graph of a model for 1, 2 and 8 cores, and the calls of a session. A
master of the tensorflow-tpu wheel runs each call: its passes rewrite the graph, as they do for a
real TPU, and register the result with a worker. That worker is this program. It has a TPU by name
only and runs nothing, but judges what it is sent: one program without dynamic shapes, which each
core executes on its own variables. The exit code is 1 if a graph is refused, or if one that must be
refused is not.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, tensorflow_server_pb2

from check_tpu import registered
from check_tpu.common import (
    EXAMPLES,
    LENGTH,
    REQUIREMENTS,
    TOOLS,
    WORK,
    CheckError,
    command,
    ended,
    environment,
    imported,
    say,
    tpu_environment,
)
from check_tpu.kernels import EMULATED, Kernels
from check_tpu.worker import RECORDED, Worker

JOB = "worker"
CORES = 8
"""Cores of the only topology that the passes accept here; fewer replicas run on some of them."""
TOPOLOGY = "2x2x1x2"
STEPS = (1, 4)
"""Training steps of a call: a single step, and a loop."""
DENSE = {"flowers": "examples=16", "words": "examples=16,length=24", "weather": "examples=16"}
"""Models of internal/testkit/models.py that take no packed texts, with the sizes of their axes."""
MASKED = "mlm"
"""The configuration tiny as a masked language model."""
PREDICTIONS = 21
"""Places for masked tokens of a row: 15 % of its positions, and one for each of two blocks."""
SERVER = str(TOOLS / "check_tpu" / "server.py")
MODELS = TOOLS.parent / "internal" / "testkit" / "models.py"
CONFIGURE = TOOLS.parent / "tpu" / "testdata" / "configure.pb"
"""The graph that configures a TPU: gorbit's, and TensorFlow's own."""
VARIABLES = {
    "initialize": registered.unassigned,
    "assign": registered.unassigned,
    "read": registered.unread,
}
"""The calls that run no program, and what judges them."""
UNKNOWN = "Cannot colocate nodes"
"""What the passes say of a variable of unknown shape."""

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of a call.

    Attributes:
        graphs: what the master registered for it.
        refused: the master's error, "" if the graph passed.
        seconds: that it took.
    """

    graphs: list[graph_pb2.GraphDef]
    refused: str
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Checks what the arguments say."""
    args = parser().parse_args(argv)
    return ended("check-tpu-passes", lambda: check(args))


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = argparse.ArgumentParser(prog="check_tpu.passes", description=__doc__.splitlines()[0])
    add = p.add_argument
    add(
        "--configs",
        nargs="+",
        default=["tiny", "minilm", MASKED, *DENSE],
        help=f"configurations of BERT, {MASKED}, or {', '.join(DENSE)} (default: all but base)",
    )
    add("--replicas", nargs="+", type=int, default=[1, 2, 8], help="cores (default: 1 2 8)")
    add("--rows", type=int, default=16, help="rows of a replica's batch (default: 16)")
    add(
        "--gorbit",
        default=str(TOOLS.parent / "bin" / "gorbit"),
        help="the program (default: bin/gorbit)",
    )
    add("--keep", metavar="FOLDER", help="keep graphs, and what became of them, in this folder")
    add("--timeout", type=int, default=600, help="seconds for a call or a command (default: 600)")
    return p


def check(args: argparse.Namespace) -> int:
    """Runs everything and prints the report, which is kept in WORK as well."""
    python = environment("passes")
    say("import TensorFlow's wheel for TPUs as make setup does")
    imported(python)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(
            args.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="check-tpu-"))
        )
        worker = Worker(JOB, CORES)
        stack.callback(worker.close)
        target = stack.enter_context(master(python, worker.port))
        words = [sys.executable, "-m", "check_tpu.kernels"]
        said = command(words, args.timeout, tpu_environment(python, libtpu=True))
        judge = Judge(target, worker, args.timeout, Kernels(said.splitlines()[-1]))
        lines = [*header(), "", *judge.table(args, folder), "", judge.emulated()]
    report = "\n".join(lines) + "\n"
    (WORK / "passes.md").write_text(report, encoding="utf-8")
    print(report, end="")
    for fault in judge.faults:
        print(f"check-tpu-passes: {fault}", file=sys.stderr)
    return 1 if judge.faults else 0


def header() -> list[str]:
    """Says when this was measured, and by what."""
    text = (REQUIREMENTS / "passes.txt").read_text(encoding="utf-8")
    versions = re.findall(r"^(tensorflow_tpu|libtpu)==(\S+)", text, re.MULTILINE)
    made = ", ".join(f"{name} {version}" for name, version in versions)
    return [f"{datetime.date.today()}, {made}, client TensorFlow {tf.__version__}."]


@contextlib.contextmanager
def master(python: str, port: int) -> Iterator[str]:
    """Runs a master next to a worker at a port, and gives its address.

    Raises:
        CheckError: if it does not start.
    """
    cluster = tf.train.ClusterSpec(
        {JOB: [f"127.0.0.1:{port}"], "coordinator": ["127.0.0.1:0"]}
    ).as_cluster_def()
    definition = tensorflow_server_pb2.ServerDef(
        cluster=cluster, job_name="coordinator", task_index=0, protocol="grpc"
    ).SerializeToString()
    path = pathlib.Path(python).parents[2] / "master.log"
    with open(path, "wb") as log:
        process = subprocess.Popen(
            [python, SERVER, str(len(definition))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(definition)
                process.stdin.flush()
            target = process.stdout.readline().decode().strip()
            if not target.startswith("grpc://"):
                raise CheckError(f"the master did not start; {path} says why")
            yield target
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def exported(out: pathlib.Path, config: str, precision: str, timeout: int) -> None:
    """Exports a classifier, with random weights, or the models of MODELS next to it."""
    say(f"export {config}, {precision}")
    if config in DENSE:
        if not out.exists():
            command([sys.executable, str(MODELS), str(out.parent)], timeout)
        return
    flags = {"--config": config, "--precision": precision, "--out": str(out)}
    kind = ["bert-classifier"]
    if config == MASKED:
        kind = ["bert", "--task", "mlm", "--data", str(vocabulary(out.parent))]
        flags["--config"] = "tiny"
    words = [*kind, *(word for flag in flags.items() for word in flag), "--overwrite"]
    command([sys.executable, "-m", "gorbit_export", *words], timeout)


def vocabulary(folder: pathlib.Path) -> pathlib.Path:
    """Writes what an export reads of data: a vocabulary of tiny's size with special tokens."""
    data = folder / "data-mlm"
    data.mkdir(exist_ok=True)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(30522 - 5))]
    (data / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    vocab = {"file": "vocab.txt", "size": len(tokens)}
    manifest = {"format": "gorbit-dataset", "version": 1, "vocab": vocab}
    (data / "manifest.json").write_text(json.dumps(manifest))
    return data


def composed(
    gorbit: str,
    export: pathlib.Path,
    out: pathlib.Path,
    rows: int,
    replicas: int,
    steps: int,
    timeout: int,
) -> tuple[graph_pb2.GraphDef, dict[str, dict[str, Any]]]:
    """Returns the graph that gorbit composes for a TPU, and the calls of it by name.

    Args:
        gorbit: the program.
        export: the model.
        out: the folder to write the graph to.
        rows: of a replica's batch.
        replicas: cores.
        steps: training steps of a call.
        timeout: seconds for the command.
    """
    axes = DENSE.get(export.name)
    masked = f",predictions={PREDICTIONS * rows}" if export.name.split("-")[0] == MASKED else ""
    shapes = (
        {"--axes": axes}
        if axes
        else {
            "--axes": f"rows={rows},length={LENGTH},examples={EXAMPLES * rows}{masked}",
            "--more-axes": f"rows={rows},length={LENGTH // 2},examples={EXAMPLES * rows}{masked}",
        }
    )
    flags = {
        **shapes,
        "--topology": TOPOLOGY,
        "--job": JOB,
        "--replicas": str(replicas),
        "--steps-per-call": str(steps),
        "--out": str(out),
    }
    words = [word for flag in flags.items() for word in flag]
    command([gorbit, "tpu", "graph", str(export), *words], timeout)
    runs = json.loads((out / "runs.json").read_text(encoding="utf-8"))["runs"]
    graph = graph_pb2.GraphDef.FromString((out / "graph.pb").read_bytes())
    return graph, {run["name"]: run for run in runs}


class Judge:
    """Runs calls through a master.

    Attributes:
        faults: what is wrong, one sentence each.
    """

    def __init__(
        self, target: str, worker: Worker, timeout: int, kernels: Kernels | None = None
    ) -> None:
        """Takes the address of a master, its worker, and the kernels that cores have, if known."""
        self._target, self._worker, self._timeout = target, worker, timeout
        self._kernels = kernels
        self.faults: list[str] = []

    def table(self, args: argparse.Namespace, folder: pathlib.Path) -> Iterator[str]:
        """Checks all calls of all graphs; gives the lines of a Markdown table."""
        yield "| model | replicas | call | TPUCompile | TPUExecute | passes | seconds |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        yield self.configure()
        for config in args.configs:
            export = folder / config
            exported(export, config, "float32", args.timeout)
            for replicas in args.replicas:
                yield from self._graphs(args, export, replicas)

    def emulated(self) -> str:
        """Checks the operations that the emulator takes in programs."""
        names = EMULATED.read_text(encoding="utf-8").split()
        lacked, types = self._kernels.unlike(names)
        self.faults += [
            f"the emulator takes {op} in a program, and a TPU does not" for op in lacked
        ]
        if types - {"complex128"}:
            self.faults.append(f"the emulator takes {sorted(types)}; expected only complex128")
        return (
            f"Operations that the emulator takes in a program: {len(names)}; that a TPU lacks: "
            f"{len(lacked)}; dtypes that it lacks: {', '.join(sorted(types)) or 'none'}."
        )

    def configure(self) -> str:
        """Checks the call that configures the TPU, which shows that the passes run at all."""
        graph = graph_pb2.GraphDef.FromString(CONFIGURE.read_bytes())
        run = {"targets": [graph.node[0].name]}
        return self._line("", "", "configure", graph, run, registered.unconfigured)

    def _graphs(
        self, args: argparse.Namespace, export: pathlib.Path, replicas: int
    ) -> Iterator[str]:
        """Checks the graphs of an export on so many cores."""
        for steps in STEPS:
            out = export.parent / f"{export.name}-{replicas}-{steps}"
            graph, runs = composed(
                args.gorbit, export, out, args.rows, replicas, steps, args.timeout
            )
            for run in runs.values():
                name, _, shape = run["name"].partition(" ")
                fault = functools.partial(registered.complaints, replicas=replicas)
                if name == "train":
                    name = "training step" if steps == 1 else f"loop of {steps} training steps"
                elif steps > 1:
                    continue  # the same call as in the graph of a single step
                elif name in VARIABLES:
                    fault = VARIABLES[name]
                if shape:
                    name += ", shorter rows"
                yield self._line(export.name, str(replicas), name, graph, run, fault, out)
                if run["name"] == "train":
                    self._negative(f"{export.name}, {name}, replicas: {replicas}", graph, run)

    def _line(
        self,
        model: str,
        replicas: str,
        name: str,
        graph: graph_pb2.GraphDef,
        run: dict[str, Any],
        fault: Callable[[Sequence[graph_pb2.GraphDef]], list[str]],
        keep: pathlib.Path | None = None,
    ) -> str:
        """Checks a call, whose registered graphs `fault` judges."""
        on = f"replicas: {replicas}" if replicas else ""
        what = ", ".join(word for word in (model, name, on) if word)
        say(what)
        verdict = self.run(graph, run)
        for i, sent in enumerate(verdict.graphs if keep else ()):
            (keep / f"{name.replace(' ', '-')}-{i}.pb").write_bytes(sent.SerializeToString())
        wrong = [verdict.refused] if verdict.refused else []
        wrong = wrong or fault(verdict.graphs)
        if self._kernels:
            wrong += self._kernels.missing(verdict.graphs)
        self.faults += [f"{what}: {why}" for why in wrong]
        ops = [node.op for sent in verdict.graphs for node in sent.node]
        said = "no: " + " ".join(wrong[0].split())[:200].replace("|", "/") if wrong else "yes"
        return (
            f"| {model} | {replicas} | {name} | {ops.count('TPUCompile')} | "
            f"{ops.count('TPUExecute')} | {said} | {verdict.seconds:.1f} |"
        )

    def _negative(self, what: str, graph: graph_pb2.GraphDef, run: dict[str, Any]) -> None:
        """Wants the same call to be refused if a variable's shape is not known."""
        broken = graph_pb2.GraphDef()
        broken.CopyFrom(graph)
        handle = next(node for node in broken.node if node.op == "VarHandleOp")
        handle.attr["shape"].shape.Clear()
        handle.attr["shape"].shape.unknown_rank = True
        for attribute in ("_output_shapes", "_handle_shapes"):
            handle.attr.pop(attribute, None)
        verdict = self.run(broken, run)
        if UNKNOWN not in verdict.refused:
            self.faults.append(
                f"{what}: with {handle.name} of unknown shape the passes said "
                f"{verdict.refused or 'nothing'!r}; expected {UNKNOWN!r}"
            )

    def run(
        self,
        graph_def: graph_pb2.GraphDef,
        run: dict[str, Any],
        config: config_pb2.ConfigProto | None = None,
    ) -> Verdict:
        """Runs a call of a graph, fed with zeros, as far as a worker without its devices lets it.

        Args:
            graph_def: the graph.
            run: feeds (name, dtype, shape), fetches and targets, as in runs.json. A size of -1
                becomes 1.
            config: the session's; what is set here is changed.
        """
        self._worker.graphs.clear()
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(graph_def, name="")
        config = config or v1.ConfigProto()
        config.isolate_session_state = True
        config.operation_timeout_in_ms = 1000 * self._timeout
        feeds = {
            f["name"]: np.zeros([abs(size) for size in f["shape"]], f["dtype"])
            for f in run.get("feeds", ())
        }
        wanted = [*run.get("fetches", ())]
        wanted += [graph.get_operation_by_name(name) for name in run.get("targets", ())]
        start, refused = time.perf_counter(), ""
        with v1.Session(self._target, graph=graph, config=config) as session:
            try:
                session.run(wanted, feeds)
            except tf.errors.OpError as err:
                if RECORDED not in err.message:
                    refused = " ".join(err.message.split())
            else:
                refused = "nothing was sent to the worker"
        return Verdict(list(self._worker.graphs), refused, time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main())
