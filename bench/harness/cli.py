"""The command line."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import peers
from harness import gpu, machine, plan, runs, tables, venvs
from peers.base import BENCH, ROOT, variants
from suites import (
    base,
    dense,
    generate,
    limit,
    mlm,
    predict,
    reading,
    serve,
    strategy,
    summary,
    text,
    train,
)

SUITES = {
    "train": train,
    "mlm": mlm,
    "input": reading,
    "dense": dense,
    "text": text,
    "predict": predict,
    "serve": serve,
    "generate": generate,
    "strategy": strategy,
    "limit": limit,
    "summary": summary,
}
ON_GPU = ("train", "predict")
"""The suites that run on GPUs. The suite of strategies divides a CPU in two."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the measurements that the arguments select.

    Returns:
        The exit code: 0 done, 1 if something that the measurements need could not be
        made, 130 interrupted. Wrong usage exits with 2. A peer that fails is listed in its
        table with the reason, and does not affect the others.
    """
    known = parser()
    args = known.parse_args(argv)
    if asked(args) == ["summary"]:
        args.rounds = 0
    if missing := missing_file(args):
        known.error(missing)
    # Both end the current run and its program, also in the background.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, _interrupt)
    try:
        options = choose(args)
        if options.settings.rounds:
            say(takes(options, [name for name in asked(args) if not args.gpu or name in ON_GPU]))
        for name in asked(args):
            if args.gpu and name not in ON_GPU:
                say(f"{name}: skipped, it is measured on CPUs only")
            else:
                SUITES[name].run(options)
    except (base.PrepareError, gpu.NoGpuError) as err:
        print(f"bench: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; what is complete has been written", file=sys.stderr)
        return 130
    return 0


def missing_file(args: argparse.Namespace) -> str:
    """Says which file or folder that measurements need is not there; "" if all are."""
    if args.rounds == 0:
        return ""  # the tables are made of what was measured before
    for option, path in (("--pairs", args.pairs), ("--text", args.text)):
        if path and not os.path.isfile(path):
            return f"{option} is {path}, which is no file"
    if args.lock and not os.path.isdir(os.path.dirname(os.path.abspath(args.lock))):
        return f"--lock is {args.lock}, whose folder is not there"
    return ""


def parser() -> argparse.ArgumentParser:
    """Parses the arguments, which are grouped by suite."""
    p = argparse.ArgumentParser(
        prog="python bench",
        description="Measures gorbit and its peers in turn, one process at a time.",
        epilog="bench/README.md describes what each suite measures.",
    )
    _what_is_measured(p.add_argument_group("what is measured"))
    _how_often(p.add_argument_group("how often, and how"))
    _where(p.add_argument_group("where things are"))
    _of_suites(p)
    return p


def _what_is_measured(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--quick",
        action="store_true",
        help="minilm, MRPC's lengths, one round, fewest steps; leaves the documents alone",
    )
    add(
        "--only",
        nargs="+",
        choices=list(SUITES),
        metavar="SUITE",
        help=f"suites: {', '.join(SUITES)} (default: all; with --quick, train)",
    )


def _how_often(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--rounds",
        type=_natural,
        help="how often each variant runs (default: 3; with --quick, 1); "
        "0 writes the tables again from the raw lines",
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
    add("--lock", metavar="FILE", help="hold this file's lock (flock) during every run")
    kept = group.add_mutually_exclusive_group()
    kept.add_argument(
        "--isa",
        choices=list(machine.ISA),
        help="restrict all libraries to the instructions of older processors",
    )
    kept.add_argument(
        "--gpu",
        action="store_true",
        help=f"measure on one NVIDIA GPU, in separate tables ({' and '.join(ON_GPU)} only)",
    )


def _where(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--gorbit",
        metavar="FILE",
        default=os.path.join(ROOT, "bin", "gorbit"),
        help="the program (default: bin/gorbit)",
    )
    add(
        "--venvs",
        metavar="DIR",
        help="use the environments DIR/tfm, DIR/hf, DIR/keras instead of installing them "
        "(with --gpu: DIR/tfm-gpu, DIR/hf, DIR/keras-gpu)",
    )
    add(
        "--docs",
        metavar="FILE",
        help="document for all tables (default: those of docs that have them; with --quick, none)",
    )
    add(
        "--results",
        metavar="DIR",
        help="folder for raw lines (default: bench/results; with --quick, bench/.work/results)",
    )


def _of_suites(p: argparse.ArgumentParser) -> None:
    models = p.add_argument_group("suites train, mlm, predict, strategy and limit").add_argument
    models(
        "--sizes",
        nargs="+",
        choices=list(plan.SIZES),
        help="models (default: all, strategy never base; with --quick, minilm)",
    )
    training = p.add_argument_group("suites train, mlm, strategy and limit").add_argument
    training("--steps", type=_positive, help="steps to time in a run (default: by size)")
    training(
        "--add",
        action="store_true",
        help="add to the rounds that are already in the raw lines",
    )
    train_only = p.add_argument_group("suite train").add_argument
    train_only(
        "--lengths",
        nargs="+",
        choices=plan.LENGTHS,
        help="lengths of examples (default: both; with --quick, mrpc)",
    )
    train_only(
        "--peers",
        nargs="+",
        choices=[peer.name for peer in peers.TRAIN],
        help="peers to train with (default: all)",
    )
    generating = p.add_argument_group("suite generate").add_argument
    generating(
        "--parts",
        nargs="+",
        choices=list(generate.PARTS),
        metavar="PART",
        help=f"parts: {', '.join(generate.PARTS)} (default: all)",
    )
    generating(
        "--run",
        metavar="FOLDER",
        help="part translate: run of a BART model from English to German (default: one that is "
        "trained for a moment)",
    )
    p.add_argument_group("suites predict and serve").add_argument(
        "--pairs",
        metavar="FILE",
        help="pairs of texts separated by a tab, or GLUE's test.tsv of MRPC "
        "(default: mrpc/test.tsv of ../shared/data where that is there, else the demo's reviews)",
    )
    p.add_argument_group("suites mlm, generate and text").add_argument(
        "--text",
        metavar="FILE",
        help="one sentence per line, or a .tokens file of WikiText (default: wikitext2/"
        "wiki.train.tokens of ../shared/data where that is there, else the demo's reviews)",
    )
    p.add_argument_group("suites predict, serve and text").add_argument(
        "--vocab",
        metavar="FILE",
        default=os.path.join(ROOT, ".cache", "minilm", "vocab.txt"),
        help="a BERT vocab.txt (default: the demo's)",
    )


def choose(args: argparse.Namespace) -> base.Options:
    """Returns the options that the arguments select, and sets the environments up.

    Raises:
        gpu.NoGpuError: if a GPU is requested and there is none.
        base.PrepareError: if gorbit cannot be run, or cannot use the GPU.
    """
    work = os.path.join(BENCH, ".work")
    device = gpu.find() if args.gpu else None
    program = os.path.abspath(args.gorbit)
    rounds = (1 if args.quick else 3) if args.rounds is None else args.rounds
    said = version(program) if rounds else ""
    if device:
        say(f"on one GPU: {device}")
        needs_gpu(program)
    settings = runs.Settings(
        root=ROOT,
        work=work,
        venvs=environments(args, work) if rounds else {},
        rounds=rounds,
        retries=int(not args.quick) if args.retries is None else args.retries,
        timeout=args.timeout,
        isa=args.isa,
        lock=args.lock and os.path.abspath(args.lock),
        say=say,
        gpu=device,
    )
    kept = not args.quick
    return base.Options(
        settings=settings,
        sizes=args.sizes or (["minilm"] if args.quick else list(plan.SIZES)),
        lengths=args.lengths or (["mrpc"] if args.quick else list(plan.LENGTHS)),
        peers=args.peers or [],
        parts=args.parts or [],
        run=os.path.abspath(args.run) if args.run else "",
        steps=args.steps or 0,
        add=args.add,
        quick=args.quick,
        gorbit=program,
        version=said,
        docs=args.docs and os.path.abspath(args.docs),
        results=args.results or os.path.join(BENCH if kept else work, "results"),
        pairs=os.path.abspath(args.pairs) if args.pairs else base.beside("mrpc", "test.tsv"),
        vocab=os.path.abspath(args.vocab),
        text=os.path.abspath(args.text)
        if args.text
        else base.beside("wikitext2", "wiki.train.tokens"),
    )


def takes(options: base.Options, chosen: Sequence[str]) -> str:
    """Returns how long the rounds of some suites take, estimated from earlier runs."""
    parts = [part for name in chosen for part in SUITES[name].parts(options)]
    known = {part.name: base.expected(options, part) for part in parts}
    rounds = options.settings.rounds
    seconds = rounds * sum(each for each in known.values() if each is not None)
    unknown = ", ".join(name for name, each in known.items() if each is None)
    if not seconds:
        return f"rounds: {rounds}; how long they take has not been measured: {unknown}"
    return (
        f"rounds: {rounds}, about {tables.minutes(seconds)} on the machine of the raw lines if "
        "nothing disturbs them" + (f", and what is not known of {unknown}" if unknown else "")
    )


def asked(args: argparse.Namespace) -> list[str]:
    """Returns the selected suites, including those that are skipped on GPUs."""
    return args.only or (["train"] if args.quick else list(SUITES))


def needs_gpu(program: str) -> None:
    """Checks that gorbit can use the GPU.

    Raises:
        base.PrepareError: if it cannot.
    """
    env = machine.environment(gpu=True)
    done = subprocess.run([program, "devices", "--json"], env=env, capture_output=True, text=True)
    kinds = [d["type"] for d in json.loads(done.stdout)["devices"]] if not done.returncode else []
    if "GPU" not in kinds:
        raise base.PrepareError(f"{program} finds no GPU; build it with make TF=gpu build")


def version(program: str) -> str:
    """Returns gorbit's version, with the commit that it was built from.

    Raises:
        base.PrepareError: if it cannot be run.
    """
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True)
    except OSError as err:
        raise base.PrepareError(f"{program}: {err.strerror}") from err
    if done.returncode:
        raise base.PrepareError(f"{program} --version: exit code {done.returncode}")
    return done.stdout.split()[-1]


def environments(args: argparse.Namespace, work: str) -> dict[str, venvs.Venv]:
    """Returns the environments that the suites need, installed or existing, with their errors."""
    chosen = [name for name in asked(args) if not args.gpu or name in ON_GPU]
    used: list[peers.Peer] = []
    if "train" in chosen:
        some = [p for p in peers.TRAIN if variants(p, args.gpu)]
        used += [p for p in some if not args.peers or p.name in args.peers]
    if "mlm" in chosen:
        used += peers.MASKED
    if "input" in chosen:
        used += peers.INPUT
    if "dense" in chosen:
        used += peers.DENSE
    if "predict" in chosen:
        used += [p for p in peers.PREDICT if variants(p, args.gpu)]
    if "serve" in chosen:
        used += peers.SERVE
    if "generate" in chosen:
        used += [p for name in args.parts or generate.PARTS for p in peers.GENERATE[name]]
    if "strategy" in chosen:
        used += peers.STRATEGY
    if "text" in chosen:
        used += peers.TEXT
    names = {p.venv for p in used if p.venv}
    found = {"": venvs.Venv(sys.executable)}
    for name in sorted(names):
        home, files = requirements(name, args.gpu)
        if args.venvs:
            found[name] = venvs.existing(args.venvs, home)
        elif why := too_old(name, sys.version_info[:2]):
            found[name] = venvs.Venv("", why)
        else:
            found[name] = venvs.install(os.path.join(work, "venvs"), home, files, say)
        if found[name].error:
            say(f"{name}: {found[name].error}")
    return found


def too_old(name: str, python: tuple[int, int]) -> str:
    """Returns why this Python cannot make an environment, or "" if it can."""
    if name == "tfm" or python >= (3, 11):
        return ""
    return (
        "could not be installed: its packages need Python 3.11 or later, and .venv has "
        f"{python[0]}.{python[1]}: make it again with PYTHON=python3.11 make setup"
    )


def requirements(name: str, gpu: bool) -> tuple[str, list[str]]:
    """Returns the folder of an environment and its requirements files, the device's last."""
    device = f"{name}-{'gpu' if gpu else 'cpu'}"
    files = [os.path.join(BENCH, "requirements", f"{n}.txt") for n in (name, device)]
    if not os.path.exists(files[1]):
        return name, files[:1]
    return device if gpu else name, files


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
