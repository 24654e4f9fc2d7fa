"""Writes squad_vocab.txt and squad_windows.json: windows of squad.json by the tokenizers library.

python -m venv hf && hf/bin/pip install tokenizers
hf/bin/python convert/testdata/squad.py

The windows are those of Hugging Face's run_qa.py, and so are the tokens of the answers.
"""

import json
import pathlib

from tokenizers import BertWordPieceTokenizer

HERE = pathlib.Path(__file__).resolve().parent
LENGTH, STRIDE = 64, 16


def main() -> None:
    """Writes the files."""
    text = (HERE / "squad.json").read_text(encoding="utf-8")
    words = [
        "the",
        "in",
        "of",
        "lighthouse",
        "ann",
        "diary",
        "electricity",
        "##ed",
        "##s",
        "river",
    ]
    letters = sorted({c for c in text.lower() if not c.isspace()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters]
    tokens += [f"##{c}" for c in letters if c.isalnum() and c != "s"]
    path = HERE / "squad_vocab.txt"
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    tokenizer = BertWordPieceTokenizer(str(path), lowercase=True)
    tokenizer.enable_truncation(LENGTH, stride=STRIDE, strategy="only_second")
    windows = []
    paragraphs = [
        p for article in json.loads(text)["data"] for p in article["paragraphs"]
    ]
    for context, qa in [(p["context"], qa) for p in paragraphs for qa in p["qas"]]:
        first = tokenizer.encode(qa["question"], context)
        for e in [first, *first.overflowing]:
            start = end = 0
            places = [i for i, kind in enumerate(e.type_ids) if kind == 1][:-1]
            if qa["answers"]:
                answer = qa["answers"][0]
                begin = answer["answer_start"]
                behind = begin + len(answer["text"])
                if (
                    e.offsets[places[0]][0] <= begin
                    and e.offsets[places[-1]][1] >= behind
                ):
                    start = max(i for i in places if e.offsets[i][0] <= begin)
                    end = min(i for i in places if e.offsets[i][1] >= behind)
            windows.append(
                {
                    "id": qa["id"],
                    "ids": e.ids,
                    "types": e.type_ids,
                    "start": start,
                    "end": end,
                }
            )
    golden = {"length": LENGTH, "stride": STRIDE, "windows": windows}
    (HERE / "squad_windows.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
