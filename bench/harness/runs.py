"""Runs the entries of a plan in turn and collects their results."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness import companions, machine, plan, process, stats
from harness.gpu import Gpu
from harness.venvs import Venv

if TYPE_CHECKING:
    from peers.base import Peer, Variant


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of all runs.

    Attributes:
        root: the checkout.
        work: folder for temporary files.
        venvs: the peers' environments by name; "" is the project's.
        rounds: how often each variant runs.
        retries: how often a disturbed run is repeated.
        timeout: seconds after which a run is ended.
        isa: a key of machine.ISA, or None.
        lock: file whose lock is held during every run, or None.
        say: prints a line.
        gpu: the GPU to measure on, or None.
    """

    root: str
    work: str
    venvs: dict[str, Venv]
    rounds: int
    retries: int
    timeout: float
    isa: str | None
    lock: str | None
    say: Callable[[str], None]
    gpu: Gpu | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether the GPU is measured."""
        return self.gpu is not None


@dataclasses.dataclass(frozen=True)
class Entry:
    """A variant of a peer, its job, and the function that computes its numbers."""

    peer: Peer
    variant: Variant
    job: plan.Job
    numbers: Callable[[process.Observation], stats.Line]


def once(settings: Settings, entry: Entry, number: int) -> stats.Line:
    """Runs an entry, repeats it if it was disturbed, and returns the line of its last run.

    `repeated` counts the disturbed runs before it.
    """
    line: stats.Line = {}
    for attempt in range(settings.retries + 1):
        line = _attempt(settings, entry, number)
        if attempt:
            line["repeated"] = attempt
        if "error" in line or not stats.disturbed(line):
            break
    return line


def _attempt(settings: Settings, entry: Entry, number: int) -> stats.Line:
    line: stats.Line = {
        "peer": entry.peer.name,
        "variant": entry.variant.name,
        "round": number,
        "at": datetime.datetime.now().isoformat(" ", "minutes"),
        "machine": machine.told(),
    }
    venv = settings.venvs[entry.peer.venv]
    if venv.error:
        return {**line, "error": venv.error}
    os.makedirs(settings.work, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="run-", dir=settings.work)
    try:
        job = dataclasses.replace(entry.job, scratch=scratch, ports=companions.free_ports(2))
        with process.exclusive(settings.lock):
            seen = process.observe(
                entry.peer.command(job, venv.python),
                entry.peer.parse,
                machine.environment(settings.isa, settings.on_gpu, **entry.variant.env),
                settings.root,
                settings.timeout,
                entry.peer.beside(job, venv.python),
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    line.update(rounded({**seen.info, **entry.numbers(seen)}))
    return line


def rounded(line: stats.Line) -> stats.Line:
    """Returns the line with its numbers rounded to six digits."""
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in line.items()}


def everything(settings: Settings, entries: Sequence[Entry]) -> list[stats.Line]:
    """Runs all entries in turn, round by round.

    An entry that failed is not run again. Its line has the reason.
    """
    lines: list[stats.Line] = []
    failed: set[int] = set()
    indices = range(len(entries))
    for number, i in plan.interleave(indices, settings.rounds):
        if i in failed:
            continue
        line = once(settings, entries[i], number)
        if "error" in line:
            failed.add(i)
        lines.append(line)
        settings.say(told(line))
    return lines


def told(line: stats.Line) -> str:
    """Formats a line for a terminal."""
    text = f"  {line['round']}. {line['peer']} {line['variant']}: "
    if "error" in line:
        return text + "FAILED: " + line["error"]
    if "examples_per_s" in line:
        text += f"{line['examples_per_s']:.4g} examples/s, "
        text += f"first step after {line['first_step_s']:.1f} s, "
    else:
        text += f"{line['rate']:.4g}/s, "
    text += f"{line['peak_gb']:.2f} GB"
    if stats.disturbed(line):
        text += f", DISTURBED: others kept {line['others']:.2f} cores busy"
    return text


def load(path: str) -> list[stats.Line]:
    """Reads raw lines. Returns none if there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def joined(earlier: Sequence[stats.Line], later: Sequence[stats.Line]) -> list[stats.Line]:
    """Joins the lines of two measurements. The later rounds get the next numbers."""
    before = max((line["round"] for line in earlier), default=0)
    return [*earlier, *({**line, "round": before + line["round"]} for line in later)]


def save(path: str, lines: Sequence[stats.Line]) -> None:
    """Writes raw lines, replacing the whole file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    os.replace(path + ".tmp", path)
