"""Holds the Go tokenizer against the Rust one, in the tokenizers library.

    python -m venv hf && hf/bin/pip install tokenizers==0.23.3
    hf/bin/python text/bench/compare.py speed --vocab vocab.txt --text sentences.txt
    hf/bin/python text/bench/compare.py ids --vocab vocab.txt --text a.txt b.txt

`speed` encodes the lines of a file with both, turn about, one core each, in fresh
processes, and prints the medians of sentences per second of processor time, which
other programs on the machine disturb little. `ids` encodes the lines of the files, alone and
in pairs, and random Unicode, under all settings, and fails on the first difference;
without --vocab it makes a vocabulary that holds every code point, so that nothing
hides behind [UNK].
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import tokenizers
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

HERE = os.path.dirname(os.path.abspath(__file__))
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# A passage in every kind of script that the rules treat apart.
POOLS = [
    range(0x20, 0x7F),
    range(0x250),
    range(0x2B0, 0x370),
    range(0x370, 0x600),
    range(0x600, 0x1100),
    range(0x1100, 0x1200),
    range(0x1E00, 0x2000),
    range(0x2000, 0x2C00),
    range(0x2C00, 0x3400),
    range(0x3400, 0x3420),
    range(0x4E00, 0x4E40),
    range(0xA000, 0xAC00),
    range(0xAC00, 0xD7A4),
    range(0xE000, 0xE010),
    range(0xF900, 0x10000),
    range(0x10000, 0x13000),
    range(0x16000, 0x18000),
    range(0x1B000, 0x1C000),
    range(0x1D000, 0x1F000),
    range(0x1F000, 0x20010),
    range(0x2F800, 0x2FA40),
    range(0xE0000, 0xE0200),
    range(0x110000),
]
MARKS = [
    0x300,
    0x301,
    0x323,
    0x345,
    0x334,
    0x1B44,
    0x302E,
    0x1D165,
    0x1D16D,
    0x1D16E,
    0x16FF0,
    0x93C,
    0x94D,
    0xFE20,
]
# lowercase, strip_accents, clean_text, handle_chinese_chars, match special tokens
BOTH = (True, False)
SETTINGS = list(itertools.product(BOTH, (None, True, False), BOTH, BOTH, BOTH))
ENCODE = ("encode_batch", "encode_batch_fast")
BATCHES = (1_000, 10_000)
"""Sizes of the library's batches, of which the faster counts."""
ACCENTS = {None: 0, True: 1, False: 2}  # as text.Accents numbers them


def library(
    vocab: str,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    clean: bool = True,
    ideographs: bool = True,
    specials: bool = True,
) -> Tokenizer:
    """The library's BERT tokenizer, as its own BertWordPieceTokenizer puts it together."""
    tok = Tokenizer(WordPiece.from_file(vocab, unk_token="[UNK]"))
    tok.normalizer = BertNormalizer(
        clean_text=clean,
        handle_chinese_chars=ideographs,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    tok.pre_tokenizer = BertPreTokenizer()
    if specials:
        tok.add_special_tokens([s for s in SPECIALS if tok.token_to_id(s) is not None])
    tok.post_processor = BertProcessing(
        ("[SEP]", tok.token_to_id("[SEP]")), ("[CLS]", tok.token_to_id("[CLS]"))
    )
    return tok


def build(folder: str) -> str:
    """Builds the Go half."""
    binary = os.path.join(folder, "bench")
    subprocess.run(["go", "build", "-o", binary, "."], cwd=HERE, check=True)
    return binary


def every_code_point(path: str) -> None:
    """A vocabulary of every character that may reach WordPiece, alone and inside words."""
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write("\n".join(SPECIALS) + "\n")
        for p in range(0x110000):
            if not 0xD800 <= p < 0xE000 and not chr(p).isspace() and p != 0:
                f.write(chr(p) + "\n##" + chr(p) + "\n")


def random_text(rng: random.Random) -> str:
    """Odd text: runs out of the pools, with marks, spaces and special tokens among them."""
    out = []
    for _ in range(rng.randrange(1, 12)):
        pool = rng.choice(POOLS)
        for _ in range(rng.choice((1, 2, 3, 5, 8, 110 if rng.random() < 0.02 else 4))):
            p = rng.choice(pool)
            out.append(chr(p) if not 0xD800 <= p < 0xE000 else "x")
            while rng.random() < 0.2:
                out.append(chr(rng.choice(MARKS)))
        if rng.random() < 0.6:
            out.append(
                rng.choice(
                    [
                        " ",
                        "\t",
                        "\u00a0",
                        "\u200b",
                        ".",
                        " [SEP] ",
                        "[MASK]",
                        "[[CLS]",
                        "\u3000",
                    ]
                )
            )
    return "".join(out)


def check(args: argparse.Namespace) -> None:
    """Compares ids."""
    rng = random.Random(args.seed)
    lines = []
    for path in args.text:
        with open(path, encoding="utf-8", newline="\n") as f:
            lines += [line.rstrip("\n") for line in f]
    asked = [(a, "", 0) for a in lines]
    asked += [
        (a, b, n)
        for a, b in zip(lines[::3], lines[1::3])
        for n in (rng.randrange(3, 140),)
    ]
    odd = [random_text(rng) for _ in range(args.random)]
    asked += [(a, "", 0) for a in odd] + [
        (a, b, rng.randrange(3, 60)) for a, b in zip(odd[::2], odd[1::2])
    ]
    # Every length of either text against small limits.
    words = [" ".join(["a"] * n) for n in range(1, 14)]
    asked += [(a, b, n) for a in words for b in words for n in range(3, 20)]
    asked += [(a, "", n) for a in words for n in range(2, 20)]

    compared = tokens = 0
    with tempfile.TemporaryDirectory() as tmp:
        vocab = args.vocab
        if not vocab:
            vocab = os.path.join(tmp, "vocab.txt")
            every_code_point(vocab)
        binary = build(tmp)
        requests = os.path.join(tmp, "requests")
        with open(requests, "w", encoding="utf-8") as f:
            f.writelines(
                json.dumps({"a": a, "b": b, "max_len": n}) + "\n" for a, b, n in asked
            )
        settings = SETTINGS[:1] if args.default_only else SETTINGS
        for lower, strip, clean, ideographs, specials in settings:
            config = {
                "Lowercase": lower,
                "Accents": ACCENTS[strip],
                "Unclean": not clean,
                "JoinIdeographs": not ideographs,
                "LiteralSpecials": not specials,
            }
            tok = library(vocab, lower, strip, clean, ideographs, specials)
            with open(requests) as f:
                go = subprocess.run(
                    [binary, "-vocab", vocab, "-ids", "-config", json.dumps(config)],
                    stdin=f,
                    stdout=subprocess.PIPE,
                    check=True,
                ).stdout.splitlines()
            assert len(go) == len(asked)
            by_limit = {}
            for i, (_, _, n) in enumerate(asked):
                by_limit.setdefault(n, []).append(i)
            for n, indices in by_limit.items():
                if n:
                    tok.enable_truncation(n)
                else:
                    tok.no_truncation()
                for lo in range(0, len(indices), 2000):
                    some = indices[lo : lo + 2000]
                    encoded = tok.encode_batch(
                        [
                            (asked[i][0], asked[i][1]) if asked[i][1] else asked[i][0]
                            for i in some
                        ]
                    )
                    for i, e in zip(some, encoded):
                        ids, types = json.loads(go[i])
                        compared += 1
                        tokens += len(ids)
                        if ids != e.ids or types != e.type_ids:
                            print("differs:", config, [ascii(x) for x in asked[i]])
                            print(
                                "  go:  ",
                                [ascii(tok.id_to_token(x)) for x in ids],
                                types,
                            )
                            print("  rust:", [ascii(x) for x in e.tokens], e.type_ids)
                            sys.exit(1)
            print(
                f"equal so far: {compared} texts, {tokens} tokens; {config}", flush=True
            )


def rust_speed(args: argparse.Namespace) -> None:
    """One round of the library, in this process, as parallel as the environment says."""
    json_file = args.vocab.endswith(".json")
    tok = (
        tokenizers.Tokenizer.from_file(args.vocab) if json_file else library(args.vocab)
    )
    tok.enable_truncation(args.max_len)
    with open(args.text[0], encoding="utf-8") as f:
        lines = f.read().splitlines()
    encode = getattr(tok, args.encode)
    best = best_cpu = float("inf")
    tokens = 0
    for size in BATCHES:
        for _ in range(args.repeat):
            start, cpu, tokens = time.perf_counter(), time.process_time(), 0
            for i in range(0, len(lines), size):
                tokens += sum(len(e) for e in encode(lines[i : i + size]))
            best = min(best, time.perf_counter() - start)
            best_cpu = min(best_cpu, time.process_time() - cpu)
    answer = {
        "version": tokenizers.__version__,
        "tokens": tokens,
        "sentences_per_sec": len(lines) / best,
        "sentences_per_cpu": len(lines) / best_cpu,
        "mb_per_sec": os.path.getsize(args.text[0]) / best / 1e6,
    }
    print(json.dumps(answer))


def speed(args: argparse.Namespace) -> None:
    """Compares speed."""
    env = dict(
        os.environ,
        TOKENIZERS_PARALLELISM="false",
        RAYON_NUM_THREADS="1",
        GOMAXPROCS="1",
    )
    rows = {"go": [], "encode_batch": [], "encode_batch_fast": []}
    with tempfile.TemporaryDirectory() as tmp:
        binary = build(tmp)
        common = [
            "--vocab",
            args.vocab,
            "--max-len",
            str(args.max_len),
            "--repeat",
            str(args.repeat),
        ]
        for _ in range(args.rounds):
            rust = {}
            for name in ENCODE:
                command = [sys.executable, __file__, "rust", "--encode", name, *common]
                done = subprocess.run(
                    [*command, "--text", args.text[0]],
                    env=env,
                    stdout=subprocess.PIPE,
                    check=True,
                )
                rust[name] = json.loads(done.stdout)
            go = subprocess.run(
                [
                    binary,
                    "-vocab",
                    args.vocab,
                    "-max-len",
                    str(args.max_len),
                    "-repeat",
                    str(args.repeat),
                    args.text[0],
                ],
                env=env,
                stdout=subprocess.PIPE,
                check=True,
            )
            g = json.loads(go.stdout)
            assert all(g["tokens"] == r["tokens"] for r in rust.values()), (g, rust)
            rows["go"].append(g["sentences_per_cpu"])
            for name in ENCODE:
                rows[name].append(rust[name]["sentences_per_cpu"])
            print(json.dumps({"go": g, "rust": rust}), flush=True)
    med = {k: statistics.median(v) for k, v in rows.items()}
    print(
        json.dumps(
            {
                "sentences_per_cpu_second": {k: round(v) for k, v in med.items()},
                "times_encode_batch": round(med["go"] / med["encode_batch"], 1),
                "times_encode_batch_fast": round(
                    med["go"] / med["encode_batch_fast"], 1
                ),
            }
        )
    )


def main() -> None:
    """Reads the command line."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("what", choices=["speed", "ids", "rust"])
    p.add_argument("--encode", choices=ENCODE, default=ENCODE[0], help="rust: how")
    p.add_argument("--vocab", help="a BERT vocab.txt; speed: or a tokenizer.json")
    p.add_argument(
        "--text", nargs="*", default=[], help="text files, a sentence a line"
    )
    p.add_argument("--max-len", type=int, default=128)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--random", type=int, default=20000, help="random texts for ids")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument(
        "--default-only", action="store_true", help="ids: the uncased settings only"
    )
    args = p.parse_args()
    {"speed": speed, "ids": check, "rust": rust_speed}[args.what](args)


if __name__ == "__main__":
    main()
