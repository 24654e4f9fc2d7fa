"""The lines with which a run reports its progress.

A worker in Python prints

    bench: step N              N steps are done
    bench: step N tokens T     the same; these steps had T real tokens
    bench: info {...}          versions and settings

Other programs have parsers of their own, which return the same marks. A mark's time is when its
line arrives, so that all peers share one clock.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

_STEP = re.compile(r"bench: step (\d+)(?: tokens (\d+))?$")
_INFO = "bench: info "


@dataclasses.dataclass(frozen=True)
class Mark:
    """The progress of a run.

    Attributes:
        done: steps, examples or answers so far.
        tokens: real tokens so far, if the run counts them.
    """

    done: int
    tokens: int | None = None


@dataclasses.dataclass(frozen=True)
class Info:
    """Versions and settings, by name."""

    values: dict[str, Any]


def answers(scores: Sequence[float]) -> Info:
    """Returns the number of answers and the mean of their probabilities."""
    return Info({"answers": len(scores), "mean_score": sum(scores) / len(scores)})


class Reporter:
    """Prints the lines of a worker."""

    def __init__(self) -> None:
        """Starts at no step."""
        self._tokens: int | None = None

    def step(self, done: int, tokens: int | None = None) -> None:
        """Reports that `done` steps are done, the latest ones with `tokens` tokens."""
        if tokens is None:
            print(f"bench: step {done}", flush=True)
            return
        self._tokens = (self._tokens or 0) + tokens
        print(f"bench: step {done} tokens {self._tokens}", flush=True)

    def info(self, **values: object) -> None:
        """Reports versions and settings."""
        print(_INFO + json.dumps(values), flush=True)


def parse(line: str) -> Mark | Info | None:
    """Parses a worker's line; None for any other line."""
    if match := _STEP.match(line):
        return Mark(int(match[1]), int(match[2]) if match[2] else None)
    if line.startswith(_INFO):
        return Info(json.loads(line[len(_INFO) :]))
    return None
