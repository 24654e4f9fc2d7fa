"""Trains the network of examples/digits with gorbit and with Keras' fit, in turn.

The results are in docs/measurements/keras.md.

Usage: python bench/digits.py --data digits --seeds 3 --epochs 15

--data is a folder with train.csv and dev.csv of examples/digits/data.py. Both programs start with
the same weights, which depend on the seed. They take batches of 32, each in its own order, and keep
Adam's learning rate at 1e-3. A time is that of the training alone: from the first step to the last,
with an evaluation after each epoch, and without the start of the program.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pathlib
import sys
import tempfile

from harness import fit
from harness.fit import ROOT

MODEL = ROOT / "examples" / "digits" / "model.py"


def gorbit(data: pathlib.Path, work: pathlib.Path, seed: int, epochs: int) -> dict[str, float]:
    """Trains with gorbit and returns the accuracy after the last epoch and the seconds."""
    records = work / "records"
    if not records.exists():
        schema = ROOT / "examples" / "digits" / "schema.yaml"
        tables = ("--train", data / "train.csv", "--dev", data / "dev.csv")
        fit.run(fit.GORBIT, "convert", "--schema", schema, *tables, "--out", records)
    graph, folder = work / f"graph{seed}", work / f"run{seed}"
    last, seconds = fit.gorbit((MODEL,), records, graph, folder, seed, epochs)
    return {"accuracy": last["accuracy"], "seconds": seconds}


def keras_fit(data: pathlib.Path, seed: int, epochs: int) -> dict[str, float]:
    """Trains with Keras in this process; see gorbit."""
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras
    import numpy as np
    from gorbit_export.models import userfile

    keras.utils.set_random_seed(seed)
    made = userfile.call(userfile.load(str(MODEL)), {}, str(MODEL))

    def table(split: str) -> tuple[np.ndarray, np.ndarray]:
        with open(data / f"{split}.csv", encoding="utf-8") as file:
            rows = np.array(list(csv.reader(file))[1:], dtype="int64")
        return rows[:, :-1].astype("uint8").reshape(-1, 8, 8, 1), rows[:, -1].astype("int32")

    train, dev = table("train"), table("dev")
    made.model.compile(optimizer=made.optimizer, loss=made.loss, metrics=made.metrics)
    history, seconds = fit.keras_fit(
        made.model,
        *train,
        batch_size=32,
        epochs=epochs,
        validation_data=dev,
        validation_batch_size=32,
    )
    return {"accuracy": history["val_accuracy"][-1], "seconds": seconds}


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of the tables")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--keras-seed", type=int, help=argparse.SUPPRESS)  # the part of a process
    args = parser.parse_args()
    args.data = args.data.resolve()
    if args.keras_seed is not None:
        print(json.dumps(keras_fit(args.data, args.keras_seed, args.epochs)))
        return
    results: dict[str, list[dict[str, float]]] = {"gorbit": [], "Keras fit": []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, args.seeds + 1):
            results["gorbit"].append(gorbit(args.data, pathlib.Path(folder), seed, args.epochs))
            own = (sys.executable, __file__, "--data", args.data, "--epochs", str(args.epochs))
            results["Keras fit"].append(fit.result_of(*own, "--keras-seed", str(seed)))
            for name, all_ in results.items():
                print(f"seed {seed}: {name}: {all_[-1]}", flush=True)
    seeds = range(1, args.seeds + 1)
    print(f"| | {' | '.join(f'seed {s}' for s in seeds)} | mean | seconds |")
    print("| --- |" + " --- |" * (args.seeds + 2))
    for name, all_ in results.items():
        accuracy = [r["accuracy"] for r in all_]
        cells = [f"{a:.3f}" for a in [*accuracy, sum(accuracy) / len(accuracy)]]
        spent = sorted(r["seconds"] for r in all_)[len(all_) // 2]
        print(f"| {name} | {' | '.join(cells)} | {spent:.1f} |")


if __name__ == "__main__":
    main()
