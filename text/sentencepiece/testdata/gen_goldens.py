"""Writes goldens.json.gz: models, and texts as the sentencepiece library (0.2.3) splits and decodes them.

Usage: python gen_goldens.py [TEXTS] (in this folder)
"""

import base64
import gzip
import io
import json
import random
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

PARTS = [
    "the",
    "un",
    "happy",
    "ing",
    "s",
    "a",
    "of",
    "cat",
    "中文",
    "字",
    "é",
    "e\u0301",
    "ﬁ",
    "①",
    "ß",
    "ÀB",
]
WIDE = "áa\u0301🙂👩\u200d👩\u200d👧🇩🇪\u200b\ufffd\u3000\u00a0\t\n\u2581…ｱﾞ가각ſﷺ\U000e0001\U0010ffff<>"
WRITTEN = [
    "<sep>",
    "<ctl>",
    "<s>",
    "</s>",
    "<unk>",
    "<0x41>",
    "  ",
    "▁",
    " <sep> ",
    "▁▁",
    "the sep",
]


def some_text(rng: random.Random) -> str:
    """Returns a text of words, of odd characters and of special tokens."""
    out = []
    for _ in range(rng.choice([0, 1, 2, 4, 8, 20])):
        kind = rng.random()
        if kind < 0.5:
            out.append(rng.choice(PARTS))
        elif kind < 0.7:
            out.append(" " * rng.choice([1, 1, 1, 2, 3]))
        elif kind < 0.8:
            out.append(rng.choice(WRITTEN))
        elif kind < 0.95:
            out.append(rng.choice(WIDE))
        else:
            out.append(
                chr(
                    rng.choice(
                        [rng.randrange(1, 0xD800), rng.randrange(0xE000, 0x110000)]
                    )
                )
            )
    return "".join(out)


def train(rng: random.Random, unused: int = 0, **options: object) -> bytes:
    """Returns a model. So many of its pieces are made unused."""
    texts = []
    for _ in range(400):
        words = [
            "".join(rng.choice(PARTS) for _ in range(rng.randrange(1, 4)))
            for _ in range(8)
        ]
        texts.append(" ".join(words))
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=out,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    model = model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    longer = [
        p
        for p in model.pieces
        if p.type == model_pb2.ModelProto.SentencePiece.NORMAL and len(p.piece) > 1
    ]
    for piece in rng.sample(longer, unused):
        piece.type = model_pb2.ModelProto.SentencePiece.UNUSED
    return model.SerializeToString()


def encoded(processor: sentencepiece.SentencePieceProcessor, text: str) -> dict:
    """Returns the tokens of a text, with offsets of bytes, and their text."""
    proto = processor.encode(text, return_type="proto")
    tokens = [[p.id, p.begin, p.end] for p in proto.pieces]
    return {
        "text": text,
        "tokens": tokens,
        "decoded": processor.decode([p.id for p in proto.pieces]),
    }


def main() -> None:
    """Writes the models and texts."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 80
    rng = random.Random(3)
    symbols = {
        "user_defined_symbols": ["<sep>", "the sep", "中文字"],
        "control_symbols": ["<ctl>"],
    }
    models = [
        train(rng, model_type="unigram", vocab_size=150, **symbols),
        train(
            rng,
            model_type="unigram",
            vocab_size=400,
            normalization_rule_name="identity",
            byte_fallback=True,
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
        ),
        train(
            rng,
            unused=20,
            model_type="unigram",
            vocab_size=120,
            normalization_rule_tsv="rules.tsv",
            treat_whitespace_as_suffix=True,
            unk_surface="?",
        ),
        train(
            rng,
            model_type="bpe",
            vocab_size=450,
            normalization_rule_tsv="rules.tsv",
            byte_fallback=True,
            pad_id=3,
            **symbols,
        ),
        train(
            rng,
            unused=20,
            model_type="bpe",
            vocab_size=150,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            bos_id=-1,
        ),
    ]
    out = []
    for model in models:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        texts = [encoded(processor, some_text(rng)) for _ in range(count)]
        ids = [
            [
                rng.randrange(processor.get_piece_size())
                for _ in range(rng.randrange(12))
            ]
            for _ in range(count // 4)
        ]
        decoded = [{"ids": one, "text": processor.decode(one)} for one in ids]
        out.append(
            {
                "model": base64.b64encode(model).decode(),
                "texts": texts,
                "decoded": decoded,
            }
        )
    data = json.dumps(out, separators=(",", ":")).encode()
    with open("goldens.json.gz", "wb") as file:
        file.write(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()
