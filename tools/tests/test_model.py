"""The exported model against TensorFlow's own operations and real weights."""

import json
import pathlib

import numpy as np
import plain_bert
import pytest
import tensorflow as tf
from helpers import (
    NO_DROPOUT,
    ROOT,
    SMALL,
    batch,
    jitter,
    pack,
    random_examples,
    safetensors,
    scalars,
    tensors,
)

from gorbit_export import bert, config, ops
from gorbit_export.classifier import Classification
from gorbit_export.export import Export
from gorbit_export.optimizers import AdamW


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("layout", ["packed", "one per row"])
def test_gradients_equal_plain_model(pooling, layout):
    task = Classification(SMALL, 3, pooling)
    jitter(task.model)
    export = Export(task, AdamW())
    examples, packed, single = batch()
    features = packed if layout == "packed" else single
    smoothing = 0.1
    got = export.gradients(
        **tensors(features),
        seed=tf.constant([1, 2], tf.int64),
        **scalars(**NO_DROPOUT, label_smoothing=smoothing),
    )

    with tf.GradientTape() as tape:
        loss = 0.0
        for (ids, types), label, weight in zip(
            examples, features["labels"], features["example_weights"]
        ):
            x = plain_bert.logits(SMALL, task.model, pooling, ids, types)
            target = tf.one_hot(label, 3) * (1 - smoothing) + smoothing / 3
            loss += weight * tf.nn.softmax_cross_entropy_with_logits(target, x)
    paths = export.variables_by_path
    want = dict(zip(paths, tape.gradient(loss, list(paths.values()))))

    np.testing.assert_allclose(got["loss_sum"], loss, rtol=1e-5)
    np.testing.assert_allclose(got["weight_sum"], features["example_weights"].sum(), rtol=1e-6)
    norm = float(tf.linalg.global_norm(list(want.values())))
    for path, gradient in want.items():
        gradient = tf.convert_to_tensor(gradient).numpy()
        scale = max(np.abs(gradient).max(), 1e-3 * norm)
        error = np.abs(got[f"gradient/{path}"].numpy() - gradient).max() / scale
        assert error < 1e-5, f"{path}: relative error {error}"


def test_predictions_and_evaluation_equal_plain_model():
    task = Classification(SMALL, 3, "mean")
    jitter(task.model)
    export = Export(task, AdamW())
    examples, packed, _ = batch()
    want = np.stack([plain_bert.logits(SMALL, task.model, "mean", *e) for e in examples])
    inputs = {f.name: packed[f.name] for f in task.features if not f.label}
    got = export.predict(**tensors(inputs))
    np.testing.assert_allclose(got["logits"], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["probabilities"], tf.nn.softmax(want), rtol=1e-4, atol=1e-6)

    sums = export.evaluate(**tensors(packed))
    confusion = np.zeros((3, 3))
    for label, guess, weight in zip(packed["labels"], want.argmax(-1), packed["example_weights"]):
        confusion[label, guess] += weight
    np.testing.assert_allclose(sums["confusion"], confusion, rtol=1e-6)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(packed["labels"], want)
    np.testing.assert_allclose(
        sums["loss_sum"], np.sum(losses * packed["example_weights"]), rtol=1e-5
    )


@pytest.mark.parametrize("labels", [2, 7])
def test_evaluation_of_ranks(labels):
    task = Classification(SMALL, labels, "mean")
    jitter(task.model)
    export = Export(task, AdamW())
    _, packed, _ = batch()
    packed["labels"] = packed["labels"] % 2
    inputs = {f.name: packed[f.name] for f in task.features if not f.label}
    logits = export.predict(**tensors(inputs))["logits"].numpy()
    sums = export.evaluate(**tensors(packed))
    if labels == 2:
        np.testing.assert_allclose(
            sums["each/prediction"], logits[:, 1] - logits[:, 0], rtol=1e-5, atol=1e-6
        )
        np.testing.assert_array_equal(sums["each/label"], packed["labels"])
        assert "top_5_accuracy_sum" not in sums
        return
    top = np.argsort(-logits, 1, "stable")[:, :5]
    right = (top == packed["labels"][:, None]).any(1)
    want = (right * packed["example_weights"]).sum()
    np.testing.assert_allclose(sums["top_5_accuracy_sum"], want, rtol=1e-6)
    assert "each/prediction" not in sums


def test_padding_changes_nothing():
    task = Classification(SMALL, 2, "first")
    export = Export(task, AdamW())
    _, packed, _ = batch()
    inputs = {f.name: packed[f.name] for f in task.features if not f.label}
    length = inputs["input_ids"].shape[1]
    wide = {}
    for name, value in inputs.items():
        if value.ndim == 2:
            value = np.pad(value, [(0, 1), (0, 5)], constant_values=0)
        else:
            value = value // length * (length + 5) + value % length
        wide[name] = value
    wide["input_ids"][:, length:] = 7
    np.testing.assert_allclose(
        export.predict(**tensors(wide))["logits"],
        export.predict(**tensors(inputs))["logits"],
        rtol=1e-4,
        atol=1e-6,
    )


def test_dropout_is_a_function_of_the_seed():
    task = Classification(SMALL, 2, "first")
    jitter(task.model)
    export = Export(task, AdamW())
    _, packed, _ = batch()
    packed["labels"] %= 2
    rates = scalars(
        hidden_dropout=0.3, attention_dropout=0.2, classifier_dropout=0.1, label_smoothing=0.0
    )

    def loss(seed: list[int]) -> float:
        sums = export.gradients(**tensors(packed), seed=tf.constant(seed, tf.int64), **rates)
        return float(sums["loss_sum"])

    assert loss([1, 2]) == loss([1, 2])
    assert len({loss([a, b]) for a in range(3) for b in range(3)}) == 9


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_dropout_rate_scale_and_gradient(rate):
    random = ops.Random.from_seed(tf.constant([3, 4], tf.int64))
    x = tf.ones([1001, 301])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.dropout(x, tf.constant(rate), random)
    np.testing.assert_array_equal(tape.gradient(y, x), y)
    kept = float(tf.reduce_mean(tf.cast(y > 0, tf.float32)))
    assert abs(kept - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / 301301) + 1e-5
    np.testing.assert_allclose(np.unique(y[y > 0]), 1 / (1 - rate), rtol=1e-4)


def test_sites_draw_different_numbers():
    random = ops.Random.from_seed(tf.constant([3, 4], tf.int64))
    draws = [random.site(i).bits16(tf.zeros([4096])).numpy() for i in (0, 1, 2, bert.HEAD_SITE)]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert np.mean(a == b) < 0.01


@pytest.mark.parametrize("name", ["gelu", "layer_norm"])
def test_written_gradients(name):
    x = tf.random.stateless_normal([5, 8], [1, 2])
    scale, bias = tf.linspace(0.5, 2.0, 8), tf.linspace(-1.0, 1.0, 8)
    functions = {
        "gelu": lambda x: ops.gelu(x),
        "layer_norm": lambda x: ops.layer_norm(x, scale, bias, 1e-12),
    }
    theoretical, numerical = tf.test.compute_gradient(functions[name], [x], delta=1e-2)
    np.testing.assert_allclose(theoretical[0], numerical[0], atol=2e-3)
    if name == "gelu":
        np.testing.assert_allclose(ops.gelu(x), tf.nn.gelu(x), rtol=1e-5, atol=1e-6)


def minilm_weights() -> dict:
    """Reads the demo's MiniLM weights, or skips the test if they have not been fetched."""
    path = ROOT / ".cache" / "minilm" / "model.safetensors"
    if not path.is_file():
        pytest.skip(f"the demo's weights are missing: {path}; run make fetch")
    return safetensors(path)


@pytest.fixture(scope="module")
def minilm() -> Classification:
    """A classifier with the demo's weights."""
    weights = minilm_weights()
    task = Classification(config.PRESETS["minilm"], 2, "mean")
    found = 0
    for layer in [task.model, *task.model.submodules]:
        for variable, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            for name in foreign.names:
                if name in weights:
                    value = weights[name]
                    variable.assign(value.T if foreign.transpose else value)
                    found += 1
    assert found == 5 + 16 * 6
    return task


def test_real_weights_give_hugging_faces_forward_pass(minilm: Classification):
    hold_forward_pass(minilm, pathlib.Path(__file__).parent / "goldens" / "minilm.json")


def test_real_weights_give_the_reference_forward_pass(
    minilm: Classification, shared_data: pathlib.Path
):
    hold_forward_pass(minilm, shared_data / "goldens" / "minilm_forward.json")


def hold_forward_pass(task: Classification, path: pathlib.Path) -> None:
    cases = json.loads(path.read_text())["cases"]
    assert len(cases) == 6
    examples = [(case["input_ids"], case["token_type_ids"]) for case in cases]
    features = pack(examples, [[0, 1], [2, 3, 4], [5]])
    names = ("input_ids", "type_ids", "sequence_ids", "position_ids")
    out = task.model.encoder(*(tf.constant(features[name]) for name in names)).numpy()
    for case, (ids, _), at in zip(cases, examples, features["cls_positions"]):
        hidden = out[at : at + len(ids)]
        np.testing.assert_allclose(hidden[0, :8], case["last_hidden_cls_0_8"], atol=1e-4)
        np.testing.assert_allclose(hidden[-1, :8], case["last_hidden_last_0_8"], atol=1e-4)
        np.testing.assert_allclose(hidden.sum(), case["last_hidden_sum"], rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(np.abs(hidden).sum(), case["last_hidden_abs_sum"], rtol=1e-4)


@pytest.fixture(scope="module", params=["first", "mean"])
def small_export(request) -> Export:
    task = Classification(SMALL, 3, request.param)
    jitter(task.model)
    return Export(task, AdamW())


def sums_of(export: Export, features: dict) -> dict:
    rates = scalars(**NO_DROPOUT, label_smoothing=0.1)
    got = export.gradients(**tensors(features), seed=tf.constant([1, 2], tf.int64), **rates)
    return {name: value.numpy().astype(np.float64) for name, value in got.items()}


def assert_same_sums(got: dict, want: dict) -> None:
    assert set(got) == set(want)
    gradients = [v for name, v in want.items() if name.startswith("gradient/")]
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=1e-6 * norm, err_msg=name)


@pytest.mark.parametrize("seed", range(4))
def test_packing_changes_nothing(small_export, seed):
    """The sums do not depend on the rows, their order, or the order within them."""
    rng = np.random.default_rng(seed)
    count = 9
    examples = random_examples(count, SMALL.vocab_size, seed)
    labels = rng.integers(0, 3, count).astype(np.int32)
    weights = rng.uniform(0.1, 2, count).astype(np.float32)

    def features(order: np.ndarray, cuts: list[int]) -> dict:
        rows = [list(row) for row in np.split(np.arange(count), cuts)]
        shuffled = [examples[i] for i in order]
        return pack(shuffled, rows) | {"labels": labels[order], "example_weights": weights[order]}

    want = sums_of(small_export, features(np.arange(count), list(range(1, count))))
    for _ in range(3):
        cuts = sorted(rng.choice(np.arange(1, count), rng.integers(0, 5), replace=False))
        got = sums_of(small_export, features(rng.permutation(count), cuts))
        assert_same_sums(got, want)


@pytest.mark.parametrize("seed", range(3))
def test_sums_over_any_split_add_up(small_export, seed):
    rng = np.random.default_rng(seed)
    count = 8
    examples = random_examples(count, SMALL.vocab_size, seed)
    labels = rng.integers(0, 3, count).astype(np.int32)
    weights = rng.uniform(0.1, 2, count).astype(np.float32)

    def sums(chosen: np.ndarray) -> dict:
        rows = [list(range(i, min(i + 2, len(chosen)))) for i in range(0, len(chosen), 2)]
        features = pack([examples[i] for i in chosen], rows)
        return sums_of(
            small_export,
            features | {"labels": labels[chosen], "example_weights": weights[chosen]},
        )

    whole = sums(np.arange(count))
    parts = np.split(rng.permutation(count), sorted(rng.integers(1, count, 2)))
    added: dict = {}
    for part in parts:
        if len(part):
            for name, value in sums(part).items():
                added[name] = added.get(name, 0) + value
    assert_same_sums(added, whole)


def test_embedding_gradient():
    table = tf.Variable(tf.random.stateless_normal([7, 3], [1, 2]))
    ids = tf.constant([2, 5, 2, 0, 2])
    upstream = tf.random.stateless_normal([5, 3], [3, 4])
    with tf.GradientTape(persistent=True) as tape:
        mine, plain = ops.embedding(table, ids), tf.gather(tf.identity(table), ids)
    np.testing.assert_array_equal(mine, plain)
    got = tape.gradient(mine, table, upstream)
    want = tf.convert_to_tensor(tape.gradient(plain, table, upstream))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert not np.any(got.numpy()[[1, 3, 4, 6]])
    with pytest.raises(tf.errors.InvalidArgumentError):
        ops.embedding(table, tf.constant([7]))


def philox(key: tuple[int, int], counter: list[int]) -> list[int]:
    """One block of Philox 4x32-10 (Salmon et al. 2011): four 32 bit words."""
    (k0, k1), c = key, list(counter)
    for _ in range(10):
        low, high = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [
            (high >> 32) ^ c[1] ^ k0,
            high & 0xFFFFFFFF,
            (low >> 32) ^ c[3] ^ k1,
            low & 0xFFFFFFFF,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


@pytest.mark.parametrize("seed", [[0, 0], [7, 123], [-1, 1 << 40]])
@pytest.mark.parametrize("site", [0, 5, bert.HEAD_SITE])
def test_random_numbers_are_the_documented_ones(seed, site):
    """Random numbers can be computed again, as docs/reference/contract.md says."""
    a, b = (s & (1 << 64) - 1 for s in seed)
    mask = 0xFFFFFFFF
    mixed = philox((0x3EC8F720, 0x02461E29), [a & mask, a >> 32, b & mask, b >> 32])
    high = (mixed[2] | mixed[3] << 32) + site & (1 << 64) - 1
    words = []
    for block in range(3):
        words += philox((mixed[0], mixed[1]), [block, 0, high & mask, high >> 32])
    want = np.array(words, np.uint32).view(np.int16)[:21]
    stream = ops.Random.from_seed(tf.constant(seed, tf.int64)).site(site)
    np.testing.assert_array_equal(stream.bits16(tf.zeros([3, 7])), want.reshape(3, 7))


@pytest.mark.parametrize("rate", [1.0, 1.5, -0.5])
def test_dropout_of_a_wrong_rate_stays_finite(rate):
    y = ops.dropout(
        tf.ones([999]), tf.constant(rate), ops.Random.from_seed(tf.constant([1, 2], tf.int64))
    )
    assert np.all(np.isfinite(y))


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_flops_are_those_of_the_products(pooling, monkeypatch):
    """Counts the multiplications of every product as it is computed."""
    task = Classification(SMALL, 3, pooling)
    _, packed, _ = batch()
    inputs = {f.name: packed[f.name] for f in task.features if not f.label}
    (rows, length), count = inputs["input_ids"].shape, len(inputs["cls_positions"])
    counted = [0]
    matmul = tf.matmul

    def counting(a: tf.Tensor, b: tf.Tensor, **kwargs: bool) -> tf.Tensor:
        out = matmul(a, b, **kwargs)
        counted[0] += 2 * int(tf.size(out)) * a.shape[-1]
        return out

    monkeypatch.setattr(tf, "matmul", counting)
    tf.config.run_functions_eagerly(True)
    try:
        task.predict(tensors(inputs))
    finally:
        tf.config.run_functions_eagerly(False)
    flops = task.description()["flops"]
    want = rows * length * (flops["per_token"] + flops["per_token_pair"] * length)
    pool = 2 * count * rows * length * SMALL.hidden_size
    assert counted[0] == want + flops["per_example"] * count + pool
