"""Everything from a model to the program that XLA gets for a core of a TPU."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import shutil
import sys
import tempfile
from typing import Any

from tensorflow.core.framework import graph_pb2

from check_tpu import passes, registered
from check_tpu.common import CheckError, command, tpu_environment
from check_tpu.worker import Worker


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A program.

    Attributes:
        graph: gorbit's graph, of which the program is a call.
        runs: the graph's calls by name, as in runs.json.
        path: the file with the HloModuleProto.
        arguments: names of what it takes.
        assigned: which arguments are variables that it assigns, by number. They are its first
            results.
        results: names of what it gives in addition.
        products: how many products of matrices it has.
        highest: how many of them have the highest precision.
    """

    graph: graph_pb2.GraphDef
    runs: dict[str, dict[str, Any]]
    path: pathlib.Path
    arguments: list[str]
    assigned: list[int]
    results: list[str]
    products: int
    highest: int


class Chain(contextlib.ExitStack):
    """Makes programs."""

    def __init__(self, args: argparse.Namespace, python: str) -> None:
        """Starts a master in the environment of the passes, whose interpreter is given."""
        super().__init__()
        self._args = args
        made = self.enter_context(tempfile.TemporaryDirectory(prefix="check-tpu-"))
        self.folder = pathlib.Path(made)
        worker = Worker(passes.JOB, passes.CORES)
        self.callback(worker.close)
        target = self.enter_context(passes.master(python, worker.port))
        self._judge = passes.Judge(target, worker, args.timeout)
        self._tensorflow = tpu_environment(python)

    def lowered(
        self,
        config: str,
        precision: str,
        name: str,
        rows: int,
        replicas: int = passes.CORES,
        steps: int = 1,
        highest: bool = False,
    ) -> Lowered:
        """Makes a program.

        Args:
            config: the model.
            precision: of the export.
            name: of the call.
            rows: of a replica's batch.
            replicas: cores.
            steps: training steps of a call.
            highest: whether the TPU's server was asked for the highest precision of products.

        Raises:
            CheckError: if it cannot be made, which names the operation at fault.
        """
        args, what = self._args, f"{config} {name} {precision} {rows} rows"
        export, out = self.folder / f"{config}-{precision}", self.folder / "graph"
        if not export.exists():
            passes.exported(export, config, precision, args.timeout)
        shutil.rmtree(out, ignore_errors=True)
        graph, runs = passes.composed(args.gorbit, export, out, rows, replicas, steps, args.timeout)
        verdict = self._judge.run(graph, runs[name])
        wrong = [verdict.refused] if verdict.refused else []
        wrong = wrong or registered.complaints(verdict.graphs, replicas)
        if wrong:
            raise CheckError(f"{what}: the TPU passes: {wrong[0]}")
        (sent,) = (g for g in verdict.graphs if any(n.op == "TPUCompile" for n in g.node))
        made, path = out / "registered.pb", self.folder / "program.hlo"
        made.write_bytes(sent.SerializeToString())
        words = [sys.executable, "-m", "check_tpu.lower", str(made), str(path)]
        words += ["highest"] * highest
        try:
            said = command(words, args.timeout, self._tensorflow)
        except CheckError as err:
            raise CheckError(f"{what}: cannot be compiled: {err}") from None
        lowered = Lowered(graph, runs, path, **json.loads(said.splitlines()[-1]))
        if lowered.highest != lowered.products * highest:
            raise CheckError(
                f"{what}: {lowered.highest} of {lowered.products} products have the highest "
                f"precision; expected {'all' if highest else 'none'}"
            )
        return lowered
