"""What the suites share: the command line's choices, and where results go."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
from collections.abc import Sequence

from harness import machine, plan, runs, stats, tables
from peers.base import BENCH, ROOT


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line chose.

    Attributes:
        settings: how runs are made.
        sizes: keys of plan.SIZES.
        lengths: of plan.LENGTHS.
        peers: names of the peers to train with, all if empty.
        steps: timed steps of a run; 0 is by size.
        add: whether rounds measured before are counted.
        quick: whether to take the fewest steps.
        gorbit: the program, and `version` what it says it is.
        docs: the document for all tables, or None for those that they belong to.
        results: folder for raw lines.
        pairs: file of text pairs to classify, or None.
        vocab: vocabulary for texts.
        text: file of texts to tokenize, or None.
    """

    settings: runs.Settings
    sizes: Sequence[str]
    lengths: Sequence[str]
    peers: Sequence[str]
    steps: int
    add: bool
    quick: bool
    gorbit: str
    version: str
    docs: str | None
    results: str
    pairs: str | None
    vocab: str
    text: str | None

    def document(self, name: str) -> str | None:
        """Where the tables of docs/measurements/NAME go: nowhere with --quick."""
        return self.docs or (
            None if self.quick else os.path.join(ROOT, "docs", "measurements", name)
        )

    def steps_of(self, size: str) -> int:
        """Timed steps for a model of a size."""
        if self.settings.on_gpu:
            known = plan.GPU_QUICK_STEPS if self.quick else plan.GPU_STEPS
        else:
            known = plan.QUICK_STEPS if self.quick else plan.STEPS
        return self.steps or known[size]

    @property
    def suffix(self) -> str:
        """Behind names of results, to keep apart what was measured on something else."""
        if self.settings.on_gpu:
            return "-gpu"
        return f"-{self.settings.isa}" if self.settings.isa else ""

    def titled(self, title: str) -> str:
        """The title, with the GPU, or with what the processor was kept to."""
        if self.settings.gpu:
            return f"{title}, on one {self.settings.gpu.name}"
        if not self.settings.isa:
            return title
        told = " ".join(f"{k}={v}" for k, v in machine.ISA[self.settings.isa].items())
        return f"{title}, kept to {self.settings.isa.upper()} by {told}"


REVIEWS = os.path.join(ROOT, ".cache", "reviews", "reviews.txt")
"""The demo's movie reviews, a snippet a line behind its id and score."""

BESIDE = os.path.join(os.path.dirname(ROOT), "shared", "data")
"""Real data, for those who have it beside the checkout."""


def beside(*names: str) -> str | None:
    """A file of the data beside the checkout, None if it is not there."""
    path = os.path.join(BESIDE, *names)
    return path if os.path.exists(path) else None


def reviews() -> list[str]:
    """The demo's reviews without ids and scores."""
    with open(REVIEWS, encoding="utf-8", errors="replace") as lines:
        return [line.rstrip("\n").split("\t")[-1] for line in lines]


@dataclasses.dataclass(frozen=True)
class Part:
    """What has raw lines and a table of its own.

    Attributes:
        name: of the lines and the table.
        steps: those that a run is timed for, 0 where there are none.
        peers: whom it is measured with, all if empty.
    """

    name: str
    steps: int = 0
    peers: Sequence[str] = ()


class PrepareError(Exception):
    """Something that measurements need could not be made."""


def publish(
    options: Options,
    name: str,
    title: str,
    text: str,
    lines: Sequence[stats.Line],
    only: Sequence[str],
    document: str = "benchmarks.md",
) -> None:
    """Prints a part, keeps its raw lines, and puts it into the document of this name.

    `only` are the arguments that measure this part alone.
    """
    title = options.titled(title)
    options.settings.say(f"\n**{title}.**\n\n{text}\n")
    path = raw(options, name)
    if options.settings.rounds:
        runs.save(path, lines)
        options.settings.say(f"raw lines: {path}")
    if docs := options.document(document):
        content = f"**{title}.**\n\n{text}\n\n    {command(options, only, lines)}"
        tables.write(docs, name + options.suffix, content, title)
        options.settings.say(f"table: {docs}, {name}{options.suffix}")


def command(options: Options, only: Sequence[str], lines: Sequence[stats.Line]) -> str:
    """The command that makes all rows of a part, as many rounds as its rows have at most."""
    made: dict[tuple[str, str], set[int]] = {}
    for line in lines:
        if line["peer"] != "gemm":
            made.setdefault((line["peer"], line["variant"]), set()).add(line["round"])
    words = [*only, "--rounds", str(max(map(len, made.values()), default=1))]
    if options.settings.on_gpu:
        words.append("--gpu")
    elif options.settings.isa:
        words += ["--isa", options.settings.isa]
    return f'make bench BENCH="--only {shlex.join(words)}"'


def kept(options: Options, name: str, lines: Sequence[stats.Line], steps: int) -> list[stats.Line]:
    """The lines of a part, marked, behind those of earlier rounds where these count."""
    for line in lines:
        line["steps"] = steps
        if line["peer"].startswith("gorbit"):
            line["gorbit"] = options.version
    return runs.joined(runs.load(raw(options, name)) if options.add else [], lines)


def earlier(options: Options, name: str) -> list[stats.Line]:
    """The lines that a part has already; says so where there are none."""
    lines = runs.load(raw(options, name))
    if not lines:
        options.settings.say(f"{name}: {raw(options, name)} has no lines")
    return lines


def raw(options: Options, name: str) -> str:
    """The file of a part's raw lines."""
    return os.path.join(options.results, f"{name}{options.suffix}.jsonl")


def expected(options: Options, part: Part) -> float | None:
    """Seconds that a round of a part takes undisturbed, None where it was never measured.

    They are taken from the raw lines of the checkout, whose steps may have been fewer or more.
    """
    path = os.path.join(BENCH, "results", f"{part.name}{options.suffix}.jsonl")
    rounds: dict[tuple[str, str], dict[int, float]] = {}
    for line in runs.load(path):
        if "error" in line or (part.peers and line["peer"] not in (*part.peers, "gemm")):
            continue
        by = rounds.setdefault((line["peer"], line["variant"]), {})
        by[line["round"]] = by.get(line["round"], 0.0) + duration(line, part.steps)
    return sum(statistics.fmean(by.values()) for by in rounds.values()) if rounds else None


def duration(line: stats.Line, steps: int) -> float:
    """Seconds of a run, had it made so many steps behind those that do not count."""
    if "examples_per_s" not in line:
        return line["seconds"]
    each = plan.BATCH / line["examples_per_s"]
    whole = line.get("seconds", line["first_step_s"] + (plan.WARM_STEPS + line["steps"] - 1) * each)
    return whole + (steps - line["steps"]) * each


def data(options: Options, lengths: str) -> tuple[str, float]:
    """The folder of the examples, made where it is not there, and their mean length."""
    import peers
    from peers import data as making

    recipe = pathlib.Path(making.__file__).read_bytes() + pathlib.Path(plan.__file__).read_bytes()
    folder = os.path.join(options.settings.work, "data", f"{lengths}-{digest(recipe)}")
    about = os.path.join(folder, "about.json")
    if not os.path.exists(about):
        options.settings.say(f"making examples of {lengths} lengths")
        work(options, peers.DATA, plan.Job("data", lengths=lengths, data=folder))
    known = json.loads(pathlib.Path(about).read_text())
    return folder, known["tokens"] / known["examples"]


def graph(options: Options, size: str) -> str:
    """The export of a classifier of a size, made where it is not there."""
    sources = sorted(pathlib.Path(options.settings.root, "tools", "gorbit_export").glob("*.py"))
    key = digest(b"".join(source.read_bytes() for source in sources))
    folder = os.path.join(options.settings.work, "graphs", f"{size}-{key}")
    if not os.path.exists(folder):
        options.settings.say(f"exporting {size}")
        python = options.settings.venvs[""].python
        command = [python, "-m", "gorbit_export", "bert-classifier", "--config", size]
        call(options, [*command, "--out", folder])
    return folder


def go_test(options: Options, package: str) -> str:
    """The test binary of a package, made anew."""
    binary = os.path.join(options.settings.work, f"{os.path.basename(package)}.test")
    build = f"source .tf/env && go test -c -o {shlex.quote(binary)} ./{package}"
    call(options, ["bash", "-c", build])
    return binary


def work(options: Options, peer: object, job: plan.Job) -> None:
    """Runs a worker that is not measured."""
    from peers.base import Worker

    assert isinstance(peer, Worker)
    venv = options.settings.venvs[peer.venv]
    if venv.error:
        raise PrepareError(f"{peer.venv}: {venv.error}")
    call(options, peer.command(job, venv.python))


def call(options: Options, command: Sequence[str], cwd: str | None = None) -> str:
    """Runs a command that is not measured, and gives what it prints.

    Raises:
        PrepareError: if it fails, with its last words.
    """
    done = subprocess.run(
        command,
        cwd=cwd or options.settings.root,
        env=machine.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PrepareError(f"{' '.join(command[:4])} ...: {said[-1] if said else 'failed'}")
    return done.stdout


def digest(content: bytes) -> str:
    """A short name for what files hold."""
    return hashlib.sha256(content).hexdigest()[:8]
