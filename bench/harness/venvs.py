"""The peers' Python environments."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Venv:
    """An environment.

    Attributes:
        python: its interpreter.
        error: why it is not to be had, "" if it is.
    """

    python: str
    error: str = ""


def existing(folder: str, name: str) -> Venv:
    """Returns an existing environment `name` in a folder."""
    python = os.path.join(os.path.abspath(folder), name, "bin", "python")
    return Venv(python, "" if os.access(python, os.X_OK) else f"{python} is not there")


def install(
    folder: str, name: str, requirements: Sequence[str], say: Callable[[str], None]
) -> Venv:
    """Makes an environment from requirements files, unless it exists.

    Nothing but what the files name is installed: they are complete, and leave out
    dependencies that would overwrite others. One process at a time makes it, and others
    wait.
    """
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that installs into {os.path.join(folder, name)}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        return _install(os.path.join(folder, name), requirements, say)


def _install(home: str, requirements: Sequence[str], say: Callable[[str], None]) -> Venv:
    """Makes an environment as install does, whose lock is held."""
    python = os.path.join(home, "bin", "python")
    stamp = os.path.join(home, "bench-stamp")
    content = b"".join(pathlib.Path(file).read_bytes() for file in requirements)
    want = hashlib.sha256(content + sys.version.encode()).hexdigest()
    if os.path.exists(stamp):
        with open(stamp) as file:
            if file.read() == want:
                return Venv(python)
    files = " and ".join(map(os.path.basename, requirements))
    say(f"installing {files} into {home}; this happens once")
    shutil.rmtree(home, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    named = [word for file in requirements for word in ("--requirement", file)]
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", home],
        [*pip, "install", "--quiet", "--no-input", "--no-deps", *named],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as err:
            return Venv(python, f"could not be installed: {command[0]}: {err.strerror}")
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            why = next(
                (line for line in said if line.startswith("ERROR")), said[-1] if said else ""
            )
            return Venv(python, f"could not be installed: {why}")
    with open(stamp, "w") as file:
        file.write(want)
    return Venv(python)
