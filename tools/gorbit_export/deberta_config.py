"""The configuration of DeBERTa-v3 (He et al. 2021), as Hugging Face's config.json has it."""

from __future__ import annotations

import dataclasses
from typing import Any

from gorbit_export.config import BertConfig, strict
from gorbit_export.families import MaskedHead

_REQUIRED = {
    "relative_attention": True,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
    "conv_kernel_size": 0,
    "pooler_hidden_act": "gelu",
    "pooler_dropout": 0,
}
"""Fields that must have this value. Any other describes a model that is not supported; the last
three may be left out."""

_OPTIONAL = ("conv_kernel_size", "pooler_hidden_act", "pooler_dropout")

_IGNORED = frozenset({"conv_act", "pad_token_id"})
"""Further fields that do not change what a DeBERTa without a convolution computes."""

_PARTS = ["p2c", "c2p"]
"""The parts of pos_att_type, which adds to the scores products of keys, and of queries, with
vectors of relative positions."""

_WITHOUT = ("type_vocab_size", "model_type", "position_offset")
"""Fields of the class that are not read from the file."""

_NEW_HEAD = MaskedHead(
    "lm_predictions.lm_head.dense",
    "lm_predictions.lm_head.LayerNorm",
    ("lm_predictions.lm_head.bias",),
)
"""The head of a masked language model, where `legacy` is false."""


@dataclasses.dataclass(frozen=True)
class DebertaConfig(BertConfig):
    """Sizes and constants of a DeBERTa-v3.

    Attributes:
        position_buckets: half the number of the vectors of relative positions.
        max_relative_positions: how far the last of them reaches; -1 for max_position_embeddings.
        legacy: whether a masked language model's head has the names of BERT's.
    """

    vocab_size: int = 128100
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7
    model_type: str = "deberta-v2"
    position_buckets: int = 256
    max_relative_positions: int = -1
    legacy: bool = True

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: if a field is invalid; the message names it.
        """
        super().__post_init__()
        for field, least in (("position_buckets", 2), ("max_relative_positions", -1)):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{field} is {value!r}; expected {least} or more")
        # Only positions that are further apart than this share vectors.
        near = self.position_buckets // 2 + 1
        if self.reach <= near < self.max_position_embeddings:
            raise ValueError(
                f"max_relative_positions is {self.max_relative_positions}; expected more than "
                f"half of position_buckets and one ({near})"
            )
        if not isinstance(self.legacy, bool):
            raise ValueError(f"legacy is {self.legacy!r}; expected true or false")
        if not self.legacy and self.embedding_size is not None:
            raise ValueError(
                f"legacy is False and embedding_size {self.embedding_size}; expected hidden_size "
                f"({self.hidden_size}), as the head of such a model has"
            )

    @property
    def reach(self) -> int:
        """How many positions apart two are that have the last vector."""
        limit = self.max_relative_positions
        return limit if limit > 0 else self.max_position_embeddings

    @property
    def masked(self) -> MaskedHead | None:
        """See BertConfig."""
        return self.family.masked if self.legacy else _NEW_HEAD

    @property
    def positions_table(self) -> str:
        """See BertConfig."""
        return "model/encoder/relative/table"

    @property
    def computed(self) -> dict[str, Any]:
        """See BertConfig."""
        own = ("position_buckets", "max_relative_positions")
        needed = {k: v for k, v in _REQUIRED.items() if k not in _OPTIONAL}
        return {**super().computed, **{f: getattr(self, f) for f in own}, **needed}

    def released(self) -> dict[str, Any]:
        """See BertConfig."""
        return {
            **super().released(),
            **_REQUIRED,
            "pooler_hidden_size": self.hidden_size,
            "pos_att_type": _PARTS,
            # Of the other head, transformers would tie the first matrix to the words.
            "tie_word_embeddings": self.legacy,
        }

    @property
    def parameters(self) -> int:
        """See BertConfig."""
        h, i, e = self.hidden_size, self.intermediate_size, self.embedding_width
        layer = 4 * (h * h + h) + (h * i + i) + (i * h + h) + 2 * (h + h)
        tables = self.vocab_size * e + 2 * self.position_buckets * h
        projection = 0 if e == h else e * h
        return tables + projection + 2 * h + 2 * h + self.num_hidden_layers * layer


def parse(values: dict[str, Any]) -> DebertaConfig:
    """Returns the configuration that the fields of a config.json describe.

    Raises:
        ValueError: if they describe no model of these; the message names the field.
    """
    values = dict(values)
    parts = values.pop("pos_att_type", None)
    found = [p.strip() for p in parts.lower().split("|")] if isinstance(parts, str) else parts
    if not isinstance(found, list) or sorted(map(str, found)) != sorted(_PARTS):
        raise ValueError(f"pos_att_type is {parts!r}; expected {'|'.join(_PARTS)!r}")
    needed = (*_REQUIRED, "position_buckets")
    missing = [name for name in needed if name not in values and name not in _OPTIONAL]
    if missing:
        raise ValueError(
            f"missing {', '.join(missing)}; of models of this type only DeBERTa-v3 is supported"
        )
    if values.get("embedding_size") == values.get("hidden_size"):
        values.pop("embedding_size", None)
    required = {**_REQUIRED, "pooler_hidden_size": values.get("hidden_size")}
    # The other head is the words' vectors whatever the field says.
    ignored = _IGNORED
    if values.get("legacy", True):
        required["tie_word_embeddings"] = True
    else:
        ignored |= {"tie_word_embeddings"}
    width = values.pop("attention_head_size", None)
    made = strict(values, DebertaConfig, _WITHOUT, required, ignored)
    if width not in (None, made.head_size):
        raise ValueError(f"attention_head_size is {width!r}; expected {made.head_size}")
    return made
