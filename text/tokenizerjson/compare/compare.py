"""Compares the tokens of many generated texts with those of the tokenizers library.

python -m venv hf && hf/bin/pip install tokenizers==0.23.3
go build -o compare ./text/tokenizerjson/compare
hf/bin/python text/tokenizerjson/compare/compare.py ./compare 100000 FILE.json ...

Texts are words of many scripts, emoji sequences, special tokens and tokens of the vocabulary written out,
code points of all planes, bytes that are not UTF-8, and a few words of a million characters. --seed
makes others; fetch.py gets files of real models.
"""

# ruff: noqa: E501, RUF001

from __future__ import annotations

import argparse
import base64
import codecs
import json
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

CHUNK = 20000
LONG = 1_000_000
MOST_CUT = 1000
"""The library keeps all that it cuts off, of pairs in every combination."""
WORDS = """
the of and to in a is that for it as was with be by on not he I this are or his from at which but have an
had they you were their one all we can her has there been if more when will would who so no Hello world
tokenization don't it's we'll I'VE they'RE internationalization supercalifragilistic camelCase XMLHttpRequest
1 12 123 1234 3.14 2024-01-01 $100 50% café naïve Straße İstanbul ΑΣ ﬁne ½ ² Ⅷ ٣ ǅungla ʰ
你好 世界 日本語 テキスト ひらがな 한국어 привет мир مرحبا שלום สวัสดี नमस्ते
👍🏽 👨\u200d👩\u200d👧\u200d👦 🇩🇪 🇩🇪🇫🇷🇮 ❤️ 🏳️\u200d🌈 1️⃣ 👩🏾\u200d🚀 🧑🏻\u200d❤️\u200d🧑🏿 🏴\U000e0067\U000e0062\U000e007f
é e\u0301 o\u0323\u0302 ộ 각 \u1100\u1161\u11a8 \u200b \ufeff \xa0 \u3000
<s> </s> <pad> <mask> <unk> <bos> <eos> <|endoftext|> [MASK] [CLS] [SEP] [UNK] [PAD] <0x41> <0xE4> ▁ Ġ Ċ ## <|im_start|> </w>
... ! !!! ?! ''' 'ſ 'S 'll 'LL ’s (a) [b] {c} a_b http://example.com/a?b=c&d user@example.org x=y; if(a<b){return;} //
\t \n \r\n \n\n \x0b \u2028 \x00 \x01 \x7f \x85 � \U0010ffff \ue000 \uffff
"""
SPACES = [" ", " ", " ", " ", "", "  ", "   ", "\n", "\t", "\u00a0", "\u3000", "\r\n", "\n\n "]


def each_byte(error: UnicodeDecodeError) -> tuple[str, int]:
    """Decodes each byte that is not part of UTF-8 as U+FFFD."""
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("each_byte", each_byte)


def point(r: random.Random) -> str:
    """A code point of any plane."""
    kind = r.random()
    if kind < 0.3:
        return chr(r.randrange(0x20, 0x7F))
    if kind < 0.5:
        return chr(r.randrange(0x300, 0x370) if r.random() < 0.5 else r.randrange(0x80, 0x800))
    while True:
        p = r.randrange(0x110000) if kind < 0.7 else r.randrange(0x3400)
        if not 0xD800 <= p < 0xE000:
            return chr(p)


def texts(r: random.Random, n: int, words: list[str]) -> list[bytes]:
    """Generated texts: words, code points, both, and damaged ones."""
    out = []
    for _ in range(n):
        kind = r.random()
        if kind < 0.5:
            s = "".join(r.choice(words) + r.choice(SPACES) for _ in range(r.randrange(12)))
        elif kind < 0.7:
            s = "".join(point(r) for _ in range(r.randrange(16)))
        else:
            s = "".join(
                r.choice((point(r), r.choice(words), r.choice(SPACES)))
                for _ in range(r.randrange(16))
            )
        b = bytearray((s.upper() if r.random() < 0.05 else s).encode("utf-8", "replace"))
        if r.random() < 0.05:
            for _ in range(r.randrange(1, 4)):
                at = r.randrange(len(b) + 1)
                b[at : at + r.randrange(2)] = bytes([r.randrange(256)])
        out.append(bytes(b))
    return out


def long(r: random.Random, words: list[str]) -> list[bytes]:
    """Words of a million characters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    joined = "".join(r.choice(words).strip() for _ in range(LONG // 5))
    parts = ("a" * LONG, "".join(r.choices(letters, k=LONG)), joined[:LONG])
    return [s.encode("utf-8", "replace") for s in parts]


def want(t: Tokenizer, s: str) -> dict:
    """What the library makes of a text."""
    t.no_truncation()
    e = t.encode(s, add_special_tokens=False)
    pair_ids, pair_types = [], []
    if s and len(s) < MOST_CUT:
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


def answers(program: str, file: str, some: list[bytes]) -> list[dict]:
    """What Gorbit makes of texts."""
    with tempfile.TemporaryFile("w+") as f:
        f.writelines(json.dumps(base64.b64encode(s).decode()) + "\n" for s in some)
        f.seek(0)
        out = subprocess.run([program, file], stdin=f, capture_output=True, text=True, check=False)
    if out.returncode:
        sys.exit(f"{file}: {out.stderr}")
    return [json.loads(line) for line in out.stdout.split("\n") if line]


def compare(program: str, file: str, count: int, seed: int, long_words: bool) -> int:
    """Compares with one file, prints the first differences, and returns how many there are."""
    tokenizer = Tokenizer.from_file(file)
    tokenizer.no_padding()
    vocab = sorted(tokenizer.get_vocab())
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    bad = done = 0
    for first in range(0, count, CHUNK):
        r = random.Random(f"{seed} {first}")
        words = WORDS.split(" ") + [w for w in WORDS.split() if w]
        words += r.choices(vocab, k=40) + r.choices(added or vocab, k=15)
        some = texts(r, min(CHUNK, count - first), words)
        if long_words and first == 0:
            some += long(r, words)
        for s, got in zip(some, answers(program, file, some), strict=True):
            text = s.decode("utf-8", "each_byte")
            expected = want(tokenizer, text)
            done += 1
            if got == expected:
                continue
            bad += 1
            if bad <= 5:
                key = next(k for k in expected if got[k] != expected[k])
                print(f"{file}: {text[:200]!r}: {key}")
                at = next((i for i, (a, b) in enumerate(zip(got[key], expected[key])) if a != b), 0)
                print(f"  from {at}: got  {got[key][at : at + 40]}")
                print(f"  from {at}: want {expected[key][at : at + 40]}")
    print(f"{file}: {done} texts, {bad} differ", flush=True)
    return bad


def main() -> int:
    """Compares with each file."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-long", action="store_true", help="no words of a million characters")
    p.add_argument("program")
    p.add_argument("count", type=int)
    p.add_argument("files", nargs="+")
    args = p.parse_args()
    wrong = sum(
        compare(args.program, file, args.count, args.seed, not args.no_long) for file in args.files
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
