"""Counts what a program that XLA compiled for a GPU starts there."""

from __future__ import annotations

import re

FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
"""Instructions of a GPU's program that start no kernel."""


def kernels(program: str) -> int:
    """Counts the kernels that the text of a compiled program for a GPU starts.

    Those of a call, which is a graph of CUDA, and of a loop's body are counted once.
    """
    bodies = dict(re.findall(r"^(?:ENTRY )?%([\w.-]+) [^\n]*\{\n(.*?)^\}", program, re.M | re.S))

    def started(name: str) -> int:
        out = 0
        for op, rest in re.findall(r" = (?:\(.*?\)|\S+) ([\w-]+)\((.*)", bodies[name]):
            called = re.search(r"(?:to_apply|body)=%([\w.-]+)", rest)
            if op in ("call", "while") and called:
                out += started(called[1])
            else:
                out += op not in FREE and not op.endswith("-done")
        return out

    return started(re.search(r"^ENTRY %([\w.-]+)", program, re.M)[1])
