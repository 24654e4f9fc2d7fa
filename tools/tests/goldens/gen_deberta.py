"""Writes deberta/: small DeBERTas of transformers with random weights, and what they compute.

The files are those of gen_modernbert.py. Sequences are longer than the distances that have vectors
of their own. Another folder can be named. buckets.json has what transformers makes of distances in
the released models.

hf/bin/python tools/tests/goldens/gen_deberta.py [FOLDER]

in an environment with torch, transformers (4.57) and safetensors.
"""

import json
import pathlib
import sys

import torch
import transformers
from gen_modernbert import write
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "vocab_size": 20,
    "max_position_embeddings": 32,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "num_labels": 3,
}
KINDS = {
    "cls": ("DebertaV2ForSequenceClassification", {}),
    # Distances from 19 on are one, and words narrower than layers.
    "narrow": (
        "DebertaV2ForSequenceClassification",
        {"embedding_size": 4, "max_relative_positions": 20},
    ),
    "mlm": ("DebertaV2ForMaskedLM", {"embedding_size": 4}),
    # transformers would tie the wrong matrix, the head's first.
    "head": ("DebertaV2ForMaskedLM", {"legacy": False, "tie_word_embeddings": False}),
    "tokens": ("DebertaV2ForTokenClassification", {}),
    "qa": ("DebertaV2ForQuestionAnswering", {"num_labels": 2}),
}


def main() -> None:
    """Writes the files."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "deberta"
    configs = {
        name: (kind, transformers.DebertaV2Config(**SIZES | changes))
        for name, (kind, changes) in KINDS.items()
    }
    write(out, configs)
    distances = torch.arange(-512, 513)
    found = {
        "256 512": make_log_bucket_position(distances, 256, 512),
        "32 128": make_log_bucket_position(distances, 32, 128),
    }
    text = json.dumps({name: [int(x) for x in values] for name, values in found.items()})
    (out / "buckets.json").write_text(text + "\n")


main()
