"""The Python code in docs/ runs as printed."""

import json
import pathlib
import re

import pytest
import tensorflow as tf

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    """Returns the Python blocks of a page."""
    return re.findall(
        r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE
    )


def test_the_model_of_the_guide_keeps_to_the_rules():
    from gorbit_export import export
    from gorbit_export.models import task

    (source,) = blocks("guide/keras.md")
    names: dict = {}
    exec(compile(source, "keras.md", "exec"), names)
    made = task.ModelTask(names["build"](width=2))
    made.inspect(export.Export(made, made.optimizer))
    assert made.additive is False
    assert "model/norm1/moving_mean" in made.named.variables


def test_the_contracts_architecture_is_exported_and_learns(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (source,) = [block for block in blocks("reference/contract.md") if "task.Task" in block]
    exec(compile(source, "contract.md", "exec"), {"__name__": "__main__"})
    contract = json.loads(
        (tmp_path / "exports" / "regression" / "assets" / "gorbit.json").read_text()
    )
    assert contract["task"] == "regression"
    assert [feature["name"] for feature in contract["features"]] == ["ids", "values"]
    loaded = tf.saved_model.load("exports/regression")
    batch = {"ids": tf.constant([[1, 2], [3, 4]]), "values": tf.constant([1.0, -1.0])}
    rates = {"learning_rate": 0.05, "weight_decay": 0.1, "dropout": 0.0, "clip_norm": 1.0}
    rates |= {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8}
    losses = []
    for i in range(30):
        step = loaded.train_step(
            **batch,
            seed=tf.constant([0, i], tf.int64),
            **{name: tf.constant(rate, tf.float32) for name, rate in rates.items()},
        )
        losses.append(float(step["loss_sum"]))
    assert losses[-1] < losses[0] / 10
