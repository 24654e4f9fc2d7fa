"""Vectors of texts: the numbers of sentence-transformers, packed in rows and encoded in parts."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from helpers import safetensors

from gorbit_export import config, embed, encoded, export, optimizers

GOLDENS = pathlib.Path(__file__).parent / "goldens"
FOLDER = GOLDENS / "embed"
CASES = json.loads((FOLDER / "cases.json").read_text())
SETTINGS = {
    "ranking-mean": {},
    "ranking-first": {"pooling": "first", "normalize": False},
    "ranking-three": {"texts": 3},
    "matryoshka": {"matryoshka": (8, 4, 2)},
    "cosine": {"loss": "cosine"},
    "triplet": {"loss": "triplet", "texts": 3, "normalize": False},
}
FAMILIES = (
    *("embed/config", "families/albert", "families/distilbert", "families/electra"),
    *("families/roberta", "modernbert/cls", "deberta/cls"),
)


def rows(examples: list[list[list[int]]], places: list[list[int]]) -> dict[str, np.ndarray]:
    """Packs examples of several texts as gorbit does: rows of numbers of examples."""
    length = max(sum(len(t) for e in row for t in examples[e]) for row in places) + 1
    names = ("input_ids", "type_ids", "sequence_ids", "position_ids")
    out = {name: np.zeros([len(places), length], np.int32) for name in names}
    starts = np.zeros(len(examples), np.int32)
    for r, row in enumerate(places):
        at = 0
        for seq, e in enumerate(row):
            starts[e] = r * length + at
            for number, text in enumerate(examples[e]):
                own = slice(at, at + len(text))
                values = (text, number, seq + 1, np.arange(len(text)))
                for name, value in zip(names, values):
                    out[name][r, own] = value
                at += len(text)
    return {**out, "cls_positions": starts, "example_weights": np.ones(len(examples), np.float32)}


def made(seed: int = 0, path: pathlib.Path = FOLDER / "config.json", **settings) -> embed.Embed:
    """Makes the task."""
    return embed.Embed(encoded.Build(config.load(str(path)), seed), embed.Settings(**settings))


def golden(name: str, **more) -> embed.Embed:
    """Makes the task of a case, with the weights of the goldens."""
    task, weights = made(**SETTINGS[name], **more), safetensors(FOLDER / "model.safetensors")
    for layer in task.model.submodules:
        for variable, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            value = weights.pop(next(n for n in foreign.names if n in weights))
            variable.assign(value.T if foreign.transpose else value)
    assert not weights
    return task


def batch(name: str, places: list[list[int]]) -> dict[str, np.ndarray]:
    """The batch of a case, in rows."""
    count = SETTINGS[name].get("texts", 2)
    features = rows([list(e) for e in zip(*CASES["texts"][:count])], places)
    if name == "cosine":
        features["labels"] = np.array(CASES["scores"], np.float32)
    return features


def trained(task: embed.Embed, features: dict, rate: float = 0.0) -> dict[str, np.ndarray]:
    """Runs the export's function `gradients`."""
    module = export.Export(task, optimizers.AdamW())
    rates = {h.name: tf.constant(rate) for h in task.hyperparameters}
    arrays = {n: tf.constant(v) for n, v in features.items()}
    seed = tf.constant([5, 6], tf.int64)
    return {n: v.numpy() for n, v in module.gradients(**arrays, seed=seed, **rates).items()}


def close(got: dict, want: dict, tolerance: float) -> None:
    """Compares gradients by the norm of all."""
    names = [n for n in want if n.startswith("gradient/")]
    scale = np.sqrt(sum(np.sum(np.square(want[n], dtype=np.float64)) for n in names))
    error = np.sqrt(sum(np.sum(np.square(got[n] - want[n], dtype=np.float64)) for n in names))
    assert scale > 0 and error <= tolerance * scale
    np.testing.assert_allclose(got["loss_sum"], want["loss_sum"], rtol=tolerance)


def exact(name: str, task: embed.Embed) -> dict[str, np.ndarray]:
    """The gradient of a case, which was computed in float64."""
    theirs = safetensors(FOLDER / f"{name}.safetensors")
    want = {"loss_sum": np.float32(4 * CASES["cases"][name]["loss"])}
    paths = {
        v.ref(): p for p, v in export.Export(task, optimizers.AdamW()).variables_by_path.items()
    }
    for layer in task.model.submodules:
        for variable, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            value = theirs.pop(next(n for n in foreign.names if n in theirs))
            path = paths[variable.ref()]
            want[f"gradient/{path}"] = 4 * (value.T if foreign.transpose else value)
    assert not theirs
    return want


@pytest.mark.parametrize("name", SETTINGS)
def test_losses_gradients_and_vectors_are_those_of_sentence_transformers(name):
    task, features = golden(name), batch(name, [[3], [1, 0], [2]])
    got = trained(task, features)
    close(got, exact(name, task), 2e-5)
    tensors = {n: tf.constant(v) for n, v in features.items()}
    vectors = task.predict(tensors)["embedding"]
    np.testing.assert_allclose(vectors, CASES["cases"][name]["vectors"], atol=2e-6)
    np.testing.assert_allclose(task.evaluate_sums(tensors)["loss_sum"], got["loss_sum"], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "size"), [("ranking-mean", 1), ("ranking-three", 2), ("matryoshka", 3), ("triplet", 2)]
)
def test_parts_give_the_gradient_of_the_whole(name, size):
    features = batch(name, [[3], [1, 0], [2]])
    parts = trained(golden(name, cache_rows=size), features)
    # However many parts there are, but for the order of sums: 1e-7 to 9e-7 were measured.
    close(parts, trained(golden(name, cache_rows=len(features["input_ids"])), features), 3e-6)
    # The noise of float32, which all of it without parts has as well: 1e-6 to 2e-6 in both.
    want = exact(name, golden(name))
    close(parts, want, 5e-6)
    close(trained(golden(name), features), want, 5e-6)


def test_parts_draw_other_numbers_and_the_same_ones_backward():
    features = batch("ranking-mean", [[0], [1], [2], [3]])
    same = {**features}
    # Dropout of the parts differs: equal texts get different vectors in different parts.
    for name in ("input_ids", "type_ids", "sequence_ids", "position_ids"):
        same[name] = np.repeat(features[name][:1], 4, 0)
    same["cls_positions"] = np.arange(4, dtype=np.int32) * same["input_ids"].shape[1]
    task = golden("ranking-mean", cache_rows=1)
    twice = [trained(task, same, 0.4) for _ in range(2)]
    for name, value in twice[0].items():
        np.testing.assert_array_equal(value, twice[1][name])
    assert abs(twice[0]["loss_sum"] / 4 - np.log(4)) > 1e-3
    # The gradient is that of the numbers that the forward pass drew.
    variable = task.model.encoder.layers[0].dense()["output"].kernel
    module = export.Export(task, optimizers.AdamW())
    path = next(p for p, v in module.variables_by_path.items() if v is variable)
    step = np.random.default_rng(1).normal(size=variable.shape).astype(np.float32)
    start, losses = variable.numpy(), []
    for sign in (1, -1):
        variable.assign(start + sign * 1e-3 * step)
        losses.append(trained(task, same, 0.4)["loss_sum"])
    slope = (losses[0] - losses[1]) / 2e-3
    np.testing.assert_allclose(slope, np.sum(step * twice[0][f"gradient/{path}"]), rtol=0.02)


def test_what_has_weight_0_is_not_compared_with():
    whole = batch("ranking-three", [[0, 1, 2, 3]])
    whole["example_weights"] = np.array([1, 1, 0, 1], np.float32)
    few = rows([[CASES["texts"][t][e] for t in range(3)] for e in (0, 1, 3)], [[0], [1, 2]])
    want = trained(golden("ranking-three"), few)
    got = trained(golden("ranking-three"), whole)
    close(got, want, 1e-5)
    assert got["weight_sum"] == 3
    # What fills a batch may lack a text, and a whole part may be empty.
    nothing = rows([[[2]]], [[0]])
    nothing["example_weights"][:] = 0
    for name in SETTINGS:
        empty = {**nothing, "labels": np.full(1, np.nan, np.float32)}
        if name != "cosine":
            del empty["labels"]
        for value in trained(golden(name), empty).values():
            np.testing.assert_array_equal(value, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_of_an_example_do_not_see_each_other(family):
    for pooling in embed.POOLINGS:
        task = made(3, GOLDENS / f"{family}.json", pooling=pooling, texts=3)
        features = batch("ranking-three", [[0, 2], [3, 1]])
        sums = task.evaluate_sums({n: tf.constant(v) for n, v in features.items()})
        for number in range(3):
            alone = rows([[t] for t in CASES["texts"][number]], [[0], [1], [2], [3]])
            want = task.predict({n: tf.constant(v) for n, v in alone.items()})["embedding"]
            got = sums["each/query"] if number == 0 else sums["each/document"][:, number - 1]
            np.testing.assert_allclose(got, want, atol=2e-6)


def test_the_contract_says_that_examples_are_compared():
    for name, loss in (("ranking-mean", "across_examples"), ("cosine", None), ("triplet", None)):
        contract = export.Export(made(**SETTINGS[name]), optimizers.AdamW()).contract()
        assert (contract.get("loss"), contract["additive"]) == (loss, loss is None)
        form = contract["model"]["huggingface"]
        assert (form["prefix"], form["config"]["architectures"]) == ("", ["BertModel"])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"loss": "softmax"}, "loss is 'softmax'; expected one of ranking, triplet, cosine"),
        ({"loss": "triplet"}, "an example has 2 texts; expected 3 for the loss triplet"),
        ({"texts": 4}, "an example has 4 texts; expected 2 or 3 for the loss ranking"),
        ({"pooling": "max"}, "pooling is 'max'; expected mean or first"),
        ({"scale": 0.0}, "scale is 0.0; expected a number above 0"),
        ({"matryoshka": (9,)}, "sizes of vectors are 9; expected different ones from 1 to 8"),
        ({"cache_rows": -1}, "cache_rows is -1; expected 0"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        made(**settings)
