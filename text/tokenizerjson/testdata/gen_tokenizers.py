"""Trains small tokenizers as the model families have them, and writes them and what they make of texts.

hf/bin/python text/tokenizerjson/testdata/gen_tokenizers.py
"""

from __future__ import annotations

import io
import json
import os
import random
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "compare"))
from compare import WORDS as SPACED
from compare import texts, want

WORDS = SPACED.split()

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXTS = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(0, len(WORDS), 7)] + [
    "the cat sat on the mat, and the dog's bone wasn't there."
] * 20
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def train(t: Tokenizer, size: int, specials: list, alphabet: list[str]) -> Tokenizer:
    """Trains BPE."""
    t.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=specials,
            initial_alphabet=alphabet,
            show_progress=False,
        ),
    )
    return t


def gpt2() -> Tokenizer:
    """GPT-2."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(t, 420, ["<|endoftext|>"], ALPHABET)


def roberta() -> Tokenizer:
    """RoBERTa."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t = train(t, 420, ["<s>", "<pad>", "</s>", "<unk>"], ALPHABET)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
    )
    return t


def modernbert() -> Tokenizer:
    """ModernBERT: NFC, and added tokens of spaces."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t = train(t, 420, ["|||IP_ADDRESS|||", "<|padding|>"], ALPHABET)
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)])
    t.add_special_tokens(
        [
            "<|endoftext|>",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[PAD]",
            AddedToken("[MASK]", lstrip=True, special=True),
        ]
    )
    cls, sep = t.token_to_id("[CLS]"), t.token_to_id("[SEP]")
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )
    return t


def smollm() -> Tokenizer:
    """SmolLM2: single digits."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    return train(t, 420, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ALPHABET)


def llama3() -> Tokenizer:
    """Llama 3: a regular expression, and merges that are ignored."""
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    t = train(t, 420, ["<|begin_of_text|>", "<|endoftext|>"], ALPHABET)
    t.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                special_tokens=[("<|begin_of_text|>", 0)],
            ),
        ]
    )
    return t


def llama2() -> Tokenizer:
    """Llama 2: SentencePiece's BPE with bytes for unknown characters."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    t.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return train(
        t, 600, ["<unk>", "<s>", "</s>", *[f"<0x{i:02X}>" for i in range(256)]], []
    )


def clip() -> Tokenizer:
    """Words with an end, lower case, a prefix space that is kept, and unknown characters."""
    t = Tokenizer(
        models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False)
    )
    t.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Lowercase(),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.BPEDecoder()
    t.train_from_iterator(
        TEXTS[:3],
        trainers.BpeTrainer(
            vocab_size=200,
            special_tokens=["<unk>", "<s>"],
            limit_alphabet=50,
            end_of_word_suffix="</w>",
            show_progress=False,
        ),
    )
    t.add_tokens(
        [
            AddedToken("WORLD", single_word=True, normalized=True),
            AddedToken("cat", single_word=True, rstrip=True, normalized=False),
        ]
    )
    return t


def odd() -> Tokenizer:
    """The parts that no other has."""
    t = Tokenizer(
        models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True)
    )
    t.normalizer = normalizers.Sequence(
        [
            normalizers.Nmt(),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Strip(),
            normalizers.Prepend("x"),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.Metaspace(prepend_scheme="first"),
            pre_tokenizers.Split("e", "merged_with_previous"),
            pre_tokenizers.Digits(False),
            pre_tokenizers.CharDelimiterSplit("z"),
        ]
    )
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(
        TEXTS[:3],
        trainers.BpeTrainer(
            vocab_size=200,
            special_tokens=["<unk>"],
            limit_alphabet=60,
            continuing_subword_prefix="##",
            show_progress=False,
        ),
    )
    t.post_processor = processors.BertProcessing(("<unk>", 0), ("<unk>", 0))
    return t


def bytes_lacking() -> Tokenizer:
    """Byte-level, with bytes that have no token, a space before the text, and NFKC."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    return train(t, 300, ["<s>"], [])


def bert() -> Tokenizer:
    """BERT's normalizer with BPE."""
    t = Tokenizer(models.BPE(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex("o{2,}"), "merged_with_next"),
            pre_tokenizers.Split("th", "removed", invert=False),
        ]
    )
    t.decoder = decoders.Metaspace()
    return train(t, 500, ["[UNK]", "[MASK]"], [])


def wordpiece() -> Tokenizer:
    """BERT, uncased."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=specials, show_progress=False
    )
    t.train_from_iterator(TEXTS, trainer)
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return t


def charsmap() -> bytes:
    """Returns a table of normalization as SentencePiece makes it, with a few rules."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=out,
        vocab_size=300,
        hard_vocab_limit=False,
        normalization_rule_tsv=os.path.join(
            HERE, "..", "..", "sentencepiece", "testdata", "rules.tsv"
        ),
        minloglevel=2,
    )
    model = model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def train_unigram(t: Tokenizer, size: int, specials: list) -> Tokenizer:
    """Trains Unigram."""
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=specials, unk_token="<unk>", show_progress=False
    )
    t.train_from_iterator(TEXTS, trainer)
    return t


def t5() -> Tokenizer:
    """T5, with the normalization of SentencePieceUnigramTokenizer."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [
            normalizers.Nmt(),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t = train_unigram(t, 200, ["<pad>", "</s>", "<unk>"])
    t.add_special_tokens(["<extra_id_0>"])
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return t


def albert() -> Tokenizer:
    """ALBERT: quotes, no accents, lower case."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t = train_unigram(t, 150, ["<pad>", "<unk>", "[CLS]", "[SEP]"])
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return t


def xlmr() -> Tokenizer:
    """XLM-RoBERTa: a table of normalization, and words at white space."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(charsmap()),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    t.decoder = decoders.Metaspace()
    t = train_unigram(t, 180, ["<s>", "<pad>", "</s>", "<unk>"])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return t


def deberta() -> Tokenizer:
    """DeBERTa-v3, as transformers makes it of its SentencePiece model."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [
            normalizers.Strip(),
            normalizers.Precompiled(charsmap()),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=180,
        special_tokens=["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
        unk_token="[UNK]",
        show_progress=False,
    )
    t.train_from_iterator(TEXTS, trainer)
    t.add_special_tokens(["[MASK]"])
    t.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return t


def unigram_bytes() -> Tokenizer:
    """Unigram with bytes for unknown characters, without a division into words."""
    vocab = [("<unk>", 0.0), *((f"<0x{i:02X}>", -20.0) for i in range(256))]
    vocab += [("▁", -2.0), ("▁the", -4.5), ("the", -5.0), ("at", -5.5)]
    vocab += [(c, -6.0 - i / 10) for i, c in enumerate("abcdefghimnopqrstuvwy")]
    t = Tokenizer(models.Unigram(vocab, 0, True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return t


def main() -> None:
    """Writes the files."""
    to = sys.argv[1] if len(sys.argv) > 1 else HERE
    goldens = {}
    for make in (
        gpt2,
        roberta,
        modernbert,
        smollm,
        llama3,
        llama2,
        clip,
        odd,
        bytes_lacking,
        bert,
        t5,
        albert,
        xlmr,
        deberta,
        unigram_bytes,
        wordpiece,
    ):
        t, name = make(), make.__name__
        t.save(os.path.join(to, name + ".json"), pretty=False)
        made = (
            s.decode("utf-8", "each_byte")
            for s in texts(random.Random(name), 60, WORDS)
        )
        some = [s for s in made if s.strip()][:20]
        goldens[name] = [{"text": s, **want(t, s)} for s in some]
    with open(os.path.join(to, "goldens.json"), "w", encoding="utf-8") as f:
        rows = (
            f"{json.dumps(k)}: [\n"
            + ",\n".join(json.dumps(w, separators=(",", ":")) for w in v)
            + "\n]"
            for k, v in goldens.items()
        )
        f.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
