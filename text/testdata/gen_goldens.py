"""Writes vocab.txt and goldens.json: texts and their ids by the tokenizers library.

    python -m venv hf && hf/bin/pip install tokenizers==0.23.3
    hf/bin/python text/testdata/gen_goldens.py

The vocabulary is made from the texts: most characters that reach WordPiece, alone
and inside words, and some longer pieces, so that a character taken for another
shows in the ids rather than vanish into [UNK].
"""

import json
import os
import random
import sys

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))
import compare  # noqa: E402

ODD = [
    "",
    " ",
    "\t\r\n \u3000",
    "Hello, World! don't  stop-now...",
    "na\u00efve caf\u00e9 \u2014 \u201cquoted\u201d text\u2026",
    "e\u0301 e\u0323\u0301 e\u0301\u0323 \u1ec7 \u0301alone a\u0315\u0300\u05ae\u0062",
    "\u0130stanbul I\u0307 \u0131 \u03a3\u0391\u03a3 \u03c3\u03c2 \u00df \u1e9e \u01c5",
    "\u01c4 \u1fbc \u1f88 \u2126 \u212a \u212b",
    "\ud55c\uad6d\uc5b4 \uac00 \uac01 \ud7a3 \u1100\u1161\u11a8 \ud7a4\ud7b0 x\uac00y",
    "\uff28\uff45\uff4c\uff4c\uff4f\uff01 \uff11\uff12 \u30ab\u3099 \u30ac \uff76\uff9e",
    "\u3042\u3044",
    "a\ufffdb \ufffd",
    "\x00a\x01b\x1fc\x7fd\x85e\x9ff\x0bg\x0ch",
    "soft\u00adhyphen zero\u200bwidth\u200cnon\u200djoin \ufeffbom \u2060wj \u200erlm \u061calm",
    "nbsp\u00a0thin\u2009ls\u2028ps\u2029ogham\u1680nnbsp\u202fmmsp\u205fideo\u3000end \u180e",
    "\u4e2d\u6587abc\u5b57 \u3400\u4dbf\u4dc0 \u9fff\ua000 \U00020000\U0002a6df\U0002a6e0",
    "\U0002a700\U0002b73f\U0002b740\U0002b81f",
    "\U0002b820\U0002b91f\U0002b920\U0002ceaf\U0002ceb0 \uf900\ufaff\ufb00",
    "\U0002f800\U0002fa1f\U0002fa20 \U00030000",
    "\u4e2d\u0301x\u6587\u1b44",
    "\u2260 \u226e \u1fef \u037e \u0387 \u2000 \u1ffd",
    "$+<=>^`|~ \u00a2\u00a7\u00b6\u00bf\u00a1 \u2030\u203f \u3001\u3002\u300c \u0965 \u104a",
    "\u166d \u2e3c \u2e43 \u2e4f \U00010100 \U0001e95e",
    "\U0001f600 \U0001f1e9\U0001f1ea \U0001f469\u200d\U0001f4bb \u2764\ufe0f \u263a",
    "\u0661\u0662\u0663 \u0968 \u00bd \u00b2 \u2460 \u2167",
    "\u0627\u0644\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u0629",
    "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0929 \u0958 \u0e44\u0e17\u0e22 \u0b94 \u0bca \u0dda",
    "\u1b44\u1b44 \U0001d15f \U0001d1bb\U0001d16e a\U0001d165\U0001d16d\U0001d165",
    "\u302e\u302f a\u302e\u0301\u302f",
    "a\u1b44\u0301\U00016ff0 a\u0e47\u1b44\u0327\U00016ff0",
    "\ue000private\uf8ff \U000e0001tag\U000e007f \U000f0000 \U0010fffd \U0010ffff \ufffe",
    "\u0378 \u2072",
    "\u00c5ngstr\u00f6m \u01fa \u1e69 \u1e9b\u0323 \ufb01 \ufb2c \u0344 \u0f73 \u0f43 \u2adc",
    "\ua7aa \u13a0 \u13f8 \uab70 \u10d0 \u1c90 \U00010400 \U00010428 \U0001e900 \U00016e40",
    "\u2c2f \ua7c2 \U00010570",
    "[CLS] a [SEP] b[MASK]c [PAD][UNK] [sep] [ SEP] [[SEP]] [S\u200bEP] \uff3bSEP]",
    "[SEP]\u0301e [MASK]\u1b44",
    "x" * 100,
    "x" * 101,
    "\u00e9" * 100,
    "\u00e9" * 101,
    "\uac00" * 50,
    "\uac01" * 34,
    "x" * 99 + "\u200b" + "x",
    "x" * 100 + "\u0301" * 30,
    "x" * 120 + "\u4e2d" + "x" * 20,
    "a##b ##a # ## ###",
    "don\u2019t l\u2018x \u00abq\u00bb",
    "http://example.org/a_b?c=d&e=%20 user@host.tld #tag $1,000.50 3.14e-10",
]


def main() -> None:
    """Writes both files."""
    rng = random.Random(20240229)
    texts = ODD + [compare.random_text(rng) for _ in range(300)]
    characters = set()
    words = set()
    for lower, strip, clean, ideographs, specials in compare.SETTINGS:
        if specials:
            continue
        n = BertNormalizer(
            clean_text=clean, handle_chinese_chars=ideographs, strip_accents=strip, lowercase=lower
        )
        for s in texts:
            for w, _ in BertPreTokenizer().pre_tokenize_str(n.normalize_str(s)):
                characters.update(w)
                if lower and clean and ideographs:
                    words.add(w)
    tokens = set()
    for c in sorted(characters):
        if c.isspace() or rng.random() < 0.02:
            continue
        tokens.add(c)
        if rng.random() < 0.98:
            tokens.add("##" + c)
    for w in sorted(words):
        for _ in range(2):
            i = rng.randrange(len(w))
            piece = w[i : i + rng.randrange(2, 6)]
            if len(piece) > 1 and piece.strip() == piece:
                tokens.add(piece if i == 0 else "##" + piece)
    tokens = sorted(tokens)
    rng.shuffle(tokens)
    path = os.path.join(HERE, "vocab.txt")
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write("\n".join(compare.SPECIALS + tokens) + "\n")

    sets = []
    for i, (lower, strip, clean, ideographs, specials) in enumerate(compare.SETTINGS):
        tok = compare.library(path, lower, strip, clean, ideographs, specials)
        odd = range(len(ODD))
        some = range(len(texts)) if i == 0 else [*odd, *range(len(ODD) + i, len(texts), 48)]
        config = {
            "Lowercase": lower,
            "Accents": compare.ACCENTS[strip],
            "Unclean": not clean,
            "JoinIdeographs": not ideographs,
            "LiteralSpecials": not specials,
        }
        ids = [tok.encode(texts[k], add_special_tokens=False).ids for k in some]
        sets.append({"config": config, "cases": list(some), "ids": ids})

    # Truncation: the lengths of the two texts that are kept.
    tok = compare.library(path)
    word = next(t for t in tokens if t.isascii() and t.isalpha() and t.islower() and len(t) == 1)
    kept = []
    for n in range(2, 17):
        tok.enable_truncation(n)
        for a in range(12):
            kept.append([a, -1, n, len(tok.encode(" ".join([word] * a)).ids) - 2, -1])
            for b in range(12):
                if n < 3:
                    continue
                types = tok.encode(" ".join([word] * a), " " + " ".join([word] * b)).type_ids
                kept.append([a, b, n, types.count(0) - 2, types.count(1) - 1])
    with open(os.path.join(HERE, "goldens.json"), "w") as f:
        json.dump(
            {"texts": texts, "sets": sets, "word": word, "kept": kept}, f, separators=(",", ":")
        )
        f.write("\n")


if __name__ == "__main__":
    main()
