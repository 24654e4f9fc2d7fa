"""Narrow compute dtypes: float32 variables and gradients, products in bfloat16 or float16."""

import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import SMALL, batch, jitter, needs_narrow_products, scalars, tensors

from gorbit_export import __main__ as command
from gorbit_export import bert, export
from gorbit_export.classifier import Classification
from gorbit_export.optimizers import AdamW

pytestmark = needs_narrow_products

RATES = {"hidden_dropout": 0.1, "attention_dropout": 0.2, "classifier_dropout": 0.3}
NARROW = {"bf16": tf.bfloat16, "fp16": tf.float16}
# Relative to the norm of all gradients: a few times half a unit in the dtype's last place.
TOLERANCE = {"bf16": 2e-2, "fp16": 3e-3}
HYPERPARAMETERS = {
    "learning_rate": 1e-3,
    "weight_decay": 0.1,
    "beta_1": 0.9,
    "beta_2": 0.999,
    "epsilon": 1e-8,
    "clip_norm": 1.0,
}


def made(precision: str, pooling: str = "mean", **options) -> export.Export:
    task = Classification(SMALL, 3, pooling, precision=precision, **options)
    jitter(task.model)
    return export.Export(task, AdamW())


@pytest.fixture(scope="module")
def modules() -> dict:
    return {precision: made(precision) for precision in ("float32", "bf16", "fp16")}


def gradients(module: export.Export, features: dict | None = None, scale: float = 1.0) -> dict:
    """The result of the gradients function for a batch, with dropout."""
    values = scalars(**RATES, label_smoothing=0.1)
    if module.task.precision == "fp16":
        values |= scalars(loss_scale=scale)
    features = batch()[1] if features is None else features
    got = module.gradients(**tensors(features), seed=tf.constant([1, 2], tf.int64), **values)
    assert {value.dtype for value in got.values()} == {tf.float32}
    return {name: value.numpy() for name, value in got.items()}


def flat(got: dict) -> np.ndarray:
    return np.concatenate(
        [v.ravel() for name, v in sorted(got.items()) if name.startswith("gradient/")]
    )


def distance(got: dict, want: dict) -> float:
    """The norm of the gradients' difference, relative to that of the expected gradients."""
    return np.linalg.norm(flat(got) - flat(want)) / np.linalg.norm(flat(want))


@pytest.fixture(scope="module", params=["first", "mean"])
def wide(request) -> tuple[str, dict]:
    """A pooling, and the gradients in float32."""
    return request.param, gradients(made("float32", request.param))


@pytest.mark.parametrize("precision", NARROW)
def test_gradients_are_float32s_to_the_dtypes_digits(precision, wide):
    pooling, want = wide
    got = gradients(made(precision, pooling), scale=64)
    assert set(got) == set(want)
    assert got["loss_sum"] == pytest.approx(want["loss_sum"], rel=TOLERANCE[precision])
    assert got["weight_sum"] == want["weight_sum"]
    apart = distance(got, want)
    assert apart < TOLERANCE[precision]
    assert apart > 1e-5, "the gradients were computed in float32"
    for name, value in want.items():
        if name.startswith("gradient/"):
            # A variable with a tiny gradient is compared at the scale of the others.
            unit = max(np.linalg.norm(value), 0.01 * np.linalg.norm(flat(want)))
            assert np.linalg.norm(got[name] - value) < 5 * TOLERANCE[precision] * unit, name


@pytest.mark.parametrize("precision", NARROW)
def test_products_are_narrow_and_all_that_sums_is_not(modules, precision):
    module = modules[precision]
    for variable in module.variables:
        assert variable.dtype in (tf.float32, tf.int64, tf.string)
    graph = module.gradients.get_concrete_function().graph.as_graph_def()
    dtypes: dict[str, set] = {}  # of the layer, its blocks and their gradients
    for function in graph.library.function:
        for node in function.node_def:
            if node.attr["T"].type:
                dtypes.setdefault(node.op, set()).add(tf.as_dtype(node.attr["T"].type))
    assert dtypes["MatMul"] == dtypes["BatchMatMulV2"] == {NARROW[precision]}
    for op in ("Softmax", "BiasAddGrad", "Rsqrt", "Mean"):
        assert dtypes[op] == {tf.float32}, op
    narrow = NARROW[precision].as_datatype_enum
    casts = [n for n in graph.node if n.op == "Cast" and n.attr["DstT"].type == narrow]
    # Of each layer the matrix of query, key and value and three others, and all biases together.
    assert len(casts) == 4 * SMALL.num_hidden_layers + 1


@pytest.mark.parametrize("precision", NARROW)
def test_layers_computed_again_are_the_same(modules, precision):
    want, got = gradients(modules[precision]), gradients(made(precision, recompute="layers"))
    assert distance(got, want) < TOLERANCE[precision] / 10


@pytest.mark.parametrize("precision", NARROW)
def test_what_a_model_gives_is_float32(modules, precision):
    features = tensors(batch()[1])
    inputs = {k: v for k, v in features.items() if k not in ("labels", "example_weights")}
    want, got = (modules[p].predict(**inputs)["logits"] for p in ("float32", precision))
    assert got.dtype == tf.float32
    np.testing.assert_allclose(got, want, atol=10 * TOLERANCE[precision])
    assert {v.dtype for v in modules[precision].evaluate(**features).values()} == {tf.float32}
    specs, serve = modules[precision].task.serving()
    signature = tf.function(serve, autograph=False).get_concrete_function(*specs)
    assert {v.dtype for v in signature.structured_outputs.values()} == {tf.float32}


@pytest.mark.parametrize("precision", NARROW)
def test_a_row_of_padding_alone_stays_finite(modules, precision):
    _, packed, _ = batch()
    padded = dict(packed)
    for name in ("input_ids", "type_ids", "sequence_ids", "position_ids"):
        padded[name] = np.vstack([packed[name], np.zeros_like(packed[name][:1])])
    # No dropout: its numbers are drawn by position, and another row changes the positions.
    values = scalars(**dict.fromkeys(RATES, 0.0), label_smoothing=0.1)
    if precision == "fp16":
        values |= scalars(loss_scale=64.0)
    seed = tf.constant([1, 2], tf.int64)
    module = modules[precision]
    want = module.gradients(**tensors(packed), seed=seed, **values)
    got = module.gradients(**tensors(padded), seed=seed, **values)
    assert all(np.isfinite(v).all() for v in got.values())
    assert got["loss_sum"].numpy() == pytest.approx(want["loss_sum"].numpy(), rel=1e-6)


@pytest.mark.parametrize("precision", NARROW)
def test_the_mean_of_many_tokens(precision):
    """bfloat16 has no integers between 256 and 258."""
    hidden = tf.ones([400, 8], NARROW[precision])
    mean = bert.pool(hidden, tf.ones([1, 400], tf.int32), tf.constant([0]), "mean")
    np.testing.assert_allclose(tf.cast(mean, tf.float32), 1, rtol=2**-7)


def test_the_scale_of_the_loss_leaves_the_gradients(modules):
    one, small, large = (gradients(modules["fp16"], scale=s) for s in (1, 1024, 4096))
    assert small["loss_sum"] == one["loss_sum"] == large["loss_sum"]
    assert distance(one, small) < TOLERANCE["fp16"]
    # Except for the smallest numbers, which have fewer digits, a power of two changes nothing.
    assert distance(small, large) < TOLERANCE["fp16"] / 100


def test_small_gradients_need_the_scale(modules):
    _, packed, _ = batch()
    packed["example_weights"] = packed["example_weights"] * np.float32(1e-7)
    want = gradients(modules["float32"], packed)
    assert distance(gradients(modules["fp16"], packed), want) > 0.1
    assert distance(gradients(modules["fp16"], packed, 2.0**20), want) < TOLERANCE["fp16"]


def test_an_overflow_makes_no_step(modules):
    module = modules["fp16"]
    got = gradients(module, scale=2.0**30)
    assert np.isfinite(got["loss_sum"])
    assert not np.isfinite(flat(got)).all()
    before = [v.numpy() for v in module.variables]
    step = module.train_step(
        **tensors(batch()[1]),
        seed=tf.constant([1, 2], tf.int64),
        **scalars(**RATES, label_smoothing=0.1, loss_scale=2.0**30, **HYPERPARAMETERS),
    )
    assert not step["applied"]
    for variable, value in zip(module.variables, before):
        np.testing.assert_array_equal(variable.numpy(), value, err_msg=variable.name)


def test_a_step_is_that_of_its_gradients(modules):
    module = made("fp16")
    values = scalars(**RATES, label_smoothing=0.1, loss_scale=256.0, **HYPERPARAMETERS)
    got = gradients(module, scale=256.0)
    step = module.train_step(**tensors(batch()[1]), seed=tf.constant([1, 2], tf.int64), **values)
    assert step["applied"]
    want = np.linalg.norm(flat(got)) / got["weight_sum"]
    assert step["gradient_norm"].numpy() == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("precision", ["float32", *NARROW])
def test_the_contract_names_it(only_contract, tmp_path, precision):
    size = tmp_path / "size.json"
    size.write_text(json.dumps(SMALL.description()))
    out = tmp_path / "graph"
    args = ["--config", str(size), "--out", str(out)]
    args += ["--precision", precision] if precision != "float32" else []
    assert command.main(["bert-classifier", *args]) == 0
    contract = json.loads((out / export.CONTRACT_FILE).read_text())
    assert contract.get("precision") == (None if precision == "float32" else precision)
    assert {v["dtype"] for v in contract["variables"]} == {"float32"}
    scales = [h for h in contract["hyperparameters"] if h["name"] == "loss_scale"]
    assert [h["default"] for h in scales] == ([1.0] if precision == "fp16" else [])


def test_another_is_refused(capsys):
    with pytest.raises(ValueError, match="precision is 'int8'; expected one of float32, bf16, fp"):
        Classification(SMALL, 3, "mean", precision="int8")
    with pytest.raises(SystemExit) as exit:
        command.main(["bert-classifier", "--config", "tiny", "--out", "x", "--precision", "tf32"])
    assert exit.value.code == 2
    assert "invalid choice: 'tf32'" in capsys.readouterr().err
