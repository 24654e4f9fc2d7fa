"""The configuration of ModernBERT (Warner et al. 2024), as Hugging Face's config.json has it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from gorbit_export.config import BertConfig, is_number, strict
from gorbit_export.families import FAMILIES

_REQUIRED = {
    "attention_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "mlp_bias": False,
    "norm_bias": False,
    "tie_word_embeddings": True,
    "is_decoder": False,
    "add_cross_attention": False,
    "rope_scaling": None,
}
"""Fields that must have this value if they are present: any other describes a model that is not
supported."""

_IGNORED = frozenset(
    {
        "deterministic_flash_attn",
        "initializer_cutoff_factor",
        "layer_norm_eps",
        "reference_compile",
        "repad_logits_with_grad",
        "sparse_pred_ignore_index",
        "sparse_prediction",
    }
)
"""Further fields that do not change what a ModernBERT computes."""

_NAMES = FAMILIES["modernbert"].fields
_KINDS = ("full_attention", "sliding_attention")
"""The kinds of layers in layer_types and rope_parameters, of later releases of transformers."""


@dataclasses.dataclass(frozen=True)
class ModernBertConfig(BertConfig):
    """Sizes and constants of a ModernBERT.

    Attributes:
        global_rope_theta: base of the frequencies of rotary positions in layers without a window.
        local_rope_theta: that in layers with one; None for the same.
        local_attention: width of the window: half of it to either side.
        global_attn_every_n_layers: how many layers there are from one without a window to the next.
        embedding_dropout: rate after the embeddings.
        mlp_dropout: rate between the maps of the feed-forward network.
        classifier_pooling: "cls" or "mean", what a classifier of the release pools.
        classifier_activation: what follows the map before that to the logits.
        pad_token_id: the padding token's number; None for none.
    """

    vocab_size: int = 50368
    max_position_embeddings: int = 8192
    type_vocab_size: int = 0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout: float | None = 0.0
    layer_norm_eps: float = 1e-5
    model_type: str = "modernbert"
    global_rope_theta: float = 160_000.0
    local_rope_theta: float | None = 10_000.0
    local_attention: int = 128
    global_attn_every_n_layers: int = 3
    embedding_dropout: float = 0.0
    mlp_dropout: float = 0.0
    classifier_pooling: str = "cls"
    classifier_activation: str = "gelu"
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: if a field is invalid; the message names it.
        """
        super().__post_init__()
        if self.head_size % 2:
            raise ValueError(
                f"hidden_size is {self.hidden_size} and num_attention_heads "
                f"{self.num_attention_heads}; expected heads of an even width"
            )
        for field, least in (("local_attention", 2), ("global_attn_every_n_layers", 1)):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{field} is {value!r}; expected {least} or more")
        for field in ("global_rope_theta", "local_rope_theta"):
            value = getattr(self, field)
            if field == "local_rope_theta" and value is None:
                continue
            if not is_number(value) or value <= 0:
                raise ValueError(f"{field} is {value!r}; expected a positive number")
        for field in ("embedding_dropout", "mlp_dropout"):
            value = getattr(self, field)
            if not is_number(value) or not 0 <= value < 1:
                raise ValueError(f"{field} is {value!r}; expected a number in [0, 1)")
        if self.classifier_pooling not in ("cls", "mean"):
            raise ValueError(
                f"classifier_pooling is {self.classifier_pooling!r}; expected 'cls' or 'mean'"
            )
        pad = self.pad_token_id
        if pad is not None and (not isinstance(pad, int) or isinstance(pad, bool) or pad < 0):
            raise ValueError(f"pad_token_id is {pad!r}; expected 0 or more")
        if not isinstance(self.classifier_activation, str):
            raise ValueError(
                f"classifier_activation is {self.classifier_activation!r}; expected a name"
            )

    @property
    def reach(self) -> int:
        """How far away the positions are that a layer with a window looks at."""
        return self.local_attention // 2

    @property
    def output_range(self) -> float:
        """The deviation of the initial values of maps back to the layers' width."""
        return self.initializer_range / math.sqrt(2 * self.num_hidden_layers)

    @property
    def poolings(self) -> dict[str, dict[str, Any]]:
        """See BertConfig."""
        names = {"first": "cls", "mean": "mean"}
        return {name: {"classifier_pooling": theirs} for name, theirs in names.items()}

    @property
    def positions_table(self) -> str:
        """See BertConfig."""
        return ""

    @property
    def masked_act(self) -> str:
        """See BertConfig."""
        return self.classifier_activation

    @property
    def pooling(self) -> str:
        """See BertConfig."""
        return "mean" if self.classifier_pooling == "mean" else "first"

    def is_local(self, index: int) -> bool:
        """Whether layer `index` has a window."""
        return index % self.global_attn_every_n_layers != 0

    def theta(self, index: int) -> float:
        """The base of the frequencies of rotary positions in layer `index`."""
        if self.is_local(index) and self.local_rope_theta is not None:
            return self.local_rope_theta
        return self.global_rope_theta

    @property
    def dropouts(self) -> dict[str, tuple[float, str]]:
        """See BertConfig."""
        return {
            "embedding": (self.embedding_dropout, "rate after the embeddings"),
            "attention": (
                self.attention_probs_dropout_prob,
                "rate on attention weights, and after attention",
            ),
            "mlp": (self.mlp_dropout, "rate within the feed-forward network"),
        }

    @property
    def computed(self) -> dict[str, Any]:
        """See BertConfig."""
        fields = ("global_rope_theta", "local_rope_theta", "local_attention")
        fields += ("global_attn_every_n_layers", "classifier_activation")
        later = self._later()
        return {**super().computed, **{f: getattr(self, f) for f in fields}, **later}

    def _later(self) -> dict[str, Any]:
        """What later releases of transformers write in place of some fields."""
        kinds = [_KINDS[self.is_local(i)] for i in range(self.num_hidden_layers)]
        thetas = (self.global_rope_theta, self.local_rope_theta or self.global_rope_theta)
        ropes = {k: {"rope_theta": t, "rope_type": "default"} for k, t in zip(_KINDS, thetas)}
        return {"layer_types": kinds, "rope_parameters": ropes}

    def released(self) -> dict[str, Any]:
        """See BertConfig."""
        values = {
            _NAMES.get(f.name, f.name): getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name not in _BERTS
        }
        # transformers takes no padding token that is not in the vocabulary.
        pad = self.pad_token_id
        values["pad_token_id"] = pad if pad is not None and pad < self.vocab_size else 0
        return values | _REQUIRED_BIASES

    @property
    def parameters(self) -> int:
        """See BertConfig."""
        h, i, n = self.hidden_size, self.intermediate_size, self.num_hidden_layers
        return self.vocab_size * h + n * (4 * h * h + 3 * h * i + 2 * h) + h


_BERTS = (
    "type_vocab_size",
    "hidden_dropout_prob",
    "model_type",
    "embedding_size",
    "position_offset",
)
_REQUIRED_BIASES = {k: v for k, v in _REQUIRED.items() if k.endswith("_bias")}


def parse(values: dict[str, Any]) -> ModernBertConfig:
    """Returns the configuration that the fields of a config.json describe.

    Raises:
        ValueError: if they describe no model of these; the message names the field.
    """
    return strict(_earlier(dict(values)), ModernBertConfig, _BERTS, _REQUIRED, _IGNORED)


def _earlier(values: dict[str, Any]) -> dict[str, Any]:
    """Writes layer_types and rope_parameters as the fields of earlier releases."""
    kinds, ropes = values.pop("layer_types", None), values.pop("rope_parameters", None)
    if kinds is not None:
        period = values.setdefault("global_attn_every_n_layers", _period(kinds))
        count = values.get("num_hidden_layers")
        if not isinstance(period, int) or kinds != [
            _KINDS[i % max(period, 1) != 0] for i in range(count if isinstance(count, int) else 0)
        ]:
            raise ValueError(
                f"layer_types is {kinds!r}; expected {_KINDS[0]} every "
                f"{period} layers from the first on, and {_KINDS[1]} between"
            )
    if ropes is not None:
        for kind, field in zip(_KINDS, ("global_rope_theta", "local_rope_theta")):
            rope = ropes.get(kind) if isinstance(ropes, dict) else None
            rest = set(rope) - {"rope_theta", "rope_type"} if isinstance(rope, dict) else {"?"}
            if rest or rope.get("rope_type", "default") != "default" or "rope_theta" not in rope:
                raise ValueError(
                    f"rope_parameters is {ropes!r}; expected rope_theta, and the rope_type "
                    f"default, for {' and '.join(_KINDS)}"
                )
            values[field] = rope["rope_theta"]
    return values


def _period(kinds: Any) -> int:
    """How many layers there are from one without a window to the next."""
    if not isinstance(kinds, list) or _KINDS[0] not in kinds[1:]:
        return max(len(kinds), 1) if isinstance(kinds, list) else 1
    return kinds.index(_KINDS[0], 1)
