"""Encoder-decoder models: transformers' numbers, their loss in any packing, and generation."""

import dataclasses
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from helpers import pack, safetensors
from test_causal import gradients
from test_causal_goldens import by_name

from gorbit_export import causal, export, optimizers, seq2seq, seq2seq_config, seq2seq_task

GOLDENS = pathlib.Path(__file__).parent / "goldens"
KINDS = ("t5", "t5-gated", "bart", "marian")
ROWS = [[0, 2], [1]]


@pytest.fixture(scope="module", params=["committed", "fresh"])
def folder(request, tmp_path_factory) -> pathlib.Path:
    """The folders of models: the committed ones, and those that transformers writes."""
    if request.param == "committed":
        return GOLDENS / "seq2seq"
    python = os.environ.get("GORBIT_TRANSFORMERS")
    if not python:
        pytest.skip("GORBIT_TRANSFORMERS is not set; expected a Python with torch, transformers")
    out = tmp_path_factory.mktemp("seq2seq")
    subprocess.run([python, GOLDENS / "gen_seq2seq.py", out], check=True)
    return out


def load(kind: str, where: pathlib.Path = GOLDENS / "seq2seq") -> seq2seq_config.Seq2SeqConfig:
    return seq2seq_config.load(str(where / f"{kind}.json"))


def made(
    kind: str, where: pathlib.Path = GOLDENS / "seq2seq", **how
) -> tuple[seq2seq_task.Seq2Seq, dict]:
    """The task with the weights of a golden, and its variables by transformers' names."""
    task = seq2seq_task.Seq2Seq(seq2seq.Build(load(kind, where), **how))
    weights, names = safetensors(where / f"{kind}.safetensors"), by_name(task)
    own = {name for name in names if ".lora_" not in name}
    # T5's table of words is there under two names if the logits have one of their own.
    assert set(weights) - {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} == own
    for name in own:
        variable, transpose = names[name]
        variable.assign(weights[name].T if transpose else weights[name])
    return task, names


def examples(kind: str, where: pathlib.Path = GOLDENS / "seq2seq") -> dict:
    return json.loads((where / "cases.json").read_text())[kind]


def batch(case: dict, rows: list[list[int]]) -> dict[str, tf.Tensor]:
    """Packs sources and targets into rows of the same numbers; example i weighs 0.5 + i."""
    features = {}
    for prefix, ids, numbers in (
        ("", "input_ids", "example_ids"),
        ("target_", "target_ids", "target_example_ids"),
    ):
        packed = pack([(text, [0] * len(text)) for text in case[ids]], rows)
        features[ids] = packed["input_ids"]
        for name in ("sequence_ids", "position_ids"):
            features[prefix + name] = packed[name]
        features[numbers] = np.full_like(packed["input_ids"], len(case[ids]))
        for row, held in enumerate(rows):
            for place, i in enumerate(held, 1):
                features[numbers][row][packed["sequence_ids"][row] == place] = i
    features["target_weights"] = np.ones_like(features["target_ids"], np.float32)
    features["example_weights"] = 0.5 + np.arange(len(case["input_ids"]), dtype=np.float32)
    return {name: tf.constant(value) for name, value in features.items()}


def logits_of(task: seq2seq_task.Seq2Seq, source: list[int], target: list[int]) -> np.ndarray:
    """The logits of each token of a target, by the serving function."""
    _, serve = task.serving()
    row = tf.constant([source], tf.int32)
    start = task.build.config.start
    before = tf.constant([[start, *target[:-1]]], tf.int32)
    return serve(row, tf.ones_like(row), before)["logits"][0].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_loss_and_gradients_are_those_of_transformers(folder, kind):
    task, names = made(kind, folder)
    case = examples(kind, folder)
    for source, target, want in zip(case["input_ids"], case["target_ids"], case["logits"]):
        np.testing.assert_allclose(logits_of(task, source, target), want, rtol=1e-5, atol=1e-5)
    features = batch(case, ROWS) | {"example_weights": tf.ones(3)}
    sums, got = gradients(task, features)
    np.testing.assert_allclose(sums["loss_sum"], case["loss"], rtol=1e-5)
    assert sums["weight_sum"] == sum(map(len, case["target_ids"]))
    found = {v.ref(): g for v, g in zip(task.model.trainable_variables, got)}
    wanted = safetensors(folder / f"{kind}.gradients.safetensors")
    assert set(names) - {"final_logits_bias"} == set(wanted)
    norm = np.sqrt(sum(np.square(g).sum() for g in wanted.values()))
    for name, want in wanted.items():
        variable, transpose = names[name]
        want = want.T if transpose else want
        difference = np.abs(found[variable.ref()].numpy() - want).max()
        assert difference < 1e-5 * norm, f"{name} is off by {difference}"


@pytest.mark.parametrize("kind", KINDS)
def test_packing_and_recomputing_change_no_gradient(kind, monkeypatch):
    task, _ = made(kind)
    case = examples(kind)
    single = batch(case, [[0], [1], [2]])
    first, want = gradients(task, single)
    norm = tf.linalg.global_norm(want)
    for rows in ([[0, 1, 2]], [[2, 0], [1]], [[1], [0, 2]]):
        for recompute in ("none", "layers"):
            monkeypatch.setattr(task.model, "_recompute", recompute)
            sums, got = gradients(task, batch(case, rows))
            for name, value in first.items():
                np.testing.assert_allclose(sums[name], value, rtol=1e-5)
            off = tf.linalg.global_norm([a - b for a, b in zip(want, got)])
            assert off < 3e-6 * norm


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_weights_and_smoothing_follow_from_logits(kind, monkeypatch):
    monkeypatch.setattr(causal, "LOGITS", 7 * 20)  # several parts, the last one not full
    task, _ = made(kind)
    case = examples(kind)
    features = batch(case, ROWS)
    learned = np.random.default_rng(6).integers(0, 3, features["target_ids"].shape)
    features["target_weights"] = tf.constant(learned, tf.float32)
    got = task.predict(features)["log_probabilities"].numpy()
    sums = task.evaluate_sums(features)
    smoothed, _ = gradients(task, features, label_smoothing=0.3)
    loss, smooth, weight, right = 0.0, 0.0, 0.0, 0.0
    for i, (source, target) in enumerate(zip(case["input_ids"], case["target_ids"])):
        logits = logits_of(task, source, target)
        shares = tf.nn.log_softmax(logits).numpy()
        values = shares[np.arange(len(target)), target]
        at = features["target_example_ids"] == i
        np.testing.assert_allclose(got[at], values, atol=1e-5)
        own = (0.5 + i) * learned[at]
        loss -= (own * values).sum()
        smooth -= (own * (0.7 * values + 0.3 * shares.mean(1))).sum()
        weight += own.sum()
        right += (own * (logits.argmax(1) == target)).sum()
    assert not got[features["target_sequence_ids"] == 0].any()
    np.testing.assert_allclose(sums["loss_sum"], loss, rtol=1e-5)
    np.testing.assert_allclose(smoothed["loss_sum"], smooth, rtol=1e-5)
    np.testing.assert_allclose(sums["weight_sum"], weight, rtol=1e-6)
    np.testing.assert_allclose(sums["accuracy_sum"], right, rtol=1e-6)
    perplexity = task.results(sums)["perplexity"]
    np.testing.assert_allclose(perplexity, np.exp(loss / weight), rtol=1e-5)


@pytest.mark.parametrize("kind", ["t5-gated", "bart"])
def test_recomputed_layers_draw_the_same_numbers(kind):
    rates = {f"{part}_dropout": 0.2 for part in ("hidden", "attention", "activation")}
    task, _ = made(kind)
    features = batch(examples(kind), ROWS)
    plain, want = gradients(task, features, **rates)
    task.model._recompute = "layers"
    again, got = gradients(task, features, **rates)
    assert abs(plain["loss_sum"] - task.evaluate_sums(features)["loss_sum"]) > 1e-3
    np.testing.assert_allclose(again["loss_sum"], plain["loss_sum"], rtol=1e-6)
    for a, b in zip(want, got):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


class Slots:
    """Caches as a program makes them: each token is in a slot of its own, anywhere."""

    def __init__(self, module: export.Export, count: int = 120) -> None:
        self.module, self.generation = module, module.task.generation()
        rng = np.random.default_rng(1)
        self.free = [rng.permutation(np.arange(1, count)).tolist() for _ in range(2)]
        self.sources: dict[int, list[int]] = {}
        self.slots: dict[int, list[int]] = {}
        self.caches = [
            [tf.Variable(tf.zeros([count, *c.shape], c.dtype)) for c in caches]
            for caches in (self.generation.caches, self.generation.source.caches)
        ]

    def handles(self, source: bool) -> dict[str, tf.Tensor]:
        caches = self.generation.source.caches if source else self.generation.caches
        return {c.argument: v.handle for c, v in zip(caches, self.caches[source])}

    def encode(self, texts: dict[int, list[int]], wide: int = 0) -> None:
        columns = max(map(len, texts.values())) + wide
        inputs = {n: [] for n in ("input_ids", "position_ids", "slots")}
        for name, ids in texts.items():
            self.sources[name] = [self.free[1].pop() for _ in ids]
            rest = [0] * (columns - len(ids))
            inputs["input_ids"].append(ids + rest)
            inputs["position_ids"].append([*range(len(ids)), *rest])
            inputs["slots"].append(self.sources[name] + rest)
        tensors = {name: tf.constant(rows, tf.int32) for name, rows in inputs.items()}
        got = self.module.encode(**tensors, **self.handles(True))["encoded"]
        assert got.numpy().tolist() == [len(ids) for ids in texts.values()]

    def call(
        self, new: dict[int, list[int]], wide: int = 0, shared: int = 1
    ) -> dict[int, np.ndarray]:
        """Appends tokens to sequences, padded to `wide` more columns; gives logits by sequence.

        So many sequences in a row have a source together.
        """
        columns = max(map(len, new.values())) + wide
        names = ("input_ids", "position_ids", "slots", "context", "source")
        inputs = {n: [] for n in names}
        for name, ids in new.items():
            held = self.slots.setdefault(name, [])
            start = len(held)
            held += [self.free[0].pop() for _ in ids]
            rest = [0] * (columns - len(ids))
            inputs["input_ids"].append(ids + rest)
            inputs["position_ids"].append([*range(start, start + len(ids)), *rest])
            inputs["slots"].append(held[start:] + rest)
            inputs["context"].append(held)
            inputs["source"].append(self.sources[name // shared])
        inputs["source"] = inputs["source"][::shared]
        for name in ("context", "source"):
            length = max(map(len, inputs[name])) + wide
            inputs[name] = [held + [0] * (length - len(held)) for held in inputs[name]]
        tensors = {name: tf.constant(rows, tf.int32) for name, rows in inputs.items()}
        last = tf.constant([len(ids) - 1 for ids in new.values()], tf.int32)
        handles = {**self.handles(False), **self.handles(True)}
        logits = self.module.generate(**tensors, **handles, last=last)["logits"].numpy()
        return dict(zip(new, logits))


@pytest.fixture(scope="module", params=KINDS)
def module(request) -> export.Export:
    """Each kind of model, with its functions."""
    return export.Export(made(request.param)[0], optimizers.AdamW())


def name_of(module: export.Export) -> str:
    c = module.task.build.config
    return "t5-gated" if c.gated else c.model_type


def test_any_split_of_a_target_into_calls_gives_the_logits_of_training(module):
    case, start = examples(name_of(module)), module.task.build.config.start
    targets, want = case["target_ids"], case["logits"]
    texts = [[start, *ids[:-1]] for ids in targets]

    def check(got: dict[int, np.ndarray], ends: dict[int, int]) -> None:
        for i, logits in got.items():
            np.testing.assert_allclose(logits, want[i][ends[i] - 1], rtol=1e-5, atol=1e-5)

    # All at once.
    slots = Slots(module)
    slots.encode(dict(enumerate(case["input_ids"])), wide=2)
    check(slots.call(dict(enumerate(texts)), wide=3), dict(enumerate(map(len, texts))))
    # Sources by turns, and targets in parts of random lengths.
    slots, rng = Slots(module), np.random.default_rng(3)
    for i, ids in enumerate(case["input_ids"]):
        slots.encode({i: ids}, wide=i)
    ends = dict.fromkeys(range(len(texts)), 0)
    while left := [i for i, ids in enumerate(texts) if ends[i] < len(ids)]:
        new = {}
        for i in rng.permutation(left)[: rng.integers(1, len(left) + 1)]:
            new[int(i)] = texts[i][ends[i] : ends[i] + int(rng.integers(1, 4))]
            ends[i] += len(new[int(i)])
        check(slots.call(new, wide=int(rng.integers(0, 3))), ends)
    # Three sequences of each source, of which the first has the text.
    slots = Slots(module)
    slots.encode(dict(enumerate(case["input_ids"])))
    new = [text if i == 0 else [start, i + 4, i + 5] for text in texts for i in range(3)]
    got = slots.call(dict(enumerate(new)), shared=3)
    check({i: got[3 * i] for i in range(len(texts))}, dict(enumerate(map(len, texts))))
    # What padding was given is nowhere.
    assert not any(v[0].numpy().any() for both in slots.caches for v in both)


def test_greedy_texts_are_those_of_transformers(module):
    case, c = examples(name_of(module)), module.task.build.config
    tokens = module.task.generation().tokens
    slots = Slots(module)
    slots.encode(dict(enumerate(case["input_ids"])))
    texts = {i: [c.start] for i in range(len(case["input_ids"]))}
    new = dict(texts)
    for step in range(case["max_new_tokens"]):
        forced = tokens.get("forced_bos_token_id") if step == 0 else None
        if step == case["max_new_tokens"] - 1:
            forced = tokens.get("forced_eos_token_id")
        got = slots.call(new)
        new = {i: [int(z.argmax()) if forced is None else forced] for i, z in got.items()}
        for i, ids in new.items():
            texts[i] += ids
        new = {i: ids for i, ids in new.items() if ids[0] not in tokens["eos_token_ids"]}
        if not new:
            break
    assert list(texts.values()) == case["generated"]


def test_the_contract_says_how_to_generate(tmp_path):
    task, _ = made("bart")
    export.write(task, optimizers.AdamW(), tmp_path / "bart")
    contract = json.loads((tmp_path / "bart" / "assets" / "gorbit.json").read_text())
    entry = {"dtype": "float32", "shape": [8]}
    own, source = (
        [{"name": f"{before}layer_0/{part}", **entry} for part in ("key", "value")]
        for before in ("", "source/")
    )
    assert contract["generation"] == {
        "max_length": 24,
        "vocab_size": 20,
        "caches": own,
        "source": {"max_length": 24, "caches": source, "shared": True},
        "decoder_start_token_id": 2,
        "eos_token_ids": [2],
        "pad_token_id": 1,
        "bos_token_id": 0,
        "forced_bos_token_id": 0,
        "forced_eos_token_id": 2,
    }
    assert {f["name"]: f.get("below") for f in contract["features"] if f.get("make")} == {
        "sequence_ids": None,
        "position_ids": 24,
        "example_ids": None,
        "target_sequence_ids": None,
        "target_position_ids": 24,
        "target_example_ids": None,
    }
    again = tf.saved_model.load(str(tmp_path / "bart"))
    again.task = task
    slots = Slots(again)
    slots.encode({0: [5, 9, 7]})
    got = slots.call({0: [2, 4, 6]})
    np.testing.assert_allclose(got[0], logits_of(task, [5, 9, 7], [4, 6, 0])[-1], atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("kind", ["t5-gated", "marian"])
def test_narrow_products_are_near_those_of_float32(kind, precision):
    features = batch(examples(kind), ROWS)
    want, gradient = gradients(made(kind)[0], features)
    got, narrow = gradients(made(kind, precision=precision)[0], features)
    np.testing.assert_allclose(got["loss_sum"], want["loss_sum"], rtol=2e-2)
    off = tf.linalg.global_norm([a - b for a, b in zip(gradient, narrow)])
    assert off < 0.1 * tf.linalg.global_norm(gradient)


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_change_nothing_at_first_and_are_trained_alone(kind):
    task, _ = made(kind, lora=causal.Lora(2))
    features = batch(examples(kind), ROWS)
    sums, got = gradients(task, features)
    whole, _ = gradients(made(kind)[0], features)
    np.testing.assert_allclose(sums["loss_sum"], whole["loss_sum"], rtol=1e-6)
    paths = [path for path, _ in export._variable_paths(task.model, "model")]
    trained = {v.name.split(":")[0] for v in task.model.trainable_variables}
    assert trained == {"lora_down", "lora_up"}
    layers, own = task.build.config, [path for path in paths if path.endswith("lora_up")]
    assert len(own) == 2 * layers.encoder_layers + 4 * layers.decoder_layers
    # lora_up is 0, and so is the gradient of lora_down: that of lora_up is not.
    ups = [g for v, g in zip(task.model.trainable_variables, got) if v.name.startswith("lora_up")]
    assert all(tf.norm(g) > 0 for g in ups)
    with pytest.raises(ValueError, match="LoRA target is 'wide'; expected some of query"):
        made(kind, lora=causal.Lora(2, 4.0, ("wide",)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_parameters(kind):
    task = seq2seq_task.Seq2Seq(seq2seq.Build(load(kind)))
    count = sum(int(np.prod(v.shape)) for v in task.model.trainable_variables)
    assert load(kind).parameters == count


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_for_transformers_is_that_of_its_own_files(kind, tmp_path):
    config = load(kind)
    form = seq2seq_task.Seq2Seq(seq2seq.Build(config)).description()["huggingface"]["config"]
    values = json.loads((GOLDENS / "seq2seq" / f"{kind}.json").read_text())
    apart = {"tie_word_embeddings"} if kind == "t5-gated" else set()
    ours = {k: v for k, v in form.items() if k in values and k not in apart}
    assert ours == {k: values[k] for k in ours}
    assert kind != "bart" or form["normalize_before"] is False  # CTranslate2's converter reads it
    (tmp_path / "again.json").write_text(json.dumps(form))
    assert load("again", tmp_path) == config


def test_positions_of_marian_are_sines_and_cosines():
    got = seq2seq.sines(500, 6)
    for position, pair in ((0, 0), (3, 1), (499, 2)):
        angle = position / 10000 ** (2 * pair / 6)
        want = [np.sin(angle), np.cos(angle)]
        np.testing.assert_allclose(got[position][[pair, 3 + pair]], want, atol=1e-6)


@pytest.mark.parametrize(
    ("base", "fields", "message"),
    [
        ("t5", {"model_type": "pegasus"}, "model_type is 'pegasus'; expected one of t5"),
        ("t5", {"d_model": 0}, "d_model is 0; expected a positive integer"),
        ("t5", {"num_heads": None}, "missing num_heads"),
        ("t5", {"decoder_start_token_id": None}, "missing decoder_start_token_id"),
        ("t5", {"decoder_start_token_id": 20}, "expected a token of the vocabulary of 20"),
        ("t5", {"router_z_loss_coef": 0.1}, "field router_z_loss_coef is not known"),
        ("t5", {"dense_act_fn": "gelu"}, "dense_act_fn is 'gelu'; expected 'relu'"),
        ("t5", {"relative_attention_num_buckets": 6}, "buckets is 6; expected a multiple of 4"),
        ("t5", {"relative_attention_max_distance": 4}, "max_distance is 4; expected more than 4"),
        ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder is False; expected True"),
        (
            "t5",
            {"tie_word_embeddings": False, "scale_decoder_outputs": True},
            "scale_decoder_outputs is True; expected False",
        ),
        ("bart", {"normalize_before": True}, "normalize_before is True; expected False"),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings is False; expected True"),
        ("bart", {"decoder_attention_heads": 3}, "multiple of decoder_attention_heads"),
        ("bart", {"encoder_layerdrop": 0.1}, "encoder_layerdrop is 0.1; expected 0.0"),
        ("bart", {"dropout": 1.0}, "dropout is 1.0; expected a number in"),
        ("marian", {"decoder_vocab_size": 21}, "decoder_vocab_size is 21; expected vocab_size"),
        (
            "marian",
            {"share_encoder_decoder_embeddings": False},
            "share_encoder_decoder_embeddings is False; expected True",
        ),
    ],
)
def test_other_models_are_refused_by_the_field(tmp_path, base, fields, message):
    values = json.loads((GOLDENS / "seq2seq" / f"{base}.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps({**values, **fields}))
    with pytest.raises(ValueError, match=message):
        load("x", tmp_path)


def test_lengths_are_options_where_there_is_no_table_of_positions():
    where = GOLDENS / "seq2seq"
    config = seq2seq_config.load(str(where / "t5.json"), 30, 40)
    assert (config.max_length, config.max_target_length) == (30, 40)
    assert (load("t5").max_length, load("t5").max_target_length) == (512, 512)
    with pytest.raises(ValueError, match="--max-target-length is 0; expected 1 or more"):
        seq2seq_config.load(str(where / "t5.json"), 30, 0)
    with pytest.raises(ValueError, match="config is 'nope'; expected a config"):
        seq2seq_config.load("nope")
    with pytest.raises(ValueError, match="bart has max_position_embeddings"):
        seq2seq_config.load(str(where / "bart.json"), 30)
    with pytest.raises(ValueError, match="the activation is 'swiglu'; expected one of"):
        seq2seq.EncoderDecoder(seq2seq.Build(dataclasses.replace(config, hidden_act="swiglu")))


def test_forced_tokens_may_be_in_the_file_of_generation(tmp_path):
    values = json.loads((GOLDENS / "seq2seq" / "bart.json").read_text())
    del values["forced_bos_token_id"]
    (tmp_path / "x.json").write_text(json.dumps(values))
    assert "forced_bos_token_id" not in load("x", tmp_path).tokens
    beside = tmp_path / "generation_config.json"
    beside.write_text(json.dumps({"forced_bos_token_id": 0, "eos_token_id": [2, 3]}))
    tokens = load("x", tmp_path).tokens
    assert (tokens["forced_bos_token_id"], tokens["eos_token_id"]) == (0, [2, 3])
    beside.write_text(json.dumps({"bad_words_ids": [[3], [4, 5]]}))
    config = load("x", tmp_path)
    assert config.released()["bad_words_ids"] == [[3], [4, 5]]
    made = seq2seq_task.Seq2Seq(seq2seq.Build(config)).generation().described()
    assert made["bad_words_ids"] == [[3], [4, 5]]
    for bad in ([[3], []], [[20]], "no"):
        beside.write_text(json.dumps({"bad_words_ids": bad}))
        with pytest.raises(ValueError, match="bad_words_ids is"):
            load("x", tmp_path)
    beside.write_text(json.dumps({"forced_bos_token_id": 20}))
    with pytest.raises(ValueError, match=r"generation_config\.json: forced_bos_token_id is 20"):
        load("x", tmp_path)


def test_weights_that_are_computed_in_another_way_are_told_apart():
    def needed(kind: str) -> dict:
        return seq2seq_task.Seq2Seq(seq2seq.Build(load(kind))).description()["weights"]["config"]

    # Later releases say that tables are tied even where they are not.
    own = json.loads((GOLDENS / "seq2seq" / "t5-gated.json").read_text())
    assert {k: own[k] for k in needed("t5-gated") if k in own}.items() <= needed("t5-gated").items()
    assert needed("t5")["scale_decoder_outputs"] and not own["scale_decoder_outputs"]
    assert needed("marian")["scale_embedding"] and not needed("bart")["scale_embedding"]
