"""Compiles gorbit's TPU programs with the TPU compiler, without a TPU, and prints what they need.

    make check-tpu-compile
    make check-tpu-compile COMPILE="--configs tiny --topologies v5e:2x4 --no-search"

`gorbit tpu graph` writes the graph for 8 cores; TensorFlow's TPU passes make the program of a core
from it (see passes.py); the bridge of TensorFlow's TPU library makes XLA's of that, with the sums
over the cores; and the compiler of libtpu compiles it for the 8 cores of a topology. What was
compiled is kept. The training programs of tiny are run as well, by XLA on CPU devices, and compared
with TensorFlow's own kernels (see compare.py). The exit code is 1 if a program is refused, or if a
result differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence

from check_tpu import compare, passes
from check_tpu.chain import Chain
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
    say,
    tensorflow,
)

REQUIRED = REQUIREMENTS / "compiler.txt"
CONFIGS = ("tiny", "minilm", "base", passes.MASKED)
"""The models."""
STEPS = {"tiny": 256, "minilm": 64, "base": 16}
"""Those whose largest batch is searched, and the rows that the batches tried are multiples of."""
CLOSE = 8
"""The search ends when what is refused is larger by at most one part of so many, or by one step."""
PRECISIONS = ("float32", "bf16")
PROGRAMS = ("train", "loop", "evaluate")
LOOPED = "tiny"
"""The model whose loop of training steps is compiled, as its body is that of the step, and whose
training step is compiled with products of the highest precision."""
COMPARED = (1, 1), (passes.CORES, 1), (passes.CORES, passes.STEPS[-1])
"""Replicas, and steps of a call, of the training programs that are run."""
RUN_ROWS = 4
"""Rows of a replica's batch in them."""
TOPOLOGIES = ("v5e:2x4", "v6e:2x4")
"""Of as many cores as passes.CORES."""
SEARCHED = "v5e:2x4"
MEMORY = 15.75 * 2**30
"""Bytes of a v5e that the compiler hands out, of its 16 GB."""
TOO_LARGE = "memory space hbm", "would exceed memory"
"""What the compiler says of a program, and of a single tensor, that the memory cannot hold."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A program to compile: model, precision, what it does, and the rows of its batch.

    With `highest`, its products have the highest precision.
    """

    config: str
    precision: str
    name: str
    rows: int
    highest: bool = False

    def __str__(self) -> str:
        """The program in words."""
        return f"{self.title}, {self.rows}x{LENGTH}"

    @property
    def title(self) -> str:
        """The program in words, without its rows."""
        return f"{self.config} {self.name}, {self.precision}" + ", highest" * self.highest


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler said.

    Attributes:
        refused: why not, "" if the program was compiled; the sizes are 0 if it was not.
        argument: bytes of the arguments: variables, slots, features.
        output: bytes of the results, with those that take the place of arguments.
        alias: bytes of the results that take the place of arguments.
        temp: bytes in addition to arguments and results.
        generated_code: bytes of the program itself.
        scatters: operations of that kind that the compiler left, which add up gradients of rows.
        seconds: of processor time that the compilation took, when it was made.
        kernels: that a GPU's program starts.
    """

    refused: str = ""
    argument: int = 0
    output: int = 0
    alias: int = 0
    temp: int = 0
    generated_code: int = 0
    scatters: int = 0
    seconds: float = 0.0
    kernels: int = 0

    @property
    def total(self) -> int:
        """Bytes that the program needs."""
        return self.argument + self.output - self.alias + self.temp

    @property
    def too_large(self) -> bool:
        """Whether the program was refused because the TPU's memory is too small."""
        return any(words in self.refused for words in TOO_LARGE)

    @classmethod
    def parse(cls, text: str) -> Compiled:
        """Reads what aot.py prints."""
        values = json.loads(text)
        return cls(**{f.name: values[f.name] for f in dataclasses.fields(cls) if f.name in values})


def main(argv: Sequence[str] | None = None) -> int:
    """Compiles what the arguments say."""
    args = parser().parse_args(argv)
    return ended("check-tpu-compile", lambda: check(args))


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = argparse.ArgumentParser(prog="check_tpu.compiler", description=__doc__.splitlines()[0])
    add = p.add_argument
    add("--configs", nargs="+", choices=CONFIGS, default=CONFIGS)
    add("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    add("--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS)
    add("--topologies", nargs="+", default=TOPOLOGIES, help="such as v5e:2x2 (default: and v6e)")
    add("--rows", type=int, default=32, help="rows of a batch (default: 32)")
    add("--no-search", action="store_true", help="do not search for the largest batch on a v5e")
    add(
        "--gorbit",
        default=str(TOOLS.parent / "bin" / "gorbit"),
        help="the program (default: bin/gorbit)",
    )
    add("--timeout", type=int, default=1800, help="seconds for one compilation (default: 1800)")
    return p


def check(args: argparse.Namespace) -> int:
    """Compiles everything and prints the report, which is kept in WORK as well."""
    if sys.version_info < (3, 11):
        raise CheckError(
            "libtpu 0.0.17.1 needs Python 3.11 or 3.12, and .venv has "
            f"{sys.version_info[0]}.{sys.version_info[1]}: set up again with PYTHON=python3.11"
        )
    with Chain(args, environment("passes")) as chain:
        report = "\n".join(lines(args, chain, environment("compiler"))) + "\n"
    (WORK / "compile.md").write_text(report, encoding="utf-8")
    print(report, end="")
    return 1 if "refused:" in report or "differs:" in report else 0


def lines(args: argparse.Namespace, chain: Chain, python: str) -> Iterator[str]:
    """Compiles everything, and gives the lines of the report.

    Args:
        args: the arguments.
        chain: makes the programs.
        python: the interpreter of the environment of the compiler.
    """

    def compile(program: Program, topology: str) -> Compiled:
        return compiled(args, chain, python, program, topology)

    yield from header(args)
    if "train" in args.programs and LOOPED in args.configs:
        yield ""
        yield from compared(args, chain, python)
    results = {
        (program, topology): compile(program, topology)
        for program in programs(args)
        for topology in args.topologies
    }
    yield ""
    yield from table(results)
    if not args.no_search and "train" in args.programs:
        yield ""
        yield from found(args, lambda program: compile(program, SEARCHED))
    for (program, topology), result in results.items():
        if result.refused:
            yield f"\n{program} for {topology}: refused: {result.refused}"


def compiled(
    args: argparse.Namespace, chain: Chain, python: str, program: Program, topology: str
) -> Compiled:
    """Makes a program and compiles it, unless it was compiled before.

    Raises:
        CheckError: if it cannot be made, which names the operation at fault.
    """
    say(f"{program} for {topology}")
    loop = program.name == "loop"
    steps = passes.STEPS[-1] if loop else 1
    name = "train" if loop else program.name
    made = chain.lowered(
        program.config,
        program.precision,
        name,
        program.rows,
        steps=steps,
        highest=program.highest,
    )
    aot, kept = str(TOOLS / "check_tpu" / "aot.py"), str(WORK / "compiled")
    said = command([python, aot, str(made.path), topology, kept], args.timeout)
    taken = json.loads(said)["arguments"]
    if taken != len(made.arguments):
        raise CheckError(
            f"{program}: the compiled program has {taken} arguments; expected {len(made.arguments)}"
        )
    return Compiled.parse(said)


def compared(args: argparse.Namespace, chain: Chain, python: str) -> Iterator[str]:
    """Runs training programs, as Markdown."""
    yield "| tiny train, float32 | results compared | largest difference |"
    yield "| --- | --- | --- |"
    for replicas, steps in COMPARED:
        what = f"replicas: {replicas}, steps: {steps}"
        say(f"tiny train, {what}, run")
        made = chain.lowered(LOOPED, "float32", "train", RUN_ROWS, replicas, steps)
        count, far, name = compare.difference(made, args.gorbit, python, RUN_ROWS, args.timeout)
        where = f"{far:.1e}" if far <= compare.CLOSE else f"{name} differs: {far:.1e}"
        yield f"| {what} | {count} | {where} |"


def programs(args: argparse.Namespace) -> Iterator[Program]:
    """The programs of the table."""
    for config in args.configs:
        for name in args.programs:
            if name == "loop" and config != LOOPED:
                continue
            for precision in args.precisions:
                yield Program(config, precision, name, args.rows)
    if {LOOPED, "train", "float32"} <= {*args.configs, *args.programs, *args.precisions}:
        yield Program(LOOPED, "float32", "train", args.rows, highest=True)


def header(args: argparse.Namespace) -> list[str]:
    """Says when this was measured, and by what."""
    versions = re.findall(r"^(jaxlib|libtpu)==(\S+)", REQUIRED.read_text(), re.MULTILINE)
    versions.insert(0, ("TensorFlow", tensorflow()))
    made = ", ".join(f"{name} {version}" for name, version in versions)
    return [
        f"{datetime.date.today()}, {made}; "
        f"{args.rows} rows of {LENGTH} positions, {EXAMPLES} examples a row."
    ]


def table(results: dict[tuple[Program, str], Compiled]) -> list[str]:
    """The sizes of all programs, as Markdown."""
    lines = [
        "| program | for | arguments | aliased | temporary | code | scatters | processor |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (program, topology), r in results.items():
        what = (
            f"refused: {sentence(r.refused)} | | | | |"
            if r.refused
            else f"{size(r.argument)} | {size(r.alias)} | {size(r.temp)} "
            f"| {size(r.generated_code)} | {r.scatters} | {r.seconds:.0f} s"
        )
        lines.append(f"| {program.title} | {topology.split(':')[0]} | {what} |")
    return lines


def found(args: argparse.Namespace, compiled: Callable[[Program], Compiled]) -> list[str]:
    """Searches for the largest batches of a training step on a v5e, as Markdown."""
    lines = [
        "| training step | largest batch on a v5e | memory | refused |",
        "| --- | --- | --- | --- |",
    ]
    for config in filter(STEPS.__contains__, args.configs):
        for precision in args.precisions:
            fits, over, memory = search(config, precision, args.rows, compiled)
            lines.append(
                f"| {config}, {precision} | {fits} x {LENGTH} | {size(memory)} "
                f"| {over} x {LENGTH} |"
            )
    return lines


def search(
    config: str, precision: str, start: int, compiled: Callable[[Program], Compiled]
) -> tuple[int, int, int]:
    """Searches for the largest batch of a training step.

    Returns:
        The rows that fit, the least number of rows that was refused, the memory of what fits.
    """
    results: dict[int, Compiled] = {}

    def used(rows: int) -> int | None:
        program = Program(config, precision, "train", rows)
        results[rows] = compiled(program)
        if results[rows].refused and not results[rows].too_large:
            raise CheckError(f"{program}: {sentence(results[rows].refused)}")
        return None if results[rows].refused else results[rows].total

    fits = largest(used, start, STEPS[config], MEMORY)
    over = min(rows for rows, result in results.items() if result.refused)
    return fits, over, results[fits].total


def largest(used: Callable[[int], int | None], start: int, step: int, limit: float) -> int:
    """Returns a number of rows that fits, of which an eighth more, or `step`, is refused.

    A line through the two largest that fit says where to look next. It is not trusted: both were
    tried.

    Args:
        used: the memory that a number of rows needs, or None if it is refused.
        start: a number of rows that fits, a multiple of `step` or less than it.
        step: what the result is a multiple of, if it is more than `start`.
        limit: the memory that is there.

    Raises:
        CheckError: if `start` does not fit.
    """
    fits = {start: used(start)}
    if fits[start] is None:
        raise CheckError(f"{start} rows do not fit; give fewer with --rows")
    refused = None
    while True:
        low = max(fits)
        if refused is not None and refused - low <= max(step, low // CLOSE):
            return low
        guess = 4 * low
        if len(fits) > 1:
            before = max(rows for rows in fits if rows < low)
            slope = (fits[low] - fits[before]) / (low - before)
            guess = low + int((limit - fits[low]) / slope) if slope > 0 else 2 * low
            guess = max(guess, low + (low - before) // 4)
        if refused is not None and not low < guess < refused:
            guess = (low + refused) // 2
        guess = max(guess // step * step, low // step * step + step)
        got = used(guess)
        if got is None:
            refused = guess
        else:
            fits[guess] = got


def sentence(refusal: str) -> str:
    """The first sentence of a refusal, fit for a table."""
    return " ".join(refusal.split())[:160].replace("|", "/")


def size(count: float) -> str:
    """A number of bytes in words."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
