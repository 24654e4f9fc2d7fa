"""What scripts share that train with gorbit and with a peer, each in a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from harness import cli, machine, venvs
from peers.base import BENCH


class Comparison:
    """Runs the programs of a script, which ends with the first of them that fails."""

    def __init__(
        self, script: str, gorbit: str, venv: str, existing: str | None, beneath: Sequence[str] = ()
    ) -> None:
        """Finds or makes the peer's environment.

        Args:
            script: name of the script, which errors begin with.
            gorbit: the program.
            venv: the environment, by its requirements file.
            existing: folder of environments that are there, instead of bench's own.
            beneath: requirements files of what the environment builds on.
        """
        self._script, self._gorbit_program = script, gorbit
        if existing:
            found = venvs.existing(existing, venv)
        else:
            home, files = cli.requirements(venv, False)
            below = [os.path.join(BENCH, "requirements", f"{name}.txt") for name in beneath]
            work = os.path.join(BENCH, ".work", "venvs")
            found = venvs.install(work, home, [*below, *files], cli.say)
        if found.error:
            sys.exit(f"{script}: {found.error}")
        self._python = found.python

    def _call(self, *command: str) -> None:
        """Runs a command of gorbit."""
        self._run([self._gorbit_program, *command], machine.environment())

    def _run(self, command: list[str], env: dict[str, str]) -> None:
        cli.say(" ".join(command))
        done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL)
        self._end(command[0], done.returncode)

    def _follow(self, name: str, command: list[str]) -> Iterator[tuple[int, str]]:
        """Yields the number of the process and each line that it prints, as they come."""
        env = machine.environment()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            for line in process.stdout:
                yield process.pid, line.rstrip("\n")
        self._end(name, process.returncode)

    def _end(self, name: str, code: int) -> None:
        if code:
            sys.exit(f"{self._script}: {name} ended with exit code {code}")
