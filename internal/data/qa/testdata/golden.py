"""Writes golden.json: answers normalized and scored as the scripts of SQuAD 1.1 and 2.0 define it.

Python's own str.lower, re and str.split say what a letter, a word and a space are.

    python3 internal/data/qa/testdata/golden.py
"""

import collections
import json
import pathlib
import random
import re
import string

ANSWERS = [
    "The Rhine",
    "the rhine.",
    "Rhine",
    "a river",
    "river",
    "An  hour's\twalk",
    "hours walk",
    "",
    "the",
    "...",
    "a the an",
    "1,234 m²",
    "1234 m²",
    "ΟΔΟΣ",
    "οδος",
    "İstanbul",
    "Zürich–Basel",
    "Zürich Basel",
    "the-end",
    "theory of a",
    "tHe\u00a0Alps",
    "co-op_a",
    "x\u200bthe y",
    "日本 a 国",
    "the\u0301 a",
    "an\u001ca",
    "$5 (five)",
    "five 5",
]


def normalized(answer: str) -> str:
    """Lower case, no punctuation, no articles, single spaces; in this order."""
    lower = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", lower).split())


def f1(answer: str, truth: str, version: int) -> float:
    """The F1 of words. With no words on a side, 2.0 counts 1 if both have none; 1.1 counts 0."""
    got, want = normalized(answer).split(), normalized(truth).split()
    if version == 2 and not (got and want):
        return float(got == want)
    same = sum((collections.Counter(got) & collections.Counter(want)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(got), same / len(want)
    return 2 * precision * recall / (precision + recall)


def main() -> None:
    """Writes the file."""
    random.seed(4)
    pairs = []
    for answer in ANSWERS:
        for _ in range(8):
            truths = random.sample(ANSWERS, random.choice([1, 1, 2, 3]))
            pairs.append(
                {
                    "answer": answer,
                    "truths": truths,
                    "exact": float(
                        any(normalized(t) == normalized(answer) for t in truths)
                    ),
                    "f1": max(f1(answer, t, 2) for t in truths),
                    "f1_1_1": max(f1(answer, t, 1) for t in truths),
                }
            )
    golden = {
        "normalized": {a: normalized(a) for a in ANSWERS},
        "pairs": pairs,
    }
    path = pathlib.Path(__file__).resolve().parent / "golden.json"
    path.write_text(json.dumps(golden, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
