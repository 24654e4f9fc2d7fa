"""Writes sides.json: sources and targets as transformers makes tokens of them for training.

hf/bin/python convert/testdata/sides.py
"""

import json
import pathlib

from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
TOKENIZERS = HERE.parent.parent / "text" / "tokenizerjson" / "testdata"
# The tokenizers of T5 and BART, and one whose frame is that of mBART's without languages.
CASES = {
    "t5.json": {"eos_token": "</s>", "pad_token": "<pad>"},
    "roberta.json": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
    "xlmr.json": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
}
PREFIX = "translate: "
MOST, MOST_OF_TARGETS = 12, 8
PAIRS = [
    ("The house is small.", "Das Haus ist klein."),
    ("a", "b"),
    (" two  spaces\u00a0", "\u00fcber \U0001f600"),
    ("it is late and it is late and it is late", "es ist sp\u00e4t und es ist sp\u00e4t und es ist"),
    ("</s> in a text", "a text </s> <pad>"),
    ("1,234.5", "1.234,5"),
]


def main() -> None:
    """Writes the file."""
    out = []
    for name, special in CASES.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZERS / name), **special)
        cases = []
        for source, target in PAIRS:
            ids = tokenizer(PREFIX + source, max_length=MOST, truncation=True)["input_ids"]
            labels = tokenizer(text_target=target, max_length=MOST_OF_TARGETS, truncation=True)
            cases.append(
                {
                    "source": source,
                    "target": target,
                    "input_ids": ids,
                    "target_ids": labels["input_ids"],
                }
            )
        out.append({"tokenizer": name, "cases": cases})
    golden = {
        "prefix": PREFIX,
        "max_length": MOST,
        "max_target_length": MOST_OF_TARGETS,
        "tokenizers": out,
    }
    (HERE / "sides.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
