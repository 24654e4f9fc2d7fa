"""Writes choices/: small models for multiple choice of transformers with random weights.

For each model_type there is NAME.safetensors, NAME.json (its config.json) and in cases.json the
token ids of each choice of each example, the logits, the loss of the labels, and the sums of the
squares of its gradients. The last example has fewer choices. Another folder can be named.

hf/bin/python tools/tests/goldens/gen_choices.py [FOLDER]

in an environment with torch, transformers (5.23) and safetensors.
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
DEBERTA = {
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
}
ROBERTA = {"max_position_embeddings": 18, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
MODERNBERT = {"local_attention": 8, "pad_token_id": 0, "attn_implementation": "eager"}
KINDS = {
    "albert": transformers.AlbertConfig(**BERT, embedding_size=4),
    "bert": transformers.BertConfig(**BERT),
    "deberta": transformers.DebertaV2Config(**BERT | DEBERTA),
    "distilbert": transformers.DistilBertConfig(**DISTILBERT),
    "electra": transformers.ElectraConfig(**BERT, embedding_size=4),
    "modernbert": transformers.ModernBertConfig(**BERT | MODERNBERT),
    "roberta": transformers.RobertaConfig(**BERT | ROBERTA),
}
CLASSES = {
    "albert": "AlbertForMultipleChoice",
    "bert": "BertForMultipleChoice",
    "deberta": "DebertaV2ForMultipleChoice",
    "distilbert": "DistilBertForMultipleChoice",
    "electra": "ElectraForMultipleChoice",
    "modernbert": "ModernBertForMultipleChoice",
    "roberta": "RobertaForMultipleChoice",
}
LENGTHS = [[5, 3, 9], [4, 13, 6], [7, 2]]
LABELS = [2, 0, 1]


def main() -> None:
    """Writes the files."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "choices"
    out.mkdir(parents=True, exist_ok=True)
    cases = {}
    for seed, (name, config) in enumerate(KINDS.items()):
        torch.manual_seed(seed)
        model = getattr(transformers, CLASSES[name])(config).eval()
        with torch.no_grad():
            # Norms and biases start at 1 and 0, which would hide that they are read.
            for p in model.parameters():
                p.copy_(torch.randn(p.shape) * 0.4 + (p.mean() > 0.9))
        ids = [[torch.randint(2, 20, (n,)) for n in lengths] for lengths in LENGTHS]
        logits, loss = [], 0
        for choices, label in zip(ids, LABELS):
            padded = torch.nn.utils.rnn.pad_sequence(
                choices, batch_first=True, padding_value=config.pad_token_id
            )
            mask = torch.nn.utils.rnn.pad_sequence(
                [torch.ones_like(choice) for choice in choices], batch_first=True
            )
            y = model(
                input_ids=padded[None], attention_mask=mask[None], labels=torch.tensor([label])
            )
            logits.append(y.logits[0].tolist())
            loss = loss + y.loss
        loss.backward()
        model.save_pretrained(out / name)
        (out / name / "model.safetensors").rename(out / f"{name}.safetensors")
        values = json.loads((out / name / "config.json").read_text())
        (out / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n")
        for rest in (out / name).iterdir():
            rest.unlink()
        (out / name).rmdir()
        cases[name] = {
            "input_ids": [[x.tolist() for x in choices] for choices in ids],
            "labels": LABELS,
            "logits": logits,
            "loss": loss.item(),
            "gradients": {key: p.grad.square().sum().item() for key, p in model.named_parameters()},
        }
    (out / "cases.json").write_text(json.dumps(cases) + "\n")


main()
