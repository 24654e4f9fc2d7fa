"""A training with gorbit and one with Keras' fit that begin with the same weights (bench/*.py)."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
GORBIT = ROOT / "bin" / "gorbit"


def run(*command: str | os.PathLike[str]) -> str:
    """Runs a command and returns its output. A failure ends the program with that output."""
    done = subprocess.run(
        [os.fspath(word) for word in command],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def gorbit(
    model: tuple[str | os.PathLike[str], ...],
    data: pathlib.Path,
    graph: pathlib.Path,
    folder: pathlib.Path,
    seed: int,
    epochs: int,
) -> tuple[dict[str, Any], float]:
    """Trains with gorbit, with Adam's 1e-3 throughout.

    Args:
        model: the file of the model, and flags of its export.
        data: the folder of the records.
        graph: the folder of the export, which is made.
        folder: the folder of the run, which is made.
        seed: of the weights and of the order.
        epochs: how long to train.

    Returns:
        The outputs of the last evaluation, and the seconds from the first step to the last.
    """
    export = (sys.executable, "-m", "gorbit_export", "keras")
    run(*export, *model, "--seed", str(seed), "--out", graph)
    flags = ("--epochs", str(epochs), "--learning-rate", "1e-3", "--schedule", "constant")
    flags += ("--warmup-ratio", "0", "--set", "optimizer.clip_norm=0")  # as Keras without more
    flags += ("--seed", str(seed), "--progress", "off")
    out = run(GORBIT, "train", "--graph", graph, "--data", data, "--run", folder, *flags)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = [line["outputs"] for line in lines if line["phase"] == "eval"][-1]
    seconds = re.search(r"msg=trained seconds=([\d.]+)", out)
    if seconds is None:
        sys.exit(f"gorbit did not say how long it trained:\n{out}")
    return last, float(seconds[1])


def keras_fit(model: Any, *args: Any, **options: Any) -> tuple[dict[str, list[float]], float]:
    """Calls a compiled model's fit.

    Returns:
        Its history, and the seconds from the end of its first step, after the tracing.
    """
    import keras

    began: list[float] = []

    class FirstStep(keras.callbacks.Callback):
        """Records when the first step is done, after tracing."""

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            """Called after each step."""
            if not began:
                began.append(time.perf_counter())

    history = model.fit(*args, verbose=0, callbacks=[FirstStep()], **options)
    return history.history, time.perf_counter() - began[0]


def result_of(*command: str | os.PathLike[str]) -> dict[str, float]:
    """Runs the part of a script that is a process of its own, and returns the object it prints."""
    return json.loads(next(line for line in run(*command).splitlines() if line.startswith("{")))
