"""The exception of the package."""

from __future__ import annotations


class Error(Exception):
    """What is wrong, in the one sentence of the program, without its name in front.

    Attributes:
        code: the exit code of the program: 1 failed, 2 usage, 3 damaged data, 75 stopped by a
            signal before there was a result; below 0 the number of the signal that ended it. 1 if
            no program was run.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        """Makes an exception of a sentence and an exit code."""
        super().__init__(message)
        self.code = code
