"""Configurations of causal language models: Hugging Face's config.json."""

from __future__ import annotations

import dataclasses
from typing import Any

from gorbit_export.config import is_number, read


@dataclasses.dataclass(frozen=True)
class Family:
    """What the causal language models of one model_type have in common.

    Attributes:
        model_type: its name in config.json.
        architecture: the class in transformers.
        prefix: what stands before the names of its tensors in files of that class.
        fields: the names in config.json of CausalConfig's fields, where they are others; "" for
            one that it does not have.
        defaults: what fields are that are not in config.json, where CausalConfig has others.
        only: fields of config.json that must have one of these values if they are present,
            because any other describes a model that is computed in another way.
        window: the sliding_window of a config.json that does not have the field.
        rotary: whether positions turn queries and keys, with RMS norms, a gate in the
            feed-forward network and no biases, as in Llama; else as in GPT-2.
        biased_output: whether attention's last map has a bias where the others have one.
        normed_heads: whether each head's query and key are normalized before they are turned.
    """

    model_type: str
    architecture: str
    prefix: str
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    only: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    window: int | None = None
    rotary: bool = False
    biased_output: bool = False
    normed_heads: bool = False


_LLAMA = Family(
    "llama",
    "LlamaForCausalLM",
    "model.",
    fields={
        "norm_epsilon": "rms_norm_eps",
        "hidden_dropout": "",
        "embedding_dropout": "",
        "biased_attention": "attention_bias",
    },
    defaults={"max_position_embeddings": 2048, "tied": False, "norm_epsilon": 1e-6},
    only={
        "rope_scaling": (None,),
        "mlp_bias": (False,),
        "pretraining_tp": (0, 1),
        "partial_rotary_factor": (1, None),
        "is_llama_config": (True, False),
        "rope_interleaved": (False,),
    },
    rotary=True,
    biased_output=True,
)

FAMILIES = {
    family.model_type: family
    for family in (
        # Radford et al. 2019.
        Family(
            "gpt2",
            "GPT2LMHeadModel",
            "transformer.",
            fields={
                "hidden_size": "n_embd",
                "num_hidden_layers": "n_layer",
                "num_attention_heads": "n_head",
                "intermediate_size": "n_inner",
                "max_position_embeddings": "n_positions",
                "hidden_act": "activation_function",
                "norm_epsilon": "layer_norm_epsilon",
                "hidden_dropout": "resid_pdrop",
                "embedding_dropout": "embd_pdrop",
                "attention_dropout": "attn_pdrop",
                "num_key_value_heads": "",
                "head_dim": "",
                "rope_theta": "",
                "biased_attention": "",
            },
            defaults={
                "vocab_size": 50257,
                "max_position_embeddings": 1024,
                "hidden_act": "gelu_new",
                "hidden_dropout": 0.1,
                "embedding_dropout": 0.1,
                "attention_dropout": 0.1,
                "biased_attention": True,
            },
            only={
                "scale_attn_weights": (True,),
                "scale_attn_by_inverse_layer_idx": (False,),
                "add_cross_attention": (False,),
            },
        ),
        # Touvron et al. 2023, and those of its form, such as SmolLM2.
        _LLAMA,
        # Jiang et al. 2023. Its window of attention is checked in _parse.
        dataclasses.replace(
            _LLAMA,
            model_type="mistral",
            architecture="MistralForCausalLM",
            fields={**_LLAMA.fields, "biased_attention": ""},
            defaults={**_LLAMA.defaults, "max_position_embeddings": 131072},
            window=4096,
            biased_output=False,
        ),
        # Yang et al. 2024: Llama with biases in three of attention's maps.
        dataclasses.replace(
            _LLAMA,
            model_type="qwen2",
            architecture="Qwen2ForCausalLM",
            fields={**_LLAMA.fields, "biased_attention": ""},
            defaults={
                **_LLAMA.defaults,
                "max_position_embeddings": 32768,
                "biased_attention": True,
            },
            only={**_LLAMA.only, "use_sliding_window": (False,), "use_mrope": (False,)},
            biased_output=False,
        ),
        # Yang et al. 2025: Llama with a norm of each head's query and key.
        dataclasses.replace(
            _LLAMA,
            model_type="qwen3",
            architecture="Qwen3ForCausalLM",
            defaults={**_LLAMA.defaults, "max_position_embeddings": 32768, "head_dim": 128},
            only={**_LLAMA.only, "use_sliding_window": (False,)},
            normed_heads=True,
        ),
    )
}
"""The families by model_type."""

_PASSED_OVER = (
    # What a program does with a model, and where the file is from.
    *("_name_or_path", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version"),
    *(
        "use_cache",
        "task_specific_params",
        "_attn_implementation_autoset",
        "gradient_checkpointing",
    ),
    *("return_dict", "output_attentions", "output_hidden_states", "transformers.js_config"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id"),
    # Other heads, and the order of a computation.
    *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels"),
    *("summary_first_dropout", "id2label", "label2id", "reorder_and_upcast_attn", "n_ctx"),
    # What only does something together with use_sliding_window.
    "max_window_layers",
)
"""Fields that change no result."""

_ALL_ONLY = {"is_decoder": (False, True), "is_encoder_decoder": (False,), "pruned_heads": ({},)}


@dataclasses.dataclass(frozen=True)
class CausalConfig:
    """Sizes and constants of a causal language model, under Llama's field names.

    The dropout rates are only defaults: exported graphs take the rates as inputs.

    Attributes:
        num_key_value_heads: heads of keys and values; None for as many as of queries.
        head_dim: width of a head; None for the width of the model by the number of heads.
        tied: whether the logits are products with the word vectors (tie_word_embeddings).
        biased_attention: whether maps of attention have a bias: GPT-2's four, Qwen2's three of
            queries, keys and values, or Llama's and Qwen3's four with their attention_bias.
        tokens: the special tokens of config.json, by field; generation stops and starts by them.
    """

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    hidden_act: str = "silu"
    norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rope_theta: float = 10000.0
    tied: bool = True
    biased_attention: bool = False
    hidden_dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    tokens: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: if a field is invalid; the message names it.
        """
        if self.model_type not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise ValueError(f"model_type is {self.model_type!r}; expected one of {known}")
        name = self.family.fields.get
        for field in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            "num_key_value_heads",
            "head_dim",
        ):
            value = getattr(self, field)
            optional = field in ("num_key_value_heads", "head_dim") and value is None
            if not optional and (type(value) is not int or value < 1):
                raise ValueError(f"{name(field, field)} is {value!r}; expected a positive integer")
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"{name('hidden_size', 'hidden_size')} is {self.hidden_size}; expected a multiple "
                f"of the number of attention heads ({self.num_attention_heads})"
            )
        if self.num_attention_heads % self.key_value_heads:
            raise ValueError(
                f"num_attention_heads is {self.num_attention_heads}; expected a multiple of "
                f"num_key_value_heads ({self.key_value_heads})"
            )
        if self.family.rotary and self.head_size % 2:
            raise ValueError(f"the width of a head is {self.head_size}; expected an even number")
        if not isinstance(self.hidden_act, str):
            raise ValueError(f"the activation is {self.hidden_act!r}; expected a name")
        for field in ("tied", "biased_attention"):
            if not isinstance(getattr(self, field), bool):
                raise ValueError(f"{field} is {getattr(self, field)!r}; expected true or false")
        for field in ("hidden_dropout", "embedding_dropout", "attention_dropout"):
            value = getattr(self, field)
            if not is_number(value) or not 0 <= value < 1:
                raise ValueError(f"{name(field, field)} is {value!r}; expected a number in [0, 1)")
        for field in ("norm_epsilon", "initializer_range", "rope_theta"):
            value = getattr(self, field)
            if not is_number(value) or value <= 0:
                raise ValueError(f"{name(field, field)} is {value!r}; expected a positive number")

    @property
    def family(self) -> Family:
        """What the model has in common with others of its model_type."""
        return FAMILIES[self.model_type]

    @property
    def key_value_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def query_width(self) -> int:
        """Width of the queries of all heads."""
        return self.num_attention_heads * self.head_size

    @property
    def cache_width(self) -> int:
        """Width of the keys of all heads, and of the values."""
        return self.key_value_heads * self.head_size

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        h, i, q, k = self.hidden_size, self.intermediate_size, self.query_width, self.cache_width
        tables = self.vocab_size * (1 if self.tied else 2) * h
        if not self.family.rotary:
            layer = 4 * h * h + 4 * h + 2 * h * i + h + i + 4 * h
            return (
                tables + self.max_position_embeddings * h + self.num_hidden_layers * layer + 2 * h
            )
        bias = q + 2 * k + (h if self.family.biased_output else 0)
        layer = 2 * h * q + 2 * h * k + 3 * h * i + 2 * h + (bias if self.biased_attention else 0)
        layer += 2 * self.head_size if self.family.normed_heads else 0
        return tables + self.num_hidden_layers * layer + h

    def description(self) -> dict[str, Any]:
        """The fields that change what is computed."""
        values = dataclasses.asdict(self)
        del values["tokens"]
        return {name: value for name, value in values.items() if value is not None}

    def released(self) -> dict[str, Any]:
        """The content of Hugging Face's config.json of such a model."""
        names = {**self.family.fields, "tied": "tie_word_embeddings", "tokens": ""}
        values = dataclasses.asdict(self)
        values["num_key_value_heads"] = self.key_value_heads
        if self.head_dim is None:
            del values["head_dim"]
        return {
            **{names.get(k, k): v for k, v in values.items() if names.get(k, k)},
            # transformers has numbers of its own where there are none.
            **{"bos_token_id": None, "eos_token_id": None, **self.tokens},
            **({"sliding_window": None} if self.family.window else {}),
            "architectures": [self.family.architecture],
            "torch_dtype": "float32",
        }


PRESETS = {
    name: CausalConfig(
        "gpt2",
        *sizes,
        vocab_size=50257,
        max_position_embeddings=positions,
        hidden_act="gelu_new",
        biased_attention=True,
        hidden_dropout=0.1,
        embedding_dropout=0.1,
        attention_dropout=0.1,
        tokens={"bos_token_id": 50256, "eos_token_id": 50256},
    )
    for name, sizes, positions in (
        ("gpt2-tiny", (128, 2, 2, 512), 256),
        ("gpt2", (768, 12, 12, 3072), 1024),
    )
}
"""The named configurations: GPT-2's smallest, and a tiny one of its form."""


def load(name: str) -> CausalConfig:
    """Returns the configuration called `name`, or the one in the file `name`, a config.json.

    Raises:
        ValueError: if the name is unknown, or the file describes no model of FAMILIES, or has a
            field that is not known: it may change what the model computes.
    """
    return read(name, PRESETS, "a config.json", _parse)


def _parse(values: dict[str, Any]) -> CausalConfig:
    """Returns the configuration that the fields of a file describe."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"model_type is {kind!r}; expected one of {', '.join(FAMILIES)}")
    family, values = FAMILIES[kind], _rope(values)
    names = {f.name: family.fields.get(f.name, f.name) for f in dataclasses.fields(CausalConfig)}
    names["tied"] = "tie_word_embeddings"
    del names["tokens"]
    for field, allowed in {**_ALL_ONLY, **family.only}.items():
        if field in values and values[field] not in allowed:
            raise ValueError(f"{field} is {values[field]!r}; expected {allowed[0]!r}")
    _check_window(values, family)
    known = {
        *names.values(),
        *_PASSED_OVER,
        *_ALL_ONLY,
        *family.only,
        "sliding_window",
        "layer_types",
    }
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(
            f"field {unknown[0]} is not known, and may change what the model computes; "
            "leave it out if it does not"
        )
    found = dict(family.defaults)
    found |= {name: values[field] for name, field in names.items() if field in values}
    width = found.get("hidden_size")
    if found.get("intermediate_size") is None and not family.rotary and type(width) is int:
        found["intermediate_size"] = 4 * width
    missing = [
        names[f.name]
        for f in dataclasses.fields(CausalConfig)
        if f.name in names and f.default is dataclasses.MISSING and found.get(f.name) is None
    ]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}")
    tokens = {k: values[k] for k in _PASSED_OVER if k.endswith("_token_id") and k in values}
    return CausalConfig(**found, tokens=tokens)


def _rope(values: dict[str, Any]) -> dict[str, Any]:
    """Reads rope_parameters, as later releases write rope_theta and rope_scaling."""
    rope = values.get("rope_parameters")
    if rope is None:
        return {k: v for k, v in values.items() if k != "rope_parameters"}
    if not isinstance(rope, dict) or set(rope) - {"rope_type", "rope_theta"}:
        raise ValueError(f"rope_parameters is {rope!r}; expected rope_type and rope_theta")
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_type is {rope['rope_type']!r}; expected 'default'")
    rest = {k: v for k, v in values.items() if k != "rope_parameters"}
    return {**rest, **{k: v for k, v in rope.items() if k == "rope_theta"}}


def _check_window(values: dict[str, Any], family: Family) -> None:
    """Refuses attention to the last tokens only."""
    kinds = values.get("layer_types", [])
    if not isinstance(kinds, list) or kinds != ["full_attention"] * len(kinds):
        raise ValueError(f"layer_types is {kinds!r}; expected 'full_attention' for all layers")
    window = values.get("sliding_window", family.window)
    if window is None or values.get("use_sliding_window") is False:
        return
    longest = values.get("max_position_embeddings", family.defaults["max_position_embeddings"])
    if not is_number(window) or not is_number(longest) or window < longest:
        raise ValueError(
            f"sliding_window is {window!r}; expected null, or at least max_position_embeddings "
            f"({longest!r})"
        )
