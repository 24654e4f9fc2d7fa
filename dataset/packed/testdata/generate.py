"""Compute the choice of masked tokens as docs/design/input.md describes it.

Run from anywhere:

    python3 dataset/packed/testdata/generate.py

  masking.json   for each case the seed, epoch, file and record, the tokens before and after, the
                 chosen positions and what was there
"""

import json
import math
import pathlib

HERE = pathlib.Path(__file__).parent
GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def mix(x: int) -> int:
    """Return SplitMix64's finalizer."""
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def key(seed: int, *uses: int) -> int:
    """Return the key of a seed for a use."""
    k = mix((seed + GOLDEN) & MASK)
    for u in uses:
        k = mix(((k ^ mix((u + GOLDEN) & MASK)) + GOLDEN) & MASK)
    return k


class Random:
    """Numbers that follow from a key."""

    def __init__(self, k: int) -> None:
        """Begin at a key."""
        self.state = k

    def below(self, n: int) -> int:
        """Return a number of 0 to n-1."""
        self.state = (self.state + GOLDEN) & MASK
        return mix(self.state) * n >> 64


def choose(tokens: list[int], starts: list[int] | None, case: dict) -> dict:
    """Return the tokens with some of them masked, their positions and their labels."""
    special = set(case["Special"])
    plain = [t for t in range(case["Vocabulary"]) if t not in special]
    units: list[list[int]] = []
    within = False
    for i, t in enumerate(tokens):
        if t in special:
            within = False
            continue
        if starts is not None and within and not starts[i]:
            units[-1].append(i)
        else:
            units.append([i])
        within = True
    n = sum(map(len, units))
    left = max(1, math.floor(case["Probability"] * n + 0.5)) if n else 0
    random = Random(key(case["Seed"], 3, case["Epoch"], case["File"], case["Record"]))
    spans: list[list[int]] = []
    for i in range(0 if case["SpanLength"] else len(units)):
        if left == 0:
            break
        k = i + random.below(len(units) - i)
        units[i], units[k] = units[k], units[i]
        if len(units[i]) <= left:
            left -= len(units[i])
            spans.append(units[i])
    if case["SpanLength"]:
        spans = choose_spans(units, left, case["SpanLength"], random)
    spans.sort()
    masked = list(tokens)
    for one in spans:
        for i, at in enumerate(one):
            if i == 0 or not case["SpanLength"]:
                how = random.below(10)
            if how < 8:
                masked[at] = case["Mask"]
            elif how == 8:
                masked[at] = plain[random.below(len(plain))]
    chosen = [at for one in spans for at in one]
    return {"Masked": masked, "At": chosen, "Labels": [tokens[at] for at in chosen]}


def choose_spans(
    units: list[list[int]], left: int, mean: float, random: Random
) -> list[list[int]]:
    """Return spans of units of this mean length, of as many tokens as are left."""
    spans: list[list[int]] = []
    taken: set[int] = set()
    for _ in range(10 * len(units)):
        if left == 0:
            break
        n = 1
        while n < 10 and random.below(1 << 32) < int((1 << 32) * (1 - 1 / mean)):
            n += 1
        at = random.below(len(units))
        one: list[int] = []
        while n and at < len(units) and at not in taken:
            unit = units[at]
            if one and unit[0] != one[-1] + 1 or len(one) + len(unit) > left:
                break
            one += unit
            taken.add(at)
            at, n = at + 1, n - 1
        if one:
            left -= len(one)
            spans.append(one)
    return spans


def main() -> None:
    """Write the file."""
    cases = []
    for n in range(36):
        length = [3, 1, 40, 17, 128, 9][n % 6]
        random = Random(n)
        tokens = [1, *(4 + random.below(96) for _ in range(length)), 2]
        if n % 4 == 3:
            tokens[2:3] = [2, 3]
        starts = [int(random.below(3) > 0) for _ in tokens] if n % 2 else None
        case = {
            "Seed": n * 0x123456789ABCDEF & MASK,
            "Epoch": n % 3,
            "File": n % 5,
            "Record": n * n * n,
            "SpanLength": [0, 0, 0, 3.8, 2, 10][n // 6],
            "Probability": [0.15, 0.4, 0.99][n % 3],
            "Mask": 3,
            "Vocabulary": 100,
            "Special": [0, 1, 2, 3],
            "Tokens": tokens,
            "Starts": starts,
        }
        cases.append(case | choose(tokens, starts, case))
    (HERE / "masking.json").write_text(
        "[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n"
    )


if __name__ == "__main__":
    main()
