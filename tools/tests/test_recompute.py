"""Layers that the backward pass recomputes: the same numbers with less memory."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
from helpers import SMALL, batch, jitter, run_script, scalars, tensors

from gorbit_export import __main__ as command
from gorbit_export.classifier import Classification
from gorbit_export.export import CONTRACT_FILE, Export
from gorbit_export.optimizers import AdamW

RATES = {"hidden_dropout": 0.1, "attention_dropout": 0.2, "classifier_dropout": 0.3}


def sums(recompute: str, rates: dict) -> dict:
    task = Classification(SMALL, 3, "mean", recompute=recompute)
    jitter(task.model)
    _, packed, _ = batch()
    got = Export(task, AdamW()).gradients(
        **tensors(packed),
        seed=tf.constant([1, 2], tf.int64),
        **scalars(**rates, label_smoothing=0.1),
    )
    return {name: value.numpy() for name, value in got.items()}


def test_gradients_are_the_same_with_dropout():
    want, got = sums("none", RATES), sums("layers", RATES)
    assert set(got) == set(want)
    scale = max(np.abs(v).max() for name, v in want.items() if name.startswith("gradient/"))
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6 * scale, err_msg=name)
    other = sums("layers", {**RATES, "hidden_dropout": 0.2})
    assert other["loss_sum"] != want["loss_sum"], "dropout is off"


PEAK = """
import re, sys
import numpy as np, tensorflow as tf
from gorbit_export import classifier, config, export, optimizers

# What is computed at the same time is in memory at the same time: on a busy machine that differs.
tf.config.threading.set_inter_op_parallelism_threads(1)

def megabytes(field):
    text = open("/proc/self/status").read()
    return int(re.search(field + r":\\s+(\\d+)", text)[1]) / 1024

length = 128
c = config.BertConfig(64, 8, 4, 256, vocab_size=50, max_position_embeddings=length)
task = classifier.Classification(c, 2, "mean", recompute=sys.argv[1])
module = export.Export(task, optimizers.AdamW())
scalars = {h.name: tf.constant(h.default, tf.float32) for h in task.hyperparameters}
gradients = module.gradients.get_concrete_function()
seed = tf.constant([1, 2], tf.int64)

def compute(rows):
    shape = (rows, length)
    features = {
        "input_ids": np.ones(shape),
        "type_ids": np.zeros(shape),
        "sequence_ids": np.ones(shape),
        "position_ids": np.tile(np.arange(length), (rows, 1)),
        "cls_positions": np.arange(rows) * length,
        "labels": np.arange(rows) % 2,
    }
    features = {name: tf.constant(value, tf.int32) for name, value in features.items()}
    gradients(**features, example_weights=tf.ones([rows]), seed=seed, **scalars)

compute(1)  # prepares the graph, whose memory is not that of the layers
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")  # sets VmHWM to VmRSS, see proc(5)
before = megabytes("VmRSS")
compute(32)
print(megabytes("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_gradients_take_less_memory():
    """TensorFlow's graph optimizer did not merge the two computations of a layer.

    Each computation runs in a process of its own, because a process keeps memory it has freed. It
    takes 0.55 to 0.7 of the memory, which depends on the order in which threads run, and all of it
    if computations are merged.
    """

    def peak(recompute: str) -> float:
        folder = str(pathlib.Path(command.__file__).parents[1])
        run = run_script(PEAK, [recompute], {**os.environ, "PYTHONPATH": folder})
        assert run.returncode == 0, run.stderr
        return float(run.stdout)

    none, layers = peak("none"), peak("layers")
    assert layers < 0.8 * none, f"{layers:.0f} MiB, and {none:.0f} MiB without"


@pytest.mark.parametrize("recompute", ["none", "layers"])
def test_the_contract_names_it(only_contract, tmp_path, recompute):
    size = tmp_path / "size.json"
    size.write_text(json.dumps(SMALL.description()))
    out = tmp_path / "graph"
    args = ["--config", str(size), "--out", str(out)]
    args += ["--recompute", recompute] if recompute != "none" else []
    assert command.main(["bert-classifier", *args]) == 0
    assert json.loads((out / CONTRACT_FILE).read_text())["model"]["recompute"] == recompute


def test_another_kind_is_refused(capsys):
    with pytest.raises(ValueError, match="recompute is 'all'; expected none or layers"):
        Classification(SMALL, 3, "mean", recompute="all")
    with pytest.raises(SystemExit) as exit:
        command.main(
            ["bert-classifier", "--config", "tiny", "--out", "x", "--recompute", "attention"]
        )
    assert exit.value.code == 2
    assert "invalid choice: 'attention'" in capsys.readouterr().err
