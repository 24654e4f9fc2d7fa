"""Programs that run at the same time as the measured one, as part of the same run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO

from harness import machine

START_SECONDS = 60.0
"""Time limit for a program to start to listen."""

STOP_SECONDS = 10.0
"""Time limit for programs to end after they are asked to."""

_PERIOD = 0.1


class StartError(Exception):
    """A program could not be started or does not listen."""


@dataclasses.dataclass(frozen=True)
class Companion:
    """A program that is started before the measured one and ended after it.

    Attributes:
        command: what starts it.
        port: where it listens before the observed program starts; 0 if nobody waits for it.
    """

    command: Sequence[str]
    port: int = 0


class Beside:
    """The companions of one run, with all processes that they start; a context manager."""

    def __init__(self, companions: Sequence[Companion], env: dict[str, str], cwd: str) -> None:
        """Starts nothing yet."""
        self._companions, self._env, self._cwd = companions, env, cwd
        self._running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self._family: list[int] = []
        self._peak = 0
        self._seconds = 0.0

    def __enter__(self) -> Beside:
        """Starts all programs, and waits until those with a port listen.

        Raises:
            StartError: if one cannot be started, ends, or does not listen in time.
        """
        try:
            for companion in self._companions:
                self._start(companion)
            for companion in self._companions:
                self._wait(companion)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends all programs."""
        self.stop()

    def _start(self, companion: Companion) -> None:
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the program
        try:
            child = subprocess.Popen(
                companion.command,
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as err:
            said.close()
            raise StartError(f"{companion.command[0]}: {err.strerror}") from err
        self._running.append((child, said))

    def _wait(self, companion: Companion) -> None:
        until = time.monotonic() + START_SECONDS
        while companion.port and not machine.listening(companion.port):
            if failure := self.failure():
                raise StartError(failure)
            if time.monotonic() > until:
                raise StartError(
                    f"{os.path.basename(companion.command[0])} did not listen on port "
                    f"{companion.port} within {START_SECONDS:.0f} s"
                )
            time.sleep(_PERIOD)

    def failure(self) -> str:
        """Returns why the first failed program failed, or "" if none did."""
        for child, said in self._running:
            if child.poll():
                said.seek(0)
                last = words(said.read())
                name = os.path.basename(str(child.args[0]))  # type: ignore[index]
                return f"{name} beside it: exit code {child.returncode}: {last}"
        return ""

    def sample(self) -> None:
        """Records the processes and their peak memory."""
        if self._running:
            self._family = machine.family([child.pid for child, _ in self._running])
            self._peak = max(self._peak, sum(map(machine.peak_bytes, self._family)))

    @property
    def peak_bytes(self) -> int:
        """Returns the largest sum of the processes' peak memory."""
        return self._peak

    def seconds(self) -> float:
        """Returns the processor seconds of the processes in the last sample; it never decreases."""
        stats = (machine.read(f"/proc/{pid}/stat") for pid in self._family)
        # Those of a program that has ended cannot be read any more.
        self._seconds = max(self._seconds, sum(map(machine.process_seconds, stats)))
        return self._seconds

    def stop(self) -> None:
        """Asks the programs to end, then kills those that remain, and their children."""
        family = machine.family([child.pid for child, _ in self._running])
        began = {pid: machine.started(pid) for pid in family}
        for child, _ in self._running:
            if child.poll() is None:
                child.terminate()
        until = time.monotonic() + STOP_SECONDS
        for child, said in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, until - time.monotonic()))
            said.close()
        # The number of one that has ended may have been given to another process.
        left = [pid for pid, ticks in began.items() if ticks and machine.started(pid) == ticks]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child, _ in self._running:
            child.wait()
        while any(machine.started(pid) == began[pid] for pid in left):
            time.sleep(_PERIOD)
        self._running = []


def words(said: bytes) -> str:
    """Returns the last line of a program's output."""
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "said nothing"


def free_ports(count: int) -> list[int]:
    """Returns free ports of the loopback interface."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
