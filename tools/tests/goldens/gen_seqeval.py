"""Writes seqeval.json: entities counted by seqeval for random and chosen tags.

python -m venv seq
seq/bin/pip install seqeval==1.2.2
seq/bin/python tools/tests/goldens/gen_seqeval.py
"""

import json
import pathlib
import random

from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

SCHEMES = {
    "iob": ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"],
    "iobes": ["O"] + [f"{p}-{k}" for k in ("A", "B-C") for p in "BIES"],
    "bare": ["O", "B", "I"],
}


def sentences(tags: list[str], rng: random.Random) -> list[list[str]]:
    """Draws sentences of up to 8 words."""
    return [[rng.choice(tags) for _ in range(rng.randint(1, 8))] for _ in range(40)]


def main() -> None:
    """Writes the file."""
    rng = random.Random(5)
    cases = []
    for name, tags in SCHEMES.items():
        true = sentences(tags, rng)
        # Mostly right, so that some entities are.
        guess = [[t if rng.random() < 0.8 else rng.choice(tags) for t in s] for s in true]
        if name == "iob":
            words = ["O", "O", "O", "B-LOC", "I-LOC", "I-LOC", "O"]
            true.append(words)
            guess.append(["O", "O", "B-LOC", "I-LOC", "I-LOC", "I-LOC", "O"])
            true.append(["I-PER", "I-LOC"])
            guess.append(["I-PER", "I-PER"])
        a, b = set(), set()
        for i, (t, g) in enumerate(zip(true, guess)):
            a |= {(i, *e) for e in get_entities(t)}
            b |= {(i, *e) for e in get_entities(g)}
        kinds = sorted({e[1] for e in a | b})
        counts = {k: [sum(e[1] == k for e in chosen) for chosen in (a & b, b, a)] for k in kinds}
        scores = {
            "precision": precision_score(true, guess),
            "recall": recall_score(true, guess),
            "f1": f1_score(true, guess),
            "macro_f1": f1_score(true, guess, average="macro"),
        }
        cases.append(
            {"name": name, "tags": tags, "true": true, "predicted": guess, "counts": counts}
            | {"scores": scores}
        )
    path = pathlib.Path(__file__).resolve().parent / "seqeval.json"
    path.write_text(json.dumps({"cases": cases}) + "\n")


if __name__ == "__main__":
    main()
