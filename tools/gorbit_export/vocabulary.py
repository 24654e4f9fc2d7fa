"""What an export must know of a tokenizer: its size and its special tokens."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator
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
    """Reads a vocab.txt, a tokenizer.json, a .model of SentencePiece, or the one that a folder has.

    Raises:
        ValueError: if the file is none of them.
        OSError: if it cannot be read.
    """
    if path.is_dir():
        path = _within(path)
    if path.suffix == ".json":
        return _described(path)
    if path.suffix == ".model":
        return _pieces(path)
    if path.suffix == ".gguf":
        raise ValueError(
            f"{path} is a GGUF; give --data, the folder of the data that gorbit convert makes with "
            "this tokenizer"
        )
    lines = path.read_text(encoding="utf-8").split("\n")
    places = {token.rstrip("\r"): i for i, token in enumerate(lines)}
    size = len(lines) - (lines[-1] == "")
    return _vocabulary(path, size, places, [t for t in SPECIAL if t in places])


def _within(folder: pathlib.Path) -> pathlib.Path:
    """Returns the file of a folder's tokenizer."""
    there = [folder / "tokenizer.json", *sorted(folder.glob("*.model")), folder / "vocab.txt"]
    found = [file for file in there if file.is_file()]
    if not found:
        raise ValueError(
            f"{folder} has no tokenizer.json, no .model of SentencePiece and no vocab.txt; "
            "expected one of them"
        )
    named = [n for n in ("tokenizer_config.json", "config.json") if (folder / n).is_file()]
    if found[0].suffix == ".model" and named:
        raise ValueError(
            f"{folder} has a SentencePiece model, and its {named[0]} says which tokens are around "
            "it; give --data, the folder of the data that gorbit convert makes with this tokenizer"
        )
    return found[0]


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


def _pieces(path: pathlib.Path) -> Vocabulary:
    """Reads a model of SentencePiece, a message of protobuf."""
    pieces: list[str] = []
    special: list[str] = []
    try:
        for field, value in _fields(path.read_bytes()):
            if field != 1:
                continue
            piece = dict(_fields(value))
            pieces.append(piece[1].decode("utf-8"))
            if piece.get(3, 1) in (2, 3):  # what is unknown, and control symbols
                special.append(pieces[-1])
    except (IndexError, KeyError, ValueError, AttributeError, TypeError) as err:
        raise ValueError(f"{path}: not a model of SentencePiece: {err!r}") from err
    if not pieces:
        raise ValueError(f"{path}: not a model of SentencePiece: it has no pieces")
    return _vocabulary(path, len(pieces), {p: i for i, p in enumerate(pieces)}, special)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the fields of a message: their numbers, and numbers or bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value

    while at < len(data):
        field, kind = divmod(number(), 8)
        if kind == 0:
            yield field, number()
            continue
        size = {1: 8, 5: 4}[kind] if kind != 2 else number()
        if size > len(data) - at:
            raise ValueError(f"it ends within field {field}")
        yield field, data[at : at + size]
        at += size


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
