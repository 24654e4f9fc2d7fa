"""Writes minilm.json: the output of Hugging Face's BERT for some texts with the demo's weights.

make fetch
python -m venv hf
hf/bin/pip install tensorflow-cpu==2.18.1 tf-keras==2.18.0 transformers==4.46.3
hf/bin/python tools/tests/goldens/gen_minilm.py
"""

import json
import os
import pathlib

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf
from tokenizers import BertWordPieceTokenizer
from transformers import TFBertModel

HERE = pathlib.Path(__file__).resolve().parent
WEIGHTS = HERE.parents[2] / ".cache" / "minilm"
PAIRS = [
    ("A gripping, beautifully shot film that stays with you.", None),
    ("Badly written, tedious, and far too long.", None),
    ("He left early.", "He went home before the end."),
    ("Shares of the company rose 4.5 percent to $12.80.", "The company's stock was up 4.5 %."),
    ("Yes.", "No, the foodservice business does not fit its long-term growth strategy."),
    ("", None),
]


def main() -> None:
    """Writes the file."""
    tokenizer = BertWordPieceTokenizer(str(WEIGHTS / "vocab.txt"), lowercase=True)
    model = TFBertModel.from_pretrained(WEIGHTS)
    cases = []
    for a, b in PAIRS:
        e = tokenizer.encode(a, b)
        ids, types = tf.constant([e.ids]), tf.constant([e.type_ids])
        out = model(input_ids=ids, token_type_ids=types, attention_mask=tf.ones_like(ids))
        hidden = out.last_hidden_state[0].numpy().astype("float64")
        cases.append(
            {
                "input_ids": e.ids,
                "token_type_ids": e.type_ids,
                "last_hidden_cls_0_8": hidden[0, :8].round(6).tolist(),
                "last_hidden_last_0_8": hidden[-1, :8].round(6).tolist(),
                "last_hidden_sum": round(hidden.sum(), 4),
                "last_hidden_abs_sum": round(abs(hidden).sum(), 4),
            }
        )
    text = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (HERE / "minilm.json").write_text('{"cases":[\n' + text + "\n]}\n")


main()
