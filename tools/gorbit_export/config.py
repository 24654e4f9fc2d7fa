"""Model configurations: the named sizes and the JSON files of BERT releases."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gorbit_export.families import FAMILIES, Family, MaskedHead

C = TypeVar("C")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes and constants of a BERT encoder, under Google's field names.

    The dropout rates are only defaults: exported graphs take the rates as inputs. If
    classifier_dropout is None, hidden_dropout_prob is used.

    The last three fields are those of encoders that differ from BERT in parts: the name of their
    family, the width of the embeddings if it is not hidden_size, and the row of the table of
    positions that a sequence starts at.
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
    model_type: str = "bert"
    embedding_size: int | None = None
    position_offset: int = 0

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: if a field is invalid; the message names it.
        """
        if self.model_type not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise ValueError(f"model_type is {self.model_type!r}; expected one of {known}")
        for field in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            *(["type_vocab_size"] if self.family.token_types else []),
            *(["embedding_size"] if self.embedding_size is not None else []),
        ):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field} is {value!r}; expected a positive integer")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size}; expected a multiple of "
                f"num_attention_heads ({self.num_attention_heads})"
            )
        if not 0 <= self.position_offset < self.max_position_embeddings:
            raise ValueError(
                f"sequences start at position {self.position_offset!r}; expected less than "
                f"max_position_embeddings ({self.max_position_embeddings})"
            )
        if not isinstance(self.hidden_act, str):
            raise ValueError(f"hidden_act is {self.hidden_act!r}; expected a name")
        for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, field)
            if field == "classifier_dropout" and value is None:
                continue
            if not is_number(value) or not 0 <= value < 1:
                raise ValueError(f"{field} is {value!r}; expected a number in [0, 1)")
        for field in ("layer_norm_eps", "initializer_range"):
            value = getattr(self, field)
            if not is_number(value) or value <= 0:
                raise ValueError(f"{field} is {value!r}; expected a positive number")

    @property
    def family(self) -> Family:
        """What the encoder has in common with others of its model_type."""
        return FAMILIES[self.model_type]

    @property
    def embedding_width(self) -> int:
        """Width of the tables of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def positions(self) -> int:
        """The number of tokens of the longest sequence."""
        return self.max_position_embeddings - self.position_offset

    def description(self) -> dict[str, Any]:
        """The fields; those that only encoders other than BERT have are left out of BERT's."""
        bert = ("model_type", "embedding_size", "position_offset")
        defaults = {f.name: f.default for f in dataclasses.fields(BertConfig) if f.name in bert}
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if k not in bert or v != defaults[k]}

    def released(self) -> dict[str, Any]:
        """The fields of Hugging Face's config.json of such an encoder."""
        values = dataclasses.asdict(self)
        del values["model_type"], values["position_offset"]
        if self.family.projection:
            values["embedding_size"] = self.embedding_width
        else:
            del values["embedding_size"]
        if not self.family.token_types:
            del values["type_vocab_size"]
        # The name of a dropout rate that is not BERT's has no None.
        if self.family.field("classifier_dropout") != "classifier_dropout":
            values["classifier_dropout"] = values["classifier_dropout"] or self.hidden_dropout_prob
        return {self.family.field(k): v for k, v in values.items() if self.family.field(k)}

    @property
    def computed(self) -> dict[str, Any]:
        """What weights do not show of how they are computed, by the names in config.json."""
        names = ("hidden_act", "num_attention_heads", "layer_norm_eps")
        found = {self.family.field(n): getattr(self, n) for n in names if self.family.field(n)}
        if self.family.offset_positions:
            found["pad_token_id"] = self.position_offset - 1
        return found

    @property
    def dropouts(self) -> dict[str, tuple[float, str]]:
        """The defaults of the encoder's rates of dropout, and what they are for."""
        return {
            "hidden": (self.hidden_dropout_prob, "rate after embeddings and sublayers"),
            "attention": (self.attention_probs_dropout_prob, "rate on attention weights"),
        }

    @property
    def poolings(self) -> dict[str, dict[str, Any]]:
        """The poolings that transformers has, with what config.json says of each."""
        return {"first": {}}

    @property
    def masked_act(self) -> str:
        """The activation in the head of a masked language model."""
        return self.hidden_act

    @property
    def masked(self) -> MaskedHead | None:
        """The head of a masked language model; None if the model has not learned one."""
        return self.family.masked

    @property
    def positions_table(self) -> str:
        """The variable whose rows say how many positions were learned; "" for none."""
        return "model/encoder/embeddings/position/table"

    @property
    def pooling(self) -> str:
        """How a classifier pools unless it is told otherwise."""
        return "first"

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def parameters(self) -> int:
        """Number of trained parameters of the encoder, without a head or pooler."""
        h, i, e = self.hidden_size, self.intermediate_size, self.embedding_width
        types = self.type_vocab_size if self.family.token_types else 0
        tables = self.vocab_size + self.max_position_embeddings + types
        layer = 4 * (h * h + h) + (h * i + i) + (i * h + h) + 2 * (h + h)
        projection = 0 if e == h else e * h + h
        layers = 1 if self.family.shared else self.num_hidden_layers
        return tables * e + 2 * e + projection + layers * layer


def is_number(value: object) -> bool:
    """Whether a value of a configuration is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


B = TypeVar("B", bound=BertConfig)

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
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
}
"""Fields of a configuration file that must have this value if they are present, because any
other value describes a model that is not supported."""


def load(name: str) -> BertConfig:
    """Returns the configuration called `name`, or the one in the JSON file `name`.

    The file is a `bert_config.json` of a Google release, or a `config.json` of
    Hugging Face whose model_type is one of FAMILIES. Unknown fields are ignored.

    Raises:
        ValueError: if the name is unknown, or the file describes no model of these.
    """
    return read(name, PRESETS, "a JSON file", _parse)


def read(
    name: str, presets: Mapping[str, C], other: str, parse: Callable[[dict[str, Any]], C]
) -> C:
    """Returns the configuration called `name`, or what the JSON object in the file `name` says.

    Args:
        name: one of `presets`, or a path.
        presets: configurations by name.
        other: what may be given in place of a name, for the error.
        parse: makes a configuration of an object; its ValueError is raised with the path.

    Raises:
        ValueError: if there is neither, or the file is not what `parse` takes.
    """
    if name in presets:
        return presets[name]
    path = pathlib.Path(name)
    if not path.is_file():
        known = f"one of {', '.join(presets)}, or " if presets else ""
        raise ValueError(f"config is {name!r}; expected {known}{other}")
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as err:
        raise ValueError(f"{path}: not JSON: {err}") from err
    if not isinstance(values, dict):
        raise ValueError(f"{path}: not a JSON object")
    try:
        return parse(values)
    except (ValueError, OverflowError) as err:
        raise ValueError(f"{path}: {err}") from err


PASSED_OVER = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "bos_token_id",
        "cls_token_id",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "label2id",
        "mask_token_id",
        "model_type",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "position_embedding_type",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "torch_dtype",
        "transformers_version",
        "unk_token_id",
        "use_cache",
    }
)
"""Fields of a configuration file that do not change what an encoder computes."""


def strict(
    values: dict[str, Any],
    kind: type[B],
    without: tuple[str, ...],
    required: dict[str, Any],
    ignored: frozenset[str],
) -> B:
    """Returns the configuration of a family all of whose fields are known.

    Args:
        values: the fields of the file.
        kind: the configuration's class, which has the model_type as a default.
        without: its fields that the file does not have.
        required: what other fields of the file must be if they are there.
        ignored: further ones, which may be anything.

    Raises:
        ValueError: if they describe no such model; the message names the field.
    """
    family = FAMILIES[kind.model_type]
    for field, only in required.items():
        if values.get(field, only) != only:
            raise ValueError(f"{field} is {values[field]!r}; expected {only!r}")
    fields = [f for f in dataclasses.fields(kind) if f.name not in without]
    names = {family.field(f.name): f for f in fields}
    unknown = sorted(set(values) - set(names) - set(required) - ignored - PASSED_OVER)
    if unknown:
        raise ValueError(
            f"{unknown[0]} is {values[unknown[0]]!r}; no field of {family.title} that is known has "
            "this name, and the model may be another one; expected it to be left out"
        )
    missing = [
        name
        for name, field in names.items()
        if field.default is dataclasses.MISSING and name not in values
    ]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}")
    return kind(**{f.name: values[n] for n, f in names.items() if n in values})


def _parse(values: dict[str, Any]) -> BertConfig:
    """Returns the configuration that the fields of a file describe."""
    kind = values.get("model_type", "bert")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"model_type is {kind!r}; expected one of {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    if kind in ("modernbert", "deberta-v2"):
        from gorbit_export import deberta_config, modernbert_config

        own = {"modernbert": modernbert_config, "deberta-v2": deberta_config}
        return own[kind].parse(values)
    for field, only in _REQUIRED.items():
        if values.get(field, only) != only:
            raise ValueError(f"{field} is {values[field]!r}; expected {only!r}")
    if not family.projection and values.get(
        "embedding_size", values.get("hidden_size")
    ) != values.get("hidden_size"):
        raise ValueError(
            f"embedding_size is {values['embedding_size']!r}; "
            f"expected hidden_size ({values.get('hidden_size')!r})"
        )
    fields = {f.name: f for f in dataclasses.fields(BertConfig) if f.name != "position_offset"}
    missing = [
        family.field(name)
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and family.field(name) not in values
    ]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}")
    found = dict(family.defaults)
    found |= {name: values[family.field(name)] for name in fields if family.field(name) in values}
    if found.get("embedding_size") == found["hidden_size"]:
        del found["embedding_size"]
    if not family.token_types:
        found["type_vocab_size"] = 0
    if family.offset_positions:
        padding = values.get("pad_token_id", 1)
        if not isinstance(padding, int) or isinstance(padding, bool) or padding < 0:
            raise ValueError(f"pad_token_id is {padding!r}; expected 0 or more")
        found["position_offset"] = padding + 1
    return BertConfig(**found)
