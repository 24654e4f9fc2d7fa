"""Model configurations: the named sizes and the JSON files of BERT releases."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes and constants of a BERT encoder, under Google's field names.

    The dropout rates are defaults only: exported graphs take them as inputs.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int = 30522
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        """Refuses sizes that make no model.

        Raises:
            ValueError: naming the field at fault.
        """
        for field in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field} must be a positive integer, not {value!r}")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        for field in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, field)
            if not 0 <= value < 1:
                raise ValueError(f"{field} must be in [0, 1), not {value!r}")
        if self.layer_norm_eps <= 0 or self.initializer_range <= 0:
            raise ValueError("layer_norm_eps and initializer_range must be positive")

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads


PRESETS = {
    "tiny": BertConfig(128, 2, 2, 512),
    "mini": BertConfig(256, 4, 4, 1024),
    "small": BertConfig(512, 4, 8, 2048),
    "medium": BertConfig(512, 8, 8, 2048),
    "minilm": BertConfig(384, 6, 12, 1536),
    "base": BertConfig(768, 12, 12, 3072),
    "large": BertConfig(1024, 24, 16, 4096),
}
"""The named configurations. tiny to medium are the sizes of Turc et al. (2019),
minilm is that of Wang et al. (2020) with 6 layers, base and large those of
Devlin et al. (2018); all with the uncased English vocabulary's size."""


def load(name: str) -> BertConfig:
    """Returns the configuration called `name`, or the one in the JSON file `name`.

    The file is a `bert_config.json` as Google's releases hold it, or a
    `config.json` as Hugging Face's do: their fields have the same names.
    Fields that this model has no use for are ignored.

    Raises:
        ValueError: if the name is unknown, or the file does not describe a BERT.
    """
    if name in PRESETS:
        return PRESETS[name]
    path = pathlib.Path(name)
    if not path.is_file():
        raise ValueError(
            f"{name!r} is neither a named configuration ({', '.join(PRESETS)}) nor a JSON file"
        )
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as err:
        raise ValueError(f"{path}: not JSON: {err}") from err
    if not isinstance(values, dict):
        raise ValueError(f"{path}: not a JSON object")
    if values.get("model_type", "bert") != "bert":
        raise ValueError(f"{path}: describes a {values['model_type']!r} model, not bert")
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(
            f"{path}: position_embedding_type {values['position_embedding_type']!r} "
            "is not supported, only 'absolute'"
        )
    fields = {field.name: field for field in dataclasses.fields(BertConfig)}
    missing = [
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and name not in values
    ]
    if missing:
        raise ValueError(f"{path}: lacks {', '.join(missing)}")
    try:
        return BertConfig(**{k: v for k, v in values.items() if k in fields})
    except (ValueError, TypeError) as err:
        raise ValueError(f"{path}: {err}") from err
