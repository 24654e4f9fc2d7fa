"""Runs one program of gorbit with other releases of TensorFlow.

    make check-tf
    make check-tf RELEASES="--only 2.21"

For each release, an environment of its own has the wheel. Its Python exports a BERT and a Keras
model; bin/gorbit, which was built for .venv's release, loads the wheel's library in the place of
its own. It trains, stops, trains on, evaluates, predicts and exports; Python restores the
checkpoint, compares every variable and writes one that gorbit begins a run with. Losses and
probabilities are compared with those of .venv's release. The nightly build is the newest of the day
on which its environment was made: without .cache/check-tf/nightly, it is fetched again. The exit
code is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from check_tpu.common import CACHE, ROOT, TOOLS, CheckError, command, ended, environment, say

REQUIREMENTS = pathlib.Path(__file__).parent / "requirements"

STEPS = 20
"""Steps of a training, which stops after half of them."""
TEXTS = ("A gripping, beautifully shot film.", "Badly written, tedious, and far too long.")
NIGHTLY = "nightly"
TOLERANCE = 1e-4
"""Relative difference of two releases' losses and probabilities at the end."""

_EXPORTER = """
import re, runpy
from importlib import metadata
from gorbit_export import release
release.NEWEST = re.match(r"2[.][0-9]+", metadata.version("tf_nightly"))[0]
runpy.run_module("gorbit_export", run_name="__main__", alter_sys=True)
"""
"""The exporter with a nightly, which it refuses otherwise as later than all known releases."""
_ROUND_TRIP = """
import sys
import tensorflow as tf
graph, prefix, out = sys.argv[1:]
root = tf.saved_model.load(graph)
checkpoint = tf.train.Checkpoint(root=root)
checkpoint.restore(prefix).assert_consumed()
written = tf.train.Checkpoint(root=root).write(out)
reader, again = tf.train.load_checkpoint(prefix), tf.train.load_checkpoint(written)
left_out = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE")
names = [n for n in reader.get_variable_to_shape_map() if n not in left_out]
for name in names:
    a, b = reader.get_tensor(name), again.get_tensor(name)
    same = a == b if isinstance(a, bytes) else a.tobytes() == b.tobytes()
    if not same:
        sys.exit(f"{name} is another one after Python restored and wrote it")
"""


@dataclasses.dataclass(frozen=True)
class Release:
    """A release of TensorFlow.

    Attributes:
        name: such as 2.21, or nightly.
        python: the interpreter that has it.
    """

    name: str
    python: str

    def environ(self) -> dict[str, str]:
        """Returns the environment in which programs use the release."""
        ask = "import sysconfig; print(sysconfig.get_path('platlib'))"
        packages = command([self.python, "-c", ask], 60).strip()
        library = f"{packages}/tensorflow"
        return {**os.environ, "LD_LIBRARY_PATH": library, "PYTHONPATH": str(TOOLS)}

    def program(self, name: str) -> list[str]:
        """Returns the command that starts a program of gorbit."""
        return [str(ROOT / "bin" / name)]

    def exporter(self) -> list[str]:
        """Returns the command that starts the exporter, without its interpreter."""
        return ["-c", _EXPORTER] if self.name == NIGHTLY else ["-m", "gorbit_export"]


@dataclasses.dataclass
class Results:
    """What a release computed: numbers by what they are."""

    version: str
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)


def gorbit(release: Release, *args: str, program: str = "gorbit") -> str:
    """Runs gorbit with a release's library and returns its standard output."""
    return command([*release.program(program), *args], 600, release.environ())


def python(release: Release, *args: str) -> str:
    """Runs a release's Python and returns its standard output."""
    return command([release.python, *args], 600, release.environ())


def train(
    release: Release, graph: str, data: str, run: str, results: Results, last: int = STEPS
) -> None:
    """Trains half of the steps, then the rest, and evaluates."""
    for steps in (last // 2, last):
        gorbit(release, "train", "--graph", graph, "--data", data, "--run", run, "--seed", "3",
               "--steps", str(steps), "--steps-per-loop", "5")  # fmt: skip
    for line in pathlib.Path(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        name = f"{pathlib.Path(run).name} {record['phase']} {record['step']}"
        results.numbers[f"{name} loss"] = record["outputs"]["loss"]
    gorbit(release, "evaluate", "--run", run)


def bert(
    release: Release,
    data: pathlib.Path,
    work: pathlib.Path,
    results: Results,
    last: int = STEPS,
) -> None:
    """Takes a BERT through all commands, in a training of `last` steps."""
    graph, run, served = str(work / "graph"), str(work / "bert"), str(work / "served")
    python(release, *release.exporter(), "bert", "--task", "classification", "--config", "tiny",
           "--data", str(data), "--out", graph)  # fmt: skip
    train(release, graph, str(data), run, results, last)
    texts = [word for text in TEXTS for word in ("--text", text)]
    predicted = gorbit(release, "predict", "--run", run, "--format", "json", *texts)
    gorbit(release, "export", "--run", run, "--out", served)
    again = gorbit(release, "--model", served, "--format", "json", *texts, program="gorbit-predict")
    for source, text in (("predict", predicted), ("gorbit-predict", again)):
        for i, line in enumerate(text.splitlines()):
            for k, p in enumerate(json.loads(line)["probabilities"]):
                results.numbers[f"{source} {i}/{k}"] = p

    prefix, written = f"{run}/checkpoints/ckpt-{last}", str(work / "written")
    python(release, "-c", _ROUND_TRIP, graph, prefix, written)
    begun = str(work / "begun")
    gorbit(release, "train", "--graph", graph, "--data", str(data), "--run", begun, "--init",
           written, "--steps", "1", "--learning-rate", "1e-30", "--seed", "3")  # fmt: skip
    losses = [read_last(folder, "eval") for folder in (run, begun)]
    if not math.isclose(*losses, rel_tol=1e-6):
        raise CheckError(f"Python's checkpoint has loss {losses[1]}; expected {losses[0]}")


def read_last(run: str, phase: str) -> float:
    """Returns the last loss of a phase in a run's metrics."""
    lines = pathlib.Path(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [r["outputs"]["loss"] for r in map(json.loads, lines) if r["phase"] == phase][-1]


def keras(release: Release, data: pathlib.Path, work: pathlib.Path, results: Results) -> None:
    """Trains a Keras model."""
    graph = str(work / "keras-graph")
    model = str(ROOT / "examples" / "digits" / "model.py")
    python(release, *release.exporter(), "keras", model, "--out", graph)
    train(release, graph, str(data), str(work / "keras"), results)


def run(release: Release, data: dict[str, pathlib.Path], work: pathlib.Path) -> Results:
    """Takes both models through the commands with a release."""
    version = gorbit(release, "version").splitlines()[1].removeprefix("TensorFlow ")
    wanted = "-dev" in version if release.name == NIGHTLY else version.startswith(release.name)
    if not wanted:
        raise CheckError(f"gorbit loaded TensorFlow {version}; expected {release.name}")
    results = Results(version)
    gorbit(release, "doctor")
    bert(release, data["reviews"], work, results)
    keras(release, data["digits"], work, results)
    return results


def differences(results: Results, expected: Results) -> float:
    """Returns the largest relative difference, or raises CheckError if it is too large."""
    if results.numbers.keys() != expected.numbers.keys():
        raise CheckError(f"{sorted(results.numbers)}; expected {sorted(expected.numbers)}")
    largest = 0.0
    for name, value in expected.numbers.items():
        difference = abs(results.numbers[name] - value) / abs(value)
        if not difference <= TOLERANCE:
            raise CheckError(f"{name} is {results.numbers[name]}; expected {value}")
        largest = max(largest, difference)
    return largest


def reviews(table: pathlib.Path, out: pathlib.Path) -> None:
    """Makes a dataset of a table of reviews."""
    gorbit(Release("", sys.executable), "convert", "--vocab",
           str(CACHE / "minilm" / "vocab.txt"), "--train", str(table), "--no-header",
           "--text-column", "3", "--label-column", "2", "--label-threshold", "0", "--labels",
           "negative,positive", "--split-by-hash", "1", "--out", str(out))  # fmt: skip


def data(work: pathlib.Path) -> dict[str, pathlib.Path]:
    """Makes the datasets that every release trains on."""
    own = Release("", sys.executable)
    folders = {"reviews": work / "reviews", "digits": work / "digits"}
    reviews(CACHE / "reviews" / "reviews.txt", folders["reviews"])
    digits, tables = ROOT / "examples" / "digits", work / "tables"
    command([sys.executable, str(digits / "data.py"), "--out", str(tables), "--cache",
             str(CACHE / "digits" / "digits.csv.gz")], 300)  # fmt: skip
    gorbit(own, "convert", "--schema", str(digits / "schema.yaml"), "--train",
           str(tables / "train.csv"), "--dev", str(tables / "dev.csv"), "--out",
           str(folders["digits"]))  # fmt: skip
    return folders


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    known = sorted(file.stem for file in REQUIREMENTS.glob("*.txt"))
    parser = argparse.ArgumentParser(
        prog="make check-tf", description="Runs gorbit with other releases of TensorFlow."
    )
    parser.add_argument("--only", choices=known, help="one release")
    args = parser.parse_args(arguments)

    def check() -> int:
        failed = 0
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            made = data(work)

            def results(release: Release) -> Results:
                place = work / f"with-{release.name}"
                place.mkdir()
                return run(release, made, place)

            expected = results(Release("2.18", sys.executable))
            print(f"TensorFlow {expected.version}: what the others are compared with", flush=True)
            for name in [args.only] if args.only else known:
                try:
                    release = Release(name, environment(name, "check_tf"))
                    found = results(release)
                    largest = differences(found, expected)
                    print(
                        f"TensorFlow {found.version}: all works; {len(found.numbers)} losses and "
                        f"probabilities differ by at most {largest:.1e}",
                        flush=True,
                    )
                except CheckError as err:
                    say(f"TensorFlow {name}: {err}")
                    failed = 1
        return failed

    return ended("check-tf", check)


if __name__ == "__main__":
    sys.exit(main())
