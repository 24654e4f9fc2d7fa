"""Markdown tables, and their places in a document."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from harness.stats import Summary


def begin(name: str) -> str:
    """Returns the comment before a generated part."""
    return f"<!-- bench:begin {name} -->"


def end(name: str) -> str:
    """Returns the comment after a generated part."""
    return f"<!-- bench:end {name} -->"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table.

    Raises:
        ValueError: if a row has another number of cells than the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under {len(header)} titles: {row}")
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) for cells in lines
    )


def number(value: float) -> str:
    """Formats a number with three significant digits; from 1,000 on, whole and with commas."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(value: float) -> str:
    """A share, in whole percents."""
    return f"{value:.0%}"


def minutes(seconds: float) -> str:
    """A time in minutes, from two hours on in hours."""
    return (
        f"{seconds / 3600:.1f} hours" if seconds >= 7200 else f"{max(1, round(seconds / 60))} min"
    )


def spread(summary: Summary | None, written: Callable[[float], str] = number) -> str:
    """Formats the median, with the least and greatest if there are several values."""
    if summary is None:
        return ""
    if summary.count == 1:
        return written(summary.median)
    return f"{written(summary.median)} ({written(summary.least)} to {written(summary.greatest)})"


def middle(summary: Summary | None) -> str:
    """The median alone."""
    return "" if summary is None else number(summary.median)


def cell(text: str, most: int = 200) -> str:
    """Escapes text for a cell."""
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= most else text[: most - 3] + "..."


def replace(document: str, name: str, content: str, title: str) -> str:
    """The document with its part `name` replaced.

    A part that is not there is put at the end, under a title of its own. What
    stands outside the marks is not touched.

    Raises:
        ValueError: if one of the two marks is missing, doubled, or they are in the wrong order.
    """
    first, last = begin(name), end(name)
    part = f"{first}\n{content.strip()}\n{last}"
    counts = document.count(first), document.count(last)
    if counts == (0, 0):
        return f"{document.rstrip()}\n\n## {title}\n\n{part}\n"
    if counts != (1, 1) or document.index(first) > document.index(last):
        raise ValueError(f"the marks of {name} are not one pair: {first} ... {last}")
    head, tail = document.split(first)[0], document.split(last)[1]
    return head + part + tail


def write(path: str, name: str, content: str, title: str) -> None:
    """Replaces a part of a file, whole or not at all."""
    document = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            document = file.read()
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(replace(document, name, content, title))
    os.replace(path + ".tmp", path)
