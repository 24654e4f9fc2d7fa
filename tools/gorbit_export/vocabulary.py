"""What an export must know of a tokenizer: its size and its special tokens."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

MASKS = ("[MASK]", "<mask>", "<|mask|>")
"""The tokens that hide others."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The special tokens of a vocab.txt, which does not say so itself."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer.

    Attributes:
        path: its file.
        size: number of tokens.
        mask: number of the token that hides others; None if there is none.
        special: numbers of the special tokens.
    """

    path: pathlib.Path
    size: int
    mask: int | None
    special: tuple[int, ...]


def load(path: pathlib.Path) -> Vocabulary:
    """Reads a vocab.txt, a tokenizer.json, or the one that a folder has.

    Raises:
        ValueError: if the file is neither.
        OSError: if it cannot be read.
    """
    if path.is_dir():
        there = [path / name for name in ("tokenizer.json", "vocab.txt")]
        found = next((file for file in there if file.is_file()), None)
        if found is None:
            raise ValueError(f"{path} has no tokenizer.json and no vocab.txt; expected one of them")
        path = found
    if path.suffix == ".json":
        return _described(path)
    lines = path.read_text(encoding="utf-8").split("\n")
    places = {token.rstrip("\r"): i for i, token in enumerate(lines)}
    size = len(lines) - (lines[-1] == "")
    return _vocabulary(path, size, places, [t for t in SPECIAL if t in places])


def _described(path: pathlib.Path) -> Vocabulary:
    """Reads a tokenizer.json."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise ValueError(f"{path}: not JSON: {err}") from err
    try:
        places = _places(values["model"]["vocab"])
        added = {token["content"]: int(token["id"]) for token in values.get("added_tokens") or ()}
        special = [t["content"] for t in values.get("added_tokens") or () if t.get("special")]
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise ValueError(f"{path}: not a tokenizer.json: {err!r}") from err
    places |= added
    return _vocabulary(path, max(places.values(), default=-1) + 1, places, special)


def _places(vocab: Any) -> dict[str, int]:
    """Returns the tokens' numbers: Unigram has a list of pieces and scores, others a table."""
    if isinstance(vocab, list):
        return {piece: i for i, (piece, _) in enumerate(vocab)}
    return {token: int(number) for token, number in vocab.items()}


def _vocabulary(
    path: pathlib.Path, size: int, places: dict[str, int], special: list[str]
) -> Vocabulary:
    mask = next((places[token] for token in MASKS if token in places), None)
    numbers = {places[token] for token in special} | ({mask} if mask is not None else set())
    return Vocabulary(path, size, mask, tuple(sorted(numbers)))
