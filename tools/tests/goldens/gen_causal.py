"""Writes causal/: small language models of transformers with random weights, and what they compute.

For each model there is NAME.safetensors, NAME.json (its config.json), NAME.gradients.safetensors
and in cases.json the token ids, the logits and the loss of NAME: the sum of the cross entropies of
all tokens but the first of each text, of which the gradients are. Another folder can be named.

hf/bin/python tools/tests/goldens/gen_causal.py [FOLDER]

in an environment with torch, transformers (5.23) and safetensors.
"""

import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
LLAMA = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 12,
    "vocab_size": 20,
    "max_position_embeddings": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {"n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 20, "n_positions": 16}
MODELS = {
    "gpt2": transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**GPT2, bos_token_id=19, eos_token_id=19)
    ),
    # Heads of keys and values are shared, and the words' vectors are not those of the logits.
    "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, rope_theta=500.0)),
    "llama-tied": transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **{**LLAMA, "num_key_value_heads": 4},
            tie_word_embeddings=True,
            attention_bias=True,
            rms_norm_eps=1e-5,
        )
    ),
    "mistral": transformers.MistralForCausalLM(
        transformers.MistralConfig(**LLAMA, sliding_window=None, head_dim=6)
    ),
    "qwen2": transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**LLAMA, tie_word_embeddings=True)
    ),
    # Some pairs turn as they did, some more slowly, and one is between.
    "llama-scaled": transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **LLAMA,
            head_dim=8,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 0.1,
                "high_freq_factor": 1.0,
                "original_max_position_embeddings": 8,
            },
        )
    ),
    "mistral-window": transformers.MistralForCausalLM(
        transformers.MistralConfig(
            **LLAMA,
            sliding_window=4,
            head_dim=6,
            rope_parameters={"rope_type": "linear", "rope_theta": 50.0, "factor": 2.0},
        )
    ),
    "qwen2-window": transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            **{**LLAMA, "num_attention_heads": 1, "num_key_value_heads": 1},
            use_sliding_window=True,
            sliding_window=3,
            max_window_layers=1,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 100.0,
                "factor": 4.0,
                "original_max_position_embeddings": 8,
                "beta_fast": 0.8,
                "beta_slow": 0.1,
            },
        )
    ),
    "qwen3": transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            **LLAMA,
            head_dim=6,
            use_sliding_window=True,
            sliding_window=4,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters={"rope_type": "dynamic", "rope_theta": 50.0, "factor": 4.0},
        )
    ),
    "smollm3": transformers.SmolLM3ForCausalLM(
        transformers.SmolLM3Config(**LLAMA, no_rope_layer_interval=2, pad_token_id=0)
    ),
    "gemma": transformers.GemmaForCausalLM(
        transformers.GemmaConfig(**{**LLAMA, "num_key_value_heads": 1}, head_dim=6)
    ),
    "gemma2": transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(
            **LLAMA,
            head_dim=6,
            sliding_window=4,
            query_pre_attn_scalar=3,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        )
    ),
    "gemma3": transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(
            **LLAMA,
            head_dim=6,
            sliding_window=5,
            sliding_window_pattern=2,
            query_pre_attn_scalar=5,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
            },
        )
    ),
}
IDS = [[5, 9, 7, 11, 3], [4, 8], [6, 19, 2, 12, 13, 14, 15, 16, 17, 18, 10, 9, 8, 7, 6, 5]]


ASKED = (
    *("num_key_value_heads", "hidden_act", "hidden_activation", "activation_function"),
    *("rms_norm_eps", "layer_norm_epsilon", "tie_word_embeddings", "query_pre_attn_scalar"),
    *("attn_logit_softcapping", "final_logit_softcapping", "sliding_window"),
    "use_sliding_window",
)


def meant(kind: str) -> dict:
    """Returns what fields mean that a config.json does not have."""
    config = transformers.AutoConfig.for_model(kind)
    found = {name: getattr(config, name) for name in ASKED if hasattr(config, name)}
    if found.get("use_sliding_window") is False:  # hides the number
        switched = transformers.AutoConfig.for_model(kind, use_sliding_window=True)
        found["sliding_window"] = switched.sliding_window
    rope = getattr(config, "rope_parameters", None) or {}
    if "sliding_attention" in rope:
        found["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if "rope_theta" in rope:
        found["rope_theta"] = rope["rope_theta"]
    return found


def main() -> None:
    """Writes the files."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "causal"
    out.mkdir(exist_ok=True)
    cases = {}
    for seed, (name, model) in enumerate(MODELS.items()):
        torch.manual_seed(seed)
        model.eval()
        with torch.no_grad():
            # Norms and biases start at 1 and 0, which would hide that they are read.
            for p in model.parameters():
                p.copy_(torch.randn(p.shape) * 0.4 + (p.mean() > 0.9))
        logits = [model(input_ids=torch.tensor([ids])).logits[0] for ids in IDS]
        loss = sum(
            torch.nn.functional.cross_entropy(z[:-1], torch.tensor(ids[1:]), reduction="sum")
            for z, ids in zip(logits, IDS)
        )
        loss.backward()
        model.save_pretrained(out / name)
        (out / name / "model.safetensors").rename(out / f"{name}.safetensors")
        config = json.loads((out / name / "config.json").read_text())
        (out / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")
        for rest in (out / name).iterdir():
            rest.unlink()
        (out / name).rmdir()
        gradients = {k: p.grad for k, p in model.named_parameters()}
        safetensors.torch.save_file(gradients, out / f"{name}.gradients.safetensors")
        cases[name] = {
            "input_ids": IDS,
            "logits": [z.tolist() for z in logits],
            "loss": loss.item(),
        }
    (out / "cases.json").write_text(json.dumps(cases) + "\n")
    kinds = sorted({model.config.model_type for model in MODELS.values()})
    defaults = {kind: meant(kind) for kind in kinds}
    (out / "defaults.json").write_text(json.dumps(defaults, indent=1) + "\n")


main()
