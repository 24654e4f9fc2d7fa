"""The command line."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence

import peers
from harness import machine, plan, runs, venvs
from peers.base import BENCH, ROOT
from suites import base, predict, reading, strategy, text, train

SUITES = {
    "train": train.run,
    "input": reading.run,
    "text": text.run,
    "predict": predict.run,
    "strategy": strategy.run,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what the arguments say.

    Returns:
        The exit code: 0 done, 1 if something that the measurements need could not be
        made, 130 interrupted. Wrong usage exits with 2. A peer that fails stands in its
        table with the reason, and fails nothing else.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    args = parser().parse_args(argv)
    # Both end the run at hand with its program, also in the background.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, _interrupt)
    try:
        options = choose(args, argv)
        for name in args.only or (["train"] if args.quick else list(SUITES)):
            SUITES[name](options)
    except base.PrepareError as err:
        print(f"bench: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; what is complete has been written", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = argparse.ArgumentParser(
        prog="python bench",
        description="Measures gorbit and its peers, turn about, one process at a time.",
    )
    add = p.add_argument
    add(
        "--quick",
        action="store_true",
        help="minilm, MRPC's lengths, one round, fewest steps; leaves the document alone",
    )
    add(
        "--only",
        nargs="+",
        choices=list(SUITES),
        help="what to measure (default: everything; with --quick, train)",
    )
    add(
        "--sizes",
        nargs="+",
        choices=list(plan.SIZES),
        help="models (default: all, strategy never base; with --quick, minilm)",
    )
    add(
        "--lengths",
        nargs="+",
        choices=plan.LENGTHS,
        help="lengths of examples (default: both; with --quick, mrpc)",
    )
    add(
        "--peers",
        nargs="+",
        choices=[p.name for p in peers.TRAIN],
        help="whom to train with (default: all)",
    )
    add("--steps", type=_positive, help="steps to time in a run of training (default: by size)")
    add(
        "--rounds", type=_positive, help="how often each variant runs (default: 3; with --quick, 1)"
    )
    add(
        "--add",
        action="store_true",
        help="train, strategy: count the rounds that the raw lines hold already as earlier ones",
    )
    add(
        "--retries",
        type=_natural,
        help="how often a disturbed run is repeated (default: 1; with --quick, 0)",
    )
    add(
        "--timeout",
        type=_positive,
        default=1200,
        help="seconds after which a run is ended (default: 1200)",
    )
    add(
        "--isa",
        choices=list(machine.ISA),
        help="keep all libraries to the instructions of older processors",
    )
    add("--lock", metavar="FILE", help="hold this file's lock (flock) during every run")
    add(
        "--venvs",
        metavar="DIR",
        help="use the environments DIR/tfm, DIR/hf, DIR/keras instead of installing them",
    )
    add(
        "--gorbit",
        metavar="FILE",
        default=os.path.join(ROOT, "bin", "gorbit"),
        help="the program (default: bin/gorbit)",
    )
    add(
        "--docs",
        metavar="FILE",
        help="document for the tables (default: docs/benchmarks.md; with --quick, none)",
    )
    add(
        "--results",
        metavar="DIR",
        help="folder for raw lines (default: bench/results; with --quick, bench/.work/results)",
    )
    add(
        "--pairs",
        metavar="FILE",
        help="predict: pairs of texts with a tab between, or GLUE's test.tsv of MRPC",
    )
    add("--text", metavar="FILE", help="text: a sentence a line (default: the demo's reviews)")
    add(
        "--vocab",
        metavar="FILE",
        default=os.path.join(ROOT, ".cache", "minilm", "vocab.txt"),
        help="a BERT vocab.txt (default: the demo's)",
    )
    return p


def choose(args: argparse.Namespace, argv: Sequence[str]) -> base.Options:
    """The options that the arguments stand for, the environments set up.

    Raises:
        base.PrepareError: if gorbit cannot be run.
    """
    work = os.path.join(BENCH, ".work")
    suites = args.only or (["train"] if args.quick else list(SUITES))
    settings = runs.Settings(
        root=ROOT,
        work=work,
        venvs=environments(args, suites, work),
        rounds=args.rounds or (1 if args.quick else 3),
        retries=int(not args.quick) if args.retries is None else args.retries,
        timeout=args.timeout,
        isa=args.isa,
        lock=args.lock and os.path.abspath(args.lock),
        say=say,
    )
    kept = not args.quick
    return base.Options(
        settings=settings,
        sizes=args.sizes or (["minilm"] if args.quick else list(plan.SIZES)),
        lengths=args.lengths or (["mrpc"] if args.quick else list(plan.LENGTHS)),
        peers=args.peers or [],
        steps=args.steps or 0,
        add=args.add,
        quick=args.quick,
        gorbit=os.path.abspath(args.gorbit),
        version=version(os.path.abspath(args.gorbit)),
        docs=args.docs or (os.path.join(ROOT, "docs", "benchmarks.md") if kept else None),
        results=args.results or os.path.join(BENCH if kept else work, "results"),
        pairs=args.pairs and os.path.abspath(args.pairs),
        vocab=os.path.abspath(args.vocab),
        text=args.text and os.path.abspath(args.text),
        command=typed(argv),
    )


def version(program: str) -> str:
    """What gorbit says it is, and the commit of the checkout if git knows it.

    Raises:
        base.PrepareError: if it cannot be run.
    """
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True)
    except OSError as err:
        raise base.PrepareError(f"{program}: {err.strerror}") from err
    if done.returncode:
        raise base.PrepareError(f"{program} --version: exit code {done.returncode}")
    said = done.stdout.split()[-1]
    describe = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        commit = ""
    return f"{said} ({commit})" if commit else said


def environments(
    args: argparse.Namespace, suites: Sequence[str], work: str
) -> dict[str, venvs.Venv]:
    """The environments that the suites need, installed or found, and what is wrong with them."""
    asked: list[peers.Peer] = []
    if "train" in suites:
        asked += [p for p in peers.TRAIN if not args.peers or p.name in args.peers]
    if "input" in suites:
        asked += peers.INPUT
    if "predict" in suites and args.pairs:
        asked += peers.PREDICT
    if "strategy" in suites:
        asked += peers.STRATEGY
    names = {p.venv for p in asked if p.venv} | ({"hf"} if "text" in suites else set())
    found = {"": venvs.Venv(sys.executable)}
    for name in sorted(names):
        if args.venvs:
            found[name] = venvs.existing(args.venvs, name)
        else:
            requirements = os.path.join(BENCH, "requirements", f"{name}.txt")
            found[name] = venvs.install(os.path.join(work, "venvs"), name, requirements, say)
        if found[name].error:
            say(f"{name}: {found[name].error}")
    return found


def typed(argv: Sequence[str]) -> str:
    """The command for a reader to type: without what is this machine's alone."""
    kept: list[str] = []
    skip = False
    for arg in argv:
        if skip:
            skip = False
        elif arg in ("--lock", "--venvs", "--docs", "--results", "--gorbit"):
            skip = True
        elif arg.split("=")[0] not in ("--lock", "--venvs", "--docs", "--results", "--gorbit"):
            kept.append(arg)
    return f'make bench BENCH="{shlex.join(kept)}"' if kept else "make bench"


def say(text: str) -> None:
    """Prints a line at once."""
    print(text, flush=True)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return value
