"""What a model's files say of how its texts are chosen, which gorbit is told by flags."""

from __future__ import annotations

import json
import pathlib
from typing import Any

_FLAGS = {
    **{"do_sample": False, "early_stopping": False, "length_penalty": 1.0, "max_length": 20},
    **{"max_new_tokens": None, "min_length": 0, "min_new_tokens": None, "min_p": None},
    **{"no_repeat_ngram_size": 0, "num_beams": 1, "num_return_sequences": 1},
    **{"repetition_penalty": 1.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
    "typical_p": 1.0,
}
"""The flags of gorbit predict, and the values that transformers takes without a file."""

_MISSING = {
    **{"begin_suppress_tokens": None, "constraints": None, "diversity_penalty": 0.0},
    **{"encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0},
    **{"epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "exponential_decay_length_penalty": None},
    **{"force_words_ids": None, "forced_decoder_ids": None, "guidance_scale": None},
    **{"num_beam_groups": 1, "penalty_alpha": None, "renormalize_logits": False},
    **{"sequence_bias": None, "suppress_tokens": None, "top_h": None, "watermarking_config": None},
}
"""What gorbit has not, and the values that change nothing."""

_TOKENS = dict.fromkeys(("bad_words_ids", "forced_bos_token_id", "forced_eos_token_id"))
_SAMPLES = ("temperature", "top_k", "top_p", "min_p", "typical_p")


def told(config: str, model: str) -> str:
    """Returns what the files of a config.json ask for and gorbit does only if it is told, or "".

    That is generation_config.json next to it, or itself where there is none, as transformers has
    it. Of seq2seq, not of causal, the export takes special tokens from them.
    """
    file = pathlib.Path(config).parent / "generation_config.json"
    file = file if file.is_file() else pathlib.Path(config)
    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return ""  # a model by its name, or a file that its reader refuses
    if not isinstance(values, dict):
        return ""

    def given(names: dict[str, Any]) -> list[str]:
        return [n for n, d in names.items() if values.get(n) not in (None, d)]

    flags = given(_FLAGS)
    if not values.get("do_sample"):
        flags = [name for name in flags if name not in _SAMPLES]  # which transformers leaves out
    lines = []
    if flags:
        wanted = " ".join(_flag(name, values[name]) for name in flags)
        lines.append(f"{file.name} asks for texts by {wanted}: gorbit takes these from its flags")
    ends = values.get("eos_token_id")
    if model == "causal" and isinstance(ends, list):
        ends = ", ".join(map(str, ends))
        own = "gorbit with the tokenizer's, or --eos-token"
        lines.append(f"{file.name} ends texts with tokens {ends}: {own}")
    if missing := given(_MISSING | (_TOKENS if model == "causal" else {})):
        lines.append(f"{file.name} has {', '.join(missing)}, which gorbit leaves out")
    return "\n".join(lines)


def _flag(name: str, value: Any) -> str:
    flag = "--" + name.replace("_", "-")
    return f"{flag}={str(value).lower()}" if isinstance(value, bool) else f"{flag} {value}"
