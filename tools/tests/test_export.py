"""Exports as they are on disk, and as another TensorFlow process sees them."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    NO_DROPOUT,
    SMALL,
    batch,
    jitter,
    pack,
    random_examples,
    run_script,
    scalars,
    tensors,
)
from tensorflow.core.protobuf import saved_model_pb2

from gorbit_export import config, export, layers, optimizers, task
from gorbit_export.classifier import Classification
from gorbit_export.optimizers import AdamW

STEP = {
    "hidden_dropout": 0.1,
    "attention_dropout": 0.2,
    "classifier_dropout": 0.1,
    "label_smoothing": 0.0,
    "learning_rate": 1e-3,
    "weight_decay": 0.1,
    "beta_1": 0.9,
    "beta_2": 0.999,
    "epsilon": 1e-8,
    "clip_norm": 1.0,
}
SEED = [11, 5]
SLOTS = ("m", "v")


@pytest.fixture(scope="module", params=["first", "mean"])
def exported(request, tmp_path_factory):
    """An export in a folder, and the module that it was made from."""
    out = tmp_path_factory.mktemp(request.param) / "graph"
    model = Classification(SMALL, 3, request.param)
    jitter(model.model)
    return out, export.write(model, AdamW(), out)


@pytest.fixture(scope="module")
def loaded(exported, tmp_path_factory):
    """An export as TensorFlow loads it, and its serving SavedModel with the same variables."""
    out, _ = exported
    serving = tmp_path_factory.mktemp("served") / "serving"
    shutil.copytree(out / export.SERVING_FOLDER, serving)
    shutil.copytree(out / "variables", serving / "variables")
    return tf.saved_model.load(str(out)), tf.saved_model.load(str(serving))


def saved(path) -> saved_model_pb2.SavedModel:
    model = saved_model_pb2.SavedModel()
    model.ParseFromString((path / "saved_model.pb").read_bytes())
    return model


def step(module, features: dict, **changes: float) -> dict:
    seed = tf.constant(SEED, tf.int64)
    got = module.train_step(seed=seed, **tensors(features), **scalars(**{**STEP, **changes}))
    return {name: value.numpy() for name, value in got.items()}


def state(module) -> dict:
    """Values of all variables, and of their slots."""
    found = {}
    for path, variable in module.variables_by_path.items():
        found[path] = variable.numpy()
        for slot in ("m", "v"):
            node = module.optimizer
            for part in [slot, *path.split("/")]:
                node = getattr(node, part)
            found[f"optimizer/{slot}/{path}"] = node.numpy()
    return found


def test_folder(exported):
    out, _ = exported
    files = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    assert files == {
        "saved_model.pb",
        "fingerprint.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "assets/gorbit.json",
        "serving/saved_model.pb",
    }
    assert (out / "saved_model.pb").stat().st_size < 1_000_000
    assert (out.stat().st_mode & 0o777) == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_contract_describes_the_functions(exported, loaded):
    out, _ = exported
    loaded, _ = loaded
    contract = json.loads((out / export.CONTRACT_FILE).read_text())

    def specs(function) -> tuple[dict, dict]:
        (concrete,) = function.concrete_functions
        args, kwargs = concrete.structured_input_signature
        inputs = {s.name: (s.dtype.name, s.shape.rank) for s in [*args, *kwargs.values()]}
        outputs = {name: (s.dtype.name, s.shape) for name, s in concrete.structured_outputs.items()}
        return inputs, outputs

    features = {f["name"]: (f["dtype"], len(f["axes"])) for f in contract["features"]}
    labels = {f["name"] for f in contract["features"] if f["role"] != "input"}
    assert labels == {"labels", "example_weights"}
    passes = {h["name"]: ("float32", 0) for h in contract["hyperparameters"]}
    optimizer = {h["name"]: ("float32", 0) for h in contract["optimizer"]["hyperparameters"]}
    slots = {slot: ("resource", 0) for slot in SLOTS}
    seed = {"seed": ("int64", 1)}
    common = {name: ("float32", 0) for name in ("learning_rate", "weight_decay")}

    inputs, outputs = specs(loaded.gradients)
    assert inputs == {**features, **seed, **passes}
    gradients = {f"gradient/{v['name']}": v for v in contract["variables"]}
    assert set(outputs) == {"loss_sum", "weight_sum", "accuracy_sum", *gradients}
    for name, variable in gradients.items():
        assert outputs[name] == ("float32", variable["shape"])
    inputs, outputs = specs(loaded.update)
    assert inputs == {
        "variable": ("resource", 0),
        **slots,
        "gradient": ("float32", None),
        "gradient_scale": ("float32", 0),
        "iteration": ("int64", 0),
        **common,
        **optimizer,
    }
    assert outputs == {}
    inputs, outputs = specs(loaded.evaluate)
    assert inputs == features
    assert outputs["confusion"] == ("float32", [3, 3])
    assert {name for name, (_, shape) in outputs.items() if shape.rank == 0} == {
        "loss_sum",
        "weight_sum",
        "accuracy_sum",
    }
    inputs, outputs = specs(loaded.predict)
    assert inputs == {name: spec for name, spec in features.items() if name not in labels}
    assert outputs == {name: ("float32", [None, 3]) for name in ("logits", "probabilities")}
    inputs, outputs = specs(loaded.train_step)
    clip = {"clip_norm": ("float32", 0)}
    assert inputs == {**features, **seed, **passes, **common, **optimizer, **clip}
    assert set(outputs) == {
        *("loss_sum", "weight_sum", "accuracy_sum"),
        *("gradient_norm", "applied", "iterations"),
    }


def test_contract_describes_the_variables(exported):
    out, module = exported
    contract = json.loads((out / export.CONTRACT_FILE).read_text())
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    stored = {
        name[: -len(suffix)]: shape
        for name, shape in tf.train.list_variables(str(out / "variables" / "variables"))
        if name.endswith(suffix)
    }
    want = {contract["optimizer"]["iterations"]: [], contract["state"]: []}
    for v in contract["variables"]:
        want[v["name"]] = v["shape"]
        for slot in SLOTS:
            want[f"optimizer/{slot}/{v['name']}"] = v["shape"]
    assert stored == want
    decayed = {v["name"] for v in contract["variables"] if v["weight_decay"]}
    plain = {v["name"] for v in contract["variables"]} - decayed
    assert all(name.endswith(("/kernel", "/table")) for name in decayed)
    assert all(name.endswith(("/bias", "/scale")) for name in plain)
    foreign = [json.dumps(name) for v in contract["variables"] for name in v["foreign"]]
    assert len(foreign) == len(set(foreign))
    assert export.parameters(module) == sum(int(np.prod(v["shape"])) for v in contract["variables"])


@pytest.mark.parametrize("exported", ["first"], indirect=True)
def test_no_object_of_python_is_needed(exported, tmp_path):
    """Another process, without this package, loads the export and trains it."""
    out, module = exported
    _, packed, _ = batch()
    np.savez(tmp_path / "batch.npz", **packed)
    script = """
import json, sys
sys.modules["gorbit_export"] = None
import numpy as np, tensorflow as tf
out, data = sys.argv[1:3]
scalars, seed = map(json.loads, sys.argv[3:5])
loaded = tf.saved_model.load(out)
features = {k: tf.constant(v) for k, v in np.load(data).items()}
scalars = {k: tf.constant(v, tf.float32) for k, v in scalars.items()}
for _ in range(2):
    got = loaded.train_step(seed=tf.constant(seed, tf.int64), **features, **scalars)
    print(json.dumps({k: float(v) for k, v in got.items()}))
"""
    args = [str(out), str(tmp_path / "batch.npz"), json.dumps(STEP), json.dumps(SEED)]
    run = run_script(script, args)
    assert run.returncode == 0, run.stderr
    theirs = [json.loads(line) for line in run.stdout.splitlines()]
    for i, got in enumerate(theirs):
        want = step(module, packed)
        assert want["iterations"] == i + 1
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-6, err_msg=name)
    assert theirs[0]["loss_sum"] != theirs[1]["loss_sum"]


@pytest.mark.parametrize("side", ["right", "left"])
def test_serving_is_prediction_of_padded_rows(loaded, side):
    """The serving SavedModel with the export's variables answers as `predict` does."""
    examples = random_examples(5, SMALL.vocab_size, 3)
    length = 2 + max(len(ids) for ids, _ in examples)
    rows = {
        name: np.full((5, length), fill, np.int32)
        for name, fill in (("input_ids", 9), ("attention_mask", 0), ("token_type_ids", 1))
    }
    for i, (ids, types) in enumerate(examples):
        at = slice(0, len(ids)) if side == "right" else slice(length - len(ids), length)
        rows["input_ids"][i, at] = ids
        rows["attention_mask"][i, at] = 1
        rows["token_type_ids"][i, at] = types

    want = loaded[0].predict(**tensors(pack(examples, [[3, 0], [1, 2], [4]])))
    for folder in loaded:
        got = folder.signatures["serving_default"](**tensors(rows))
        assert set(got) == {"logits", "probabilities"}
        for name, value in got.items():
            np.testing.assert_allclose(value, want[name], rtol=1e-4, atol=1e-5)


def test_a_layer_is_one_function():
    """A deep model contains the graph of a layer as often as a shallow one."""

    def count(layer_count: int) -> int:
        c = config.BertConfig(8, layer_count, 2, 16, vocab_size=9, max_position_embeddings=8)
        module = export.Export(Classification(c, 2, "mean"), AdamW())
        graph = module.gradients.get_concrete_function().graph.as_graph_def()
        nodes = [node for f in graph.library.function for node in f.node_def]
        return sum(node.op == "Erf" for node in [*nodes, *graph.node])

    assert 0 < count(4) == count(2)


def test_only_contract_functions_are_saved_by_name(exported):
    out, _ = exported
    nodes = saved(out).meta_graphs[0].object_graph_def.nodes
    names = {c.node_id: c.local_name for node in nodes for c in node.children}
    functions = {names[i] for i, node in enumerate(nodes) if node.WhichOneof("kind") == "function"}
    assert functions - {"trace_0", "serving_default"} == {
        *("gradients", "update", "evaluate", "predict", "train_step")
    }


@pytest.fixture(scope="module")
def module() -> export.Export:
    """An export that was never written; `reset` undoes what a test did to it."""
    model = Classification(SMALL, 3, "mean")
    jitter(model.model)
    return export.Export(model, AdamW())


@pytest.fixture
def reset(module):
    before = [(v, v.numpy()) for v in module.variables if v.dtype != tf.string]
    yield
    for variable, value in before:
        variable.assign(value)


@pytest.mark.parametrize("clip_norm", [0.0, 1e-3, 1.0, 1e9])
def test_clipping(module, reset, clip_norm):
    _, packed, _ = batch()
    rates = {**NO_DROPOUT, "label_smoothing": 0.0}
    seed = tf.constant(SEED, tf.int64)
    sums = module.gradients(seed=seed, **tensors(packed), **scalars(**rates))
    mean = {
        path: sums[f"gradient/{path}"] / sums["weight_sum"] for path in module.variables_by_path
    }
    norm = tf.linalg.global_norm(list(mean.values()))
    got = step(module, packed, **rates, clip_norm=clip_norm)
    np.testing.assert_allclose(got["gradient_norm"], norm, rtol=1e-5)
    assert got["applied"]
    if clip_norm > 0:
        clipped, _ = tf.clip_by_global_norm(list(mean.values()), clip_norm)
        mean = dict(zip(mean, clipped))
    after = state(module)
    for path, gradient in mean.items():
        got, want = after[f"optimizer/m/{path}"], 0.1 * gradient.numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6 * np.abs(want).max())


def test_gradients_have_no_rows_but_those_declared(module):
    _, packed, _ = batch()
    rates = {**NO_DROPOUT, "label_smoothing": 0.0}
    sums = module.gradients(seed=tf.constant(SEED, tf.int64), **tensors(packed), **scalars(**rates))
    declared = {path: rows for path in module.variables_by_path if (rows := module.task.rows(path))}
    assert declared == {"model/encoder/embeddings/word/table": "input_ids"}
    for path, feature in declared.items():
        gradient = sums[f"gradient/{path}"].numpy()
        others = np.setdiff1d(np.arange(gradient.shape[0]), packed[feature])
        assert others.size
        assert not gradient[others].any()


@pytest.mark.parametrize("fault", ["weights of 0", "no examples", "infinite weight", "label"])
def test_a_step_that_is_not_finite_changes_nothing(module, reset, fault):
    _, packed, _ = batch()
    step(module, packed)
    before = state(module)
    if fault == "weights of 0":
        packed["example_weights"][:] = 0
    elif fault == "no examples":
        for name in ("cls_positions", "labels", "example_weights"):
            packed[name] = packed[name][:0]
    elif fault == "infinite weight":
        packed["example_weights"][1] = np.inf
    else:
        packed["labels"][2] = 3
    got = step(module, packed)
    assert not got["applied"]
    assert got["iterations"] == 1
    for name, value in state(module).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    _, packed, _ = batch()
    assert step(module, packed)["applied"]


def test_examples_of_no_weight_may_hold_anything(module):
    _, packed, _ = batch()
    packed["example_weights"][2] = 0
    want = {name: value.numpy() for name, value in module.evaluate(**tensors(packed)).items()}
    packed["labels"][2] = -1
    for name, value in module.evaluate(**tensors(packed)).items():
        np.testing.assert_array_equal(value, want[name], err_msg=name)
    assert np.isfinite(want["loss_sum"])


class Bag(task.Task):
    """A very small second architecture: a mean of word vectors, with another head and layout."""

    name = "bag"

    def __init__(self):
        self.model = tf.Module()
        self.model.words = layers.Embedding(20, 4, 0.1, 0, "words")
        self.model.heads = {"b": [layers.Dense(4, 2, 0.1, 0, "head")], "a": tf.Variable([0.5, 1])}
        self.model.again = self.model.words.table
        self.features = [
            task.Feature("ids", tf.int32, ("examples", "length")),
            task.Feature("labels", tf.int32, ("examples",), label=True),
        ]
        self.hyperparameters = [task.Hyperparameter("temperature", 1.0, "of the logits", 1e-3)]

    def description(self):
        return {"architecture": "bag", "flops": {"per_token": 0}}

    def _logits(self, features):
        shape = tf.shape(features["ids"])
        words = self.model.words(tf.reshape(features["ids"], [-1]))
        mean = tf.reduce_mean(tf.reshape(words, [shape[0], shape[1], 4]), 1)
        return self.model.heads["b"][0](mean) * self.model.heads["a"]

    def _sums(self, logits, features):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(features["labels"], logits)
        count = tf.cast(tf.size(losses), tf.float32)
        return {"loss_sum": tf.reduce_sum(losses), "weight_sum": count}

    def train_sums(self, features, hyperparameters, random):
        assert set(features) == {"ids", "labels"}
        assert set(hyperparameters) == {"temperature"}
        return self._sums(self._logits(features) / hyperparameters["temperature"], features)

    def evaluate_sums(self, features):
        return self._sums(self._logits(features), features)

    def predict(self, features):
        return {"logits": self._logits(features)}

    def serving(self):
        spec = tf.TensorSpec([None, None], tf.int32, "ids")
        return [spec], lambda ids: self.predict({"ids": ids})


def test_another_architecture_is_one_task(tmp_path):
    module = export.write(Bag(), AdamW(), tmp_path / "bag")
    assert list(module.variables_by_path) == [
        "model/again",
        "model/heads/a",
        "model/heads/b/0/bias",
        "model/heads/b/0/kernel",
    ]
    contract = json.loads((tmp_path / "bag" / export.CONTRACT_FILE).read_text())
    assert contract["hyperparameters"] == [
        {"name": "temperature", "default": 1.0, "help": "of the logits", "minimum": 1e-3}
    ]
    foreign = {v["name"]: v["foreign"] for v in contract["variables"]}
    assert foreign["model/again"] == ["words.weight"]
    assert foreign["model/heads/a"] == []
    loaded = tf.saved_model.load(str(tmp_path / "bag"))
    features = {"ids": tf.constant([[1, 2], [3, 4]]), "labels": tf.constant([0, 1])}
    rates = {**{k: STEP[k] for k in STEP if "dropout" not in k}, "temperature": 2.0}
    del rates["label_smoothing"]
    for i in range(3):
        got = loaded.train_step(**features, seed=tf.constant([0, i], tf.int64), **scalars(**rates))
    assert got["applied"]
    assert got["iterations"] == 3


class Running(Bag):
    """A bag with running statistics, frozen variables and metrics of its own."""

    metrics = (task.Metric("error", "lower"), task.Metric("share"))
    results_of = ("metric/error/squares", "metric/error/count")
    best = ("error", "lower")
    additive = False

    def __init__(self) -> None:
        super().__init__()
        self.model.mean = tf.Variable([0.0, 1.0], trainable=False)
        self.model.table = tf.Variable([3, 4], trainable=False, dtype=tf.int64)
        self.features[0] = task.Feature(
            "ids", tf.int32, ("examples", "length"), shape=(None, 2), below=20, pad=1
        )
        self.outputs = (task.Output("logits", ("examples", "classes"), "logits", "labels"),)

    def train_sums(self, features, hyperparameters, random):
        logits = self._logits(features)
        mean = 0.5 * self.model.mean + 0.5 * tf.reduce_mean(logits, 0)
        return {**self._sums(logits, features), "state/model/mean": mean}

    def evaluate_sums(self, features):
        logits = self._logits(features) - self.model.mean + tf.cast(self.model.table, tf.float32)
        sums = self._sums(logits, features)
        sums["metric/error/squares"] = tf.reduce_sum(tf.square(logits), 0)
        sums["metric/error/count"] = sums["weight_sum"]
        return sums

    def results(self, sums):
        squares, count = (sums[name] for name in self.results_of)
        return {"error": tf.reduce_sum(squares) / count, "share": squares[0] / squares[1]}

    def learning_rate(self, path):
        return 0.1 if path == "model/again" else 1.0

    def decays(self, path):
        return 0.5 if path.endswith("kernel") else False


class Descent(optimizers.Rule):
    """Gradient descent with a step count of its own."""

    function = "update_descent"
    slots = ("steps",)

    def initial(self, slot):
        return 1.0

    def slot_shape(self, slot, shape):
        return ()

    def update(self, variable, slots, gradient, gradient_scale, iteration, learning_rate, *rest):
        tf.raw_ops.AssignAddVariableOp(resource=slots["steps"], value=tf.constant(1.0))
        tf.raw_ops.AssignSubVariableOp(
            resource=variable, value=gradient * gradient_scale * learning_rate
        )


class Mixed(AdamW):
    """Descent for matrices, Adam for the rest."""

    name = "mixed"

    def __init__(self) -> None:
        super().__init__()
        self.descent = Descent()

    def rule(self, path, shape):
        return self.descent if len(shape) == 2 else self


def test_states_rules_and_metrics(tmp_path):
    """States move where the step is applied, each variable by its own rule and factors."""
    model = Running()
    module = export.write(model, Mixed(), tmp_path / "out")
    contract = json.loads((tmp_path / "out" / export.CONTRACT_FILE).read_text())
    assert contract["states"] == [
        {"name": "model/mean", "shape": [2], "dtype": "float32", "updated": True},
        {"name": "model/table", "shape": [2], "dtype": "int64", "updated": False},
    ]
    assert contract["updates"] == {
        "update": {
            "slots": [{"name": "m", "initial": 0.0}, {"name": "v", "initial": 0.0}],
            "elementwise": True,
        },
        "update_descent": {"slots": [{"name": "steps", "initial": 1.0}]},
    }
    variables = {v["name"]: v for v in contract["variables"]}
    assert set(variables) == set(module.variables_by_path)
    table = variables["model/again"]
    assert (table["update"], table["slot_shapes"]) == ("update_descent", {"steps": []})
    assert table["learning_rate"] == 0.1
    kernel, bias = variables["model/heads/b/0/kernel"], variables["model/heads/b/0/bias"]
    assert (kernel["weight_decay"], bias["weight_decay"]) == (0.5, False)
    assert (bias["update"], "slot_shapes" in bias) == ("update", False)
    assert contract["metrics"] == [
        {"name": "error", "better": "lower"},
        {"name": "share", "better": ""},
    ]
    assert contract["results"] == ["metric/error/squares", "metric/error/count"]
    assert contract["best"] == {"metric": "error", "better": "lower"}
    assert (contract["input"], contract["additive"]) == ("dense", False)
    ids = contract["features"][0]
    assert (ids["shape"], ids["role"], ids["below"], ids["pad"]) == ([None, 2], "input", 20, 1)
    (output,) = contract["outputs"]
    assert (output["axes"], output["of"]) == (["examples", "classes"], "labels")

    loaded = tf.saved_model.load(str(tmp_path / "out"))
    features = {"ids": tf.constant([[1, 2], [3, 4], [5, 6]]), "labels": tf.constant([0, 1, 1])}
    rates = {k: STEP[k] for k in STEP if "dropout" not in k and "smoothing" not in k}
    seed = tf.constant([1, 2], tf.int64)
    logits = model._logits(features).numpy()
    parts = loaded.gradients(**features, seed=seed, temperature=1.0)
    want = 0.5 * np.array([0, 1]) + 0.5 * logits.mean(0)
    np.testing.assert_allclose(parts["state/model/mean"] / 3, want - [0, 1], atol=1e-6)
    before = loaded.model.again.numpy()
    step = loaded.train_step(**features, seed=seed, **scalars(**rates, temperature=1.0))
    assert not any(name.startswith("state/") for name in step)
    np.testing.assert_allclose(loaded.model.mean.numpy(), want, atol=1e-6)
    assert loaded.optimizer.steps.model.again.numpy() == 2
    scale = min(1, 1 / float(step["gradient_norm"])) / 3 * rates["learning_rate"]
    moved = before - 0.1 * scale * parts["gradient/model/again"].numpy()
    np.testing.assert_allclose(loaded.model.again.numpy(), moved, atol=1e-7)

    features["ids"] = tf.fill([3, 2], 0)
    loaded.model.again.assign(tf.fill([20, 4], float("nan")))
    step = loaded.train_step(**features, seed=seed, **scalars(**rates, temperature=1.0))
    assert not step["applied"]
    np.testing.assert_allclose(loaded.model.mean.numpy(), want, atol=1e-6)

    sums = tf.constant([2.0, 4.0]), tf.constant(3.0)
    got = loaded.results(sum_0=sums[0], sum_1=sums[1])
    assert {name: float(v) for name, v in got.items()} == {"error": 2.0, "share": 0.5}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": tf.float64}, "feature x is float64; expected one of uint8, int32"),
        ({"role": "target"}, "feature x has the role 'target'; expected one of input"),
        ({"shape": (None, 3)}, "feature x has 1 axes and a shape of 2; expected as many"),
    ],
)
def test_features_without_meaning_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        task.Feature(**{"name": "x", "dtype": tf.int32, "axes": ("examples",), **fields})


def test_initial_weights_are_a_function_of_the_seed():
    def weights(seed: int, layer_count: int = 2) -> dict:
        c = config.BertConfig(16, layer_count, 2, 32, vocab_size=300, max_position_embeddings=8)
        module = export.Export(Classification(c, 2, "first", seed), AdamW())
        return {path: v.numpy() for path, v in module.variables_by_path.items()}

    first, again, other, deeper = weights(1), weights(1), weights(2), weights(1, 3)
    drawn = [path for path in first if path.endswith(("kernel", "table"))]
    for path, value in first.items():
        np.testing.assert_array_equal(value, again[path])
        np.testing.assert_array_equal(value, deeper[path])
        assert np.any(value != other[path]) == (path in drawn)
    sample = [first[path].ravel()[:16] for path in drawn]
    assert len({s.tobytes() for s in sample}) == len(sample), "two variables start out equal"
    table = first["model/encoder/embeddings/word/table"]
    assert abs(table.mean()) < 1e-3
    np.testing.assert_allclose(table.std(), 0.02, rtol=0.03)
