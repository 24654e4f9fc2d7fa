"""Writes bert.json: texts and their ids by the tokenizers library, with the demo's vocabulary.

    make fetch
    python -m venv hf && hf/bin/pip install tokenizers==0.20.3
    hf/bin/python text/testdata/gen_bert.py

The vocabulary is the one of bert-base-uncased, which goldens.json cannot have: it has one of
its own that is made for odd characters.
"""

import json
import pathlib

from tokenizers import BertWordPieceTokenizer

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = HERE.parents[1] / ".cache" / "minilm" / "vocab.txt"
PAIRS = [
    ("A gripping, beautifully shot film that stays with you.", None),
    ("Badly written, tedious, and far too long.", None),
    ("He left early.", "He went home before the end."),
    (
        "The company 's shares rose 4.5 % , to $ 12.80 .",
        "Shares of the company were up 4.5 percent .",
    ),
    (
        '" It doesn \'t fit the long-term strategy , " she said .',
        "It does not fit, she said.",
    ),
    (
        "Unquestionably the antidisestablishmentarian counterrevolutionaries overextended.",
        None,
    ),
    ("naïve café — “quoted” text… ÀÉÎÕÜ Straße Ærøskøbing", "Łódź İstanbul ﬁn ½ ² ™"),
    ("東京 is Tokyo, 서울 is Seoul, Москва is Moscow, Αθήνα is Athens", None),
    (
        "don't won't it's U.S.A. e-mail@example.com http://example.com/a_b?c=d&e=f#g",
        None,
    ),
    (
        "1,234,567.89 3/4 50% #1 @you +1-555-0100 10:45pm 2003-07-04",
        "C++ C# .NET {x|y} <tag/> ~$^`\\",
    ),
    ("UPPER lower MiXeD", "   spaces\tand\nlines\r\n  around   "),
    ("", None),
    ("", "only the second"),
    ("[MASK] [CLS] [SEP] [PAD] [UNK] [unused1]", None),
    ("a" * 99 + " " + "b" * 100 + " " + "c" * 101, None),
    (
        "soft\u00adhyphen zero\u200bwidth \u2060joiner\ufeff \U0001f600 \U0001f468\u200d\U0001f469 \ue000",
        None,
    ),
]


def main() -> None:
    """Writes the file."""
    tokenizer = BertWordPieceTokenizer(str(VOCAB), lowercase=True)
    cases = []
    for a, b in PAIRS:
        e = tokenizer.encode(a, b)
        case = {"a": a, "ids": e.ids, "types": e.type_ids}
        if b is not None:
            case["b"] = b
        cases.append(case)
    text = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (HERE / "bert.json").write_text('{"cases":[\n' + text + "\n]}\n")


main()
