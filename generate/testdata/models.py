"""Writes models.json: what generate of Hugging Face's transformers makes with the small models of
tools/tests/goldens/causal and seq2seq: of prompts, and of sources.

OMP_NUM_THREADS=1 python models.py needs transformers, torch and safetensors: 4.46.3 for the models of
earlier releases, and 5.23 for those of later ones. It keeps what is there of the others.
"""

import json
import pathlib
import random

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "tools" / "tests" / "goldens"
SETTINGS = [
    {},
    {"repetition_penalty": 1.5},
    {"no_repeat_ngram_size": 2, "min_new_tokens": 4},
    {"num_beams": 3, "num_return_sequences": 3},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
    {
        "num_beams": 4,
        "length_penalty": -0.5,
        "early_stopping": "never",
        "no_repeat_ngram_size": 3,
    },
]
SOURCE_SETTINGS = [
    *SETTINGS,
    {"bad_words_ids": [[19], [7], [3, 5]], "min_length": 5},
    {"num_beams": 2, "eos_token_id": [4, 11], "bad_words_ids": [[19], [7]]},
]
CAUSAL = ("gpt2", "llama")
LATER = ("llama-scaled", "mistral-window", "qwen2-window", "qwen3", "smollm3")
LATER += ("gemma", "gemma2", "gemma3")
"""Models of release 5. Its beam search ends in another way unless early_stopping says how."""
PADDING = 99
FORCED = ("forced_bos_token_id", "forced_eos_token_id")


def load(name: str, auto: type) -> transformers.PreTrainedModel:
    """The model of the files NAME.json and NAME.safetensors."""
    config = transformers.AutoConfig.from_pretrained(MODELS / f"{name}.json")
    if not getattr(config, "scale_decoder_outputs", True):
        config.tie_word_embeddings = (
            False  # later releases say it in the other field alone
        )
    model = auto.from_config(config).eval()
    weights = safetensors.torch.load_file(MODELS / f"{name}.safetensors")
    missing, unexpected = model.load_state_dict(weights, strict=False)
    shared = ("lm_head.weight", "embed_tokens.weight", "embed_positions.weight")
    assert all(name.endswith(shared) for name in missing) and not unexpected, (
        missing,
        unexpected,
    )
    model.tie_weights()
    return model


def generated(
    model: transformers.PreTrainedModel, tokens: list[int], given: dict
) -> dict:
    """What generate makes of a prompt or a source: new ids, and the scores of beams."""
    first, start = len(tokens), {}
    if model.config.is_encoder_decoder:
        first, start = (
            1,
            {"decoder_start_token_id": model.config.decoder_start_token_id},
        )
    result = model.generate(
        torch.tensor([tokens]),
        attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
        generation_config=transformers.GenerationConfig(
            **given, **start, pad_token_id=PADDING
        ),
        output_scores=True,
        return_dict_in_generate=True,
    )
    rows = result.sequences.tolist()
    out = {"ids": [[t for t in row[first:] if t != PADDING] for row in rows]}
    if "num_beams" in given:
        out["scores"] = [round(s, 6) for s in result.sequences_scores.tolist()]
    return out


def main() -> None:
    """Writes the file."""
    draw = random.Random(3)
    prompts = [[draw.randrange(20) for _ in range(n)] for n in (1, 2, 3, 5, 7, 12)]
    out = json.loads((HERE / "models.json").read_text())
    later = int(transformers.__version__.split(".")[0]) > 4
    for name in LATER if later else CAUSAL:
        model = load(f"causal/{name}", transformers.AutoModelForCausalLM)
        out[name] = []
        for setting in SETTINGS:
            if later and "num_beams" in setting and "early_stopping" not in setting:
                continue
            given = {"eos_token_id": [4], "max_length": 16, **setting}
            for prompt in prompts:
                made = generated(model, prompt, given)
                out[name].append({"config": given, "prompt": prompt, **made})
    cases = json.loads((MODELS / "seq2seq" / "cases.json").read_text())
    for name in () if later else ("t5", "t5-gated", "bart", "marian"):
        model = load(f"seq2seq/{name}", transformers.AutoModelForSeq2SeqLM)
        own = json.loads((MODELS / "seq2seq" / f"{name}.json").read_text())
        forced = {field: own[field] for field in FORCED if own.get(field) is not None}
        ends = {"eos_token_id": [own["eos_token_id"]], **forced}
        # That the weights are read as they were written.
        for source, want in zip(cases[name]["input_ids"], cases[name]["generated"]):
            assert generated(model, source, {**ends, "max_new_tokens": 14})["ids"] == [
                want[1:]
            ]
        out[name] = []
        for setting in SOURCE_SETTINGS:
            given = {**ends, "max_length": 16, **setting}
            for source in [*prompts, *cases[name]["input_ids"]]:
                made = generated(model, source, given)
                start = [model.config.decoder_start_token_id]
                case = {"config": given, "prompt": start, "source": source, **made}
                out[name].append(case)
    lines = json.dumps(out).replace('{"config"', '\n{"config"')
    (HERE / "models.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
