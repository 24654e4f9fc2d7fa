"""Writes goldens.json: words as the tokenizers library (0.23.1) splits them with Unigram models.

Usage: python gen_goldens.py [WORDS] > goldens.json
"""

import json
import random
import sys

from tokenizers import Tokenizer
from tokenizers.models import Unigram

UNKNOWN = "<unk>"
WIDE = "éß▁中文한글日本語áa\u0301🙂👩‍👩‍👧‍👦🇩🇪\u0000\u200b\ufffd\U000e0001\U0010ffff"


def some_word(rng: random.Random, pieces: list[str]) -> str:
    """Returns a word of pieces and of characters that may have none."""
    out = []
    for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 40])):
        kind = rng.random()
        if kind < 0.5:
            out.append(rng.choice(pieces))
        elif kind < 0.8:
            out.append(rng.choice("abcdefgh"))
        elif kind < 0.95:
            out.append(rng.choice(WIDE))
        else:
            out.append(
                chr(
                    rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])
                )
            )
    return "".join(out)


def some_model(
    rng: random.Random, fallback: bool, high: float
) -> tuple[list[tuple[str, float]], int]:
    """Returns the pieces of a model and the id of the unknown token. Scores are up to high."""
    pieces = {UNKNOWN: 0.0}
    if fallback:
        pieces |= {f"<0x{b:02X}>": 0.0 for b in range(256)}
    while len(pieces) < (450 if fallback else 150):
        length = rng.choice([1, 1, 2, 2, 3, 4, 6, 9])
        text = "".join(
            rng.choice("abcdefgh" if rng.random() < 0.9 else WIDE)
            for _ in range(length)
        )
        # Few scores, so that many ways have equal sums.
        pieces.setdefault(
            text, rng.choice([high, high - 0.5, high - 1, high - rng.random() * 12])
        )
    listed = list(pieces.items())
    rng.shuffle(listed)
    listed.append(listed[3])  # one piece twice
    return listed, listed.index((UNKNOWN, 0.0))


def main() -> None:
    """Writes the models and their words."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    rng = random.Random(34)
    models = []
    for fallback, high in [(False, -1.0), (True, -1.0), (False, 40.0), (True, 3.0)]:
        pieces, unknown = some_model(rng, fallback, high)
        model = Tokenizer(Unigram(pieces, unknown, fallback))
        words = []
        for _ in range(count):
            word = some_word(rng, [text for text, _ in pieces])
            encoded = model.encode(word)
            # Offsets are of characters; those here are of bytes.
            at = [0]
            for character in word:
                at.append(at[-1] + len(character.encode()))
            tokens = [
                [i, at[a], at[b]]
                for i, (a, b) in zip(encoded.ids, encoded.offsets, strict=True)
            ]
            words.append({"word": word, "tokens": tokens})
        models.append(
            {"pieces": pieces, "unknown": unknown, "fallback": fallback, "words": words}
        )
    json.dump(models, sys.stdout, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
