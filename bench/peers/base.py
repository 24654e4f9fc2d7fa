"""The interface of a peer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Protocol

from harness import lines, plan
from harness.companions import Companion

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(BENCH)

ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "1"}


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to run a peer.

    Attributes:
        name: its name in jobs and results, a word.
        title: its row in tables.
        env: environment variables that it sets.
        on: what it is run on, "cpu", "gpu" or both.
    """

    name: str
    title: str
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    on: Sequence[str] = ("cpu", "gpu")


class Peer(Protocol):
    """A program that is measured.

    Attributes:
        name: a word.
        venv: the environment that it runs in, the name of a requirements file; "" needs none.
        variants: at least one.
    """

    name: str
    venv: str
    variants: Sequence[Variant]

    def command(self, job: plan.Job, python: str) -> list[str]:
        """The command that runs a job, with the environment's Python."""
        ...

    def beside(self, job: plan.Job, python: str) -> list[Companion]:
        """Returns the programs that run beside the command and end with it."""
        ...

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Parses a line of the command's output."""
        ...


def variants(peer: Peer, gpu: bool) -> list[Variant]:
    """The peer's variants that are run on the GPU, or those on the CPU."""
    return [v for v in peer.variants if ("gpu" if gpu else "cpu") in v.on]


class Alone:
    """A peer beside whose command nothing runs."""

    def beside(self, job: plan.Job, python: str) -> list[Companion]:
        """Nothing."""
        del job, python
        return []


class Worker(Alone):
    """A peer in Python: a subclass implements `run`, which its own environment executes.

    Subclasses import nothing but the standard library at their top, since the
    orchestrator imports them as well.
    """

    name: str
    venv: str
    variants: Sequence[Variant]

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Starts run_peer.py."""
        return [python, os.path.join(BENCH, "run_peer.py"), self.name, job.to_json()]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Reads what the worker's Reporter prints."""
        return lines.parse(line)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Does the job and reports its steps."""
        raise NotImplementedError
