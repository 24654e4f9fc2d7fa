"""Writes fill/: tokenizers for families/roberta-mlm, and what transformers puts in place of masks.

python -m venv hf && hf/bin/pip install tensorflow-cpu==2.18.1 tf-keras==2.18.0 transformers==4.46.3
hf/bin/python tools/tests/goldens/gen_fill.py

There is a tokenizer.json of byte pair encodings and one of Unigram, and in cases.json the five most
probable tokens for each mask of each text, by the pipeline fill-mask.
"""

import json
import pathlib
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, TFRobertaForMaskedLM, pipeline

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = [
    "good <mask> bad",
    "good<mask> bad",
    "good <mask>bad",
    "<mask>",
    " <mask>  <mask> good",
    "bad good <mask> good <mask> .",
    "<mask><mask>, <mask>",
]


def finish(tokenizer: Tokenizer, left: bool) -> Tokenizer:
    """Adds the special tokens, of which the mask takes a space before it if left says so."""
    for name in SPECIAL[:-1]:
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)])
    mask = AddedToken("<mask>", lstrip=left, special=True, normalized=False)
    tokenizer.add_special_tokens([mask])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def bpe() -> Tokenizer:
    """Returns byte pair encodings as RoBERTa's."""
    merges = [("g", "o"), ("o", "d"), ("go", "od"), ("b", "a"), ("ba", "d")]
    merges += [("Ġ", "good"), ("Ġ", "bad")]
    tokens = [*SPECIAL, "Ġ", "a", "b", "d", "g", "o", ".", ","]
    tokens += [a + b for a, b in merges]
    model = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return finish(tokenizer, left=True)


def unigram() -> Tokenizer:
    """Returns Unigram pieces as XLM-RoBERTa's."""
    pieces = [
        "▁",
        "▁good",
        "▁bad",
        "good",
        "bad",
        "go",
        "od",
        "a",
        "b",
        "d",
        "g",
        "o",
        ".",
        ",",
        "▁a",
    ]
    scored = [(token, 0.0) for token in SPECIAL]
    scored += [(piece, -1.0 - i / 8) for i, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return finish(tokenizer, left=True)


def main() -> None:
    """Writes the files."""
    out = HERE / "fill"
    out.mkdir(exist_ok=True)
    families = HERE / "families"
    cases = {}
    for name, tokenizer in (("bpe", bpe()), ("unigram", unigram())):
        tokenizer.save(str(out / f"{name}.json"), pretty=False)
        roles = {f"{role}_token": f"<{role}>" for role in ("pad", "unk", "mask")}
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", **roles
        )
        with tempfile.TemporaryDirectory() as folder:
            for file, source in (
                ("model.safetensors", "roberta-mlm.safetensors"),
                ("config.json", "roberta-mlm.json"),
            ):
                (pathlib.Path(folder) / file).write_bytes((families / source).read_bytes())
            model = TFRobertaForMaskedLM.from_pretrained(folder)
        fill = pipeline("fill-mask", model=model, tokenizer=fast, framework="tf", top_k=5)
        cases[name] = []
        for text in TEXTS:
            masks = fill(text)
            masks = masks if isinstance(masks[0], list) else [masks]
            cases[name].append(
                {
                    "text": text,
                    "tokens": [[one["token_str"] for one in mask] for mask in masks],
                    "scores": [[round(one["score"], 7) for one in mask] for mask in masks],
                }
            )
    (out / "cases.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
