"""Code that the suites share: the options of the command line, and where results go."""

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
    """The options of the command line.

    Attributes:
        settings: the settings of all runs.
        sizes: keys of plan.SIZES.
        lengths: of plan.LENGTHS.
        peers: names of the peers to train with; empty means all.
        parts: names of the parts of the suite of generation; empty means all.
        run: a run of a translating model to measure, or "" for one that is trained.
        steps: timed steps of a run; 0 takes the default of the size.
        add: whether to keep the rounds of earlier measurements.
        quick: whether to run the fewest steps.
        gorbit: the program. `version` is the version that it reports.
        docs: the document for all tables, or None for the page of each table.
        results: folder for raw lines.
        pairs: file of text pairs to classify, or None.
        vocab: vocabulary for texts.
        text: file of texts to tokenize, or None.
    """

    settings: runs.Settings
    sizes: Sequence[str]
    lengths: Sequence[str]
    peers: Sequence[str]
    parts: Sequence[str]
    run: str
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
        """Returns the path for the tables of docs/measurements/NAME, or None with --quick."""
        return self.docs or (
            None if self.quick else os.path.join(ROOT, "docs", "measurements", name)
        )

    def steps_of(self, size: str) -> int:
        """Returns the timed steps for a model of a size."""
        if self.settings.on_gpu:
            known = plan.GPU_QUICK_STEPS if self.quick else plan.GPU_STEPS
        else:
            known = plan.QUICK_STEPS if self.quick else plan.STEPS
        return self.steps or known[size]

    @property
    def suffix(self) -> str:
        """The end of the names of results, which differs by device and instruction set."""
        if self.settings.on_gpu:
            return "-gpu"
        return f"-{self.settings.isa}" if self.settings.isa else ""

    def titled(self, title: str) -> str:
        """Returns the title with the GPU, or with the limit of the processor's instructions."""
        if self.settings.gpu:
            return f"{title}, on one {self.settings.gpu.name}"
        if not self.settings.isa:
            return title
        told = " ".join(f"{k}={v}" for k, v in machine.ISA[self.settings.isa].items())
        return f"{title}, kept to {self.settings.isa.upper()} by {told}"


REVIEWS = os.path.join(ROOT, ".cache", "reviews", "reviews.txt")
"""The demo's movie reviews: id, score and snippet on each line."""

BESIDE = os.path.join(os.path.dirname(ROOT), "shared", "data")
"""The folder of real data next to the checkout, which need not exist."""


def beside(*names: str) -> str | None:
    """Returns a file of the data next to the checkout, or None if it does not exist."""
    path = os.path.join(BESIDE, *names)
    return path if os.path.exists(path) else None


def reviews() -> list[str]:
    """Returns the demo's reviews without ids and scores."""
    with open(REVIEWS, encoding="utf-8", errors="replace") as lines:
        return [line.rstrip("\n").split("\t")[-1] for line in lines]


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a suite, with its own raw lines and table.

    Attributes:
        name: the name of the raw lines and the table.
        steps: timed steps of a run, or 0 if it has no steps.
        peers: names of the measured peers; empty means all.
    """

    name: str
    steps: int = 0
    peers: Sequence[str] = ()


class PrepareError(Exception):
    """Something that the measurements need could not be made."""


def publish(
    options: Options,
    name: str,
    title: str,
    text: str,
    lines: Sequence[stats.Line],
    only: Sequence[str],
    document: str = "benchmarks.md",
) -> None:
    """Prints a part, saves its raw lines, and writes its table to a document.

    `only` are the arguments that select this part alone.
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
    """Returns the command that measures a part with the largest number of rounds of a row."""
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
    """Returns the lines of a part with steps and version, after those of kept earlier rounds."""
    for line in lines:
        line["steps"] = steps
        if line["peer"].startswith("gorbit"):
            line["gorbit"] = options.version
    return runs.joined(runs.load(raw(options, name)) if options.add else [], lines)


def earlier(options: Options, name: str) -> list[stats.Line]:
    """Returns the saved lines of a part, and prints a message if there are none."""
    lines = runs.load(raw(options, name))
    if not lines:
        options.settings.say(f"{name}: {raw(options, name)} has no lines")
    return lines


def raw(options: Options, name: str) -> str:
    """Returns the file of a part's raw lines."""
    return os.path.join(options.results, f"{name}{options.suffix}.jsonl")


def expected(options: Options, part: Part) -> float | None:
    """Returns the seconds of an undisturbed round of a part, or None if it was never measured.

    They come from the raw lines of the checkout, which may have another number of steps.
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
    """Returns the seconds that a run would take with this many timed steps."""
    if "examples_per_s" not in line:
        return line["seconds"]
    each = plan.BATCH / line["examples_per_s"]
    whole = line.get("seconds", line["first_step_s"] + (plan.WARM_STEPS + line["steps"] - 1) * each)
    return whole + (steps - line["steps"]) * each


def data(options: Options, lengths: str) -> tuple[str, float]:
    """Returns the folder of the examples, made if needed, and their mean length."""
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


def graph(
    options: Options,
    size: str,
    task: str = "classification",
    data: str = "",
    precision: str = "float32",
) -> str:
    """Returns the export of a BERT of a size for a task, made if needed.

    `data` is the folder of the records, which some tasks need.
    """
    flags = ["--task", task, *(["--data", data] if data else [])]
    name = f"{size}-{task}"
    if precision != "float32":
        flags += ["--precision", precision]
        name += f"-{precision}"
    return _export(options, name, "bert", size, flags)


def exported(options: Options, name: str, family: str, config: str, data: str, *flags: str) -> str:
    """Returns the export of the model of a config.json for data, made if needed.

    `name` has to say what the flags are.
    """
    key = digest(pathlib.Path(config).read_bytes())
    return _export(options, f"{name}-{key}", family, config, ["--data", data, *flags])


def _export(options: Options, name: str, family: str, config: str, flags: Sequence[str]) -> str:
    sources = sorted(pathlib.Path(options.settings.root, "tools", "gorbit_export").rglob("*.py"))
    key = digest(b"".join(source.read_bytes() for source in sources))
    folder = os.path.join(options.settings.work, "graphs", f"{name}-{key}")
    if not os.path.exists(folder):
        options.settings.say(f"exporting {name}")
        python = options.settings.venvs[""].python
        command = [python, "-m", "gorbit_export", family, "--config", config, *flags]
        call(options, [*command, "--out", folder])
    return folder


def equal_share(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Returns the share of texts that are equal."""
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)


def go_test(options: Options, package: str) -> str:
    """Builds and returns the test binary of a package."""
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
    """Runs a command that is not measured, and returns its output.

    Raises:
        PrepareError: if it fails, with the last line of its output.
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
    """Returns a short checksum of the content of files."""
    return hashlib.sha256(content).hexdigest()[:8]
