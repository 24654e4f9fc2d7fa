"""Configurations: the named ones, and the JSON files of BERT releases."""

import dataclasses
import json

import pytest

from gorbit_export import config

GOOGLE = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.2,
    "hidden_size": 256,
    "initializer_range": 0.02,
    "intermediate_size": 1024,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "type_vocab_size": 2,
    "vocab_size": 28996,
}
HUGGING_FACE = {
    "_name_or_path": "bert-base-cased",
    "architectures": ["BertForMaskedLM"],
    **GOOGLE,
    "classifier_dropout": None,
    "gradient_checkpointing": False,
    "layer_norm_eps": 1e-7,
    "model_type": "bert",
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.48.0",
    "use_cache": True,
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # As the releases state them, with the pooler.
        ("tiny", 4_385_920),
        ("mini", 11_170_560),
        ("small", 28_763_648),
        ("medium", 41_373_184),
        ("minilm", 22_713_216),
        ("base", 109_482_240),
        ("large", 335_141_888),
    ],
)
def test_presets_have_the_published_sizes(name, parameters):
    c = config.load(name)
    h = c.hidden_size
    assert c.parameters + h * h + h == parameters
    assert c.head_size in (32, 64)


@pytest.mark.parametrize("values", [GOOGLE, HUGGING_FACE])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_files_of_releases(tmp_path, values, bom):
    path = tmp_path / "config.json"
    path.write_text(bom + json.dumps(values), encoding="utf-8")
    got = config.load(str(path))
    want = config.BertConfig(256, 4, 4, 1024, vocab_size=28996, hidden_dropout_prob=0.2)
    if values is HUGGING_FACE:
        want = dataclasses.replace(want, layer_norm_eps=1e-7)
    assert got == want


def test_real_google_file(shared_data):
    path = shared_data / "bert_index" / "llSiddharthll_bert_config.json"
    assert config.load(str(path)) == config.PRESETS["medium"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 0}, "hidden_size is 0; expected a positive integer"),
        ({"hidden_size": -256}, "hidden_size is -256; expected a positive integer"),
        ({"hidden_size": 256.0}, "hidden_size is 256.0; expected a positive integer"),
        ({"vocab_size": True}, "vocab_size is True; expected a positive integer"),
        ({"vocab_size": "28996"}, "vocab_size is '28996'; expected a positive integer"),
        (
            {"num_attention_heads": 5},
            "hidden_size is 256; expected a multiple of num_attention_heads (5)",
        ),
        ({"hidden_dropout_prob": 1}, "hidden_dropout_prob is 1; expected a number in [0, 1)"),
        ({"hidden_dropout_prob": "a"}, "hidden_dropout_prob is 'a'; expected a number in [0, 1)"),
        (
            {"attention_probs_dropout_prob": float("nan")},
            "attention_probs_dropout_prob is nan; expected a number in [0, 1)",
        ),
        ({"classifier_dropout": -1}, "classifier_dropout is -1; expected a number in [0, 1)"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps is nan; expected a positive number"),
        ({"initializer_range": 0}, "initializer_range is 0; expected a positive number"),
        ({"hidden_act": ["gelu"]}, "hidden_act is ['gelu']; expected a name"),
        (
            {"model_type": "xlnet"},
            "model_type is 'xlnet'; expected one of bert, distilbert, electra, albert, roberta, "
            "xlm-roberta, camembert, modernbert, deberta-v2",
        ),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key'; expected 'absolute'",
        ),
        ({"is_decoder": True}, "is_decoder is True; expected False"),
        ({"embedding_size": 128}, "embedding_size is 128; expected hidden_size (256)"),
    ],
)
def test_bad_values_are_named(tmp_path, change, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**GOOGLE, **change}))
    with pytest.raises(ValueError) as err:
        config.load(str(path))
    assert str(err.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: Expecting value"),
        ("{", "not JSON: Expecting property name"),
        ("[" * 100_000, "not JSON: "),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{}", "missing hidden_size, num_hidden_layers, num_attention_heads, intermediate_size"),
        ('{"hidden_size": 1' + "0" * 5000 + "}", "not JSON: "),
    ],
)
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError) as err:
        config.load(str(path))
    assert str(err.value).startswith(f"{path}: {message}")


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match="not JSON"):
        config.load(str(path))


@pytest.mark.parametrize("name", ["huge", "no/such/file.json", "."])
def test_unknown_names(name):
    with pytest.raises(ValueError, match="; expected one of tiny, mini, "):
        config.load(name)
