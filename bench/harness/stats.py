"""Computes the numbers of a table from the observations of runs."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from harness import plan
from harness.process import DISTURBED, Observation, Stamp

Line = dict[str, Any]
"""A line of raw results: `peer`, `variant`, `round`, and either `error` or numbers."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """The least number, the median and the greatest number."""

    least: float
    median: float
    greatest: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary | None:
        """The summary of the values, None if there are none."""
        values = sorted(values)
        if not values:
            return None
        return cls(values[0], statistics.median(values), values[-1], len(values))


def others_busy(a: Stamp | None, b: Stamp) -> float:
    """Returns how many cores others kept busy between two stamps; None is the start."""
    at, busy, own = (a.at, a.busy, a.own) if a else (0.0, 0.0, 0.0)
    if b.at <= at:
        return 0.0
    return max(0.0, ((b.busy - busy) - (b.own - own)) / (b.at - at))


def training(seen: Observation, job: plan.Job, mean_tokens: float) -> Line:
    """The numbers of a training run.

    The rate is taken from the first mark after the warm-up to the last mark. Where
    the run counts its tokens, the rate in examples is that of tokens divided by the
    data's mean: its batches may hold shorter or longer examples than the average.
    """
    if seen.error:
        return {"error": seen.error}
    behind = [s for s in seen.stamps if s.mark.done >= job.warm_steps]
    if len(behind) < 2:
        return {"error": f"{len(behind)} marks behind the warm-up; expected 2 or more"}
    first, begin, end = seen.stamps[0], behind[0], behind[-1]
    if first.mark.done != 1:
        return {"error": f"the first mark was for {first.mark.done} steps; expected 1"}
    wall, steps = end.at - begin.at, end.mark.done - begin.mark.done
    if begin.mark.tokens is not None and end.mark.tokens is not None:
        tokens = (end.mark.tokens - begin.mark.tokens) / wall
    else:
        tokens = steps * plan.BATCH * mean_tokens / wall
    return {
        "examples_per_s": tokens / mean_tokens,
        "tokens_per_s": tokens,
        "tflops": tokens * job.shape.train_flop_per_token / 1e12,
        "steps": steps,
        "cores": (end.own - begin.own) / wall,
        "first_step_s": first.at,
        "seconds": seen.seconds,
        "peak_gb": seen.peak_bytes / 1e9,
        "others": max(others_busy(None, first), others_busy(begin, end)),
    }


def told(seen: Observation) -> Line:
    """Returns the numbers of a run that reports its rate, or by its first and last mark."""
    if seen.error:
        return {"error": seen.error}
    line: Line = {"seconds": seen.seconds, "peak_gb": seen.peak_bytes / 1e9, "others": seen.others}
    if "rate" in seen.info:
        line.update({k: seen.info[k] for k in ("rate", "cpu_us") if k in seen.info})
    elif len(seen.stamps) > 1 and seen.stamps[-1].at > seen.stamps[0].at:
        a, b = seen.stamps[0], seen.stamps[-1]
        line["rate"] = (b.mark.done - a.mark.done) / (b.at - a.at)
        line["cpu_us"] = (b.own - a.own) / (b.mark.done - a.mark.done) * 1e6
        line["others"] = max(seen.others, others_busy(a, b))
    else:
        return {"error": "said nothing of how fast it was"}
    return line


def disturbed(line: Line) -> bool:
    """Returns whether other processes kept the machine too busy for a line to count."""
    return line.get("others", 0.0) > DISTURBED


@dataclasses.dataclass(frozen=True)
class Variant:
    """All lines of one variant.

    Attributes:
        lines: those that count: undisturbed, or all good ones if every one was disturbed.
        discarded: how many disturbed lines do not count.
        only_disturbed: whether the lines that count were disturbed.
        errors: why the other lines have no numbers.
    """

    lines: Sequence[Line]
    discarded: int
    only_disturbed: bool
    errors: Sequence[str]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Variant:
        """Sorts the lines of one variant."""
        lines = list(lines)
        errors = [line["error"] for line in lines if "error" in line]
        good = [line for line in lines if "error" not in line]
        calm = [line for line in good if not disturbed(line)]
        if calm:
            return cls(calm, len(good) - len(calm), False, errors)
        return cls(good, 0, bool(good), errors)

    def summary(self, name: str) -> Summary | None:
        """The summary of one number."""
        return Summary.of(line[name] for line in self.lines if name in line)


def ratio(top: Variant, bottom: Variant, name: str) -> Summary | None:
    """Divides a number of one variant by that of another, round by round."""
    by = {line["round"]: line[name] for line in bottom.lines}
    return Summary.of(line[name] / by[line["round"]] for line in top.lines if line["round"] in by)


def variants(lines: Iterable[Line]) -> dict[tuple[str, str], Variant]:
    """The lines by peer and variant, in the order in which these occur first."""
    by: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        by.setdefault((line["peer"], line["variant"]), []).append(line)
    return {key: Variant.of(some) for key, some in by.items()}
