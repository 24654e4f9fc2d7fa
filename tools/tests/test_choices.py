"""Multiple choice: the numbers of transformers, and what examples with fewer choices give."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from helpers import pack, safetensors
from test_families import filled
from test_modernbert import gradients

from gorbit_export import choices, config, encoded

GOLDENS = pathlib.Path(__file__).parent / "goldens"
KINDS = ("albert", "bert", "deberta", "distilbert", "electra", "modernbert", "roberta")
# Numbers of sequences: choices of one example share a row, in any place of it.
ROWS = [[6, 0, 7, 1, 2], [3, 4, 5]]


@pytest.fixture(scope="module", params=["committed", "fresh"])
def folder(request, tmp_path_factory) -> pathlib.Path:
    """The folder of models: the committed one, and the one that transformers writes."""
    if request.param == "committed":
        return GOLDENS / "choices"
    python = os.environ.get("GORBIT_TRANSFORMERS")
    if not python:
        pytest.skip("GORBIT_TRANSFORMERS is not set; expected a Python with torch, transformers")
    out = tmp_path_factory.mktemp("choices")
    subprocess.run([python, GOLDENS / "gen_choices.py", out], check=True)
    return out


def batch(case: dict) -> dict[str, tf.Tensor]:
    """Packs the examples of a case, and one that only fills the batch."""
    sequences = [(ids, [0] * len(ids)) for example in case["input_ids"] for ids in example]
    packed = pack(sequences, ROWS)
    starts, at = [], 0
    for example in case["input_ids"]:
        own = packed["cls_positions"][at : at + len(example)].tolist()
        starts.append(own + [own[0]] * (3 - len(own)))
        at += len(example)
    del packed["cls_positions"]
    packed[choices.STARTS] = np.array([*starts, [0, 0, 0]], np.int32)
    packed["labels"] = np.array([*case["labels"], 0], np.int32)
    packed["example_weights"] = np.array([1] * len(starts) + [0], np.float32)
    return {name: tf.constant(value) for name, value in packed.items()}


@pytest.mark.parametrize("name", KINDS)
def test_logits_loss_and_gradients_are_those_of_transformers(folder, name):
    c = config.load(str(folder / f"{name}.json"))
    case = json.loads((folder / "cases.json").read_text())[name]
    task = choices.Choices(encoded.Build(c), 3)
    filled(task.model, folder / f"{name}.safetensors", c.family.prefix)
    features = batch(case)
    got = task.predict(features)
    for i, want in enumerate(case["logits"]):
        np.testing.assert_allclose(got["logits"][i][: len(want)], want, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(
            got["probabilities"][i],
            [*tf.nn.softmax(want).numpy(), *[0] * (3 - len(want))],
            atol=1e-6,
        )
    loss, found = gradients(task, features)
    np.testing.assert_allclose(loss, case["loss"], rtol=1e-5)
    names = {}
    for layer in task.model.submodules:
        for variable, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            names[variable.ref()] = foreign.names[0]
    for variable, gradient in zip(task.model.trainable_variables, found):
        key = names[variable.ref()]
        want = case["gradients"].get(key, case["gradients"].get(c.family.prefix + key))
        square = float(tf.reduce_sum(tf.square(gradient)))
        assert square == pytest.approx(want, rel=1e-3, abs=1e-9), key
    sums = task.evaluate_sums(features)
    right = [int(np.argmax(x)) == y for x, y in zip(case["logits"], case["labels"])]
    assert (float(sums["accuracy_sum"]), float(sums["weight_sum"])) == (sum(right), len(right))


@pytest.mark.parametrize("name", KINDS)
def test_the_form_for_transformers_is_that_of_its_own_files(name):
    path = GOLDENS / "choices" / f"{name}.json"
    made = choices.Choices(encoded.Build(config.load(str(path))), 3)
    form = made.description()["huggingface"]
    names = set()
    for layer in made.model.submodules:
        for _, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            bare = foreign.names[0].startswith(tuple(form["bare"]))
            names.add(foreign.names[0] if bare else form["prefix"] + foreign.names[0])
    assert names == set(safetensors(path.with_suffix(".safetensors")))
    values = json.loads(path.read_text())
    assert form["config"]["architectures"] == values["architectures"]
    assert "problem_type" not in form["config"]


def test_a_label_of_no_choice_spoils_the_step():
    c = config.load(str(GOLDENS / "choices" / "bert.json"))
    task = choices.Choices(encoded.Build(c), 3)
    features = batch(json.loads((GOLDENS / "choices" / "cases.json").read_text())["bert"])
    for wrong in (2, 3, -1):  # the last example has two choices
        labels = features["labels"].numpy()
        labels[2] = wrong
        loss = task.evaluate_sums({**features, "labels": tf.constant(labels)})["loss_sum"]
        assert np.isnan(loss)


def test_a_served_row_is_scored_as_a_choice():
    c = config.load(str(GOLDENS / "choices" / "bert.json"))
    case = json.loads((GOLDENS / "choices" / "cases.json").read_text())["bert"]
    task = choices.Choices(encoded.Build(c), 3)
    filled(task.model, GOLDENS / "choices" / "bert.safetensors", c.family.prefix)
    rows = [ids for example in case["input_ids"] for ids in example]
    length = max(map(len, rows))
    ids = np.array([x + [0] * (length - len(x)) for x in rows], np.int32)
    mask = np.array([[1] * len(x) + [0] * (length - len(x)) for x in rows], np.int32)
    specs, serve = task.serving()
    assert [spec.name for spec in specs] == ["input_ids", "attention_mask", "token_type_ids"]
    got = serve(tf.constant(ids), tf.constant(mask), tf.zeros_like(ids))["logits"]
    want = [x for example in case["logits"] for x in example]
    np.testing.assert_allclose(got[:, 0], want, atol=1e-5, rtol=1e-5)


def test_numbers_of_choices_that_make_no_sense_are_refused():
    c = config.load(str(GOLDENS / "choices" / "bert.json"))
    for count in (1, 65):
        with pytest.raises(ValueError, match=f"number of choices is {count}; expected 2 to 64"):
            choices.Choices(encoded.Build(c), count)
