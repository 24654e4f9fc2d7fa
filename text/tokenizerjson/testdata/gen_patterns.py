"""Writes patterns.json: where the regular expressions of the tokenizers library (0.23.3) match.

Usage: python gen_patterns.py > patterns.json
"""

# ruff: noqa: E501, RUF001

from __future__ import annotations

import json
import random
import sys

from tokenizers import Regex, pre_tokenizers

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS = [
    # GPT-4o
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # DeepSeek
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    # BLOOM
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    # Falcon
    "[0-9][0-9][0-9]",
    # Llama 3, Qwen 2 and GPT-2
    rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
    r"|\s+(?!\S)|\s+",
    rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # parts, each alone
    r"a+ab",
    r"a++b",
    r"a*+ab|b",
    r"a?+ab",
    r"(?:a|ab)(?:c|bc)",
    r"(ab?)?c",
    r"a(?=b)",
    r"a(?!b)",
    r"a{2}",
    r"a{2,}b",
    r"a{1,2}a?b",
    r"[^\S ]+",
    r"\P{L}+",
    r"[\P{L}a]+",
    r"[^\P{L}]+",
    r"[a-c-]+",
    r"[\]\[a]+",
    r"[ab[cd]]+",
    r"[ab[^cd]]+",
    r"[^ab[cd]]+",
    r"\S\s\S",
    r"(?i:k|s|[xs]y)|b",
    r"(?i:x|(?:y))z",
    r"ab|a|b(?=(?:a|c))",
    r"\.\*\\",
    r"\t|\r\n",
    r"a(?:b(?:c)?)?",
    r"\p{Lu}+",
    r"\p{Lt}",
    r"\p{Lm}+",
    r"\p{Lo}+",
    r"\p{M}+",
    r"\p{P}+",
    r"\p{S}+",
    r"\p{N}+",
    r"\p{Ll}+",
]
# Those that came later, with texts of their own too, so that the texts of the others stay.
LATER = [
    # Thousands, from the right
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
    # words
    r"\w+|[^\w\s]+",
    r"\d+",
    r"\D+",
    r"\W+",
    r"[\d_]+",
    r"[^\d\W]+",
    r"(?<=\s)\S",
    r"(?<!\w)a",
    r"(?<=ab|c)b",
    r"(?<!a|bc)c",
    r"(?<=\d)(?=\D)\w",
    r"(?<!\d)\d{2}(?!\d)",
    r"\ba+",
    r"a\b|b",
    r"(?:ab)+",
    r"(?:ab)*c",
    r"(?:a\d){2}b?",
    r"(?:ab)++a",
    r"(?:ab)*ab",
    r"(?:a[bc]){1,2}a",
    r".+",
    r"a.b",
]
POOLS = [
    "ab",
    "abc",
    "abcd ",
    "aAbBcCkKsStTſK",
    "'sS'tT'rReE ve'LL",
    " \t\r\n\u00a0\u3000a",
    "-[]()&.*\\x,!",
]


LATER_POOLS = [*POOLS, "0123456789", "12345,. x_", "12a_٣१², b", "a1b2ab c", "ab\n\u2028c"]


def some_text(r: random.Random, pools: list[str]) -> str:
    """A text of one pool, or of code points of all planes."""
    out = []
    pool = r.choice(pools)
    for _ in range(r.randrange(1, 14)):
        p = r.choice([r.randrange(0x800), r.randrange(0x3400), r.randrange(0x110000)])
        wide = r.random() < 0.25 and not 0xD800 <= p < 0xE000
        out.append(chr(p) if wide else r.choice(pool))
    return "".join(out)


def main() -> None:
    """Writes the matches: for each pattern texts, and the characters that each match begins and ends at."""
    r = random.Random(36)
    all_patterns = []
    for pattern in [*PATTERNS, *LATER]:
        # What is removed lies between the parts that are kept; isolated parts are all of them.
        removed = pre_tokenizers.Split(Regex(pattern), "removed")
        isolated = pre_tokenizers.Split(Regex(pattern), "isolated")
        texts = []
        for _ in range(40):
            s = some_text(r, LATER_POOLS if pattern in LATER else POOLS)
            kept = {span for _, span in removed.pre_tokenize_str(s)}
            parts = [span for _, span in isolated.pre_tokenize_str(s)]
            texts.append([s, [list(span) for span in parts if span not in kept]])
        all_patterns.append({"pattern": pattern, "texts": texts})
    json.dump(all_patterns, sys.stdout, separators=(",", ":"))


if __name__ == "__main__":
    main()
