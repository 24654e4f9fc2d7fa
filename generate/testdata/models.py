"""Writes models.json: how generate of Hugging Face's transformers continues prompts with the small models of
tools/tests/goldens/causal.

python models.py needs transformers 4.46.3, torch and safetensors.
"""

import json
import pathlib
import random

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "tools" / "tests" / "goldens" / "causal"
SETTINGS = [
    {},
    {"repetition_penalty": 1.5},
    {"no_repeat_ngram_size": 2, "min_new_tokens": 4},
    {"num_beams": 3, "num_return_sequences": 3},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
    {"num_beams": 4, "length_penalty": -0.5, "early_stopping": "never", "no_repeat_ngram_size": 3},
]


def main() -> None:
    """Writes the file."""
    draw = random.Random(3)
    prompts = [[draw.randrange(20) for _ in range(n)] for n in (1, 2, 3, 5, 7, 12)]
    out = {}
    for name in ("gpt2", "llama"):
        config = transformers.AutoConfig.from_pretrained(MODELS / f"{name}.json")
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        weights = safetensors.torch.load_file(MODELS / f"{name}.safetensors")
        missing, unexpected = model.load_state_dict(weights, strict=False)
        assert set(missing) <= {"lm_head.weight"} and not unexpected
        model.tie_weights()
        out[name] = []
        for setting in SETTINGS:
            given = {"eos_token_id": [4], "max_length": 16, **setting}
            for prompt in prompts:
                result = model.generate(
                    torch.tensor([prompt]),
                    attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                    generation_config=transformers.GenerationConfig(**given, pad_token_id=99),
                    output_scores=True,
                    return_dict_in_generate=True,
                )
                rows = result.sequences.tolist()
                case = {"config": given, "prompt": prompt}
                case["ids"] = [[t for t in row[len(prompt) :] if t != 99] for row in rows]
                if "num_beams" in given:
                    case["scores"] = [round(s, 6) for s in result.sequences_scores.tolist()]
                out[name].append(case)
    lines = json.dumps(out).replace('{"config"', '\n{"config"')
    (HERE / "models.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
