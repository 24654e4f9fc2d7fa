"""Writes goldens.json.gz: folders with SentencePiece models, and the ids of transformers 5.24.

python -m venv hf && hf/bin/pip install transformers==5.24 tokenizers==0.23.3 sentencepiece protobuf
hf/bin/python internal/data/tokenizers/testdata/gen_goldens.py
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import pathlib
import tempfile

import sentencepiece
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).parent
LEARNED = [
    "the cat sat on the mat",
    "a dog's bone wasn't there, in 2023, not 5,000",
    "Hello World, this is a test (of it)",
    'l\'été à la plage «oui» "no"',
] * 40
TEXTS = [
    "",
    " ",
    "the cat sat",
    "  The  CAT\tsat\r\non ",
    "Été à ``la'' plage, ﬁne ½ ①",
    "in 2023, 5,000 dogs",
    "the <mask> cat [MASK] <pad> </s> <s> <unk> [CLS]",
    "the<mask>cat <extra_id_0> <extra_id_99>",
    "👩\u200d👩\u200d👧 e\u0301 a\u0308 ☕️",
    "שלום مرحبا hello",
    "▁the ▁ _the",
    "中文字 the日本",
    "\u200b\u200e\ufeff",
    "a\u00a0b\u3000c",
    "don't (test) of",
    "  two\n\n\nlines\n    and 12 345\t<unused0> <table>x<table>\r\n ",
    "<|im_start|>user\nthe cat<|im_end|> <s>a</s><bos>b <0x41>",
]
PAIRS = [("the cat", "a dog's bone"), ("Hello World", ""), ("", "the mat"), ("a <mask>", "b")]


def train(**options: object) -> bytes:
    """Returns a model."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LEARNED),
        model_writer=out,
        minloglevel=2,
        **{"hard_vocab_limit": False, "vocab_size": 70, **options},
    )
    return out.getvalue()


RULES = {"normalization_rule_tsv": str(HERE / "../../../../text/sentencepiece/testdata/rules.tsv")}
DEBERTA = {
    "pad_id": 0,
    "bos_id": 1,
    "eos_id": 2,
    "unk_id": 3,
    "pad_piece": "[PAD]",
    "bos_piece": "[CLS]",
    "eos_piece": "[SEP]",
    "unk_piece": "[UNK]",
}
PAIRS_OF_BYTES = {
    "model_type": "bpe",
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
    "hard_vocab_limit": True,
    "vocab_size": 360,
}
LLAMA = PAIRS_OF_BYTES | {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
GEMMA = PAIRS_OF_BYTES | {
    "pad_id": 0,
    "eos_id": 1,
    "bos_id": 2,
    "unk_id": 3,
    "eos_piece": "<eos>",
    "bos_piece": "<bos>",
    "add_dummy_prefix": False,
    "user_defined_symbols": ["<mask>", "<unused0>", "\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<table>"],
}
XLMR = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
FOLDERS = {
    "t5": (
        "spiece.model",
        {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, **RULES},
        {"config.json": {"model_type": "t5"}},
    ),
    "t5few": (
        "spiece.model",
        {
            "pad_id": 0,
            "eos_id": 1,
            "unk_id": 2,
            "bos_id": -1,
            "normalization_rule_name": "identity",
        },
        {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "extra_ids": 3}},
    ),
    "albert": (
        "spiece.model",
        {
            "pad_id": 0,
            "unk_id": 1,
            "bos_id": -1,
            "eos_id": -1,
            "control_symbols": ["[CLS]", "[SEP]"],
            "user_defined_symbols": ["[MASK]", "(", ")"],
            **RULES,
        },
        {"config.json": {"model_type": "albert"}},
    ),
    "albertcased": (
        "spiece.model",
        {
            "pad_id": 0,
            "unk_id": 1,
            "bos_id": -1,
            "eos_id": -1,
            "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
            **RULES,
        },
        {
            "tokenizer_config.json": {
                "tokenizer_class": "AlbertTokenizerFast",
                "do_lower_case": False,
                "keep_accents": True,
                "add_prefix_space": False,
                "model_max_length": 512,
                "remove_space": True,
                "sp_model_kwargs": {},
            },
        },
    ),
    "xlmr": (
        "sentencepiece.bpe.model",
        XLMR,
        {
            "config.json": {"model_type": "xlm-roberta"},
            "tokenizer_config.json": {
                "mask_token": {
                    "__type": "AddedToken",
                    "content": "<mask>",
                    "lstrip": True,
                    "rstrip": False,
                    "normalized": False,
                    "single_word": False,
                },
            },
        },
    ),
    "deberta": (
        "spm.model",
        DEBERTA | RULES,
        {
            "config.json": {"model_type": "deberta-v2"},
            "tokenizer_config.json": {"do_lower_case": False, "vocab_type": "spm"},
        },
    ),
    "debertalower": (
        "spm.model",
        DEBERTA | {"user_defined_symbols": ["[MASK]"]},
        {
            "config.json": {"model_type": "deberta-v2"},
            "tokenizer_config.json": {
                "do_lower_case": True,
                "split_by_punct": True,
                "add_prefix_space": False,
            },
        },
    ),
    "llama": (
        "tokenizer.model",
        LLAMA,
        {
            "tokenizer_config.json": {
                "tokenizer_class": "LlamaTokenizer",
                "add_bos_token": True,
                "add_eos_token": False,
                "legacy": False,
                "model_max_length": 4096,
                "pad_token": None,
                "sp_model_kwargs": {},
                "clean_up_tokenization_spaces": False,
                "bos_token": {
                    "__type": "AddedToken",
                    "content": "<s>",
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                },
            },
        },
    ),
    "llamalegacy": (
        "tokenizer.model",
        LLAMA,
        {
            "tokenizer_config.json": {
                "tokenizer_class": "LlamaTokenizerFast",
                "add_bos_token": True,
                "add_eos_token": True,
                "legacy": True,
            },
            "special_tokens_map.json": {
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "pad_token": "</s>",
            },
        },
    ),
    "llamachat": (
        "tokenizer.model",
        LLAMA,
        {
            "config.json": {"model_type": "llama"},
            "tokenizer_config.json": {
                "tokenizer_class": "LlamaTokenizer",
                "add_bos_token": False,
                "add_prefix_space": False,
                "eos_token": "<|im_end|>",
                "pad_token": "<pad>",
            },
            "added_tokens.json": {"<pad>": 360, "<|im_end|>": 361, "<|im_start|>": 362},
        },
    ),
    "mistral": (
        "tokenizer.model",
        LLAMA,
        {
            "config.json": {"model_type": "mistral"},
            "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True},
        },
    ),
    "gemma": (
        "tokenizer.model",
        GEMMA,
        {
            "config.json": {"model_type": "gemma"},
            "tokenizer_config.json": {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True},
        },
    ),
    "gemma2": (
        "tokenizer.model",
        GEMMA,
        {
            "config.json": {"model_type": "gemma2"},
            "tokenizer_config.json": {"add_bos_token": True, "add_eos_token": True},
        },
    ),
    "camembert": (
        "sentencepiece.bpe.model",
        XLMR | RULES,
        {"config.json": {"model_type": "camembert"}},
    ),
}


def encoded(tokenizer: object) -> dict:
    """Returns what a tokenizer gives for the texts and the pairs."""
    pairs = [tokenizer(a, b) for a, b in PAIRS if b]
    return {
        "ids": [tokenizer(text)["input_ids"] for text in TEXTS],
        "offsets": [tokenizer(t, return_offsets_mapping=True)["offset_mapping"] for t in TEXTS],
        "pairs": [e["input_ids"] for e in pairs],
        "types": [e.get("token_type_ids") for e in pairs],
        "size": len(tokenizer),
    }


def main() -> None:
    """Writes the folders and the goldens."""
    top = pathlib.Path(tempfile.mkdtemp())
    out = {"texts": TEXTS, "pairs": [p for p in PAIRS if p[1]], "folders": {}}
    for name, (file, options, settings) in FOLDERS.items():
        folder = top / name
        folder.mkdir()
        (folder / file).write_bytes(train(**options))
        for path, values in settings.items():
            (folder / path).write_text(json.dumps(values) + "\n")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        out["folders"][name] = encoded(tokenizer)
        if name in ("t5few", "albertcased"):  # as transformers saves them
            saved = top / f"{name}_saved"
            tokenizer.save_pretrained(saved)
            out["folders"][saved.name] = encoded(AutoTokenizer.from_pretrained(saved))
    for name, folder in out["folders"].items():
        folder["files"] = {
            f.name: base64.b64encode(f.read_bytes()).decode()
            for f in sorted((top / name).iterdir())
        }
    text = json.dumps(out).encode()
    (HERE / "goldens.json.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
