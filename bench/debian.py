"""Makes translations and summaries of the descriptions of Debian's packages, fetched by apt.

Usage: python bench/debian.py --out DIR [--lists FOLDER]

apt-get update with the machine's own sources leaves the lists Translation-en and Translation-de,
which need no rights of root; --lists names a folder that already has them. The results are
DIR/en-de.SPLIT.tsv with the columns en and de, and DIR/summaries.SPLIT.tsv with text and summary,
for gorbit convert --task seq2seq; SPLIT is train, dev or test.

Translations are the synopses and the paragraphs of descriptions of the same Description-md5 and the
same number of paragraphs, each pair once. Texts that are equal in both languages, or that the
translators left open, are no translations. A summary is a synopsis, of all paragraphs.

The split is that of a checksum, the same on every machine: of the English text, and of a
description's first paragraph, which packages of one source share. One of FOLD is in dev, another
one in test. The lists themselves change with Debian's releases.
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator

LANGUAGES = ("en", "de")
FOLD = 50
SPLITS = ("train", "dev", "test")
OPEN = "<trans>"
"""What translators' tools write in the place of a paragraph that nobody has translated."""
HELPER = "/usr/lib/apt/apt-helper"
"""It reads the lists of apt, however they are compressed."""


def main() -> int:
    """Reads the arguments, and writes all files."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", type=pathlib.Path, required=True, help="folder of the results")
    p.add_argument("--lists", type=pathlib.Path, help="folder of apt's lists, if it has them")
    args = p.parse_args()
    try:
        make(args.out, args.lists)
    except (OSError, ValueError, subprocess.CalledProcessError) as err:
        print(f"debian: {err}", file=sys.stderr)
        return 1
    return 0


def make(out: pathlib.Path, lists: pathlib.Path | None = None) -> None:
    """Writes the files of both tasks, and says how many rows they have.

    Raises:
        ValueError: if the lists have no descriptions.
        CalledProcessError: if apt fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        found = {name: descriptions(lists or fetched(pathlib.Path(scratch)), name)
                 for name in LANGUAGES}  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    english, german = (found[name] for name in LANGUAGES)
    write(out, "en-de", ("en", "de"), translations(english, german))
    write(out, "summaries", ("text", "summary"), summaries(english))


def fetched(folder: pathlib.Path) -> pathlib.Path:
    """Lets apt fetch its lists into a folder."""
    lists, config = folder / "lists", folder / "apt.conf"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    # Images of containers fetch no languages, and options add to a list and do not replace it.
    names = " ".join(f'"{name}";' for name in LANGUAGES)
    config.write_text(f"#clear Acquire::Languages;\nAcquire::Languages {{ {names} }};\n")
    command = ["apt-get", "update", "-q", "-c", str(config), "-o", f"Dir::State::lists={lists}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return lists


def descriptions(lists: pathlib.Path, language: str) -> dict[str, list[str]]:
    """Returns the synopsis and the paragraphs of each description, by its md5.

    Raises:
        ValueError: if the folder has none of this language.
    """
    found: dict[str, list[str]] = {}
    files = sorted(lists.glob(f"*_Translation-{language}*"))
    for file in files:
        command = [HELPER, "cat-file", str(file)]
        text = subprocess.run(command, check=True, capture_output=True).stdout.decode()
        for md5, description in entries(text.split("\n"), language):
            found.setdefault(md5, description)
    if not found:
        raise ValueError(
            f"{lists} has {len(files)} files *_Translation-{language} with descriptions; expected "
            "the lists of apt-get update with Acquire::Languages en and de"
        )
    return found


def entries(lines: Iterable[str], language: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the md5 and the synopsis and paragraphs of each description of a list."""
    md5, field = "", f"Description-{language}: "
    texts: list[str] = []
    for line in lines:
        if line.startswith("Description-md5: "):
            md5 = line.split()[1]
        elif line.startswith(field):
            texts = [line.removeprefix(field).strip(), ""]
        elif line.strip() == "." and texts:
            texts.append("")
        elif line.startswith(" ") and texts:
            texts[-1] = f"{texts[-1]} {line.strip()}".strip()
        elif not line and md5:
            if texts:
                yield md5, [" ".join(text.split()) for text in texts]
            md5, texts = "", []


def translations(
    english: dict[str, list[str]], german: dict[str, list[str]]
) -> Iterator[tuple[str, str, str]]:
    """Yields what decides about the split, and both texts of each pair, in the order of md5."""
    for md5 in sorted(english.keys() & german.keys()):
        if len(english[md5]) != len(german[md5]):
            continue
        for a, b in zip(english[md5], german[md5]):
            if a and b and a != b and OPEN not in b:
                yield a, a, b


def summaries(english: dict[str, list[str]]) -> Iterator[tuple[str, str, str]]:
    """Yields what decides about the split, description and synopsis, in the order of md5."""
    for md5 in sorted(english):
        synopsis, *paragraphs = english[md5]
        paragraphs = [text for text in paragraphs if text]
        if synopsis and paragraphs:
            yield paragraphs[0], " ".join(paragraphs), synopsis


def checksum(key: str) -> int:
    """Returns the 64 bits by which gorbit convert --split-by-hash decides, too."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def split(key: str) -> str:
    """Returns the split of what has this key."""
    return {0: "dev", 1: "test"}.get(checksum(key) % FOLD, "train")


def write(
    out: pathlib.Path, name: str, header: tuple[str, str], rows: Iterable[tuple[str, str, str]]
) -> None:
    """Writes the files of a task, each pair of texts once."""
    by: dict[str, list[tuple[str, str]]] = {each: [] for each in SPLITS}
    seen = set()
    for key, a, b in rows:
        pair = a.replace("\t", " "), b.replace("\t", " ")
        if pair not in seen:
            seen.add(pair)
            by[split(key)].append(pair)
    for each, pairs in by.items():
        file = out / f"{name}.{each}.tsv"
        lines = ["\t".join(pair) + "\n" for pair in (header, *pairs)]
        file.write_text("".join(lines), encoding="utf-8")
        words = sum(len(a.split()) for a, _ in pairs)
        print(f"{file}: {len(pairs):,} pairs, {words:,} words of {header[0]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
