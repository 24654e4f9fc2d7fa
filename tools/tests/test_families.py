"""DistilBERT, ELECTRA and RoBERTa: the numbers of transformers with weights that it wrote."""

import dataclasses
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from helpers import pack, safetensors

from gorbit_export import bert, classifier, config, encoded, mlm
from gorbit_export.families import FAMILIES

GOLDENS = pathlib.Path(__file__).parent / "goldens"
KINDS = ("albert", "distilbert", "electra", "roberta")


@pytest.fixture(scope="module", params=["committed", "fresh"])
def folder(request, tmp_path_factory) -> pathlib.Path:
    """The folders of models: the committed ones, and those that transformers writes."""
    if request.param == "committed":
        return GOLDENS / "families"
    python = os.environ.get("GORBIT_TRANSFORMERS")
    if not python:
        pytest.skip("GORBIT_TRANSFORMERS is not set; expected a Python with torch, transformers")
    out = tmp_path_factory.mktemp("families")
    subprocess.run([python, GOLDENS / "gen_families.py", out], check=True)
    return out


def filled(model: tf.Module, path: pathlib.Path, prefix: str) -> tf.Module:
    """Fills all variables of a model by their names in other releases."""
    weights = safetensors(path)
    for layer in model.submodules:
        for variable, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            names = [n for name in foreign.names for n in (name, prefix + name) if n in weights]
            assert names, f"{path.name} has none of {foreign.names}"
            value = weights.pop(names[0])
            variable.assign(value.T if foreign.transpose else value)
    # The word vectors again, for the last product of a masked language model.
    assert all(name.endswith(("decoder.weight", "projector.weight")) for name in weights)
    return model


def features_of(cases: list[list[int]]) -> dict:
    return pack([(ids, [0] * len(ids)) for ids in cases], [[0, 1], [2]])


@pytest.mark.parametrize("kind", KINDS)
def test_classifier_gives_the_logits_of_transformers(folder, kind):
    c = config.load(str(folder / f"{kind}.json"))
    case = json.loads((folder / "cases.json").read_text())[kind]
    task = classifier.Classification(c, 3)
    filled(task.model, folder / f"{kind}.safetensors", c.family.prefix)
    features = {name: tf.constant(v) for name, v in features_of(case["input_ids"]).items()}
    np.testing.assert_allclose(task.predict(features)["logits"], case["logits"], atol=1e-5)


@pytest.mark.parametrize("kind", ["albert", "distilbert", "roberta"])
def test_masked_language_model_gives_the_logits_of_transformers(folder, kind):
    c = config.load(str(folder / f"{kind}-mlm.json"))
    case = json.loads((folder / "cases.json").read_text())[f"{kind}-mlm"]
    model = mlm.BertMaskedLM(encoded.Build(c))
    filled(model, folder / f"{kind}-mlm.safetensors", c.family.prefix)
    packed = features_of(case["input_ids"])
    features = {name: tf.constant(v) for name, v in packed.items()}
    at = [
        s + i for s, ids in zip(packed["cls_positions"], case["input_ids"]) for i in range(len(ids))
    ]
    want = [logits for example in case["logits"] for logits in example]
    np.testing.assert_allclose(model(features, tf.constant(at, tf.int32)), want, atol=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, "albert-mlm", "distilbert-mlm", "roberta-mlm"])
def test_the_form_for_transformers_is_that_of_its_own_files(kind):
    path = GOLDENS / "families" / f"{kind}.json"
    c = config.load(str(path))
    if kind.endswith("-mlm"):
        made = mlm.MaskedLM(encoded.Build(c), mlm.Special(3, (0, 1, 2, 3)))
    else:
        made = classifier.Classification(c, 3)
    form = made.description()["huggingface"]
    names = set()
    for layer in made.model.submodules:
        for _, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            bare = foreign.names[0].startswith(tuple(form["bare"]))
            names.add(foreign.names[0] if bare else form["prefix"] + foreign.names[0])
    tied = {"lm_head.decoder.weight", "lm_head.decoder.bias", "vocab_projector.weight"}
    theirs = set(safetensors(path.with_suffix(".safetensors")))
    assert names == theirs - tied
    values = json.loads(path.read_text())
    assert form["config"]["architectures"] == values["architectures"]
    assert values["model_type"] == form["config"]["model_type"]
    ours = {k: v for k, v in form["config"].items() if k in values and "torch" not in k}
    assert ours == {k: values[k] for k in ours}


def test_xlm_roberta_and_camembert_are_roberta():
    roberta = FAMILIES["roberta"]
    for kind, stem in (("xlm-roberta", "XLMRoberta"), ("camembert", "Camembert")):
        family = FAMILIES[kind]
        assert (family.prefix, family.stem) == ("roberta.", stem)
        assert (
            dataclasses.replace(family, model_type="roberta", title="RoBERTa", stem="Roberta")
            == roberta
        )


def test_a_model_that_has_not_learned_to_fill_masks_is_refused():
    c = config.load(str(GOLDENS / "families" / "electra.json"))
    with pytest.raises(ValueError, match="a masked language model of ELECTRA is not supported"):
        mlm.BertMaskedLM(encoded.Build(c))


def test_sizes_of_families():
    load = lambda kind: config.load(str(GOLDENS / "families" / f"{kind}.json"))  # noqa: E731
    albert, distilbert, electra, roberta = map(load, KINDS)
    assert (distilbert.family.token_types, distilbert.classifier_dropout) == (False, 0.2)
    assert (electra.embedding_width, electra.hidden_size) == (4, 8)
    assert (roberta.position_offset, roberta.positions, roberta.layer_norm_eps) == (2, 16, 1e-5)
    for c in (albert, distilbert, electra, roberta):
        encoder = bert.Encoder(c)
        assert c.parameters == sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)
        by_name = {f.name: f for f in bert.features(c)}
        assert by_name["position_ids"].below == 16
    assert {f.name: f.below for f in bert.features(distilbert)}["type_ids"] is None


def test_only_bert_has_names_of_tensorflows_releases():
    for kind in KINDS:
        c = config.load(str(GOLDENS / "families" / f"{kind}.json"))
        for layer in classifier.Classification(c).model.submodules:
            for _, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
                assert not foreign.tensorflow


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("roberta", {"pad_token_id": -1}, "pad_token_id is -1; expected 0 or more"),
        ("roberta", {"pad_token_id": 17}, "start at position 18; expected less than max_position"),
        ("roberta", {"embedding_size": 4}, "embedding_size is 4; expected hidden_size"),
        ("electra", {"embedding_size": 0}, "embedding_size is 0; expected a positive integer"),
        ("distilbert", {"dim": 7}, "hidden_size is 7; expected a multiple"),
        ("distilbert", {"model_type": "xlnet"}, "model_type is 'xlnet'; expected one of bert, d"),
        ("electra", {"position_embedding_type": "relative_key"}, "expected 'absolute'"),
    ],
)
def test_files_that_describe_no_such_model(tmp_path, kind, change, message):
    values = json.loads((GOLDENS / "families" / f"{kind}.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**values, **change}))
    with pytest.raises(ValueError, match=message):
        config.load(str(path))


def test_weights_of_a_description():
    prefixes = {"albert.", "bert.", "deberta.", "distilbert.", "electra.", "roberta."}
    for kind in ("bert", *KINDS):
        family = FAMILIES[kind]
        c = config.PRESETS["tiny"] if kind == "bert" else None
        c = c or config.load(str(GOLDENS / "families" / f"{kind}.json"))
        weights = classifier.Classification(c).description()["weights"]
        assert weights["model_type"] == kind and weights["prefix"] == f"{kind}."
        assert weights["others"] == sorted(prefixes - {f"{kind}."})
        assert weights["config"].get("pad_token_id") == (1 if kind == "roberta" else None)
        assert weights["config"][family.field("num_attention_heads")] == 2
