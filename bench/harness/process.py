"""Runs one program and observes it from outside."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness import machine
from harness.companions import Beside, Companion, StartError, words
from harness.lines import Info, Mark

DISTURBED = 0.1
"""Number of cores that other processes may keep busy before a run counts as disturbed."""

_PERIOD = 0.25


@dataclasses.dataclass(frozen=True)
class Stamp:
    """A mark with its time.

    Attributes:
        at: seconds since the program's start.
        busy: processor seconds of the whole machine since then.
        own: processor seconds of the program and of its companions since then.
    """

    mark: Mark
    at: float
    busy: float
    own: float


@dataclasses.dataclass
class Observation:
    """The observations of a run.

    Attributes:
        stamps: marks in the order of their arrival.
        info: what the program reported about itself.
        seconds: from start to end.
        others: the average number of cores that other processes kept busy, from start to end.
        peak_bytes: the peak memory of the program and of its companions.
        error: why the run failed, or "" if it did not.
    """

    stamps: list[Stamp] = dataclasses.field(default_factory=list)
    info: dict[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    others: float = 0.0
    peak_bytes: int = 0
    error: str = ""


@contextlib.contextmanager
def exclusive(path: str | None) -> Iterator[None]:
    """Holds the lock of a file, so that measurements of several users do not overlap."""
    if not path:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def observe(
    command: Sequence[str],
    parse: Callable[[str], Mark | Info | None],
    env: dict[str, str],
    cwd: str,
    timeout: float,
    companions: Sequence[Companion] = (),
) -> Observation:
    """Runs a command to its end and records the time of each mark in its output.

    Companions run at the same time. If one fails before the command ends, the command is ended.
    """
    seen = Observation()
    busy, start = _busy(), time.perf_counter()
    try:
        with tempfile.TemporaryFile() as errors, Beside(companions, env, cwd) as beside:
            child = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            with _watched(child, beside, timeout) as ended:
                stat = f"/proc/{child.pid}/stat"
                tail: list[str] = []
                for raw in child.stdout or ():
                    at = time.perf_counter() - start
                    line = raw.decode(errors="replace").rstrip()
                    event = parse(line)
                    if isinstance(event, Mark):
                        own = machine.process_seconds(machine.read(stat)) + beside.seconds()
                        seen.stamps.append(Stamp(event, at, _busy() - busy, own))
                    elif isinstance(event, Info):
                        seen.info.update(event.values)
                    elif line:
                        tail = [*tail[-4:], line]
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
            seen.seconds = time.perf_counter() - start
            own = usage.ru_utime + usage.ru_stime + beside.seconds()
            seen.others = max(0.0, (_busy() - busy - own) / seen.seconds)
            seen.peak_bytes = usage.ru_maxrss * 1024 + beside.peak_bytes
            if ended:
                seen.error = ended[0]
            elif child.returncode != 0:
                errors.seek(0)
                said = words(errors.read() or "\n".join(tail).encode())
                seen.error = f"exit code {child.returncode}: {said}"
    except StartError as err:
        seen.error = str(err)
    except OSError as err:
        seen.error = f"{command[0]}: {err.strerror}"
    return seen


@contextlib.contextmanager
def _watched(child: subprocess.Popen[bytes], beside: Beside, timeout: float) -> Iterator[list[str]]:
    """Ends a program that takes too long or whose companions fail, and returns the reason."""
    over, reasons = threading.Event(), []
    until = time.monotonic() + timeout

    def watch() -> None:
        while not over.wait(_PERIOD):
            beside.sample()
            reason = beside.failure()
            if time.monotonic() > until:
                reason = f"took longer than {timeout:.0f} s"
            if reason:
                reasons.append(reason)
                _kill(child)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield reasons
    finally:
        over.set()
        watcher.join()
        if child.returncode is None:
            _kill(child)
            child.wait()


def _busy() -> float:
    return machine.busy_seconds(machine.read("/proc/stat"))


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
