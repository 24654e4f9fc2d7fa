"""Configurations of causal language models: Hugging Face's config.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from gorbit_export import rope
from gorbit_export.config import is_number, read

SLIDING, FULL = "sliding_attention", "full_attention"
"""What config.json calls attention to the last tokens only, and to all."""


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
        sliding: which layers attend to the last sliding_window tokens only, by the fields of a
            config.json and the number of layers; None if none can.
        window: the sliding_window of a config.json that does not have the field.
        listed: whether layer_types of config.json may say it, too.
        rotary: whether positions turn queries and keys, with RMS norms, a gate in the
            feed-forward network and no biases, as in Llama; else as in GPT-2.
        biased_output: whether attention's last map has a bias where the others have one.
        normed_heads: whether each head's query and key are normalized before they are turned.
        gemma: whether words' vectors are multiplied by the root of their width, and norms by
            1 + their weights.
        post_norms: whether what attention and the feed-forward network give is normalized, too.
    """

    model_type: str
    architecture: str
    prefix: str
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    only: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    sliding: Callable[[dict[str, Any], int], list[bool]] | None = None
    window: int | None = None
    listed: bool = True
    rotary: bool = False
    biased_output: bool = False
    normed_heads: bool = False
    gemma: bool = False
    post_norms: bool = False

    @property
    def switched(self) -> bool:
        """Whether use_sliding_window of config.json says if there is a window."""
        return self.sliding in (_last_layers, _unturned_layers)

    def meant(self, fields: Collection[str]) -> dict[str, Any]:
        """What transformers takes where a config.json has no such field.

        Args:
            fields: names of CausalConfig's fields; that of `tied` is tie_word_embeddings.

        Returns:
            Values by the names in config.json, and those of the fields of a window.
        """
        usual = {f.name: f.default for f in dataclasses.fields(CausalConfig)} | self.defaults
        usual["tie_word_embeddings"] = usual["tied"]
        found = {
            self.fields.get(name, name): usual[name]
            for name in fields
            if usual[name] not in (None, dataclasses.MISSING)
        }
        found.pop("", None)
        if self.sliding is not None:
            found["sliding_window"] = self.window
        if self.switched:
            found["use_sliding_window"] = False
        return found


def _all_layers(values: dict[str, Any], layers: int) -> list[bool]:
    """Mistral's: all layers have the window."""
    del values
    return [True] * layers


def _last_layers(values: dict[str, Any], layers: int) -> list[bool]:
    """Qwen's: the layers after the first max_window_layers, with use_sliding_window."""
    first = _whole(values, "max_window_layers", 28, least=0)
    return [i >= first for i in range(layers)]


def _unturned_layers(values: dict[str, Any], layers: int) -> list[bool]:
    """SmolLM3's: the layers whose queries and keys are not turned, with use_sliding_window."""
    return [not turned for turned in _turned_layers(values, layers)]


def _turned_layers(values: dict[str, Any], layers: int) -> list[int]:
    """SmolLM3's no_rope_layers, which has 1 where queries and keys are turned."""
    every = _whole(values, "no_rope_layer_interval", 4)
    given = values.get("no_rope_layers")
    if given is None:
        return [int((i + 1) % every != 0) for i in range(layers)]
    if not isinstance(given, list) or len(given) != layers or set(given) - {0, 1}:
        raise ValueError(
            f"no_rope_layers is {given!r}; expected 0 or 1 for each of {layers} layers"
        )
    return [int(turned) for turned in given]


def _pattern(period: int) -> Callable[[dict[str, Any], int], list[bool]]:
    """Gemma's: all layers have the window but each `period`-th, or sliding_window_pattern-th."""

    def layers_of(values: dict[str, Any], layers: int) -> list[bool]:
        every = _whole(values, "sliding_window_pattern", period)
        return [(i + 1) % every != 0 for i in range(layers)]

    return layers_of


def _whole(values: dict[str, Any], field: str, default: int, least: int = 1) -> int:
    value = values.get(field, default)
    if type(value) is not int or value < least:
        raise ValueError(f"{field} is {value!r}; expected a whole number from {least} on")
    return value


_FEW = (
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope_local_base_freq",
)
"""Fields of few families, which have the same names here."""

_LLAMA = Family(
    "llama",
    "LlamaForCausalLM",
    "model.",
    fields={
        **dict.fromkeys(_FEW, ""),
        "norm_epsilon": "rms_norm_eps",
        "hidden_dropout": "",
        "embedding_dropout": "",
        "biased_attention": "attention_bias",
    },
    defaults={"max_position_embeddings": 2048, "tied": False, "norm_epsilon": 1e-6},
    only={
        "mlp_bias": (False,),
        "pretraining_tp": (0, 1),
        "partial_rotary_factor": (1, None),
        "is_llama_config": (True, False),
        "rope_interleaved": (False,),
    },
    rotary=True,
    biased_output=True,
)

_GEMMA = dataclasses.replace(
    _LLAMA,
    model_type="gemma",
    architecture="GemmaForCausalLM",
    # Its activation is the tanh form whatever hidden_act says, as in transformers.
    fields={**_LLAMA.fields, "hidden_act": ""},
    defaults={
        "max_position_embeddings": 8192,
        "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": 1e-6,
        "num_key_value_heads": 16,
        "head_dim": 256,
    },
    only={
        "hidden_act": ("gelu_pytorch_tanh", "gelu"),
        "hidden_activation": ("gelu_pytorch_tanh", None),
        "use_bidirectional_attention": (False, None),
    },
    gemma=True,
)

_GEMMA2 = dataclasses.replace(
    _GEMMA,
    model_type="gemma2",
    architecture="Gemma2ForCausalLM",
    fields={
        **_LLAMA.fields,
        **{name: name for name in _FEW if name != "rope_local_base_freq"},
        "hidden_act": "hidden_activation",
    },
    defaults={
        **_GEMMA.defaults,
        "num_key_value_heads": 4,
        "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    only={
        # hidden_activation is the one that counts.
        "hidden_act": ("gelu_pytorch_tanh", "gelu"),
        "use_bidirectional_attention": (False, None),
    },
    sliding=_pattern(2),
    window=4096,
    post_norms=True,
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
                **dict.fromkeys(_FEW, ""),
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
        # Jiang et al. 2023.
        dataclasses.replace(
            _LLAMA,
            model_type="mistral",
            architecture="MistralForCausalLM",
            fields={**_LLAMA.fields, "biased_attention": ""},
            defaults={
                **_LLAMA.defaults,
                "max_position_embeddings": 131072,
                "num_key_value_heads": 8,
            },
            sliding=_all_layers,
            window=4096,
            listed=False,
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
                "num_key_value_heads": 32,
                "biased_attention": True,
            },
            only={**_LLAMA.only, "use_mrope": (False,)},
            sliding=_last_layers,
            window=4096,
            biased_output=False,
        ),
        # Yang et al. 2025: Llama with a norm of each head's query and key.
        dataclasses.replace(
            _LLAMA,
            model_type="qwen3",
            architecture="Qwen3ForCausalLM",
            defaults={
                **_LLAMA.defaults,
                "max_position_embeddings": 32768,
                "num_key_value_heads": 32,
                "head_dim": 128,
            },
            sliding=_last_layers,
            window=4096,
            normed_heads=True,
        ),
        # Bakouch et al. 2025: Llama with layers whose queries and keys are not turned.
        dataclasses.replace(
            _LLAMA,
            model_type="smollm3",
            architecture="SmolLM3ForCausalLM",
            defaults={
                **_LLAMA.defaults,
                "max_position_embeddings": 32768,
                "num_key_value_heads": 4,
                "rope_theta": 2e6,
                "tied": True,
            },
            only={k: v for k, v in _LLAMA.only.items() if k != "pretraining_tp"},
            sliding=_unturned_layers,
        ),
        # Gemma Team 2024, 2024 and 2025; the texts of Gemma 3 alone.
        _GEMMA,
        _GEMMA2,
        dataclasses.replace(
            _GEMMA2,
            model_type="gemma3_text",
            architecture="Gemma3ForCausalLM",
            fields={
                **_GEMMA2.fields,
                "attn_logit_softcapping": "",
                "rope_local_base_freq": "rope_local_base_freq",
            },
            defaults={
                **_GEMMA.defaults,
                "max_position_embeddings": 131072,
                "num_key_value_heads": 4,
                "query_pre_attn_scalar": 256,
                "rope_theta": 1e6,
                "rope_local_base_freq": 1e4,
            },
            # transformers does not look at the first.
            only={**_GEMMA2.only, "attn_logit_softcapping": (None,)},
            sliding=_pattern(6),
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
    "cache_implementation",
    # What is read with other fields, or only does something together with them.
    "max_window_layers",
    "pretraining_tp",
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
        rope_scaling: how turns are scaled, as `rope.checked` gives it; None: they are not.
        biased_attention: whether maps of attention have a bias: GPT-2's four, Qwen2's three of
            queries, keys and values, or Llama's and Qwen3's four with their attention_bias.
        sliding_window: how many tokens, itself included, a token of a sliding layer sees at most;
            None for all.
        layer_types: SLIDING or FULL for each layer; None if all are FULL, or Mistral's.
        no_rope_layers: 0 for a layer whose queries and keys are not turned, 1 for others; None
            if all are.
        query_pre_attn_scalar: scores are divided by its root; None for the width of a head.
        attn_logit_softcapping: what scores stay below, by a hyperbolic tangent; None for nothing.
        final_logit_softcapping: what logits stay below.
        rope_local_base_freq: rope_theta of sliding layers, whose turns are not scaled; None for
            that of all.
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
    rope_scaling: dict[str, Any] | None = None
    tied: bool = True
    biased_attention: bool = False
    hidden_dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    sliding_window: int | None = None
    layer_types: tuple[str, ...] | None = None
    no_rope_layers: tuple[int, ...] | None = None
    query_pre_attn_scalar: float | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    rope_local_base_freq: float | None = None
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
            "sliding_window",
        ):
            value = getattr(self, field)
            optional = field in ("num_key_value_heads", "head_dim", "sliding_window")
            optional = optional and value is None
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
        for field in ("norm_epsilon", "initializer_range", "rope_theta", *_FEW):
            value = getattr(self, field)
            if value is None and field in _FEW:
                continue
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

    def layer(self, index: int) -> LayerKind:
        """How attention of layer `index` differs from that of others."""
        sliding = self.layer_types[index] == SLIDING if self.layer_types else True
        window = self.sliding_window if sliding else None
        if window is not None and window >= self.max_position_embeddings:
            window = None
        if not self.family.rotary or (self.no_rope_layers and not self.no_rope_layers[index]):
            return LayerKind(window)
        if self.layer_types and sliding and self.rope_local_base_freq:
            return LayerKind(window, self.rope_local_base_freq)
        return LayerKind(window, self.rope_theta, bool(self.rope_scaling))

    @property
    def plain_attention(self) -> bool:
        """Whether tokens of all layers see all that is before them, by scores without a cap."""
        windows = (self.layer(i).window for i in range(self.num_hidden_layers))
        return self.attn_logit_softcapping is None and all(w is None for w in windows)

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
        layer += 2 * h if self.family.post_norms else 0
        return tables + self.num_hidden_layers * layer + h

    def description(self) -> dict[str, Any]:
        """The fields that change what is computed."""
        values = dataclasses.asdict(self)
        del values["tokens"]
        return {name: value for name, value in values.items() if value is not None}

    def released(self) -> dict[str, Any]:
        """The content of Hugging Face's config.json of such a model."""
        names = {**self.family.fields, "tied": "tie_word_embeddings"}
        names |= dict.fromkeys(("tokens", "rope_scaling", *_LAYERS), "")
        values = dataclasses.asdict(self)
        values["num_key_value_heads"] = self.key_value_heads
        if self.head_dim is None:
            del values["head_dim"]
        return {
            **{names.get(k, k): v for k, v in values.items() if names.get(k, k)},
            # transformers has numbers of its own where there are none.
            **{"bos_token_id": None, "eos_token_id": None, **self.tokens},
            **self._released_layers(),
            "architectures": [self.family.architecture],
            "torch_dtype": "float32",
        }

    def _released_layers(self) -> dict[str, Any]:
        """The fields of config.json that say how layers differ, and how turns are scaled."""
        values: dict[str, Any] = {}
        if self.rope_scaling:
            values["rope_scaling"] = self.rope_scaling
        if self.no_rope_layers:
            values["no_rope_layers"] = list(self.no_rope_layers)
        if self.family.sliding is None:
            return values
        values["sliding_window"] = self.sliding_window
        if self.layer_types:
            values["layer_types"] = list(self.layer_types)
        if self.family.switched:
            values["use_sliding_window"] = self.sliding_window is not None
            kinds = list(self.layer_types or ())
            if kinds and kinds == sorted(kinds) and self.family.sliding is _last_layers:
                # What earlier releases have in place of layer_types: full ones, then sliding ones.
                values["max_window_layers"] = kinds.count(FULL)
        return values


@dataclasses.dataclass(frozen=True)
class LayerKind:
    """How attention of a layer differs from that of others.

    Attributes:
        window: how many tokens a token sees, itself included; None for all before it.
        theta: the base of the frequencies with which queries and keys are turned; None if they
            are not.
        scaled: whether rope_scaling is applied to them.
    """

    window: int | None
    theta: float | None = None
    scaled: bool = False


_LAYERS = ("sliding_window", "layer_types", "no_rope_layers")
"""Fields of CausalConfig that are read together."""


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
    family = FAMILIES[kind]
    values, scaling = _rope(values, family)
    names = {f.name: family.fields.get(f.name, f.name) for f in dataclasses.fields(CausalConfig)}
    names["tied"] = "tie_word_embeddings"
    for field in ("tokens", "rope_scaling", *_LAYERS):
        del names[field]
    for field, allowed in {**_ALL_ONLY, **family.only}.items():
        if field in values and values[field] not in allowed:
            raise ValueError(f"{field} is {values[field]!r}; expected {allowed[0]!r}")
    known = {*names.values(), *_PASSED_OVER, *_ALL_ONLY, *family.only}
    known |= {"sliding_window", "layer_types"}
    if family.switched:
        known.add("use_sliding_window")
    if family.sliding is _unturned_layers:
        known |= {"no_rope_layers", "no_rope_layer_interval"}
    if family.post_norms:
        known.add("sliding_window_pattern")
        if values.get("layer_types") is not None:
            known.add("_sliding_window_pattern")  # what they were made of
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
    config = CausalConfig(**found, rope_scaling=scaling, tokens=tokens)
    return dataclasses.replace(config, **_layers(values, config))


def _rope(values: dict[str, Any], family: Family) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns the fields without rope_scaling and rope_parameters, and the scaling.

    rope_parameters is what later releases write in place of rope_theta and rope_scaling, and of
    rope_local_base_freq, by the kind of layer.
    """
    rest = {k: v for k, v in values.items() if k not in ("rope_parameters", "rope_scaling")}
    given, scaling = values.get("rope_parameters"), values.get("rope_scaling")
    if not family.rotary:
        for field, value in (("rope_parameters", given), ("rope_scaling", scaling)):
            if value is not None:
                raise ValueError(f"{field} is {value!r}; {family.model_type} has no such positions")
    if given is None:
        return rest, rope.checked(scaling)
    if scaling is not None:
        raise ValueError("rope_parameters and rope_scaling are both there; expected one of them")
    local = None
    if isinstance(given, dict) and "rope_local_base_freq" in family.fields.values():
        if set(given) != {SLIDING, FULL}:
            raise ValueError(f"rope_parameters is {given!r}; expected {FULL} and {SLIDING}")
        local, given = given[SLIDING], given[FULL]
    given, scaling = _turns(given, family)
    if local is not None:
        local, scaled = _turns(local, family)
        if scaled:
            raise ValueError(f"rope_parameters of {SLIDING} is {scaled!r}; expected no scaling")
        if "rope_theta" in local:
            rest["rope_local_base_freq"] = local["rope_theta"]
    return {**rest, **given}, scaling


def _turns(given: Any, family: Family) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns rope_theta of rope_parameters, if it is there, and the scaling."""
    if not isinstance(given, dict):
        raise ValueError(f"rope_parameters is {given!r}; expected an object")
    given = {k: v for k, v in given.items() if v is not None}
    part = given.pop("partial_rotary_factor", 1)
    if part != 1:
        raise ValueError(f"partial_rotary_factor of rope_parameters is {part!r}; expected 1")
    theta = {k: given.pop(k) for k in ("rope_theta",) if k in given}
    return theta, rope.checked({"rope_type": "default", **given} if "type" not in given else given)


def _layers(values: dict[str, Any], config: CausalConfig) -> dict[str, Any]:
    """Returns the fields _LAYERS of CausalConfig; a window that reaches everything is none."""
    family, count = config.family, config.num_hidden_layers
    window = values.get("sliding_window", family.window)
    if family.switched and not _switch(values):
        window = None
    if window is not None and type(window) is not int:
        raise ValueError(f"sliding_window is {window!r}; expected an integer, or null")
    reaches = window is None or window >= config.max_position_embeddings
    if family.sliding is None and not reaches:
        raise ValueError(
            f"sliding_window is {window!r}; expected null, or at least max_position_embeddings "
            f"({config.max_position_embeddings!r})"
        )
    found: dict[str, Any] = {}
    if family.sliding is _unturned_layers:
        found["no_rope_layers"] = tuple(_turned_layers(values, count))
    kinds = [FULL] * count
    if family.post_norms or (family.sliding is not None and window is not None):
        kinds = [SLIDING if own else FULL for own in family.sliding(values, count)]
    kinds = _listed(values, family, kinds)
    if window is None and SLIDING in kinds:
        raise ValueError(f"sliding_window is null; expected a number for layers of {SLIDING!r}")
    # In Gemma 3 the base of the turns hangs on the kind of layer, too.
    if family.post_norms or (not reaches and SLIDING in kinds):
        found["sliding_window"] = window
        found["layer_types"] = tuple(kinds) if family.listed else None
    return found


def _listed(values: dict[str, Any], family: Family, kinds: list[str]) -> list[str]:
    """Returns layer_types, or `kinds` if they are not there."""
    given = values.get("layer_types")
    if given is None:
        return kinds
    if not isinstance(given, list) or len(given) != len(kinds):
        raise ValueError(f"layer_types is {given!r}; expected one for each of {len(kinds)} layers")
    if any(kind not in (SLIDING, FULL) for kind in given):
        raise ValueError(f"layer_types is {given!r}; expected {FULL!r} or {SLIDING!r}")
    if (family.sliding is None or not family.listed) and given != kinds:
        raise ValueError(f"layer_types is {given!r}; expected {kinds!r} in {family.model_type}")
    return given


def _switch(values: dict[str, Any]) -> bool:
    """Returns use_sliding_window."""
    value = values.get("use_sliding_window", False)
    if not isinstance(value, bool):
        raise ValueError(f"use_sliding_window is {value!r}; expected true or false")
    return value
