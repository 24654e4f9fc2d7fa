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
        name: its name in jobs and results, one word.
        title: the name of its row in tables.
        env: environment variables that it sets.
        on: the devices that it runs on: "cpu", "gpu" or both.
    """

    name: str
    title: str
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    on: Sequence[str] = ("cpu", "gpu")


class Peer(Protocol):
    """A measured program.

    Attributes:
        name: one word.
        venv: its environment, named after a requirements file; "" if it needs none.
        variants: at least one.
    """

    name: str
    venv: str
    variants: Sequence[Variant]

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Returns the command that runs a job; python is that of the environment."""
        ...

    def beside(self, job: plan.Job, python: str) -> list[Companion]:
        """Returns the companions: programs that run during the command and end with it."""
        ...

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Parses a line of the command's output."""
        ...


def variants(peer: Peer, gpu: bool) -> list[Variant]:
    """Returns the peer's variants for the GPU, or those for the CPU."""
    return [v for v in peer.variants if ("gpu" if gpu else "cpu") in v.on]


class Alone:
    """A peer without companions."""

    def beside(self, job: plan.Job, python: str) -> list[Companion]:
        """Returns none."""
        del job, python
        return []


class Worker(Alone):
    """A peer in Python. Subclasses implement `run`, which runs in the peer's environment.

    At the top of their files, subclasses import only the standard library, because the
    harness imports them too.
    """

    name: str
    venv: str
    variants: Sequence[Variant]

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Returns the command that starts run_peer.py."""
        return [python, os.path.join(BENCH, "run_peer.py"), self.name, job.to_json()]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Parses a line of the worker's Reporter."""
        return lines.parse(line)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Runs the job and reports its steps."""
        raise NotImplementedError
