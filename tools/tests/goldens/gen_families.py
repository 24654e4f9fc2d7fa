"""Writes families/: small models of transformers with random weights, and what they compute.

For each model_type there is NAME.safetensors, NAME.json (its config.json) and in cases.json the
token ids and the logits of NAME. Another folder can be named.

hf/bin/python tools/tests/goldens/gen_families.py [FOLDER]

in an environment with torch, transformers and safetensors.
"""

import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
BERT = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "vocab_size": 20,
    "max_position_embeddings": 16,
}
DISTILBERT = {
    "dim": 8,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 12,
    "vocab_size": 20,
    "max_position_embeddings": 16,
}
KINDS = {
    "distilbert": (
        transformers.DistilBertConfig(**DISTILBERT),
        transformers.DistilBertForSequenceClassification,
    ),
    "electra": (
        transformers.ElectraConfig(**BERT, embedding_size=4),
        transformers.ElectraForSequenceClassification,
    ),
    # Release models have 514 positions for sequences of 512 tokens, and one type.
    "roberta": (
        transformers.RobertaConfig(
            **{**BERT, "max_position_embeddings": 18}, type_vocab_size=1, layer_norm_eps=1e-5
        ),
        transformers.RobertaForSequenceClassification,
    ),
    "albert": (
        transformers.AlbertConfig(**BERT, embedding_size=4),
        transformers.AlbertForSequenceClassification,
    ),
    "albert-mlm": (
        transformers.AlbertConfig(**BERT, embedding_size=4),
        transformers.AlbertForMaskedLM,
    ),
    "distilbert-mlm": (
        transformers.DistilBertConfig(**DISTILBERT),
        transformers.DistilBertForMaskedLM,
    ),
    "roberta-mlm": (
        transformers.RobertaConfig(
            **{**BERT, "max_position_embeddings": 18}, type_vocab_size=1, layer_norm_eps=1e-5
        ),
        transformers.RobertaForMaskedLM,
    ),
}
IDS = [[5, 9, 7, 11, 3], [4, 8], [6, 19, 2, 12, 13, 14, 15, 16, 17, 18, 10, 9, 8, 7, 6, 5]]


def main() -> None:
    """Writes the files."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "families"
    cases = {}
    for seed, (name, (config, make)) in enumerate(KINDS.items()):
        torch.manual_seed(seed)
        config.num_labels = 3
        model = make(config).eval()
        with torch.no_grad():
            # Norms and biases start at 1 and 0, which would hide that they are read.
            for p in model.parameters():
                p.copy_(torch.randn(p.shape) * 0.4 + (p.mean() > 0.9))
            logits = [model(input_ids=torch.tensor([ids])).logits[0].tolist() for ids in IDS]
        model.save_pretrained(out / name)
        (out / name / "model.safetensors").rename(out / f"{name}.safetensors")
        config = json.loads((out / name / "config.json").read_text())
        (out / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")
        for rest in (out / name).iterdir():
            rest.unlink()
        (out / name).rmdir()
        cases[name] = {"input_ids": IDS, "logits": logits}
    (out / "cases.json").write_text(json.dumps(cases) + "\n")


main()
