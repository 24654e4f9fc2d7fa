"""Writes goldens.json: what the tokenizers library (0.23.1) trains on words.

Usage: python gen_goldens.py > goldens.json
"""

import json
import random
import sys
from collections import Counter

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SPECIALS = ["<unk>", "<mask>"]


def corpus(rng: random.Random, alphabet: str, words: int, most: int) -> Counter:
    """Returns words with their counts. Words share parts, as those of a language do."""
    parts = [
        "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 5)))
        for _ in range(words // 8)
    ]
    counts = Counter()
    while len(counts) < words:
        word = "▁" * rng.randrange(2) + "".join(
            rng.choice(parts) for _ in range(rng.randrange(1, 5))
        )
        counts[word] += rng.randrange(1, most)
    counts.update(alphabet)  # so that every character is a word
    return counts


def train(kind: str, counts: Counter, size: int) -> dict:
    """Returns a model of a tokenizer.json."""
    trainer, model = {
        "unigram": (trainers.UnigramTrainer, models.Unigram()),
        "bpe": (trainers.BpeTrainer, models.BPE()),
        "wordpiece": (trainers.WordPieceTrainer, models.WordPiece(unk_token="<unk>")),
    }[kind]
    more = {"unk_token": "<unk>"} if kind == "unigram" else {}
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    texts = [word for word, count in counts.items() for _ in range(count)]
    tokenizer.train_from_iterator(
        texts,
        trainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False, **more),
    )
    return json.loads(tokenizer.to_str())["model"]


def main() -> None:
    """Writes the words and models."""
    rng = random.Random(7)
    out = []
    for alphabet, words, most, size in [
        ("ab", 120, 4, 80),
        ("abcdef", 200, 300, 150),
        ("abcdefgh", 300, 5, 60),
        ("aéß中文字🙂", 150, 300, 100),
    ]:
        counts = corpus(rng, alphabet, words, most)
        for kind in ["unigram", "bpe", "wordpiece"]:
            if kind == "wordpiece" and most < 100:
                continue  # many pairs occur equally often, and the library's order of those changes
            tokens = size // 2 if kind == "unigram" else size
            model = train(kind, counts, tokens)
            vocab = model["vocab"]
            if kind != "unigram":
                vocab = sorted(vocab, key=vocab.get)
            out.append(
                {
                    "kind": kind,
                    "size": tokens,
                    "words": counts,
                    "vocab": vocab,
                    "merges": model.get("merges"),
                }
            )
    json.dump(out, sys.stdout, separators=(",", ":"))


if __name__ == "__main__":
    main()
