"""Fine-tunes with the Hugging Face Trainer on gorbit's records.

The results are rows of docs/measurements/benchmarks.md.

Usage: python bench/finetune_hf.py --data data/mrpc --epochs 3 --learning-rate 2e-4 --seed 1

It reads the token ids of the splits train and dev from a folder of gorbit convert, starts with the
demo's weights, and prints accuracy and F1 on dev after each epoch and at the end; of a regression
Pearson's and Spearman's correlation, and of labels of tokens the accuracy. The task is that of the
data. It also prints the examples per second of the training.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import peers
from harness import cli, machine, plan, venvs
from peers.base import BENCH, ROOT


def main() -> int:
    """Reads the arguments and returns the exit code of the training."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", required=True, help="folder that gorbit convert wrote")
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--learning-rate", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument(
        "--weights",
        default=os.path.join(ROOT, ".cache", "minilm"),
        help="folder of pretrained weights (default: the demo's)",
    )
    p.add_argument("--venvs", metavar="DIR", help="use the environment DIR/hf")
    args = p.parse_args()
    if args.venvs:
        venv = venvs.existing(args.venvs, "hf")
    else:
        home, files = cli.requirements("hf", False)
        venv = venvs.install(os.path.join(BENCH, ".work", "venvs"), home, files, cli.say)
    if venv.error:
        sys.exit(f"finetune_hf: {venv.error}")
    with open(os.path.join(args.data, "manifest.json")) as file:
        manifest = json.load(file)
    task = manifest["task"]
    with tempfile.TemporaryDirectory() as scratch:
        for split in ("train", "dev"):
            with open(os.path.join(scratch, f"{split}.json"), "w") as file:
                json.dump(columns(args.data, split, task), file)
        options = {"weights": args.weights, "epochs": str(args.epochs)}
        options |= {"learning_rate": str(args.learning_rate), "seed": str(args.seed)}
        options |= {"task": task, "labels": str(len(manifest.get("labels", [])) or 1)}
        job = plan.Job("quality", data=scratch, scratch=scratch, options=options)
        command = peers.QUALITY.command(job, venv.python)
        return subprocess.run(command, env=machine.environment()).returncode


def columns(data: str, split: str, task: str = "") -> dict[str, list]:
    """Returns the examples of a split as columns of lists."""
    import tensorflow as tf

    files = sorted(glob.glob(os.path.join(data, f"{split}-*.tfrecord")))
    if not files:
        sys.exit(f"finetune_hf: {data} has no files of the split {split}")
    found: dict[str, list] = {}
    for record in tf.data.TFRecordDataset(files).as_numpy_iterator():
        feature = tf.train.Example.FromString(record).features.feature
        ids = list(feature["input_ids"].int64_list.value)
        found.setdefault("input_ids", []).append(ids)
        found.setdefault("attention_mask", []).append([1] * len(ids))
        found.setdefault("token_type_ids", []).append(list(feature["segment_ids"].int64_list.value))
        if task == "mlm":  # the tokens themselves
            continue
        labels = found.setdefault("labels", [])
        if task == "regression":
            labels.append(feature["label"].float_list.value[0])
        elif task == "tokens":  # -100 is not counted there
            labels.append([-100 if v < 0 else v for v in feature["label_ids"].int64_list.value])
        else:
            labels.append(feature["label_ids"].int64_list.value[0])
    return found


if __name__ == "__main__":
    sys.exit(main())
