"""Writes golden.json: what generate of Hugging Face's transformers makes of a model that a program without
TensorFlow can be, too, and what its logits processors make of given logits.

python golden.py needs transformers 4.46.3 and torch. python golden.py TIMES OUT.json writes TIMES as many
prompts of each setting, others than those of golden.json, for

    GORBIT_GENERATE_GOLDENS=OUT.json go test ./generate -run TestGenerate

What processors make of logits is the same with transformers 5.23.0, of which those of typical_p are.
"""

import json
import math
import pathlib
import random
import sys

import torch
import transformers
from transformers.generation import logits_process as processes

VOCAB = 29
MASK = 0xFFFFFFFF


def logits(ids: list[int]) -> list[float]:
    """The logits after a sequence: a hash of it, exact in float32."""
    h = 2166136261
    for token in ids:
        h = ((h ^ token) * 16777619) & MASK
        h ^= h >> 15
    out = []
    for j in range(VOCAB):
        x = (h + (j + 1) * 0x9E3779B9) & MASK
        x ^= x >> 16
        x = (x * 0x7FEB352D) & MASK
        x ^= x >> 15
        x = (x * 0x846CA68B) & MASK
        x ^= x >> 16
        out.append((x >> 8) / 2**21 - 4)
    return out


class Hash(transformers.PreTrainedModel, transformers.GenerationMixin):
    """A model whose logits are a hash of the sequence."""

    config_class = transformers.PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, config: transformers.PretrainedConfig) -> None:
        super().__init__(config)
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, **_: object
    ) -> dict:
        return {"input_ids": input_ids}

    def forward(
        self, input_ids: torch.Tensor, **_: object
    ) -> transformers.modeling_outputs.CausalLMOutput:
        rows = [logits(row) for row in input_ids.tolist()]
        return transformers.modeling_outputs.CausalLMOutput(
            logits=torch.tensor(rows)[:, None]
        )


# The settings, and how many prompts each gets.
SETTINGS = [
    ({"max_length": 24}, 10),
    ({"max_new_tokens": 12, "min_new_tokens": 6}, 10),
    ({"max_length": 20, "min_length": 14}, 6),
    ({"max_new_tokens": 16, "repetition_penalty": 1.7}, 8),
    ({"max_new_tokens": 16, "repetition_penalty": 0.6, "no_repeat_ngram_size": 2}, 8),
    ({"max_new_tokens": 20, "no_repeat_ngram_size": 1}, 6),
    (
        {
            "max_new_tokens": 12,
            "bad_words_ids": [[3], [5, 6], [7, 8, 9], [11, 2], [13]],
        },
        10,
    ),
    (
        {
            "max_new_tokens": 5,
            "forced_bos_token_id": 4,
            "forced_eos_token_id": 2,
            "min_new_tokens": 5,
        },
        8,
    ),
    ({"max_new_tokens": 12, "eos_token_id": [2, 3, 5]}, 8),
    ({"max_new_tokens": 12, "eos_token_id": None}, 4),
    ({"max_new_tokens": 12, "num_beams": 2}, 14),
    ({"max_new_tokens": 20, "num_beams": 4}, 20),
    ({"max_new_tokens": 20, "num_beams": 4, "early_stopping": True}, 14),
    ({"max_new_tokens": 20, "num_beams": 4, "early_stopping": "never"}, 14),
    ({"max_new_tokens": 20, "num_beams": 4, "length_penalty": 0.0}, 10),
    ({"max_new_tokens": 20, "num_beams": 4, "length_penalty": 2.0}, 10),
    (
        {
            "max_new_tokens": 20,
            "num_beams": 4,
            "length_penalty": 2.0,
            "early_stopping": "never",
        },
        10,
    ),
    ({"max_new_tokens": 20, "num_beams": 4, "length_penalty": -1.0}, 10),
    (
        {
            "max_new_tokens": 20,
            "num_beams": 4,
            "length_penalty": -1.0,
            "early_stopping": "never",
        },
        10,
    ),
    ({"max_new_tokens": 14, "num_beams": 5, "num_return_sequences": 5}, 10),
    (
        {
            "max_new_tokens": 14,
            "num_beams": 5,
            "num_return_sequences": 3,
            "eos_token_id": [2, 3, 5],
        },
        10,
    ),
    (
        {
            "max_new_tokens": 14,
            "num_beams": 3,
            "no_repeat_ngram_size": 2,
            "repetition_penalty": 1.3,
        },
        10,
    ),
    (
        {
            "max_new_tokens": 14,
            "num_beams": 3,
            "min_new_tokens": 10,
            "num_return_sequences": 2,
        },
        10,
    ),
    ({"max_length": 16, "num_beams": 3, "min_length": 12, "early_stopping": True}, 10),
    ({"max_new_tokens": 8, "num_beams": 3, "forced_bos_token_id": 4}, 8),
    (
        {
            "max_new_tokens": 8,
            "num_beams": 3,
            "forced_eos_token_id": 2,
            "num_return_sequences": 3,
        },
        8,
    ),
    (
        {
            "max_new_tokens": 8,
            "num_beams": 3,
            "bad_words_ids": [[3], [5, 6], [7, 8, 9]],
        },
        8,
    ),
    ({"max_new_tokens": 10, "num_beams": 12, "num_return_sequences": 12}, 6),
    ({"max_new_tokens": 1, "num_beams": 3, "num_return_sequences": 2}, 6),
    ({"max_new_tokens": 20, "num_beams": 3, "eos_token_id": None}, 4),
]


def generated(times: int = 1) -> list[dict]:
    """Generates with every setting, for so many times the prompts."""
    model = Hash(
        transformers.PretrainedConfig(vocab_size=VOCAB, is_encoder_decoder=False)
    ).eval()
    draw = random.Random(6 + times)
    out = []
    for setting, prompts in SETTINGS:
        for i in range(prompts * times):
            prompt = [
                draw.randrange(VOCAB)
                for _ in range(1 if i % 4 == 0 else draw.randrange(2, 7))
            ]
            config = {"eos_token_id": [2], **setting}
            result = model.generate(
                torch.tensor([prompt]),
                generation_config=transformers.GenerationConfig(
                    **config, pad_token_id=VOCAB
                ),
                output_scores=True,
                return_dict_in_generate=True,
            )
            ids = [
                [t for t in row[len(prompt) :] if t != VOCAB]
                for row in result.sequences.tolist()
            ]
            case = {"config": config, "prompt": prompt, "ids": ids}
            if "num_beams" in config:
                case["scores"] = [round(s, 6) for s in result.sequences_scores.tolist()]
            out.append(case)
    return out


def processed() -> list[dict]:
    """Applies processors to logits, one setting at a time."""
    eos = torch.tensor([2, 3])
    settings = [
        ({"repetition_penalty": 1.8}, processes.RepetitionPenaltyLogitsProcessor(1.8)),
        ({"no_repeat_ngram_size": 1}, processes.NoRepeatNGramLogitsProcessor(1)),
        ({"no_repeat_ngram_size": 3}, processes.NoRepeatNGramLogitsProcessor(3)),
        (
            {"bad_words_ids": [[1], [4, 1, 6], [1, 7]]},
            processes.NoBadWordsLogitsProcessor([[1], [4, 1, 6], [1, 7]], eos),
        ),
        ({"min_length": 8}, processes.MinLengthLogitsProcessor(8, eos)),
        ({"min_length": 7}, processes.MinLengthLogitsProcessor(7, eos)),
        ({"min_new_tokens": 5}, processes.MinNewTokensLengthLogitsProcessor(3, 5, eos)),
        (
            {"max_length": 8, "forced_eos_token_id": 2},
            processes.ForcedEOSTokenLogitsProcessor(8, 2),
        ),
        (
            {"max_length": 9, "forced_eos_token_id": 2},
            processes.ForcedEOSTokenLogitsProcessor(9, 2),
        ),
        ({"temperature": 0.7}, processes.TemperatureLogitsWarper(0.7)),
        ({"top_k": 5}, processes.TopKLogitsWarper(5)),
        ({"top_k": 100}, processes.TopKLogitsWarper(100)),
        ({"top_p": 0.9}, processes.TopPLogitsWarper(0.9)),
        ({"top_p": 0.3}, processes.TopPLogitsWarper(0.3)),
        ({"top_p": 0.001}, processes.TopPLogitsWarper(0.001)),
        ({"min_p": 0.1}, processes.MinPLogitsWarper(0.1)),
        ({"min_p": 1.0}, processes.MinPLogitsWarper(1.0)),
        ({"typical_p": 0.9}, processes.TypicalLogitsWarper(0.9)),
        ({"typical_p": 0.4}, processes.TypicalLogitsWarper(0.4)),
        ({"typical_p": 0.01}, processes.TypicalLogitsWarper(0.01)),
    ]
    ids = [4, 1, 6, 5, 1, 4, 1]  # a prompt of 3 tokens and 4 new ones
    raw = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(3)) * 3
    raw[0, 7] = -math.inf
    ids_of = torch.tensor([ids])
    several = processes.LogitsProcessorList(
        [
            processes.RepetitionPenaltyLogitsProcessor(1.3),
            processes.TemperatureLogitsWarper(2.0),
            processes.TopKLogitsWarper(9),
            processes.TopPLogitsWarper(0.8),
            processes.MinPLogitsWarper(0.05),
        ]
    )
    all_of = {
        "repetition_penalty": 1.3,
        "temperature": 2.0,
        "top_k": 9,
        "top_p": 0.8,
        "min_p": 0.05,
    }
    out = []
    for setting, process in [*settings, (all_of, several)]:
        scores = process(ids_of, raw.clone())[0].tolist()
        out.append(
            {
                "config": setting,
                "scores": [None if math.isinf(s) else s for s in scores],
            }
        )
    return [
        {
            "ids": ids,
            "prompt": 3,
            "logits": [None if math.isinf(s) else s for s in raw[0].tolist()],
            "eos": [2, 3],
        },
        *out,
    ]


def main() -> None:
    times, out = 1, pathlib.Path(__file__).with_name("golden.json")
    if len(sys.argv) == 3:
        times, out = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    golden = {
        "transformers": transformers.__version__,
        "vocab": VOCAB,
        "generated": generated(times),
        "processed": processed(),
    }
    lines = json.dumps(golden).replace('{"config"', '\n{"config"')
    out.write_text(lines + "\n")


if __name__ == "__main__":
    main()
