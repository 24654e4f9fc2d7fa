"""Writes tasks.json.gz: windows of questions and tokens of words, as transformers 5.24 makes them.

hf/bin/python internal/data/tokenizers/testdata/gen_tasks.py (see gen_goldens.py)
"""

from __future__ import annotations

import gzip
import json
import pathlib

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
FILES = HERE / "../../../../text/tokenizerjson/testdata"
NAMES = ["roberta", "gpt2", "xlmr", "t5", "albert", "bert"]
CONTEXTS = [
    "Ann lives in Rome. The cat sat on the mat, and the dog's bone wasn't there.",
    "  two leading spaces,\r\nCRLF\r\n\ttabs and   runs of spaces \r\n",
    "emoji 👍🏽 and 👨\u200d👩\u200d👧\u200d👦 in it ❤️ 🇩🇪 end",
    "e\u0301te\u0301 cafe\u0301 \u1ed9 o\u0323\u0302 combining",
    "שלום עולם مرحبا بالعالم right to left",
    "你好世界 日本語 テキスト 한국어",
    "\u200b\u200e zero width \ufeff ends\u200b",
    "one",
]
QUESTIONS = ["Where does Ann live?", " spaces 👍🏽 ", "שלום"]
SENTENCES = [
    ["Ann", "lives", "in", "Rome", "."],
    ["👍🏽", "cafe\u0301", "👨\u200d👩\u200d👧", "O'Neil-Smith", "1,000"],
    ["שלום", "مرحبا", "你好世界", "ﬁne"],
    ["a", "\u200b", "b", "\u0001", "c", " ", "d", "\u00ad"],
    [" leading", "trailing ", "in side", "tab\tbed", "cr\r\nlf"],
    ["dog's", "don't", "(the", "cat)", "..."],
]


def windows(t: PreTrainedTokenizerFast, question: str, context: str, room: int) -> list:
    """Returns the windows of a context: ids, types, and the characters of the context's tokens."""
    specials = t.num_special_tokens_to_add(pair=True)
    asked = len(t(question, add_special_tokens=False)["input_ids"])
    e = t(
        question,
        context,
        truncation="only_second",
        max_length=asked + specials + room,
        stride=room // 3,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    out = []
    for i, ids in enumerate(e["input_ids"]):
        offsets = [
            o if e.sequence_ids(i)[k] == 1 else [0, 0] for k, o in enumerate(e["offset_mapping"][i])
        ]
        out.append([ids, e["token_type_ids"][i], offsets])
    return out


def main() -> None:
    """Writes the file."""
    out = {"contexts": CONTEXTS, "questions": QUESTIONS, "sentences": SENTENCES, "tokenizers": {}}
    for name in NAMES:
        t = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_file(str(FILES / f"{name}.json"))
        )
        rooms = (6, 50)
        asked = [windows(t, q, c, room) for q in QUESTIONS for c in CONTEXTS for room in rooms]
        text = (FILES / f"{name}.json").read_text()
        # Words are as after a space, which RobertaTokenizer's add_prefix_space does.
        spaced = json.loads(text)
        if spaced["pre_tokenizer"]["type"] == "ByteLevel":
            spaced["pre_tokenizer"]["add_prefix_space"] = True
        t = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(spaced)))
        tagged = []
        for words in SENTENCES:
            e = t(words, is_split_into_words=True)
            tagged.append([e["input_ids"], [-1 if w is None else w for w in e.word_ids()]])
        out["tokenizers"][name] = {"windows": asked, "tagged": tagged, "rooms": rooms}
    (HERE / "tasks.json.gz").write_bytes(gzip.compress(json.dumps(out).encode(), mtime=0))


if __name__ == "__main__":
    main()
