"""Trains tokenizers by gorbit and by the tokenizers library on the same texts, and compares them.

python -m venv hf && hf/bin/pip install tokenizers==0.23.1
go build -o gorbit ./cmd/gorbit
hf/bin/python text/bench/train.py --type unigram --vocab-size 16000 --held wiki.valid.tokens \
    ./gorbit wiki.train.tokens

Both train turn about, each in a process of its own: wall time and processor time of the whole process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def library(kind: str, size: int, like: str, files: list[str], out: str) -> None:
    """Trains by the library, with the steps before the model of another tokenizer."""
    parts = Tokenizer.from_file(like)
    options = {"vocab_size": size, "special_tokens": SPECIALS, "show_progress": False}
    if kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **options)
    else:
        tokenizer = Tokenizer(models.BPE())
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **options)
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        parts.normalizer,
        parts.pre_tokenizer,
    )

    def lines() -> iter:
        for name in files:
            with open(name, encoding="utf-8") as f:
                for line in f:
                    yield line.rstrip("\n")

    tokenizer.train_from_iterator(lines(), trainer)
    tokenizer.save(out)


def timed(command: list[str]) -> tuple[float, float]:
    """Runs a command and returns its wall time and its processor time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return time.perf_counter() - start, cpu


def bits(file: str, held: str) -> float:
    """Returns the bits per character that a Unigram model gives to a text."""
    tokenizer = Tokenizer.from_file(file)
    model = json.loads(tokenizer.to_str())["model"]
    vocab, unknown = model["vocab"], model["unk_id"]
    lowest = min(score for _, score in vocab) - 10
    plain = Tokenizer(models.Unigram([(p, s) for p, s in vocab], unknown))
    plain.normalizer, plain.pre_tokenizer = (
        tokenizer.normalizer,
        tokenizer.pre_tokenizer,
    )
    total = characters = 0.0
    with open(held, encoding="utf-8") as f:
        for line in f:
            characters += len(line) - 1
            for i in plain.encode(line.rstrip("\n"), add_special_tokens=False).ids:
                total -= lowest if i == unknown else vocab[i][1]
    return total / math.log(2) / characters


def same(kind: str, ours: str, theirs: str) -> str:
    """Says how two models differ."""
    loaded = []
    for path in (ours, theirs):
        with open(path, encoding="utf-8") as f:
            loaded.append(json.load(f)["model"])
    a, b = loaded
    if kind == "bpe":
        return f"merges {'equal' if a['merges'] == b['merges'] and a['vocab'] == b['vocab'] else 'differ'}"
    one, other = dict(map(tuple, a["vocab"])), dict(map(tuple, b["vocab"]))
    both = one.keys() & other.keys()
    far = max(abs(one[p] - other[p]) for p in both)
    return f"{len(one.keys() ^ other.keys())} pieces are in one only; scores differ by at most {far:.2g}"


def main() -> None:
    """Trains and compares."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    p.add_argument("--type", choices=["unigram", "bpe"], default="unigram")
    p.add_argument("--vocab-size", type=int, default=16000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--held", help="a text to count the bits of, by the Unigram models")
    p.add_argument(
        "--library", nargs=2, metavar=("LIKE", "OUT"), help=argparse.SUPPRESS
    )
    p.add_argument("gorbit")
    p.add_argument("files", nargs="+")
    args = p.parse_args()
    size = str(args.vocab_size)
    if args.library:
        library(
            args.type, args.vocab_size, args.library[0], args.files, args.library[1]
        )
        return
    rows: dict[str, list[tuple[float, float]]] = {"gorbit": [], "library": []}
    with tempfile.TemporaryDirectory() as tmp:
        theirs = os.path.join(tmp, "library.json")
        for i in range(args.rounds):
            out = os.path.join(tmp, str(i))
            common = ["--type", args.type, "--vocab-size", size]
            rows["gorbit"].append(
                timed(
                    [
                        args.gorbit,
                        "tokenizer",
                        "train",
                        *common,
                        "--out",
                        out,
                        *args.files,
                    ]
                )
            )
            ours = os.path.join(out, "tokenizer.json")
            again = [sys.executable, __file__, *common, "--library", ours, theirs]
            rows["library"].append(timed([*again, args.gorbit, *args.files]))
        print(same(args.type, ours, theirs))
        if args.held and args.type == "unigram":
            for name, file in (("gorbit", ours), ("library", theirs)):
                print(f"{name}: {bits(file, args.held):.6f} bits per character")
    for k, what in enumerate(("wall time", "processor time")):
        ratios = [
            b[k] / a[k] for a, b in zip(rows["gorbit"], rows["library"], strict=True)
        ]
        times = {
            n: f"{statistics.median(r[k] for r in v):.2f} s" for n, v in rows.items()
        }
        print(f"{what}: {times}, {min(ratios):.1f} to {max(ratios):.1f} times")


if __name__ == "__main__":
    main()
