"""Causal language models: their loss, whatever the packing, and their generation."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import pack

from gorbit_export import causal, causal_config, export, ops, optimizers

GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
}
CONFIGS = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "qwen2": {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 12},
    "smollm3": {
        **LLAMA,
        "model_type": "smollm3",
        "no_rope_layers": [0, 1],
        "use_sliding_window": True,
        "sliding_window": 4,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 2,
            "original_max_position_embeddings": 8,
        },
    },
    "gemma3": {
        **{k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"},
        "model_type": "gemma3_text",
        "head_dim": 12,
        "sliding_window": 3,
        "sliding_window_pattern": 2,
        "final_logit_softcapping": 5.0,
    },
}
VOCAB = 50


@pytest.fixture(scope="module", params=CONFIGS)
def config(request, tmp_path_factory) -> causal_config.CausalConfig:
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(json.dumps({**CONFIGS[request.param], "vocab_size": VOCAB}))
    return causal_config.load(str(path))


def made(config: causal_config.CausalConfig, **how) -> causal.LanguageModel:
    """A model whose biases and norms are not what they are at first, which would hide them."""
    task = causal.LanguageModel(causal.Build(config, **how))
    rng = np.random.default_rng(5)
    for variable in task.model.trainable_variables:
        variable.assign_add(rng.normal(0, 0.2, variable.shape).astype(np.float32))
    return task


def examples(count: int = 6, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB, rng.integers(1, 13)).tolist() for _ in range(count)]


def batch(texts: list[list[int]], rows: list[list[int]]) -> dict[str, tf.Tensor]:
    """Packs texts into rows; text i weighs 0.5 + i."""
    packed = pack([(ids, [0] * len(ids)) for ids in texts], rows)
    numbers = np.full_like(packed["input_ids"], len(texts))
    for row, held in enumerate(rows):
        for place, i in enumerate(held, 1):
            numbers[row][packed["sequence_ids"][row] == place] = i
    names = ("input_ids", "sequence_ids", "position_ids")
    features = {name: packed[name] for name in names} | {"example_ids": numbers}
    features["token_weights"] = np.ones_like(numbers, np.float32)
    features["example_weights"] = 0.5 + np.arange(len(texts), dtype=np.float32)
    return {name: tf.constant(value) for name, value in features.items()}


def logits_of(task: causal.LanguageModel, ids: list[int]) -> np.ndarray:
    """The logits after each token, by the serving function."""
    _, serve = task.serving()
    row = tf.constant([ids], tf.int32)
    return serve(row, tf.ones_like(row), row)["logits"][0].numpy()


def gradients(task: causal.LanguageModel, features: dict, **rates) -> tuple[dict, list]:
    scalars = {h.name: tf.constant(rates.get(h.name, 0.0)) for h in task.hyperparameters}
    with tf.GradientTape() as tape:
        random = ops.Random.from_seed(tf.constant([3, 4], tf.int64))
        sums = task.train_sums(features, scalars, random)
    return sums, tape.gradient(sums["loss_sum"], task.model.trainable_variables)


def test_the_loss_is_that_of_each_next_token(config, monkeypatch):
    monkeypatch.setattr(causal, "LOGITS", 7 * VOCAB)  # several parts, the last one not full
    task, texts = made(config), examples()
    sums = task.evaluate_sums(batch(texts, [[0, 3], [2, 1, 5], [4]]))
    loss, weight, right = 0.0, 0.0, 0.0
    for i, ids in enumerate(texts):
        logits = logits_of(task, ids)
        shares = tf.nn.log_softmax(logits).numpy()
        for at, following in enumerate(ids[1:]):
            loss -= (0.5 + i) * shares[at, following]
            weight += 0.5 + i
            right += (0.5 + i) * (logits[at].argmax() == following)
    np.testing.assert_allclose(sums["loss_sum"], loss, rtol=1e-5)
    np.testing.assert_allclose(sums["weight_sum"], weight)
    np.testing.assert_allclose(sums["accuracy_sum"], right)
    np.testing.assert_allclose(task.results(sums)["perplexity"], np.exp(loss / weight), rtol=1e-5)


def test_tokens_without_weight_are_seen_and_not_learned(config):
    task, texts = made(config), examples(3, seed=4)
    features = batch(texts, [[0, 1], [2]])
    learned = np.random.default_rng(6).integers(0, 3, features["input_ids"].shape)
    sums = task.evaluate_sums(features | {"token_weights": tf.constant(learned, tf.float32)})
    loss, weight = 0.0, 0.0
    for i, ids in enumerate(texts):
        shares = tf.nn.log_softmax(logits_of(task, ids)).numpy()
        own = learned[features["example_ids"] == i]
        for at, following in enumerate(ids[1:]):
            loss -= (0.5 + i) * own[at + 1] * shares[at, following]
            weight += (0.5 + i) * own[at + 1]
    np.testing.assert_allclose(sums["loss_sum"], loss, rtol=1e-5)
    np.testing.assert_allclose(sums["weight_sum"], weight, rtol=1e-6)


def test_label_smoothing_spreads_a_share_over_all_tokens(config):
    task = made(config)
    texts = examples(1)
    features = batch(texts, [[0]])
    sums, _ = gradients(task, features, label_smoothing=0.3)
    shares = tf.nn.log_softmax(logits_of(task, texts[0])).numpy()[:-1]
    own = shares[np.arange(len(shares)), texts[0][1:]]
    want = -(0.7 * own + 0.3 * shares.mean(1)).sum() * 0.5
    np.testing.assert_allclose(sums["loss_sum"], want, rtol=1e-5)


def test_packing_parts_and_recomputing_change_no_gradient(config, monkeypatch):
    task, texts = made(config), examples()
    packed = batch(texts, [[0, 3], [2, 1, 5], [4]])
    sums, want = gradients(task, batch(texts, [[i] for i in range(len(texts))]))
    norm = tf.linalg.global_norm(want)

    def agrees(sums: dict, got: list) -> None:
        for name, value in first.items():
            np.testing.assert_allclose(sums[name], value, rtol=1e-5)
        off = tf.linalg.global_norm([a - b for a, b in zip(want, got)])
        assert off < 2e-6 * norm

    first = sums
    agrees(*gradients(task, packed))
    monkeypatch.setattr(causal, "LOGITS", 7 * VOCAB)
    agrees(*gradients(task, packed))
    monkeypatch.setattr(task.model, "_recompute", "layers")
    agrees(*gradients(task, packed))


def test_recomputed_layers_draw_the_same_numbers(config):
    rates = {f"{part}_dropout": 0.2 for part in ("embedding", "hidden", "attention")}
    task = made(config)
    features = batch(examples(), [[0, 3], [2, 1, 5], [4]])
    plain, want = gradients(task, features, **rates)
    task.model._recompute = "layers"
    again, got = gradients(task, features, **rates)
    assert abs(plain["loss_sum"] - task.evaluate_sums(features)["loss_sum"]) > 1e-3
    np.testing.assert_allclose(again["loss_sum"], plain["loss_sum"], rtol=1e-6)
    for a, b in zip(want, got):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_predictions_are_the_log_probabilities_of_tokens(config, monkeypatch):
    monkeypatch.setattr(causal, "LOGITS", 7 * VOCAB)
    task, texts = made(config), examples()
    features = batch(texts, [[0, 3], [2, 1, 5], [4]])
    got = task.predict(features)["log_probabilities"].numpy()
    for i, ids in enumerate(texts):
        shares = tf.nn.log_softmax(logits_of(task, ids)).numpy()
        want = [0.0] + [shares[at, after] for at, after in enumerate(ids[1:])]
        np.testing.assert_allclose(got[features["example_ids"] == i], want, atol=1e-5)
    assert not got[features["sequence_ids"] == 0].any()


class Slots:
    """Caches as a program makes them: each sequence's tokens are in slots of their own."""

    def __init__(self, generation, count: int) -> None:
        self.generation = generation
        self.free = np.random.default_rng(1).permutation(np.arange(1, count)).tolist()
        self.slots: dict[int, list[int]] = {}
        self.variables = [
            tf.Variable(tf.zeros([count, *c.shape], c.dtype)) for c in generation.caches
        ]

    def call(self, generate, new: dict[int, list[int]], wide: int = 0) -> dict[int, np.ndarray]:
        """Appends tokens to sequences, padded to `wide` more columns; gives logits by sequence."""
        columns = max(map(len, new.values())) + wide
        inputs = {n: [] for n in ("input_ids", "position_ids", "slots", "context")}
        for name, ids in new.items():
            held = self.slots.setdefault(name, [])
            start = len(held)
            held += [self.free.pop() for _ in ids]
            rest = [0] * (columns - len(ids))
            inputs["input_ids"].append(ids + rest)
            inputs["position_ids"].append([*range(start, start + len(ids)), *rest])
            inputs["slots"].append(held[start:] + rest)
            inputs["context"].append(held)
        length = max(map(len, inputs["context"])) + wide
        inputs["context"] = [held + [0] * (length - len(held)) for held in inputs["context"]]
        tensors = {name: tf.constant(rows, tf.int32) for name, rows in inputs.items()}
        handles = {c.argument: v.handle for c, v in zip(self.generation.caches, self.variables)}
        last = tf.constant([len(ids) - 1 for ids in new.values()], tf.int32)
        logits = generate(**tensors, **handles, last=last)["logits"].numpy()
        return dict(zip(new, logits))


@pytest.mark.parametrize("lora", [None, causal.Lora(2)])
def test_any_split_of_a_text_into_calls_gives_the_logits_of_training(config, lora):
    task = made(config, lora=lora)
    module = export.Export(task, optimizers.AdamW())
    texts = [ids * 2 for ids in examples(4, seed=2)]
    cases = [logits_of(task, ids) for ids in texts]
    generate = module.generate

    def check(got: dict[int, np.ndarray], ends: dict[int, int]) -> None:
        for i, logits in got.items():
            np.testing.assert_allclose(logits, cases[i][ends[i] - 1], atol=1e-5)

    # All at once.
    slots = Slots(task.generation(), 200)
    check(slots.call(generate, dict(enumerate(texts)), wide=3), dict(enumerate(map(len, texts))))
    # In parts of random lengths, of some of the texts in each call.
    slots, rng = Slots(task.generation(), 200), np.random.default_rng(3)
    ends = dict.fromkeys(range(len(texts)), 0)
    while left := [i for i, ids in enumerate(texts) if ends[i] < len(ids)]:
        new = {}
        for i in rng.permutation(left)[: rng.integers(1, len(left) + 1)]:
            more = int(rng.integers(1, 4))
            new[int(i)] = texts[i][ends[i] : ends[i] + more]
            ends[i] = min(ends[i] + more, len(texts[i]))
        check(slots.call(generate, new, wide=int(rng.integers(0, 3))), ends)
    # What padding was given is nowhere.
    assert not any(v[0].numpy().any() for v in slots.variables)


def test_the_contract_says_how_to_generate(config, tmp_path):
    task = made(config)
    export.write(task, optimizers.AdamW(), tmp_path / "lm")
    contract = json.loads((tmp_path / "lm" / "assets" / "gorbit.json").read_text())
    width = config.num_key_value_heads or config.num_attention_heads
    entry = {"dtype": "float32", "shape": [width * config.head_size]}
    names = [f"layer_{i}/{part}" for i in range(2) for part in ("key", "value")]
    assert contract["generation"] == {
        "max_length": 32,
        "vocab_size": VOCAB,
        "caches": [{"name": name, **entry} for name in names],
    }
    again = tf.saved_model.load(str(tmp_path / "lm"))
    slots = Slots(task.generation(), 20)
    got = slots.call(again.generate, {0: [3, 1, 4]})
    np.testing.assert_allclose(got[0], logits_of(task, [3, 1, 4])[-1], atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_narrow_products_are_near_those_of_float32(config, precision):
    features = batch(examples(), [[0, 3], [2, 1, 5], [4]])
    want, gradient = gradients(made(config), features)
    got, narrow = gradients(made(config, precision=precision), features)
    np.testing.assert_allclose(got["loss_sum"], want["loss_sum"], rtol=2e-2)
    off = tf.linalg.global_norm([a - b for a, b in zip(gradient, narrow)])
    assert off < 0.1 * tf.linalg.global_norm(gradient)


def test_the_number_of_parameters(config):
    task = causal.LanguageModel(causal.Build(config))
    assert config.parameters == sum(int(np.prod(v.shape)) for v in task.model.trainable_variables)


def load(tmp_path, values: dict) -> causal_config.CausalConfig:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"vocab_size": VOCAB, **values}))
    return causal_config.load(str(path))


@pytest.mark.parametrize(
    ("base", "fields", "message"),
    [
        (GPT2, {"model_type": "bloom"}, "model_type is 'bloom'; expected one of gpt2"),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is"),
        (GPT2, {"n_heads": 2}, "field n_heads is not known"),
        (GPT2, {"n_embd": 30}, "n_embd is 30; expected a multiple"),
        (LLAMA, {"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling has no factor"),
        (LLAMA, {"rope_scaling": {"rope_type": "longrope"}}, "rope_type is 'longrope'"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor of rope_scaling is"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2, "alpha": 1}}, "has alpha"),
        (LLAMA, {"rope_scaling": {"type": "linear", "rope_type": "yarn"}}, "has the type 'linear'"),
        (LLAMA, {"rope_scaling": "linear"}, "rope_scaling is 'linear'; expected an object"),
        (GPT2, {"rope_scaling": {"type": "linear", "factor": 2}}, "gpt2 has no such positions"),
        (LLAMA, {"mlp_bias": True}, "mlp_bias is True; expected False"),
        (LLAMA, {"num_key_value_heads": 3}, "expected a multiple of num_key_value_heads"),
        (LLAMA, {"sliding_window": 8}, "sliding_window is 8; expected null, or at least"),
        (LLAMA, {"use_sliding_window": False}, "field use_sliding_window is not known"),
        (LLAMA, {"layer_types": ["sliding_attention"] * 2}, "layer_types is"),
        (LLAMA, {"model_type": "qwen2", "layer_types": ["sliding_attention"]}, "layer_types is"),
        (
            LLAMA,
            {"model_type": "qwen2", "layer_types": ["sliding_attention"] * 2},
            "sliding_window is null; expected a number",
        ),
        (LLAMA, {"model_type": "mistral", "sliding_window": 8.5}, "sliding_window is 8.5"),
        (LLAMA, {"model_type": "mistral", "sliding_window": 0}, "sliding_window is 0"),
        (LLAMA, {"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers is"),
        (LLAMA, {"model_type": "gemma", "hidden_activation": "relu"}, "hidden_activation is"),
        (LLAMA, {"model_type": "gemma", "query_pre_attn_scalar": 2}, "query_pre_attn_scalar is"),
        (LLAMA, {"model_type": "gemma2", "sliding_window": None}, "sliding_window is null"),
        (LLAMA, {"model_type": "gemma2", "attn_logit_softcapping": -1}, "attn_logit_softcapping"),
        (
            LLAMA,
            {"model_type": "gemma3_text", "use_bidirectional_attention": True},
            "use_bidirectional_attention is True",
        ),
        (
            LLAMA,
            {"model_type": "gemma3_text", "rope_parameters": {"rope_type": "default"}},
            "expected full_attention and sliding_attention",
        ),
        (LLAMA, {"residual_multiplier": 0.2}, "field residual_multiplier is not known"),
        (LLAMA, {"hidden_size": None}, "missing hidden_size"),
        (LLAMA, {"rope_parameters": {"rope_type": "yarn"}}, "rope_scaling has no factor"),
        (LLAMA, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor of"),
    ],
)
def test_other_models_are_refused_by_the_field(tmp_path, base, fields, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, {**base, **fields})


def test_later_files_have_the_base_of_angles_among_others(tmp_path):
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    assert load(tmp_path, {**LLAMA, **rope}).rope_theta == 5e5
    assert load(tmp_path, {**LLAMA, "rope_theta": 5e5}) == load(tmp_path, {**LLAMA, **rope})
    linear = {"type": "linear", "factor": 2.0}
    rope = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}
    scaled = load(tmp_path, {**LLAMA, "rope_theta": 5e5, "rope_scaling": linear})
    assert load(tmp_path, {**LLAMA, **rope}) == scaled
    assert load(tmp_path, GPT2).intermediate_size == 128
    assert dataclasses.replace(causal_config.PRESETS["gpt2"]).parameters == 124_439_808


def test_a_window_that_reaches_everything_is_none(tmp_path):
    mistral = load(tmp_path, {**LLAMA, "model_type": "mistral"})
    assert mistral.released()["sliding_window"] is None
    kinds = {"layer_types": ["full_attention", "full_attention"]}
    qwen = {**LLAMA, "model_type": "qwen2"}
    assert load(tmp_path, {**qwen, **kinds}) == load(tmp_path, qwen)
    wide = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}
    assert load(tmp_path, {**qwen, **wide}) == load(tmp_path, qwen)
    # Gemma 3 turns by the kind of a layer, whatever its window reaches.
    gemma = load(tmp_path, {**LLAMA, "model_type": "gemma3_text"})
    assert gemma.layer(0) == causal_config.LayerKind(None, 1e4)
    assert gemma.released()["layer_types"] == ["sliding_attention"] * 2


def test_weights_that_are_computed_in_another_way_are_told_apart(tmp_path):
    needed = made(load(tmp_path, LLAMA)).description()["weights"]["config"]
    assert needed["rope_scaling"] is None
    assert needed["sliding_window"] is None
    assert needed["positions"] == 32


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_gradients_of_biases_are_summed_in_float32(dtype):
    z, bias = tf.ones([70000, 2], dtype), tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = ops.add_bias(z, tf.convert_to_tensor(bias))
    assert y.dtype == dtype
    np.testing.assert_array_equal(tape.gradient(y, bias), [70000.0, 70000.0])


def test_adapters_have_the_gradients_that_their_products_have(config):
    task, plain = made(config, lora=causal.Lora(2, alpha=4.0)), made(config)
    features = batch(examples(), [[0, 3], [2, 1, 5], [4]])
    module = export.Export(task, optimizers.AdamW())
    ours = {**module.states_by_path, **module.variables_by_path}
    for path, variable in export.Export(plain, optimizers.AdamW()).variables_by_path.items():
        layer = module.adapted.get(path)
        variable.assign(ours[path] if layer is None else layer.merged())
    sums, got = gradients(task, features)
    whole, want = gradients(plain, features)
    np.testing.assert_allclose(sums["loss_sum"], whole["loss_sum"], rtol=1e-5)
    found = {v.ref(): g for v, g in zip(task.model.trainable_variables, got)}
    kernels = {v.ref(): g for v, g in zip(plain.model.trainable_variables, want)}
    others = dict(export._variable_paths(plain.model, "model"))
    assert len(found) == 2 * len(module.adapted)
    for path, layer in module.adapted.items():
        gradient = 2.0 * kernels[others[path].ref()]
        up = tf.matmul(layer.lora_down, gradient, transpose_a=True)
        down = tf.matmul(gradient, layer.lora_up, transpose_b=True)
        for variable, expected in ((layer.lora_up, up), (layer.lora_down, down)):
            off = tf.norm(found[variable.ref()] - expected)
            assert off < 1e-5 * tf.linalg.global_norm(want)


def test_adapters_are_for_maps_that_there_are(config):
    own = "query_key_value" if config.model_type == "gpt2" else "query"
    task = causal.LanguageModel(causal.Build(config, lora=causal.Lora(2)))
    assert any(f"/{own}/" in path for path in export.Export(task, optimizers.AdamW()).adapted)
    with pytest.raises(ValueError, match=f"LoRA target is 'wide'; expected some of {own}"):
        causal.LanguageModel(causal.Build(config, lora=causal.Lora(2, 4.0, ("wide",))))
