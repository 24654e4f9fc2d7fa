"""Compares the tokens of many generated texts with those of the tokenizers library.

python -m venv hf && hf/bin/pip install tokenizers==0.23.3
go build -o compare ./text/tokenizerjson/compare
hf/bin/python text/tokenizerjson/compare/compare.py ./compare 100000 FILE.json ...
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "I",
    "this",
    "are",
    "or",
    "his",
    "from",
    "at",
    "which",
    "but",
    "have",
    "an",
    "had",
    "they",
    "you\nwere",
    "their",
    "one",
    "all",
    "we",
    "can",
    "her",
    "has",
    "there",
    "been",
    "if",
    "more",
    "when",
    "will",
    "would",
    "who",
    "so",
    "no",
    "Hello",
    "world",
    "tokenization",
    "don't",
    "it's",
    "we'll",
    "I'VE",
    "they'RE\ninternationalization",
    "supercalifragilistic",
    "1",
    "12",
    "123",
    "1234",
    "3.14",
    "2024-01-01",
    "$100",
    "50%",
    "café",
    "naïve",
    "Straße",
    "İstanbul",
    "ΑΣ",
    "ﬁne",
    "½",
    "²",
    "Ⅷ",
    "٣",
    "你好",
    "世界\n日本語",
    "テキスト",
    "한국어",
    "привет",
    "мир",
    "مرحبا",
    "שלום",
    "สวัสดี",
    "नमस्ते",
    "👍🏽",
    "👨\u200d👩\u200d👧\u200d👦",
    "🇩🇪",
    "❤️",
    "é",
    "é",
    "ộ",
    "각",
    "각",
    "\u200b",
    "\ufeff",
    "\xa0",
    "\u3000\n<s>",
    "</s>",
    "<pad>",
    "<mask>",
    "<unk>",
    "<|endoftext|>",
    "[MASK]",
    "[CLS]",
    "[SEP]",
    "<0x41>",
    "▁",
    "Ġ",
    "Ċ",
    "##",
    "<|im_start|>",
    "</w>",
    "...",
    "",
    "!!!",
    "?!",
    "'''",
    "'ſ",
    "'S",
    "'ll",
    "(a)",
    "[b]",
    "{c}",
    "a_b\nhttp://example.com/a?b=c&d",
    "user@example.org",
    "x=y;",
    "if(a<b){return;}",
    "\t",
    "\n",
    "\r\n",
    "\n\n",
    "",
    "\u2028",
    "\x00",
    "\x01",
    "\x7f",
    "\x85",
    "�",
    "\U0010ffff",
    "\ue000",
]
SPACES = [
    " ",
    " ",
    " ",
    " ",
    "",
    "  ",
    "   ",
    "\n",
    "\t",
    "\u00a0",
    "\u3000",
    "\r\n",
    "\n\n ",
]


def point(r: random.Random) -> str:
    """A code point of any plane."""
    kind = r.random()
    if kind < 0.3:
        return chr(r.randrange(0x20, 0x7F))
    if kind < 0.5:
        return (
            chr(r.randrange(0x300, 0x370))
            if r.random() < 0.5
            else chr(r.randrange(0x80, 0x800))
        )
    while True:
        p = r.randrange(0x110000) if kind < 0.7 else r.randrange(0x3400)
        if not 0xD800 <= p < 0xE000:
            return chr(p)


def texts(r: random.Random, n: int) -> list[str]:
    """Generated texts: words, code points, and both."""
    out = []
    for _ in range(n):
        kind = r.random()
        if kind < 0.5:
            s = "".join(
                r.choice(WORDS) + r.choice(SPACES) for _ in range(r.randrange(12))
            )
        elif kind < 0.7:
            s = "".join(point(r) for _ in range(r.randrange(16)))
        else:
            s = "".join(
                r.choice((point(r), r.choice(WORDS), r.choice(SPACES)))
                for _ in range(r.randrange(16))
            )
        out.append(s.upper() if r.random() < 0.05 else s)
    return out


def want(t: Tokenizer, s: str) -> dict:
    """What the library makes of a text."""
    t.no_truncation()
    e = t.encode(s, add_special_tokens=False)
    pair_ids, pair_types = [], []
    if s:
        t.enable_truncation(20)
        p = t.encode(s, s)
        pair_ids, pair_types = p.ids, p.type_ids
        t.no_truncation()
    return {
        "ids": e.ids,
        "offsets": [list(o) for o in e.offsets],
        "texts": [t.decode(e.ids, skip_special_tokens=False), t.decode(e.ids)],
        "pair": pair_ids,
        "types": pair_types,
    }


def main() -> int:
    """Compares, and prints the first differences."""
    program, count, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    wrong = 0
    for file in files:
        tokenizer = Tokenizer.from_file(file)
        tokenizer.no_padding()
        bad = 0
        for seed in range(0, count, 20000):
            r = random.Random(seed)
            some = texts(r, min(20000, count - seed))
            with tempfile.TemporaryFile("w+") as f:
                for s in some:
                    f.write(json.dumps(s, ensure_ascii=False) + "\n")
                f.seek(0)
                out = subprocess.run(
                    [program, file],
                    stdin=f,
                    capture_output=True,
                    text=True,
                    check=False,
                )
            if out.returncode:
                print(file, out.stderr)
                return 1
            for s, line in zip(some, out.stdout.split("\n"), strict=False):
                got, expected = json.loads(line), want(tokenizer, s)
                if got != expected:
                    bad += 1
                    if bad <= 5:
                        keys = [k for k in expected if got[k] != expected[k]]
                        print(
                            f"{file}: {s!r}: {keys[0]}\n  got  {got[keys[0]]}\n  want {expected[keys[0]]}\n  of   {tokenizer.encode(s, add_special_tokens=False).tokens}"
                        )
        print(f"{file}: {count} texts, {bad} differ")
        wrong += bad
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
