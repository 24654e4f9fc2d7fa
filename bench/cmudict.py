"""Writes the words and phonemes of CMUdict, for gorbit convert --task seq2seq.

Usage: npm pack cmu-pronouncing-dictionary@3.0.0 && tar xf cmu-pronouncing-dictionary-3.0.0.tgz
       python bench/cmudict.py package --out DIR

PACKAGE is the folder of the npm package cmu-pronouncing-dictionary. The results are
DIR/phonemes.SPLIT.tsv with the columns word and phonemes; SPLIT is train, dev or test. Letters and
phonemes have spaces between them, so that the rate of wrong words is that of wrong phonemes.
Phonemes are without stress, 39 in all.

The split is that of a checksum of the word: one of 50 is in dev, another one in test. Training has
all pronunciations of a word, the others the first.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator

import debian

ENTRY = re.compile(r'^\s*"([^"(]+)(\((\d+)\))?": "([^"]+)",?$')


def main() -> int:
    """Reads the arguments and writes the files."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("package", type=pathlib.Path, help="folder of cmu-pronouncing-dictionary")
    p.add_argument("--out", type=pathlib.Path, required=True, help="folder of the results")
    args = p.parse_args()
    try:
        make(args.package, args.out)
    except (OSError, ValueError) as err:
        print(f"cmudict: {err}", file=sys.stderr)
        return 1
    return 0


def make(package: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the files, and says how many rows they have.

    Raises:
        ValueError: if the package has no dictionary.
    """
    source = package / "index.js"
    found = list(entries(source.read_text(encoding="utf-8").splitlines()))
    if not found:
        raise ValueError(f'{source} has no lines "word": "PHONEMES"; expected those of CMUdict')
    out.mkdir(parents=True, exist_ok=True)
    debian.write(out, "phonemes", ("word", "phonemes"), chosen(found))


def entries(lines: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Yields words, the number of the pronunciation from 1, and phonemes without stress."""
    for line in lines:
        if match := ENTRY.match(line):
            word, _, number, phonemes = match.groups()
            phonemes = phonemes.split(" #")[0]  # a remark, such as "# place, danish"
            yield word, int(number or 1), re.sub(r"\d", "", phonemes)


def chosen(found: Iterable[tuple[str, int, str]]) -> Iterator[tuple[str, str, str]]:
    """Yields the word, which decides about the split, its letters, and the phonemes."""
    for word, number, phonemes in found:
        if number == 1 or debian.split(word) == "train":
            yield word, " ".join(word), phonemes


if __name__ == "__main__":
    sys.exit(main())
