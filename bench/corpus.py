"""Makes the large corpus that training of tokenizers is timed on: code.txt and wiki.txt.

Half is source code and its documentation, the files below folders in the order of their names, each
content once; half is a text such as WikiText's, repeated. By default the code is that of Go and of
Python's packages on this machine, so its words differ a little between machines: the sizes and
the number of different words are printed.

    .venv/bin/python bench/corpus.py --text wiki.train.tokens --out corpus
    gorbit tokenizer train --type bpe --vocab-size 32000 --out tok corpus/code.txt corpus/wiki.txt
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator

ENDINGS = (".go", ".py", ".pyi", ".c", ".h", ".s", ".md", ".rst", ".txt", ".html")
LARGEST = 4 << 20
"""The most bytes of a file: larger ones are tables."""
WORD = re.compile(rb"\S+")


def main() -> int:
    """Writes the two files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", required=True, type=pathlib.Path, help="the text to repeat")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write")
    parser.add_argument("--megabytes", type=int, default=1007, help="size of both, in 10^6 bytes")
    parser.add_argument("folders", nargs="*", type=pathlib.Path, help="folders of source code")
    args = parser.parse_args()
    if args.megabytes < 1:
        parser.error(f"--megabytes is {args.megabytes}; expected 1 or more")
    if not args.text.is_file() or not args.text.stat().st_size:
        parser.error(f"--text is {args.text}; expected a file that has a text")
    args.out.mkdir(parents=True, exist_ok=True)
    half = args.megabytes * 1_000_000 // 2
    words: set[bytes] = set()
    code = write(args.out / "code.txt", sources(args.folders or defaults()), half, words)
    if code < half:
        print(
            f"corpus: the folders have {code:,} bytes of source code; expected {half:,}; "
            "name more folders, or a smaller --megabytes",
            file=sys.stderr,
        )
        return 1
    text = write(args.out / "wiki.txt", repeated(args.text.read_bytes()), half, words)
    print(f"{args.out}: {code + text:,} bytes, {len(words):,} different words between spaces")
    return 0


def defaults() -> list[pathlib.Path]:
    """The folders of Go, of its modules and of Python, as far as they are there."""
    found = []
    for name in ("GOROOT", "GOMODCACHE"):
        try:
            out = subprocess.run(["go", "env", name], capture_output=True, text=True, check=True)
            found.append(out.stdout.strip())
        except (OSError, subprocess.CalledProcessError):
            continue
    found += [sysconfig.get_path("stdlib"), sysconfig.get_path("platlib")]
    return [pathlib.Path(folder) for folder in found if folder and os.path.isdir(folder)]


def sources(folders: list[pathlib.Path]) -> Iterator[bytes]:
    """The contents of source files that are UTF-8, each once, in the order of folders and names."""
    seen = set()
    for folder in folders:
        for path, below, files in os.walk(folder):
            below.sort()
            for name in sorted(files):
                file = pathlib.Path(path, name)
                if not name.endswith(ENDINGS) or not file.is_file():
                    continue
                if file.stat().st_size > LARGEST:
                    continue
                content = file.read_bytes()
                key = hashlib.sha256(content).digest()
                if key in seen or not readable(content):
                    continue
                seen.add(key)
                yield content if content.endswith(b"\n") else content + b"\n"


def readable(content: bytes) -> bool:
    """Whether a content is a text."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def repeated(content: bytes) -> Iterator[bytes]:
    """A text over and over."""
    while True:
        yield content


def write(path: pathlib.Path, parts: Iterator[bytes], size: int, words: set[bytes]) -> int:
    """Writes whole lines of parts up to a size.

    Args:
        path: the file.
        parts: contents that end with a line.
        size: the least bytes to write, unless the parts end before.
        words: gets what is between spaces.

    Returns:
        The number of bytes.
    """
    done, last = 0, b""
    with path.open("wb") as out:
        for part in parts:
            if size - done < len(part):
                end = part.find(b"\n", size - done - 1) + 1
                part = part[:end] if end else part
            out.write(part)
            done += len(part)
            if part is not last:  # of a text that is repeated once
                words.update(WORD.findall(part))
                last = part
            if done >= size:
                break
    return done


if __name__ == "__main__":
    sys.exit(main())
