"""Compiles gorbit's training step for an H100 with XLA's compiler, without a GPU.

    make check-gpu-compile
    make check-gpu-compile COMPILE="--configs tiny --no-search"

`gorbit graph` writes the graph of a model that was exported with --xla; the bridge of TensorFlow
with CUDA makes XLA's program of the training step: forward, backward, norm and update. The compiler
of jax's CUDA plugin, which is younger than TensorFlow's own, compiles it by a description of the
GPU. The assembler is that of CUDA. What was compiled is kept. The exit code is 1
if a program cannot be made or is refused.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence

from check_gpu import passes
from check_tpu.common import (
    EXAMPLES,
    LENGTH,
    TOOLS,
    CheckError,
    command,
    ended,
    environment,
    say,
    tensorflow,
    tf_environment,
)
from check_tpu.compiler import Compiled, largest, sentence, size

GPU = TOOLS / "check_gpu" / "h100.txtpb"
SHARE = 0.9
"""The part of its memory that a program may take; CUDA and its libraries need some, too."""
CONFIGS = {"tiny": 0, "base-2-layers": 2, "base": 12}
"""The models, with the layers of those that are base, of which one may have fewer."""
SEARCHED = {"tiny": 1024, "base-2-layers": 256, "base": 64}
"""What the rows that the search tries are multiples of."""
PRECISIONS = ("float32", "bf16", "fp16")


@dataclasses.dataclass(frozen=True)
class Step:
    """A training step: model, precision, and the rows of its batch."""

    config: str
    precision: str
    rows: int

    def __str__(self) -> str:
        """The step in words."""
        return f"{self.config}, {self.precision}, {self.rows} x {LENGTH}"


def main(argv: Sequence[str] | None = None) -> int:
    """Compiles what the arguments say."""
    p = argparse.ArgumentParser(prog="check_gpu.compiler", description=__doc__.splitlines()[0])
    add = p.add_argument
    add("--configs", nargs="+", choices=CONFIGS, default=["tiny", "base-2-layers"])
    add("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    add("--rows", type=int, default=32, help="rows of a batch (default: 32)")
    add(
        "--gpu", metavar="FILE", default=str(GPU), help="description of a GPU (default: of an H100)"
    )
    add("--no-search", action="store_true", help="do not search for the largest batch")
    add("--gorbit", default=str(TOOLS.parent / "bin" / "gorbit"), help="(default: bin/gorbit)")
    add("--timeout", type=int, default=1800, help="seconds for one compilation (default: 1800)")
    args = p.parse_args(argv)
    return ended("check-gpu-compile", lambda: check(args))


def check(args: argparse.Namespace) -> int:
    """Compiles everything and prints the report, which is kept in passes.WORK as well."""
    if sys.version_info < (3, 11):
        raise CheckError(
            "the compiler's packages are those for Python 3.11 or 3.12, and .venv has "
            f"{sys.version_info[0]}.{sys.version_info[1]}: set up again with PYTHON=python3.11"
        )
    with tempfile.TemporaryDirectory(prefix="check-gpu-") as folder:
        report = "\n".join(lines(Compiler(args, pathlib.Path(folder)))) + "\n"
    (passes.WORK / "compile.md").write_text(report, encoding="utf-8")
    print(report, end="")
    return 1 if "refused:" in report else 0


def lines(compiler: Compiler) -> Iterator[str]:
    """Compiles everything, and gives the lines of the report."""
    args = compiler.args
    yield (
        f"{datetime.date.today()}, TensorFlow {tensorflow()}, jax 0.6.2, for {compiler.gpu}; "
        f"rows of {LENGTH} positions, {EXAMPLES} examples a row."
    )
    yield ""
    yield "| step | kernels | arguments | aliased | temporary | processor |"
    yield "| --- | --- | --- | --- | --- | --- |"
    steps = [Step(c, p, args.rows) for c in args.configs for p in args.precisions]
    results = {step: compiler.compiled(step) for step in steps}
    for step, r in results.items():
        what = f"refused: {sentence(r.refused)} | | | |"
        if not r.refused:
            sizes = (size(r.argument), size(r.alias), size(r.temp), f"{r.seconds:.0f} s")
            what = f"{r.kernels} | {' | '.join(sizes)}"
        yield f"| {step} | {what} |"
    if args.no_search:
        return
    yield ""
    yield f"| step | largest batch in {size(compiler.memory)} | memory |"
    yield "| --- | --- | --- |"
    for step, r in results.items():
        if not r.refused:
            rows, memory = compiler.largest(step)
            yield f"| {step.config}, {step.precision} | {rows} x {LENGTH} | {size(memory)} |"


class Compiler:
    """Makes programs and compiles them.

    Attributes:
        args: what the command line says.
        gpu: the GPU's name.
        memory: bytes of it that a program may take.
    """

    def __init__(self, args: argparse.Namespace, folder: pathlib.Path) -> None:
        """Takes a folder for exports."""
        self.args, self._folder = args, folder
        described = pathlib.Path(args.gpu).read_text(encoding="utf-8")
        self.gpu = re.search(r'device_description_str: "(.*)"', described)[1]
        self.memory = SHARE * int(re.search(r"device_memory_size: (\d+)", described)[1])
        self._tensorflow = tf_environment(environment("passes", "check_gpu"))
        self._python = environment("compiler", "check_gpu")

    def largest(self, step: Step) -> tuple[int, int]:
        """Returns the most rows of a batch that fit, and the memory that these need."""
        total = {}

        def used(rows: int) -> int | None:
            result = self.compiled(dataclasses.replace(step, rows=rows))
            if result.refused:
                raise CheckError(f"{step}, {rows} rows: {sentence(result.refused)}")
            total[rows] = result.total
            return result.total if result.total <= self.memory else None

        rows = largest(used, step.rows, SEARCHED[step.config], self.memory)
        return rows, total[rows]

    def compiled(self, step: Step) -> Compiled:
        """Makes a step's program and compiles it, unless it was compiled before."""
        say(str(step))
        timeout, graph = self.args.timeout, self._graph(step)
        program = self._folder / "program.hlo"
        shape = [str(n) for n in (step.rows, LENGTH, EXAMPLES * step.rows)]
        words = [sys.executable, "-m", "check_gpu.lower", str(graph), *shape, str(program)]
        arguments = command(words, timeout, self._tensorflow).splitlines()[-1]
        aot, kept = str(TOOLS / "check_tpu" / "aot.py"), str(passes.WORK / "compiled")
        said = command([self._python, aot, str(program), self.args.gpu, kept], timeout)
        if json.loads(said)["arguments"] != int(arguments):
            raise CheckError(f"{step}: another number of arguments than {arguments}: {said}")
        return Compiled.parse(said)

    def _graph(self, step: Step) -> pathlib.Path:
        """Returns the graph of a step's model, which is made if it is not there."""
        out = self._folder / f"{step.config}-{step.precision}"
        if not out.exists():
            config, layers = step.config, CONFIGS[step.config]
            if layers:
                file = self._folder / f"{config}.json"
                file.write_text(json.dumps({**BASE, "num_hidden_layers": layers}))
                config = str(file)
            words = ["--config", config, "--precision", step.precision, "--xla", "--out", str(out)]
            words = [sys.executable, "-m", "gorbit_export", "bert-classifier", *words]
            command(words, self.args.timeout)
            words = ["graph", "--graph", str(out), "--devices", "gpu:1", "--out", str(out / "gpu")]
            command([self.args.gorbit, *words], self.args.timeout)
        return out / "gpu" / "graph.pb"


BASE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}


if __name__ == "__main__":
    sys.exit(main())
