"""The text tasks against plain TensorFlow formulas, and sums over any division of a batch."""

import json
import pathlib

import numpy as np
import plain_bert
import pytest
import tensorflow as tf
from helpers import SMALL, jitter, pack, random_examples, scalars, tensors

from gorbit_export import encoded, multilabel, task
from gorbit_export.export import Export
from gorbit_export.mlm import MaskedLM, Special
from gorbit_export.multilabel import AUC_BINS, MultiLabel
from gorbit_export.optimizers import AdamW
from gorbit_export.qa import QuestionAnswering
from gorbit_export.regression import Regression
from gorbit_export.tokens import EntityTags, Tokens

BUILD = encoded.Build(SMALL)
COUNT = 6
LAYOUTS = {"packed": [[0, 3], [2, 1, 5], [4]], "one per row": [[i] for i in range(COUNT)]}
TAGS = ("O", "B-A", "I-A", "B-B", "I-B")


def labels_of(name: str, examples: list) -> list:
    """The answer of each example: for tokens and mlm one number per token, -1 if not counted."""
    rng = np.random.default_rng(7)
    if name == "regression":
        return list(rng.normal(3, 2, len(examples)).astype(np.float32))
    if name == "multilabel":
        return list(rng.integers(0, 2, (len(examples), 3)).astype(np.float32))
    if name == "qa":
        return [sorted(rng.integers(0, len(ids), 2).tolist()) for ids, _ in examples]
    tokens = [
        np.where(rng.random(len(ids)) < 0.7, rng.integers(0, 5, len(ids)), -1)
        for ids, _ in examples
    ]
    if name == "mlm":
        return [np.where(t >= 0, rng.integers(0, SMALL.vocab_size, len(t)), -1) for t in tokens]
    return tokens


WEIGHTS = np.linspace(0.5, 2, COUNT).astype(np.float32)


def features_of(
    name: str, chosen: list[int], rows: list[list[int]], weights: np.ndarray = WEIGHTS
) -> dict:
    """The batch of the chosen examples; rows hold numbers of examples."""
    examples = random_examples(COUNT, SMALL.vocab_size)
    answers = labels_of(name, examples)
    order = {number: i for i, number in enumerate(chosen)}
    features = pack([examples[i] for i in chosen], [[order[i] for i in row] for row in rows])
    features["example_weights"] = weights[chosen]
    if name in ("regression", "multilabel"):
        return features | {"labels": np.stack([answers[i] for i in chosen])}
    if name == "qa":
        starts = features["cls_positions"]
        ids = np.full(features["input_ids"].size, len(chosen), np.int32)
        for i, number in enumerate(chosen):
            ids[starts[i] : starts[i] + len(examples[number][0])] = i
        places = {
            f"{what}_positions": np.array(
                [starts[i] + answers[number][k] for i, number in enumerate(chosen)], np.int32
            )
            for k, what in enumerate(("start", "end"))
        }
        del features["cls_positions"]
        return features | places | {"example_ids": ids.reshape(features["input_ids"].shape)}
    starts = features.pop("cls_positions")
    shape = features["input_ids"].shape
    ids, labels = np.full(shape, len(chosen), np.int32), np.full(shape, -1, np.int32)
    for i, number in enumerate(chosen):
        part = slice(starts[i], starts[i] + len(examples[number][0]))
        ids.reshape(-1)[part], labels.reshape(-1)[part] = i, answers[number]
    if name == "tokens":
        return features | {"labels": labels, "example_ids": ids}
    positions = np.flatnonzero(labels.reshape(-1) >= 0).astype(np.int32)
    # An example that only fills up the shape.
    return features | {
        "masked_positions": np.append(positions, 0).astype(np.int32),
        "masked_labels": np.append(labels.reshape(-1)[positions], 3).astype(np.int32),
        "masked_weights": np.append(
            features["example_weights"][ids.reshape(-1)[positions]], 0
        ).astype(np.float32),
    }


def make(name: str, build: encoded.Build = BUILD) -> task.Task:
    if name == "mlm":
        return MaskedLM(build, Special(4, (0, 1, 2, 3, 4)))
    made = {
        "regression": lambda: Regression(build, "mean"),
        "multilabel": lambda: MultiLabel(build, 3, "first"),
        "tokens": lambda: Tokens(build, len(TAGS), TAGS),
        "qa": lambda: QuestionAnswering(build),
    }
    return made[name]()


NAMES = ("regression", "multilabel", "tokens", "qa", "mlm")


@pytest.fixture(scope="module", params=NAMES)
def exported(request) -> tuple[str, Export]:
    made = make(request.param)
    jitter(made.model)
    return request.param, Export(made, AdamW())


def gradients(export: Export, features: dict) -> dict:
    rates = {h.name: 0.0 for h in export.task.hyperparameters}
    got = export.gradients(
        **tensors(features), seed=tf.constant([1, 2], tf.int64), **scalars(**rates)
    )
    return {name: value.numpy().astype(np.float64) for name, value in got.items()}


def dense(x: tf.Tensor, layer: tf.Module) -> tf.Tensor:
    return tf.matmul(x, layer.kernel) + layer.bias


def plain_loss(name: str, model: tf.Module, ids: list, types: list, answer) -> tf.Tensor:
    """The sum of an example's losses by Hugging Face's formulas."""
    if name == "regression":
        return (plain_bert.logits(SMALL, model, "mean", ids, types)[0] - answer) ** 2
    if name == "multilabel":
        x = plain_bert.logits(SMALL, model, "first", ids, types)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(answer, x))
    x = plain_bert.hidden(SMALL, model.encoder, ids, types)
    if name == "qa":
        logits = tf.transpose(dense(x, model.qa_outputs))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(np.array(answer), logits)
        return tf.reduce_mean(losses)
    if name == "tokens":
        logits = dense(x, model.classifier)
    else:
        x = tf.nn.gelu(dense(x, model.transform), approximate=False)
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        norm = model.norm
        x = tf.nn.batch_normalization(
            x, mean, variance, norm.bias, norm.scale, SMALL.layer_norm_eps
        )
        table = model.encoder.embeddings.word.table
        logits = tf.matmul(x, table, transpose_b=True) + model.output.bias
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(np.maximum(answer, 0), logits)
    return tf.reduce_sum(tf.where(answer >= 0, losses, 0.0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_equal_plain_formula(exported, layout):
    name, export = exported
    features = features_of(name, list(range(COUNT)), LAYOUTS[layout])
    got = gradients(export, features)
    examples = random_examples(COUNT, SMALL.vocab_size)
    answers = labels_of(name, examples)
    paths = export.variables_by_path
    with tf.GradientTape() as tape:
        loss, weight = 0.0, 0.0
        for (ids, types), answer, w in zip(examples, answers, features["example_weights"]):
            loss += w * plain_loss(name, export.task.model, ids, types, answer)
            weight += w * (np.sum(answer >= 0) if name in ("tokens", "mlm") else 1)
    want = dict(zip(paths, tape.gradient(loss, list(paths.values()))))
    np.testing.assert_allclose(got["loss_sum"], loss, rtol=1e-5)
    np.testing.assert_allclose(got["weight_sum"], weight, rtol=1e-6)
    norm = float(tf.linalg.global_norm(list(want.values())))
    for path, gradient in want.items():
        gradient = tf.convert_to_tensor(gradient).numpy()
        error = np.abs(got[f"gradient/{path}"] - gradient).max()
        assert error < 2e-6 * norm, f"{path}: {error} of {norm}"


@pytest.mark.parametrize("parts", [[[0, 1], [2, 3, 4, 5]], [[5], [1, 3], [0, 2, 4]]])
def test_sums_of_parts_are_those_of_the_whole(exported, parts):
    name, export = exported

    def total(evaluate: bool, groups: list[list[int]]) -> dict:
        out: dict = {}
        for chosen in groups:
            features = features_of(
                name, chosen, [chosen[:2], chosen[2:]] if chosen[2:] else [chosen]
            )
            got = gradients(export, features)
            if evaluate:
                got = {
                    k: v.numpy().astype(np.float64)
                    for k, v in export.evaluate(**tensors(features)).items()
                }
            for k, v in got.items():
                if k.startswith("each/"):  # collected, here in no order
                    if name == "qa":  # values of tokens, without padding
                        v = v[features["example_ids"].reshape(-1) < len(chosen)]
                    out[k] = np.sort(np.append(out.get(k, []), v))
                    continue
                # The two parts of a precise sum count together.
                out[k] = out.get(k, 0) + (v.sum(0) if k == "moments" else v)
        return out

    for evaluate in (False, True):
        whole, split = total(evaluate, [list(range(COUNT))]), total(evaluate, parts)
        assert set(whole) == set(split)
        norm = np.sqrt(sum(np.sum(v**2) for k, v in whole.items() if k.startswith("gradient/")))
        for key, value in whole.items():
            np.testing.assert_allclose(
                split[key], value, rtol=2e-5, atol=1e-6 * max(norm, 1), err_msg=key
            )


def test_an_example_of_weight_0_counts_for_nothing(exported):
    name, export = exported
    some = list(range(COUNT - 1))
    without = gradients(export, features_of(name, some, [some]))
    every = [*some, COUNT - 1]
    features = features_of(name, every, [every], np.append(WEIGHTS[:-1], np.float32(0)))
    if name == "regression":
        features["labels"][-1] = np.nan
    got = gradients(export, features)
    norm = np.sqrt(sum(np.sum(v**2) for k, v in without.items() if k.startswith("gradient/")))
    for key, value in without.items():
        np.testing.assert_allclose(got[key], value, rtol=2e-5, atol=2e-6 * norm, err_msg=key)


@pytest.mark.parametrize("wrong", [{"end_positions": 1}, {"start_positions": -1}])
def test_a_position_of_another_example_makes_the_loss_nan(wrong):
    export = Export(make("qa"), AdamW())
    every = list(range(COUNT))
    features = features_of("qa", every, [every])
    lengths = [len(ids) for ids, _ in random_examples(COUNT, SMALL.vocab_size)]
    features["end_positions"] = np.cumsum(lengths, dtype=np.int32) - 1
    features["start_positions"] = features["end_positions"] - np.array(lengths, np.int32) + 1
    assert np.isfinite(gradients(export, features)["loss_sum"])
    for name, by in wrong.items():
        features[name][:2] += np.int32(by)
    assert np.isnan(gradients(export, features)["loss_sum"])
    features["example_weights"][:2] = 0
    got = gradients(export, features)
    assert all(np.isfinite(value).all() for value in got.values())


def test_spans_are_predicted_for_each_token():
    export = Export(make("qa"), AdamW())
    jitter(export.task.model)
    every = list(range(COUNT))
    features = features_of("qa", every, LAYOUTS["packed"])
    inputs = {f.name: features[f.name] for f in export.task.features if not f.label}
    got = export.predict(**tensors(inputs))
    sums = export.evaluate(**tensors(features))
    right = np.ones(COUNT, bool)
    for what in ("start", "end"):
        logits = got[f"{what}_logits"].numpy()
        assert logits.shape == features["input_ids"].shape
        np.testing.assert_allclose(sums[f"each/{what}_logits"], logits.reshape(-1), rtol=1e-6)
        for i in every:
            mine = np.flatnonzero(features["example_ids"].reshape(-1) == i)
            best = mine[logits.reshape(-1)[mine].argmax()]
            right[i] &= best == features[f"{what}_positions"][i]
    want = (right * features["example_weights"]).sum()
    np.testing.assert_allclose(sums["accuracy_sum"], want, rtol=1e-6)


@pytest.mark.parametrize("name", ["tokens", "mlm"])
def test_a_label_out_of_range_makes_the_loss_nan(name):
    export = Export(make(name), AdamW())
    every = list(range(COUNT))
    features = features_of(name, every, [every])
    key = "labels" if name == "tokens" else "masked_labels"
    features[key].reshape(-1)[np.flatnonzero(features[key] >= 0)[0]] = 50
    assert np.isnan(gradients(export, features)["loss_sum"])


def test_moments_are_float64_sums():
    export = Export(make("regression"), AdamW())
    every = list(range(COUNT))
    features = features_of("regression", every, [every])
    features["labels"] = (features["labels"] + 1e4).astype(np.float32)
    inputs = {f.name: features[f.name] for f in export.task.features if not f.label}
    p = export.predict(**tensors(inputs))["predictions"].numpy().astype(np.float64)
    y, w = features["labels"].astype(np.float64), features["example_weights"].astype(np.float64)
    moments = export.evaluate(**tensors(features))["moments"].numpy().astype(np.float64).sum(0)
    want = [np.sum(w * v) for v in (1 + 0 * y, y, p, y * y, p * p, y * p, np.abs(p - y))]
    np.testing.assert_allclose(moments, want, rtol=1e-12)


def test_regression_collects_predictions():
    export = Export(make("regression"), AdamW())
    every = list(range(COUNT))
    features = features_of("regression", every, [every])
    inputs = {f.name: features[f.name] for f in export.task.features if not f.label}
    sums = export.evaluate(**tensors(features))
    np.testing.assert_allclose(
        sums["each/prediction"], export.predict(**tensors(inputs))["predictions"], rtol=1e-6
    )
    np.testing.assert_array_equal(sums["each/label"], features["labels"])
    np.testing.assert_array_equal(sums["each/weight"], features["example_weights"])


@pytest.mark.parametrize("most", [100, 2])
def test_multilabel_counts_and_bins(monkeypatch, most):
    monkeypatch.setattr(multilabel, "EACH_LABELS", most)
    export = Export(make("multilabel"), AdamW())
    jitter(export.task.model)
    every = list(range(COUNT))
    features = features_of("multilabel", every, [every])
    inputs = {f.name: features[f.name] for f in export.task.features if not f.label}
    p = export.predict(**tensors(inputs))["probabilities"].numpy()
    sums = export.evaluate(**tensors(features))
    y, w = features["labels"], features["example_weights"][:, None]
    guess = (p >= 0.5).astype(np.float32)
    want = np.stack([(w * v).sum(0) for v in (y * guess, guess, y)], 1)
    np.testing.assert_allclose(sums["label_counts"], want, rtol=1e-6)
    right = (guess == y).all(1) * w[:, 0]
    np.testing.assert_allclose(sums["exact_match_sum"], right.sum(), rtol=1e-6)
    if most > 3:
        assert "label_bins" not in sums
        logits = export.predict(**tensors(inputs))["logits"]
        np.testing.assert_allclose(sums["each/prediction"], logits, rtol=1e-6)
        np.testing.assert_array_equal(sums["each/label"], y)
        np.testing.assert_array_equal(sums["each/weight"], w[:, 0])
        return
    bins = sums["label_bins"].numpy()
    assert bins.shape == (3, 2, AUC_BINS)
    np.testing.assert_allclose(bins.sum(2)[:, 1], (w * y).sum(0), rtol=1e-6)
    np.testing.assert_allclose(bins.sum((1, 2)), np.full(3, w.sum()), rtol=1e-6)
    for c in range(3):
        for have in (0, 1):
            rows = y[:, c] == have
            counted = np.bincount((p[rows, c] * AUC_BINS).astype(int), w[rows, 0], AUC_BINS)
            np.testing.assert_allclose(bins[c, have], counted, rtol=1e-6)


def test_mlm_results():
    export = Export(make("mlm"), AdamW())
    got = export.results(sum_0=tf.constant(6.0), sum_1=tf.constant(4.0))
    np.testing.assert_allclose(got["perplexity"], np.exp(1.5), rtol=1e-6)


SEQEVAL = json.loads((pathlib.Path(__file__).parent / "goldens" / "seqeval.json").read_text())


@pytest.mark.parametrize("case", SEQEVAL["cases"], ids=lambda case: case["name"])
def test_entities_are_seqevals(case):
    tags = EntityTags(tuple(case["tags"]))
    rng = np.random.default_rng(3)
    labels, guesses, examples = [], [], []
    for i, (true, predicted) in enumerate(zip(case["true"], case["predicted"])):
        for t, p in zip(true, predicted):
            # Other pieces of words, whose predictions mean nothing, stand in between.
            for _ in range(rng.integers(0, 3)):
                labels.append(-1)
                guesses.append(int(rng.integers(0, len(case["tags"]))))
                examples.append(i)
            labels.append(case["tags"].index(t))
            guesses.append(case["tags"].index(p))
            examples.append(i)
    arrays = [tf.constant(a, tf.int32) for a in (labels, guesses, examples)]
    weights = tf.ones(len(labels))
    got = tf.function(tags.counts)(*arrays, weights).numpy()
    assert dict(zip(tags.types, got.astype(int).tolist())) == case["counts"]


def test_tags_that_are_no_entities():
    assert EntityTags(("NN", "B-X", "O")).types == ()
    assert EntityTags(()).types == ()
    assert EntityTags(("O",)).types == ()
