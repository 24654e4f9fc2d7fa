"""Draws tables of crosses for a GAN: train.csv, dev.csv, and noise.csv to make images of.

    python examples/gan/data.py --out gan

An image is 8 x 8 pixels from 0 to 1: a bright row and a bright column on a dark ground. Next to it
stands the noise of which the generator makes an image in evaluations and predictions.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import random

SIDE = 8
NOISE = 8


def image(rng: random.Random) -> list[float]:
    """Draws a cross, row by row."""
    row, column = rng.randrange(1, SIDE - 1), rng.randrange(1, SIDE - 1)
    return [
        round((0.8 if row == i // SIDE or column == i % SIDE else 0.0) + 0.2 * rng.random(), 4)
        for i in range(SIDE * SIDE)
    ]


def noise(rng: random.Random) -> list[float]:
    """Draws the input of a generator."""
    return [round(rng.gauss(0, 1), 4) for _ in range(NOISE)]


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Draws tables of crosses for a GAN.")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    pixels = [f"pixel{i}" for i in range(SIDE * SIDE)]
    inputs = [f"noise{i}" for i in range(NOISE)]
    rng = random.Random(1)
    for name, count in (("train", 640), ("dev", 128), ("noise", 4)):
        with_image = name != "noise"
        rows = [(image(rng) if with_image else []) + noise(rng) for _ in range(count)]
        with open(args.out / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            header = pixels * with_image + inputs
            csv.writer(file, lineterminator="\n").writerows([header, *rows])
        print(f"{args.out / name}.csv: {count} rows")


if __name__ == "__main__":
    main()
