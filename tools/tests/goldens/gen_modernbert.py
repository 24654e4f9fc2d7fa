"""Writes modernbert/: small ModernBERTs of transformers with random weights, and what they compute.

For each task there is NAME.safetensors, NAME.json (its config.json), and in cases.json the token
ids, the logits, the loss of the labels, and the sums of the squares of its gradients. The window is
8 tokens wide, and sequences are longer. Another folder can be named.

hf/bin/python tools/tests/goldens/gen_modernbert.py [FOLDER]

in an environment with torch, transformers (4.57) and safetensors.
"""

import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "vocab_size": 20,
    "max_position_embeddings": 64,
    "local_attention": 8,
    "pad_token_id": 0,
    "num_labels": 3,
    "attn_implementation": "eager",
}
KINDS = {
    "cls": ("ModernBertForSequenceClassification", {"classifier_pooling": "cls"}),
    "mean": ("ModernBertForSequenceClassification", {"classifier_pooling": "mean"}),
    # Every second layer is local, and of the same frequencies.
    "mlm": (
        "ModernBertForMaskedLM",
        {"global_attn_every_n_layers": 2, "local_rope_theta": None},
    ),
    "tokens": ("ModernBertForTokenClassification", {}),
    "qa": ("ModernBertForQuestionAnswering", {"num_labels": 2}),
}
# Shorter than half of the window, as long as the window and one more, and longer.
LENGTHS = [3, 8, 9, 13, 30]


def write(out: pathlib.Path, kinds: dict[str, tuple[str, transformers.PretrainedConfig]]) -> None:
    """Writes the files of models, which are classes of transformers with their configurations."""
    out.mkdir(parents=True, exist_ok=True)
    cases = {}
    for seed, (name, (kind, config)) in enumerate(kinds.items()):
        torch.manual_seed(seed)
        model = getattr(transformers, kind)(config).eval()
        with torch.no_grad():
            # Norms start at 1 and biases at 0, which would hide that they are read.
            for p in model.parameters():
                p.copy_(torch.randn(p.shape) * 0.4 + (p.mean() > 0.9))
        ids = [torch.randint(1, 20, (n,)) for n in LENGTHS]
        logits, labels, loss = [], [], 0
        for example in ids:
            y = model(input_ids=example[None])
            y = torch.stack((y.start_logits, y.end_logits), -1)[0] if name == "qa" else y.logits[0]
            logits.append(y)
            # One per example, or one per token; of a question the first and last token.
            rows = y.T if name == "qa" else y.reshape(-1, y.shape[-1])
            labels.append(torch.randint(0, rows.shape[-1], (len(rows),)))
            loss = loss + torch.nn.functional.cross_entropy(rows, labels[-1], reduction="sum")
        if name == "qa":
            loss = loss / 2
        loss.backward()
        model.save_pretrained(out / name)
        (out / name / "model.safetensors").rename(out / f"{name}.safetensors")
        config = json.loads((out / name / "config.json").read_text())
        (out / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")
        for rest in (out / name).iterdir():
            rest.unlink()
        (out / name).rmdir()
        cases[name] = {
            "input_ids": [x.tolist() for x in ids],
            "labels": [x.tolist() for x in labels],
            "logits": [x.tolist() for x in logits],
            "loss": float(loss),
            "gradients": {key: p.grad.square().sum().item() for key, p in model.named_parameters()},
        }
    (out / "cases.json").write_text(json.dumps(cases) + "\n")


def main() -> None:
    """Writes the files."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "modernbert"
    configs = {
        name: (kind, transformers.ModernBertConfig(**SIZES | changes))
        for name, (kind, changes) in KINDS.items()
    }
    write(out, configs)


if __name__ == "__main__":
    main()
