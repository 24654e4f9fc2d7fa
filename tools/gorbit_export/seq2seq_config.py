"""Configurations of encoder-decoder models: Hugging Face's config.json."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from gorbit_export.config import is_number, read

TOKENS = ("decoder_start_token_id", "eos_token_id", "pad_token_id", "bos_token_id")
"""The special tokens of a config.json. decoder_start_token_id is what a decoder begins with."""
FORCED = ("forced_bos_token_id", "forced_eos_token_id")
"""The tokens of a config.json that a generated text must begin and end with, if it has them."""
BAD_WORDS = "bad_words_ids"
"""The rows of tokens of a config.json that a generated text must not have."""
SPECIAL = (*TOKENS, *FORCED, BAD_WORDS)
"""All of these."""


@dataclasses.dataclass(frozen=True)
class Family:
    """What the encoder-decoder models of one model_type have in common.

    Attributes:
        model_type: its name in config.json.
        architecture: the class in transformers.
        prefix: what stands before the names of its tensors in files of that class.
        fields: the names in config.json of Seq2SeqConfig's fields; those without are not in it.
        defaults: what fields are that are not in config.json.
        only: fields of config.json that must have one of these values if they are present,
            because any other describes a model that is computed in another way.
        relative: whether attention has a bias by the distance of two tokens, norms are before
            sublayers and of the root mean square, and maps have no biases, as in T5; else norms
            are after sublayers, and maps have biases.
        learned_positions: whether there is a table of positions, and a norm after the
            embeddings, as in BART; else positions are sines, as in Marian, or relative.
    """

    model_type: str
    architecture: str
    prefix: str
    fields: dict[str, str]
    defaults: dict[str, Any]
    only: dict[str, tuple[Any, ...]]
    relative: bool = False
    learned_positions: bool = False

    @property
    def bare(self) -> list[str]:
        """Beginnings of the names of tensors that have no prefix."""
        return ["lm_head."] if self.relative else ["final_logits_bias"]


_T5 = Family(
    "t5",
    "T5ForConditionalGeneration",
    "",
    fields={
        "hidden_size": "d_model",
        "head_size": "d_kv",
        "encoder_layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "encoder_heads": "num_heads",
        "decoder_heads": "num_heads",
        "encoder_ffn": "d_ff",
        "decoder_ffn": "d_ff",
        "vocab_size": "vocab_size",
        "max_length": "n_positions",
        "norm_epsilon": "layer_norm_epsilon",
        "initializer_range": "initializer_factor",
        "tied": "tie_word_embeddings",
        "buckets": "relative_attention_num_buckets",
        "max_distance": "relative_attention_max_distance",
        "hidden_dropout": "dropout_rate",
        "attention_dropout": "dropout_rate",
        "activation_dropout": "dropout_rate",
    },
    defaults={
        "max_length": 512,
        "norm_epsilon": 1e-6,
        "initializer_range": 1.0,
        "tied": True,
        "buckets": 32,
        "max_distance": 128,
        "pad_token_id": 0,
        "eos_token_id": 1,
    },
    only={},
    relative=True,
)
_BART = Family(
    "bart",
    "BartForConditionalGeneration",
    "model.",
    fields={
        "hidden_size": "d_model",
        "encoder_layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "encoder_heads": "encoder_attention_heads",
        "decoder_heads": "decoder_attention_heads",
        "encoder_ffn": "encoder_ffn_dim",
        "decoder_ffn": "decoder_ffn_dim",
        "vocab_size": "vocab_size",
        "max_length": "max_position_embeddings",
        "hidden_act": "activation_function",
        "initializer_range": "init_std",
        "scale_embedding": "scale_embedding",
        "hidden_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation_dropout": "activation_dropout",
    },
    defaults={
        "max_length": 1024,
        "hidden_act": "gelu",
        "initializer_range": 0.02,
        "norm_epsilon": 1e-5,
        "scale_embedding": False,
        "activation_dropout": 0.0,
        "attention_dropout": 0.0,
        "tied": True,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    only={
        "tie_word_embeddings": (True,),
        "encoder_layerdrop": (0.0,),
        "decoder_layerdrop": (0.0,),
        "normalize_before": (False,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (False,),
        "add_bias_logits": (False,),
        "static_position_embeddings": (False,),
        "extra_pos_embeddings": (2,),
    },
    learned_positions=True,
)
FAMILIES = {
    family.model_type: family
    for family in (
        # Raffel et al. 2020.
        _T5,
        # Lewis et al. 2020.
        _BART,
        # Junczys-Dowmunt et al. 2018.
        dataclasses.replace(
            _BART,
            model_type="marian",
            architecture="MarianMTModel",
            defaults={
                **{k: v for k, v in _BART.defaults.items() if k != "bos_token_id"},
                "pad_token_id": 58100,
                "eos_token_id": 0,
                "decoder_start_token_id": 58100,
                "forced_eos_token_id": 0,
            },
            only={
                **_BART.only,
                "normalize_embedding": (False,),
                "static_position_embeddings": (True,),
                "share_encoder_decoder_embeddings": (True,),
            },
            learned_positions=False,
        ),
    )
}
"""The families by model_type."""

_PASSED_OVER = (
    # What a program does with a model, and where the file is from.
    *("_name_or_path", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version"),
    *("use_cache", "gradient_checkpointing", "_attn_implementation_autoset", "output_past"),
    *("return_dict", "output_attentions", "output_hidden_states", "task_specific_params"),
    *("chunk_size_feed_forward", "tokenizer_class", "torchscript", "tf_legacy_loss"),
    *("transformers.js_config", "max_source_positions", "max_target_positions"),
    # How texts are generated, which is asked for at that time.
    *("num_beams", "num_beam_groups", "length_penalty", "early_stopping", "min_length"),
    *("max_length", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "do_sample"),
    *("temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "diversity_penalty"),
    *("num_return_sequences", "prefix", "return_dict_in_generate"),
    *("output_scores", "remove_invalid_values", "exponential_decay_length_penalty"),
    *("sep_token_id", "unk_token_id", "force_bos_token_to_be_generated"),
    # Other heads.
    *("id2label", "label2id", "num_labels", "problem_type", "classif_dropout"),
    "classifier_dropout",
    # The number of layers a second time.
    "num_hidden_layers",
)
"""Fields that change no result."""

_ALL_ONLY = {
    "is_encoder_decoder": (True,),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "pruned_heads": ({},),
}


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
    """Sizes and constants of an encoder-decoder model.

    The dropout rates are only defaults: exported graphs take the rates as inputs.

    Attributes:
        head_size: width of a head; None for the width of the model by the number of heads.
        max_length: the most tokens of a source: all that the table of positions has.
        max_target_length: the most tokens of a target.
        gated: whether the feed-forward network has a gate.
        tied: whether the logits are products with the word vectors.
        buckets: into how many classes T5 divides distances; None without relative positions.
        max_distance: from which on distances are of the last class.
        scale_embedding: whether word vectors are multiplied by the root of their width.
        initializer_range: deviation of the initial weights; in T5 the factor of the deviations
            that follow from widths.
        tokens: the special tokens of config.json, by field.
    """

    model_type: str
    hidden_size: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    encoder_ffn: int
    decoder_ffn: int
    vocab_size: int
    max_length: int
    max_target_length: int
    hidden_act: str
    norm_epsilon: float
    initializer_range: float
    tied: bool
    gated: bool = False
    head_size: int | None = None
    buckets: int | None = None
    max_distance: int | None = None
    scale_embedding: bool = False
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    tokens: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: if a field is invalid; the message names it.
        """
        if self.model_type not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise ValueError(f"model_type is {self.model_type!r}; expected one of {known}")
        name = self._name
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if "int" not in field.type or ("None" in field.type and value is None):
                continue
            if type(value) is not int or value < 1:
                raise ValueError(f"{name(field.name)} is {value!r}; expected a positive integer")
        for field in ("encoder_heads", "decoder_heads"):
            if self.head_size is None and self.hidden_size % getattr(self, field):
                raise ValueError(
                    f"{name('hidden_size')} is {self.hidden_size}; expected a multiple of "
                    f"{name(field)} ({getattr(self, field)})"
                )
        if self.family.relative and (self.buckets < 4 or self.buckets % 4):
            raise ValueError(f"{name('buckets')} is {self.buckets}; expected a multiple of 4")
        if self.family.relative and self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"{name('max_distance')} is {self.max_distance}; expected more than "
                f"{self.buckets // 2}, half of {name('buckets')}"
            )
        if not self.family.learned_positions and not self.family.relative and self.hidden_size % 2:
            raise ValueError(f"{name('hidden_size')} is {self.hidden_size}; expected an even one")
        if not isinstance(self.hidden_act, str):
            raise ValueError(f"{name('hidden_act')} is {self.hidden_act!r}; expected a name")
        for field in ("tied", "gated", "scale_embedding"):
            if not isinstance(getattr(self, field), bool):
                value = getattr(self, field)
                raise ValueError(f"{name(field)} is {value!r}; expected true or false")
        for field in ("hidden_dropout", "attention_dropout", "activation_dropout"):
            value = getattr(self, field)
            if not is_number(value) or not 0 <= value < 1:
                raise ValueError(f"{name(field)} is {value!r}; expected a number in [0, 1)")
        for field in ("norm_epsilon", "initializer_range"):
            value = getattr(self, field)
            if not is_number(value) or value <= 0:
                raise ValueError(f"{name(field)} is {value!r}; expected a positive number")
        self._check_tokens()

    def _check_tokens(self) -> None:
        for field, value in self.tokens.items():
            values = value if field == "eos_token_id" and isinstance(value, list) else [value]
            if field == BAD_WORDS:
                if not isinstance(value, list) or not all(isinstance(w, list) and w for w in value):
                    raise ValueError(f"{field} is {value!r}; expected a list of lists of tokens")
                values = [i for word in value for i in word]
            for i in values:
                if type(i) is not int or not 0 <= i < self.vocab_size:
                    raise ValueError(
                        f"{field} is {value!r}; expected a token of the vocabulary of "
                        f"{self.vocab_size}"
                    )
        if "decoder_start_token_id" not in self.tokens:
            raise ValueError(
                "missing decoder_start_token_id, the token that a decoder begins with; add it to "
                "the file: T5's is pad_token_id"
            )

    def _name(self, field: str) -> str:
        return self.family.fields.get(field, field)

    @property
    def family(self) -> Family:
        """What the model has in common with others of its model_type."""
        return FAMILIES[self.model_type]

    @property
    def start(self) -> int:
        """The token that the decoder begins with."""
        return self.tokens["decoder_start_token_id"]

    def layers(self, side: str) -> int:
        """Number of layers of the "encoder" or the "decoder"."""
        return getattr(self, f"{side}_layers")

    def heads(self, side: str) -> int:
        """Number of heads of a layer of the side."""
        return getattr(self, f"{side}_heads")

    def ffn(self, side: str) -> int:
        """Width of the feed-forward networks of the side."""
        return getattr(self, f"{side}_ffn")

    def head_width(self, side: str) -> int:
        """Width of one head."""
        return self.head_size or self.hidden_size // self.heads(side)

    def width(self, side: str) -> int:
        """Width of the queries, keys and values of all heads."""
        return self.head_width(side) * self.heads(side)

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        h, relative = self.hidden_size, self.family.relative
        total = self.vocab_size * (1 if self.tied else 2) * h
        for side, attentions in (("encoder", 1), ("decoder", 2)):
            q, f = self.width(side), self.ffn(side)
            layer = attentions * 4 * h * q + (3 if self.gated else 2) * h * f
            norms = (attentions + 1) * h * (1 if relative else 2)
            biases = 0 if relative else attentions * (3 * q + h) + f + h
            total += self.layers(side) * (layer + norms + biases)
            if relative:
                total += self.buckets * self.heads(side) + h
            elif self.family.learned_positions:
                total += (self.max_length + OFFSET) * h + 2 * h
        return total

    def description(self) -> dict[str, Any]:
        """The fields that change what is computed."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value is not None}

    def released(self) -> dict[str, Any]:
        """The content of Hugging Face's config.json of such a model."""
        values = {field: getattr(self, name) for name, field in self.family.fields.items()}
        none = dict.fromkeys((*TOKENS, *FORCED))
        values |= {name: self.tokens.get(name) for name in none}
        if BAD_WORDS in self.tokens:
            values[BAD_WORDS] = self.tokens[BAD_WORDS]
        if self.family.relative:
            act = "gelu" if self.gated and self.hidden_act == "gelu_new" else self.hidden_act
            values["feed_forward_proj"] = f"gated-{act}" if self.gated else act
            for forced in FORCED:
                if values[forced] is None:
                    del values[forced]
        else:
            values["tie_word_embeddings"] = True
            # As in the files of BART's authors: CTranslate2's converter looks for it.
            values["normalize_before"] = False
        if self.model_type == "marian":
            values["decoder_vocab_size"] = self.vocab_size
            values["share_encoder_decoder_embeddings"] = True
        return {
            **values,
            "is_encoder_decoder": True,
            "architectures": [self.family.architecture],
            "model_type": self.model_type,
            "torch_dtype": "float32",
        }


OFFSET = 2
"""How many rows BART's tables of positions have before that of position 0."""


def load(
    name: str, max_length: int | None = None, max_target_length: int | None = None
) -> Seq2SeqConfig:
    """Returns the configuration in the file `name`, a config.json.

    The tokens that end a text and that it must have are those of the generation_config.json next
    to it, where later releases write them, if there is one with them.

    `max_length` and `max_target_length` are the most tokens of a source and of a target; None for
    what the file says.

    Raises:
        ValueError: if the file describes no model of FAMILIES, or has a field that is not known:
            it may change what the model computes.
    """

    def parse(values: dict[str, Any]) -> Seq2SeqConfig:
        return _limited(_parse(values), max_length, max_target_length)

    config = read(name, {}, "a config.json", parse)
    beside = pathlib.Path(name).parent / "generation_config.json"
    if not beside.is_file():
        return config

    def add(values: dict[str, Any]) -> Seq2SeqConfig:
        known = ("eos_token_id", *FORCED, BAD_WORDS)
        tokens = {f: values[f] for f in known if values.get(f) is not None}
        return dataclasses.replace(config, tokens={**config.tokens, **tokens})

    return read(str(beside), {}, "a generation_config.json", add)


def _limited(config: Seq2SeqConfig, source: int | None, target: int | None) -> Seq2SeqConfig:
    """Sets the limits of lengths. A table of positions stays as long as it is."""
    if not config.family.relative and (source is not None or target is not None):
        raise ValueError(
            f"--max-length or --max-target-length is given; {config.model_type} has "
            f"max_position_embeddings ({config.max_length}): expected it in the file"
        )
    for option, value in (("--max-length", source), ("--max-target-length", target)):
        if value is not None and value < 1:
            raise ValueError(f"{option} is {value}; expected 1 or more")
    source = config.max_length if source is None else source
    target = config.max_target_length if target is None else target
    return dataclasses.replace(config, max_length=source, max_target_length=target)


def _parse(values: dict[str, Any]) -> Seq2SeqConfig:
    """Returns the configuration that the fields of a file describe."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"model_type is {kind!r}; expected one of {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    for field, allowed in {**_ALL_ONLY, **family.only}.items():
        if field in values and values[field] not in allowed:
            raise ValueError(f"{field} is {values[field]!r}; expected {allowed[0]!r}")
    own = {
        "model_type",
        *family.fields.values(),
        *SPECIAL,
        *_ALL_ONLY,
        *family.only,
    }
    unknown = sorted(set(values) - own - set(_PASSED_OVER) - _OWN.get(kind, set()))
    if unknown:
        raise ValueError(
            f"field {unknown[0]} is not known, and may change what the model computes; "
            "leave it out if it does not"
        )
    found = {k: v for k, v in family.defaults.items() if k not in SPECIAL}
    found |= {name: values[field] for name, field in family.fields.items() if field in values}
    found |= _activation(values) if family.relative else {}
    if family.relative and found.get("decoder_layers") is None:
        found["decoder_layers"] = found.get("encoder_layers")
    if kind == "marian" and values.get("decoder_vocab_size") not in (None, found.get("vocab_size")):
        raise ValueError(
            f"decoder_vocab_size is {values['decoder_vocab_size']!r}; expected vocab_size "
            f"({found.get('vocab_size')!r})"
        )
    found["max_target_length"] = found["max_length"]
    missing = [
        family.fields.get(f.name, f.name)
        for f in dataclasses.fields(Seq2SeqConfig)
        if f.name != "model_type"
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
        and found.get(f.name) is None
    ]
    if missing:
        raise ValueError(f"missing {', '.join(dict.fromkeys(missing))}")
    tokens = {name: values.get(name, family.defaults.get(name)) for name in SPECIAL}
    tokens = {name: value for name, value in tokens.items() if value is not None}
    return Seq2SeqConfig(model_type=kind, **found, tokens=tokens)


_OWN = {
    "t5": {"feed_forward_proj", "dense_act_fn", "is_gated_act", "scale_decoder_outputs"},
    "marian": {"decoder_vocab_size"},
}
"""Fields of one family that are read apart."""


def _activation(values: dict[str, Any]) -> dict[str, Any]:
    """Reads T5's feed_forward_proj, and what other fields say of it a second time."""
    name = values.get("feed_forward_proj", "relu")
    if not isinstance(name, str):
        raise ValueError(f"feed_forward_proj is {name!r}; expected a name")
    gated = name.startswith("gated-")
    act = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")
    # Later releases write true for tie_word_embeddings always, and say it in the other field.
    tied = values.get("tie_word_embeddings", True)
    scaled = values.get("scale_decoder_outputs", tied)
    for field, want in (
        ("dense_act_fn", act),
        ("is_gated_act", gated),
        *([("scale_decoder_outputs", False)] if tied is False else []),
    ):
        if values.get(field, want) != want:
            raise ValueError(f"{field} is {values[field]!r}; expected {want!r}")
    return {"hidden_act": act, "gated": gated, "tied": scaled}
