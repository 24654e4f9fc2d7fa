"""Writes scores.txt: numbers, and what the tokenizers library (0.23.3) reads in a tokenizer.json.

Usage: python gen_scores.py > scores.txt
"""

import json
import random

from tokenizers import Tokenizer
from tokenizers.models import Unigram


def main() -> None:
    """Writes the numbers."""
    rng = random.Random(35)
    some = ["0", "-0", "-0.0", "1e2", "-1.5E-3", "-12345678901234567890123.5", "1e-320", "-3e+300"]
    some += ["-18446744073709551615.5", "-1.8446744073709551616", "0.00000000000000000000000001"]
    for _ in range(400):
        digits = rng.randrange(1, 25)
        number = f"{-rng.random() * 10 ** rng.randrange(-3, 4):.{digits}f}"
        some.append(number + f"e{rng.randrange(-30, 30)}" if rng.random() < 0.1 else number)
    file = json.loads(Tokenizer(Unigram([("a", -1.0)], 0, False)).to_str())
    file["model"]["vocab"] = [[str(i), 0.125 + i] for i in range(len(some))]
    text = json.dumps(file)
    for i, number in enumerate(some):
        text = text.replace(f'["{i}", {0.125 + i}]', f'["{i}", {number}]')
    # The library writes a number so that the nearest one is that which it has.
    read = json.loads(Tokenizer.from_str(text).to_str())["model"]["vocab"]
    for number, (_, score) in zip(some, read, strict=True):
        print(number, float(score).hex())


if __name__ == "__main__":
    main()
