"""Exports whose passes XLA compiles."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import NO_DROPOUT, SMALL, batch, jitter, needs_narrow_products, scalars, tensors
from tensorflow.core.protobuf import saved_model_pb2

from gorbit_export import __main__ as command
from gorbit_export import config, export
from gorbit_export.classifier import Classification
from gorbit_export.errors import UsageError
from gorbit_export.optimizers import SGD, AdamW

RATES = {"hidden_dropout": 0.1, "attention_dropout": 0.2, "classifier_dropout": 0.1}


def test_gradients_are_the_same_with_the_same_random_numbers():
    config = dataclasses.replace(SMALL, num_hidden_layers=1)
    values = {**tensors(batch()[1]), **scalars(**RATES, label_smoothing=0.1)}
    sums = []
    for xla in (False, True):
        model = Classification(config, 3, "mean")
        jitter(model.model)
        module = export.Export(model, AdamW(), xla)
        sums.append(module.gradients(seed=tf.constant([3, 4], tf.int64), **values))
    want, got = sums
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_export_says_what_is_compiled(tmp_path):
    size, out = tmp_path / "size.json", tmp_path / "graph"
    size.write_text(json.dumps(SMALL.description()))
    args = ["bert-classifier", "--config", str(size), "--xla", "--out", str(out)]
    assert command.main(args) == 0
    assert json.loads((out / export.CONTRACT_FILE).read_text())["xla"] is True

    def compiled(folder):
        model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
        functions = model.meta_graphs[0].graph_def.library.function
        names = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
        return sorted(name.split("_")[3] for name in names)

    assert compiled(out) == ["evaluate", "gradients", "predict"]
    # Requests can have any shape.
    assert compiled(out / "serving") == []


class Worded(SGD):
    """Passes the gradient through text, which XLA does not know."""

    def update(self, variable, slots, gradient, *rest):
        words = tf.strings.as_string(gradient)
        super().update(variable, slots, tf.strings.to_number(words), *rest)


def test_an_update_that_cannot_be_compiled_is_refused(tmp_path):
    model = Classification(dataclasses.replace(SMALL, num_hidden_layers=1), 2, "mean")
    with pytest.raises(
        UsageError, match=r"^XLA cannot compile update .* sgd: it has no AsString; .*--xla"
    ):
        export.write(model, Worded(), tmp_path / "graph", xla=True)
    assert not list(tmp_path.iterdir())
    export.write(model, Worded(), tmp_path / "graph")


FIXED = {"rows": 5, "length": 48, "examples": 8}


def fixed(task: Classification, features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Fills up features to FIXED, with rows of padding and examples of weight 0."""
    out = {}
    for feature in task.features:
        value = features[feature.name]
        out[feature.name] = np.zeros([FIXED[axis] for axis in feature.axes], value.dtype)
        out[feature.name][tuple(map(slice, value.shape))] = value
    row, column = divmod(features["cls_positions"], features["input_ids"].shape[1])
    out["cls_positions"][: len(row)] = row * FIXED["length"] + column
    return out


@pytest.mark.parametrize(
    ("precision", "limit"),
    # TensorFlow rounds to bf16 after each operation, XLA after several.
    [("float32", 1e-5), pytest.param("bf16", 6e-2, marks=needs_narrow_products)],
)
def test_fixed_shapes_compile_and_padding_counts_for_nothing(precision, limit):
    """What a TPU needs of tiny: gradients, updates and evaluation of fixed shapes, by XLA."""
    # One layer: each is a call of the same function, and XLA compiles each.
    changes = {"num_hidden_layers": 1, "vocab_size": 50, "max_position_embeddings": 16}
    size = dataclasses.replace(config.load("tiny"), **changes)
    features = batch()[1] | {"labels": np.arange(6, dtype=np.int32) % 2}
    rates = scalars(**NO_DROPOUT, label_smoothing=0.1)
    update = scalars(learning_rate=1e-3, weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-3)

    def passes(xla: bool) -> dict[str, np.ndarray]:
        task = Classification(size, 2, "first", precision=precision)
        jitter(task.model)
        module = export.Export(task, AdamW(), False)
        fed = tensors(fixed(task, features) if xla else features)

        def updated(gradients: dict[str, tf.Tensor]) -> None:
            for path, variable in module.variables_by_path.items():
                slots = {name: slot.handle for name, slot in module._layout.slots[path].items()}
                module.update(
                    variable=variable.handle,
                    gradient=gradients[export.GRADIENT_PREFIX + path],
                    gradient_scale=tf.constant(0.1),
                    iteration=tf.constant(1, tf.int64),
                    **slots,
                    **update,
                )

        def compiled(body):
            return tf.function(body, jit_compile=xla, autograph=False)

        out = compiled(lambda **values: module.evaluate(**values))(**fed)
        out = {f"evaluate/{name}": value for name, value in out.items()}
        seed = tf.constant([3, 4], tf.int64)
        gradients = compiled(lambda **values: module.gradients(**values))(seed=seed, **fed, **rates)
        compiled(updated)(gradients)
        out |= {**gradients, **module.variables_by_path}
        return {name: value.numpy().astype(np.float64) for name, value in out.items()}

    want, got = passes(False), passes(True)
    assert want.keys() == got.keys()
    for name, value in want.items():
        if name.startswith("evaluate/each/"):  # one of each example, those that fill up included
            got[name] = got[name][: len(value)]
        assert got[name].shape == value.shape, name
        # The gradient of a key's bias is 0 but for rounding.
        scale = max(np.linalg.norm(value), 1.0)
        assert np.linalg.norm(got[name] - value) <= limit * scale, name
