"""Model configurations: the named sizes and the JSON files of BERT releases."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes and constants of a BERT encoder, under Google's field names.

    The dropout rates are only defaults: exported graphs take the rates as inputs. If
    classifier_dropout is None, hidden_dropout_prob is used.
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
    classifier_dropout: float | None = None
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: if a field is invalid; the message names it.
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
                raise ValueError(f"{field} is {value!r}; expected a positive integer")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size}; expected a multiple of "
                f"num_attention_heads ({self.num_attention_heads})"
            )
        if not isinstance(self.hidden_act, str):
            raise ValueError(f"hidden_act is {self.hidden_act!r}; expected a name")
        for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, field)
            if field == "classifier_dropout" and value is None:
                continue
            if not _is_number(value) or not 0 <= value < 1:
                raise ValueError(f"{field} is {value!r}; expected a number in [0, 1)")
        for field in ("layer_norm_eps", "initializer_range"):
            value = getattr(self, field)
            if not _is_number(value) or value <= 0:
                raise ValueError(f"{field} is {value!r}; expected a positive number")

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def parameters(self) -> int:
        """Number of trained parameters of the encoder, without a head or pooler."""
        h, i = self.hidden_size, self.intermediate_size
        tables = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer = 4 * (h * h + h) + (h * i + i) + (i * h + h) + 2 * (h + h)
        return tables * h + 2 * h + self.num_hidden_layers * layer


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


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


_REQUIRED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
"""Fields of a configuration file that must have this value if they are present, because any
other value describes a model that is not supported."""


def load(name: str) -> BertConfig:
    """Returns the configuration called `name`, or the one in the JSON file `name`.

    The file is a `bert_config.json` of a Google release or a `config.json` of
    Hugging Face; both use the same field names. Unknown fields are ignored.

    Raises:
        ValueError: if the name is unknown, or the file does not describe a BERT.
    """
    if name in PRESETS:
        return PRESETS[name]
    path = pathlib.Path(name)
    if not path.is_file():
        raise ValueError(
            f"config is {name!r}; expected one of {', '.join(PRESETS)}, or a JSON file"
        )
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as err:
        raise ValueError(f"{path}: not JSON: {err}") from err
    if not isinstance(values, dict):
        raise ValueError(f"{path}: not a JSON object")
    for field, only in _REQUIRED.items():
        if values.get(field, only) != only:
            raise ValueError(f"{path}: {field} is {values[field]!r}; expected {only!r}")
    if values.get("embedding_size", values.get("hidden_size")) != values.get("hidden_size"):
        raise ValueError(
            f"{path}: embedding_size is {values['embedding_size']!r}; "
            f"expected hidden_size ({values.get('hidden_size')!r})"
        )
    fields = {field.name: field for field in dataclasses.fields(BertConfig)}
    missing = [
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and name not in values
    ]
    if missing:
        raise ValueError(f"{path}: missing {', '.join(missing)}")
    try:
        return BertConfig(**{k: v for k, v in values.items() if k in fields})
    except (ValueError, OverflowError) as err:
        raise ValueError(f"{path}: {err}") from err
