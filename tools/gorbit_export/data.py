"""What an export must know of the dataset that it will be trained on."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from gorbit_export.vocabulary import Vocabulary
from gorbit_export.vocabulary import load as read

MANIFEST = "manifest.json"
FORMAT = "gorbit-dataset"


@dataclasses.dataclass(frozen=True)
class Data:
    """A dataset that `gorbit convert` wrote.

    Attributes:
        path: its folder.
        labels: names of the labels, by number.
        vocab_size: number of tokens of the vocabulary.
        vocabulary: its tokens.
        word_starts: whether records say where words start.
        texts: how many texts an example of task embed has.
        scored: whether such examples have scores.
    """

    path: pathlib.Path
    labels: tuple[str, ...]
    vocab_size: int
    vocabulary: Vocabulary
    word_starts: bool
    texts: int
    scored: bool


def load(path: str) -> Data:
    """Reads the manifest of a dataset, and its vocabulary.

    Raises:
        ValueError: if the folder does not hold a dataset.
        OSError: if a file cannot be read.
    """
    folder = pathlib.Path(path)
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise ValueError(f"{folder} has no {MANIFEST}; expected a folder that gorbit convert wrote")
    try:
        values = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as err:
        raise ValueError(f"{manifest}: not JSON: {err}") from err
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ValueError(f"{manifest}: not the manifest of a dataset")
    vocab = values.get("vocab")
    if not isinstance(vocab, dict) or not isinstance(vocab.get("file"), str):
        raise ValueError(f"{manifest}: the dataset has no vocabulary; expected one of texts")
    columns = values.get("columns")
    columns = columns if isinstance(columns, dict) else {}
    return Data(
        folder,
        tuple(str(label) for label in values.get("labels") or ()),
        int(vocab.get("size", 0)),
        read(folder / pathlib.Path(vocab["file"]).name),
        bool(values.get("word_starts", False)),
        3 if columns.get("negative") else 2,
        bool(columns.get("label")),
    )
