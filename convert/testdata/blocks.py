"""Writes blocks.json: blocks of texts, as Hugging Face's programs make them.

python -m venv hf && hf/bin/pip install transformers==4.46.3
hf/bin/python convert/testdata/blocks.py

`group_texts` is that of run_mlm.py in transformers 4.46.3 (Apache-2.0), for one batch with all
texts. It drops what is shorter than a block at the end; so the last block is added here. Blocks
that keep to their documents are the windows of a tokenizer with `return_overflowing_tokens`.
"""

import json
import pathlib
import tempfile
from itertools import chain

from transformers import BertTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent

TEXT = """
 = Valkyria =

 The girl is fast . She sees the lighthouse in the fog .
 It is late , so late that she runs .

 = = Story = =

 A boat comes . Nobody is in it .


 = The Sea =
 = = = Salt = = =
 Salt .

 x = y =
 Waves and waves and waves and waves and waves and waves and waves and waves and waves .
 =
"""
TEXTS = [line.strip() for line in TEXT.splitlines()]


def vocabulary() -> list[str]:
    """Returns letters and a few words."""
    letters = sorted({c for c in TEXT.lower() if not c.isspace()})
    words = ["the", "she", "is", "waves", "late", "in"]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*specials, *words, *letters, *(f"##{c}" for c in letters)]


def group_texts(examples: dict, max_seq_length: int) -> dict:
    """As in run_mlm.py."""
    # Concatenate all texts.
    concatenated_examples = {k: list(chain(*examples[k])) for k in examples}
    total_length = len(concatenated_examples[next(iter(examples))])
    # We drop the small remainder, and if the total_length < max_seq_length  we exclude this
    # batch and return an empty dict.
    total_length = (total_length // max_seq_length) * max_seq_length
    # Split by chunks of max_len.
    return {
        k: [t[i : i + max_seq_length] for i in range(0, total_length, max_seq_length)]
        for k, t in concatenated_examples.items()
    }


def documents(kind: str) -> list[str]:
    """Returns the documents of the texts, one text each."""
    out: list[list[str]] = [[]]
    for text in TEXTS:
        if kind == "texts" or (kind == "blank-lines" and not text):
            out.append([])
        if kind == "headings" and text in ("= Valkyria =", "= The Sea ="):
            out.append([])
        out[-1].append(text)
    return [" ".join(texts) for texts in out if "".join(texts)]


def main() -> None:
    """Writes the file."""
    vocab = vocabulary()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "vocab.txt")
        path.write_text("\n".join(vocab) + "\n", encoding="utf-8")
        tokenizer = BertTokenizerFast(str(path))
    cases = []
    for kind in ("texts", "blank-lines", "headings"):
        for length in (8, 19):
            ids = tokenizer(documents(kind))["input_ids"]
            grouped = group_texts({"input_ids": ids}, length)["input_ids"]
            rest = list(chain(*ids))[len(grouped) * length :]
            kept = tokenizer(
                documents(kind),
                truncation=True,
                max_length=length,
                return_overflowing_tokens=True,
            )["input_ids"]
            for blocks, want in (("group", grouped + [rest] * bool(rest)), ("keep", kept)):
                cases.append({"documents": kind, "blocks": blocks, "length": length, "ids": want})
    content = {"vocab": vocab, "text": TEXT, "cases": cases}
    (HERE / "blocks.json").write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
