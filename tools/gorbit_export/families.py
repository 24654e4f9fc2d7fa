"""The encoders that differ from BERT in parts: what the parts are, and their names."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Layer:
    """The names of an encoder layer's parts in Hugging Face's files, after that of the layer."""

    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    attention_output: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    intermediate: str = "intermediate.dense"
    output: str = "output.dense"
    output_norm: str = "output.LayerNorm"


@dataclasses.dataclass(frozen=True)
class Head:
    """The two maps of a classifier on the first token.

    Attributes:
        dense: name of the first, in Hugging Face's files.
        activation: what follows it.
        dropout_first: whether there is dropout before the first map, too.
        output: name of the second.
        within: whether the first is the encoder's in Hugging Face's files.
    """

    dense: str = "pooler.dense"
    activation: str = "tanh"
    dropout_first: bool = False
    output: str = "classifier"
    within: bool = False


@dataclasses.dataclass(frozen=True)
class MaskedHead:
    """The parts of a masked language model's head, by their names in Hugging Face's files.

    Attributes:
        dense: the map before the product with the words' vectors.
        norm: the norm after it.
        bias: possible names of the logits' bias.
    """

    dense: str = "cls.predictions.transform.dense"
    norm: str = "cls.predictions.transform.LayerNorm"
    bias: tuple[str, ...] = tuple(
        f"cls.predictions.{name}" for name in ("bias", "decoder.bias", "output_bias")
    )


@dataclasses.dataclass(frozen=True)
class Family:
    """What the encoders of one model_type have in common.

    Attributes:
        model_type: its name in Hugging Face's config.json.
        title: its name for people.
        stem: what the names of its classes in transformers begin with.
        fields: the names of BertConfig's fields in config.json, where they are others; "" for
            one that it does not have.
        defaults: what fields are that are not in config.json, where BertConfig has others.
        layer_path: the name of layer {} in Hugging Face's files.
        layer: the parts of a layer.
        head: the classifier.
        choice: the head that scores a choice; that of the classifier if there is no other.
        masked: the head of a masked language model; None if the model has not learned one.
        released: whether TensorFlow's releases have such encoders, too.
        token_types: whether the embeddings have a table of token types.
        offset_positions: whether positions count from the number of the padding token + 1.
        own_prefix: what stands before the names of the encoder where a file has a head as well;
            "" for the model_type.
        projection: name of the map from the embeddings to the layers, where embeddings may be
            narrower; "" where they may not.
        shared: whether all layers have the same weights, those of the first.
        head_norm: whether the heads of all tasks have a map, an activation and a norm before
            the last map, behind any pooling; they are those of `masked`, without biases.
        spans: name of the last map of a question answering.
    """

    model_type: str
    title: str
    stem: str
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    layer_path: str = "encoder.layer.{}"
    layer: Layer = Layer()
    head: Head = Head()
    choice: Head | None = None
    masked: MaskedHead | None = None
    released: bool = False
    token_types: bool = True
    offset_positions: bool = False
    own_prefix: str = ""
    projection: str = ""
    shared: bool = False
    head_norm: bool = False
    spans: str = "qa_outputs"

    @property
    def prefix(self) -> str:
        """What stands before the names of the encoder where a file has a head as well."""
        return self.own_prefix or f"{self.model_type}."

    @property
    def head_parts(self) -> tuple[str, ...]:
        """The names of what is before the last map of a task that looks at tokens."""
        return (self.masked.dense, self.masked.norm) if self.head_norm and self.masked else ()

    def field(self, name: str) -> str:
        """The name of a field of BertConfig in config.json."""
        return self.fields.get(name, name)


# Liu et al. 2019.
_ROBERTA = Family(
    "roberta",
    "RoBERTa",
    "Roberta",
    head=Head("classifier.dense", "tanh", True, "classifier.out_proj"),
    choice=Head(within=True),
    masked=MaskedHead(
        "lm_head.dense", "lm_head.layer_norm", ("lm_head.bias", "lm_head.decoder.bias")
    ),
    offset_positions=True,
    own_prefix="roberta.",
)

FAMILIES = {
    family.model_type: family
    for family in (
        Family("bert", "BERT", "Bert", head=Head(within=True), masked=MaskedHead(), released=True),
        # Sanh et al. 2019. Its classifier's first map is called pre_classifier.
        Family(
            "distilbert",
            "DistilBERT",
            "DistilBert",
            fields={
                "hidden_size": "dim",
                "num_hidden_layers": "n_layers",
                "num_attention_heads": "n_heads",
                "intermediate_size": "hidden_dim",
                "hidden_act": "activation",
                "hidden_dropout_prob": "dropout",
                "attention_probs_dropout_prob": "attention_dropout",
                "classifier_dropout": "seq_classif_dropout",
                "layer_norm_eps": "",
            },
            defaults={"classifier_dropout": 0.2},
            layer_path="transformer.layer.{}",
            layer=Layer(
                "attention.q_lin",
                "attention.k_lin",
                "attention.v_lin",
                "attention.out_lin",
                "sa_layer_norm",
                "ffn.lin1",
                "ffn.lin2",
                "output_layer_norm",
            ),
            head=Head("pre_classifier", "relu"),
            masked=MaskedHead("vocab_transform", "vocab_layer_norm", ("vocab_projector.bias",)),
            token_types=False,
        ),
        # Clark et al. 2020, the discriminator.
        Family(
            "electra",
            "ELECTRA",
            "Electra",
            defaults={"embedding_size": 128},
            head=Head("classifier.dense", "gelu", True, "classifier.out_proj"),
            choice=Head("sequence_summary.summary", "gelu"),
            projection="embeddings_project",
        ),
        # Lan et al. 2020, with one group of one layer, as all that were released.
        Family(
            "albert",
            "ALBERT",
            "Albert",
            fields={"classifier_dropout": "classifier_dropout_prob"},
            defaults={
                "embedding_size": 128,
                "hidden_act": "gelu_new",
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
                "classifier_dropout": 0.1,
            },
            layer_path="encoder.albert_layer_groups.0.albert_layers.0",
            layer=Layer(
                "attention.query",
                "attention.key",
                "attention.value",
                "attention.dense",
                "attention.LayerNorm",
                "ffn",
                "ffn_output",
                "full_layer_layer_norm",
            ),
            head=Head("pooler", within=True),
            masked=MaskedHead(
                "predictions.dense",
                "predictions.LayerNorm",
                ("predictions.bias", "predictions.decoder.bias"),
            ),
            projection="encoder.embedding_hidden_mapping_in",
            shared=True,
        ),
        _ROBERTA,
        # Conneau et al. 2020, and Martin et al. 2020: RoBERTa of other texts.
        dataclasses.replace(
            _ROBERTA, model_type="xlm-roberta", title="XLM-RoBERTa", stem="XLMRoberta"
        ),
        dataclasses.replace(_ROBERTA, model_type="camembert", title="CamemBERT", stem="Camembert"),
        # Warner et al. 2024.
        Family(
            "modernbert",
            "ModernBERT",
            "ModernBert",
            fields={
                "hidden_act": "hidden_activation",
                "layer_norm_eps": "norm_eps",
                "attention_probs_dropout_prob": "attention_dropout",
            },
            layer_path="layers.{}",
            layer=Layer(
                query="attn.Wqkv",
                attention_output="attn.Wo",
                attention_norm="attn_norm",
                intermediate="mlp.Wi",
                output="mlp.Wo",
                output_norm="mlp_norm",
            ),
            head=Head("head.dense"),
            masked=MaskedHead("head.dense", "head.norm", ("decoder.bias",)),
            token_types=False,
            own_prefix="model.",
            head_norm=True,
            spans="classifier",
        ),
        # He et al. 2021, the third version.
        Family(
            "deberta-v2",
            "DeBERTa",
            "DebertaV2",
            fields={"classifier_dropout": "cls_dropout"},
            layer=Layer(
                "attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"
            ),
            head=Head("pooler.dense", "gelu"),
            masked=MaskedHead(),
            token_types=False,
            own_prefix="deberta.",
            projection="embeddings.embed_proj",
        ),
    )
}
"""The families by model_type."""
