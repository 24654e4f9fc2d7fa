"""Exports whose passes XLA compiles."""

import dataclasses
import json

import numpy as np
import tensorflow as tf
from helpers import SMALL, batch, jitter, scalars, tensors
from tensorflow.core.protobuf import saved_model_pb2

from gorbit_export import __main__ as command
from gorbit_export import export
from gorbit_export.classifier import Classification
from gorbit_export.optimizers import AdamW

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
    size.write_text(json.dumps(dataclasses.asdict(SMALL)))
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
