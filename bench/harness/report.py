"""Writes the section of a suite: title, table and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness import machine, stats, tables
from harness.gpu import Gpu
from peers.base import variants

if TYPE_CHECKING:
    from peers.base import Peer

VERSIONS = (
    "gorbit",
    "tensorflow",
    "tf_keras",
    "keras",
    "keras_hub",
    "torch",
    "transformers",
    "tokenizers",
    "onnxruntime",
    "ctranslate2",
    "llama_cpp_python",
)
"""Names of versions, in the order in which they are printed."""

Cells = Callable[[stats.Variant], list[str]]


def rows(
    peers: Sequence[Peer],
    lines: Sequence[stats.Line],
    cells: Cells,
    width: int,
    gpu: bool = False,
) -> list[list[str]]:
    """Returns a row for each variant of each peer, also for failed ones.

    Args:
        peers: the peers that were selected.
        lines: raw results.
        cells: returns the cells between the name and the runs.
        width: the number of these cells.
        gpu: whether they were measured on the GPU.
    """
    by = stats.variants(lines)
    table = []
    for peer in peers:
        for variant in variants(peer, gpu):
            runs = by.get((peer.name, variant.name), stats.Variant((), 0, False, ("was not run",)))
            if runs.lines:
                table.append([variant.title, *cells(runs), counted(runs)])
            else:
                reason = tables.cell(runs.errors[0])
                table.append([variant.title, *[""] * width, f"failed: {reason}"])
    return table


def counted(runs: stats.Variant) -> str:
    """Returns the number of runs behind a row, and what happened to the others."""
    text = str(len(runs.lines))
    if runs.only_disturbed:
        text += ", all disturbed"
    if runs.discarded:
        text += f", {runs.discarded} disturbed left out"
    if runs.errors:
        text += f", {len(runs.errors)} failed: {tables.cell(runs.errors[0])}"
    return text


def versions(lines: Sequence[stats.Line]) -> str:
    """Returns the versions that the runs reported, by peer."""
    told: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        known = told.setdefault(line["peer"], {})
        for name in VERSIONS:
            if name in line and line[name] not in known.setdefault(name, []):
                known[name].append(line[name])
    return "; ".join(
        f"{peer}: "
        + ", ".join(
            f"{name.replace('_', '-')} {' and '.join(known[name])}"
            for name in VERSIONS
            if name in known
        )
        for peer, known in told.items()
        if known
    )


def surroundings(lines: Sequence[stats.Line], gpu: Gpu | None = None) -> str:
    """Describes the machine, the times and the versions in a sentence or two."""
    machines = dict.fromkeys(line.get("machine") or machine.told() for line in lines)
    text = f"{f'{gpu}, ' if gpu else ''}{' and '.join(machines)}."
    begun = sorted({line["round"]: line["at"] for line in reversed(lines) if "at" in line}.items())
    if begun:
        text += f" Rounds begun at {', '.join(at for _, at in begun)}."
    known = versions(lines)
    return f"{text} {known}." if known else text
