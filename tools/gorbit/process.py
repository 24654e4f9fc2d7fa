"""Runs the program for Python: its output, its events, its errors, and Ctrl-C."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, Callable, Final

from gorbit import programs
from gorbit.errors import Error
from gorbit.progress import Progress

Callback = Callable[[dict[str, Any]], object]
STOPPED = 75
"""The exit code of a program that was told to stop, and has saved."""


class _Stop:
    def __repr__(self) -> str:
        return "gorbit.STOP"


STOP: Final = _Stop()
"""What a callback returns to have the training save and stop."""


def flags(params: Mapping[str, Any]) -> list[str]:
    """Returns the flags of keyword arguments: batch_size=8 is --batch-size=8.

    None is left out. A list or a tuple repeats the flag. So does a dict, as NAME=VALUE:
    set={"seed": 2, "data.rows": 16}.
    """
    out: list[str] = []
    for name, value in params.items():
        values = value
        if isinstance(value, Mapping):
            values = [f"{key}={_text(name, one)}" for key, one in value.items()]
        elif not isinstance(value, (list, tuple)):
            values = [] if value is None else [value]
        out += [f"--{name.replace('_', '-')}={_text(name, one)}" for one in values]
    return out


def _text(name: str, value: object) -> str:
    """Returns a value as it is typed after a flag."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, (list, tuple)):  # of a dict: a list of YAML
        return "[" + ", ".join(_text(name, one) for one in value) + "]"
    item = getattr(value, "item", None)  # a number of NumPy
    if callable(item) and getattr(value, "ndim", None) == 0:
        return _text(name, item())
    raise Error(
        f"{name} is {value!r}, of type {type(value).__name__}; expected a string, a number, a "
        "bool, a path, a list or a dict of these",
        2,
    )


class Process:
    """A program that runs, and what it says."""

    def __init__(
        self, args: Sequence[str], callbacks: Iterable[Callback] = (), progress: bool = True
    ) -> None:
        """Makes a process of gorbit with arguments, which run starts."""
        self.args = [os.fspath(programs.program("gorbit")), *args]
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            if not callable(callback):
                raise Error(f"a callback is {callback!r}; expected a function of an event", 2)
        self.display = Progress(progress)
        self.output: list[str] = []  # lines of standard output
        self._said: list[str] = []  # of standard error, without events
        self._failure: BaseException | None = None  # why Python told the program to stop

    def run(self, show: bool) -> int:
        """Runs the program to its end, and returns 0 or STOPPED.

        Args:
            show: whether its standard output is shown, too.

        Raises:
            Error: with the program's sentence, if it fails, or is stopped and its output not shown.
            KeyboardInterrupt: after the program has saved and stopped.
            Exception: what a callback raised, after the program has saved and stopped.
        """
        lines: queue.SimpleQueue[tuple[bool, str | None]] = queue.SimpleQueue()
        # A session of its own: a terminal would send Ctrl-C to both, and two signals end the
        # program at once.
        child = subprocess.Popen(
            self.args,
            env=programs.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        for stream, error in ((child.stdout, False), (child.stderr, True)):
            threading.Thread(target=_read, args=(stream, error, lines), daemon=True).start()
        pending = 2
        while pending:
            try:
                error, text = lines.get()
                if text is None:
                    pending -= 1
                else:
                    self._take(child, text, error, show)
            except BaseException as err:
                self._stop(child, err)
        while True:
            try:
                code = child.wait()
                break
            except KeyboardInterrupt as err:
                self._stop(child, err)
        self.display.close()
        if isinstance(self._failure, Exception):
            raise self._failure
        if self._failure:  # KeyboardInterrupt and SystemExit
            raise self._failure
        if code == STOPPED and not show:  # what was written is not all
            raise Error("the program was stopped by a signal; expected it to end by itself", code)
        if code not in (0, STOPPED):
            raise Error(self._sentence(code), code)
        return code

    def _take(self, child: subprocess.Popen[str], text: str, error: bool, show: bool) -> None:
        """Takes a line of the program."""
        if not error:
            self.output.append(text)
            if show:
                self.display.line(text)
            return
        if not text.startswith('{"e'):
            self._said.append(text)
            if not text.startswith("gorbit: "):  # the sentence of an error, which is raised
                self.display.line(text, error=True)
            return
        event = json.loads(text)
        self.display.event(event)
        if event["event"] not in ("metrics", "save"):
            return
        if event["event"] == "metrics":
            event["metrics"] = {name: float(v) for name, v in event["metrics"].items()}
        for callback in self.callbacks:
            if self._failure:
                return  # the program stops, and nobody waits for more
            answer = callback(event)
            if answer is STOP:
                self._signal(child)
                self.callbacks = []
            elif answer is not None:
                raise Error(f"a callback returned {answer!r}; expected None or gorbit.STOP", 2)

    def _stop(self, child: subprocess.Popen[str], err: BaseException) -> None:
        """Tells the program to save and stop; a second time, to stop at once."""
        if self._failure is None or isinstance(err, KeyboardInterrupt):
            self._signal(child)
        self._failure = self._failure or err

    @staticmethod
    def _signal(child: subprocess.Popen[str]) -> None:
        # Whoever starts Python without SIGINT, as a shell does in the background, has the program
        # start without it, too.
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        child.send_signal(signal.SIGTERM if ignored else signal.SIGINT)

    def _sentence(self, code: int) -> str:
        """Returns the sentence of the program's error."""
        last = next(
            (i for i in reversed(range(len(self._said))) if self._said[i].startswith("gorbit: ")),
            None,
        )
        if last is not None and code > 0:
            return "\n".join(self._said[last:]).removeprefix("gorbit: ")
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        said = f": {self._said[-1]}" if self._said else ""
        return f"the program {how}{said}"


def _read(stream: IO[str], error: bool, lines: queue.SimpleQueue[tuple[bool, str | None]]) -> None:
    """Puts the lines of a stream into a queue, and None at its end."""
    with stream:
        for line in stream:
            lines.put((error, line.rstrip("\n")))
    lines.put((error, None))
