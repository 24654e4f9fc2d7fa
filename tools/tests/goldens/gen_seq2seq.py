"""Writes seq2seq/: small encoder-decoder models of transformers with random weights, and results.

For each model there is NAME.safetensors, NAME.json (its config.json), NAME.gradients.safetensors
and in cases.json the token ids of sources and targets, the logits, the loss of NAME: the sum of the
cross entropies of all tokens of the targets, of which the gradients are, and what its generate
gives of each source, greedily. Another folder can be named.

hf/bin/python tools/tests/goldens/gen_seq2seq.py [FOLDER]

in an environment with torch, transformers and safetensors.
"""

import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
T5 = {
    "d_model": 8,
    "d_kv": 3,
    "d_ff": 12,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_heads": 2,
    "vocab_size": 20,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
}
BART = {
    "d_model": 8,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 10,
    "vocab_size": 20,
    "max_position_embeddings": 24,
}
MARIAN = {
    **BART,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 19,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "decoder_start_token_id": 19,
    "decoder_vocab_size": 20,
}


def models() -> dict[str, transformers.PreTrainedModel]:
    """The models by name."""
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5))
    gated = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    )
    # Later releases tie the tables until a file has two.
    gated.lm_head.weight = torch.nn.Parameter(torch.empty(20, 8))
    return {
        "t5": t5,
        "t5-gated": gated,
        "bart": transformers.BartForConditionalGeneration(
            transformers.BartConfig(**BART, forced_bos_token_id=FORCED["bart"])
        ),
        "marian": transformers.MarianMTModel(transformers.MarianConfig(**MARIAN)),
    }


SOURCES = [[5, 9, 7, 11, 3], [4, 8], [6, 18, 2, 12, 13, 14, 15, 16, 17, 18, 10, 9, 8, 7, 6, 5]]
TARGETS = [[7, 3, 1], [14, 2, 6, 3, 12, 11, 10, 9, 4, 5, 6, 7, 8, 9, 10, 1], [9, 1]]
LENGTH = 14
FORCED = {"bart": 0}


def main() -> None:
    """Writes the files."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "seq2seq"
    out.mkdir(exist_ok=True)
    cases = {}
    for seed, (name, model) in enumerate(models().items()):
        torch.manual_seed(seed)
        model.eval()
        with torch.no_grad():
            # Norms and biases start at 1 and 0, which would hide that they are read.
            for p in model.parameters():
                if p.requires_grad:
                    p.copy_(torch.randn(p.shape) * 0.4 + (p.mean() > 0.9))
            if name in ("bart", "marian"):
                model.final_logits_bias.copy_(torch.randn(1, 20))
                # So that texts do not end at once.
                model.final_logits_bias[0, model.config.eos_token_id] -= 6
        logits = [
            model(input_ids=torch.tensor([source]), labels=torch.tensor([target])).logits[0]
            for source, target in zip(SOURCES, TARGETS)
        ]
        loss = sum(
            torch.nn.functional.cross_entropy(z, torch.tensor(target), reduction="sum")
            for z, target in zip(logits, TARGETS)
        )
        loss.backward()
        greedy = [
            model.generate(
                torch.tensor([source]),
                do_sample=False,
                num_beams=1,
                max_new_tokens=LENGTH,
                forced_bos_token_id=FORCED.get(name),
            )[0].tolist()
            for source in SOURCES
        ]
        model.save_pretrained(out / name)
        (out / name / "model.safetensors").rename(out / f"{name}.safetensors")
        config = json.loads((out / name / "config.json").read_text())
        if name in FORCED:  # earlier releases write it here, later ones into another file
            config["forced_bos_token_id"] = FORCED[name]
        (out / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")
        for rest in (out / name).iterdir():
            rest.unlink()
        (out / name).rmdir()
        gradients = {k: p.grad for k, p in model.named_parameters() if p.requires_grad}
        safetensors.torch.save_file(gradients, out / f"{name}.gradients.safetensors")
        cases[name] = {
            "input_ids": SOURCES,
            "target_ids": TARGETS,
            "logits": [z.tolist() for z in logits],
            "loss": loss.item(),
            "max_new_tokens": LENGTH,
            "generated": greedy,
        }
    (out / "cases.json").write_text(json.dumps(cases) + "\n")


main()
