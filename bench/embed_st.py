"""Trains vectors of texts with gorbit and with sentence-transformers, turn about.

Usage: python bench/embed_st.py [--rounds 2] [--steps 60] [--venvs DIR] [--out FOLDER]

The pairs are the synopsis and the description of Debian's packages, from apt's lists. Both begin
with the same weights, and have the same loss (each text against all others of the batch), batches
of the same size, steps, rate and schedule. A share of the pairs is held out, by the hash of the
description. Recall@10 on them, the share of synopses whose description is among the 10 nearest, is
computed by the same code for both, and for the first weights.

The seconds are those of the steps after the first ones, of the wall clock and of the processor, and
of whole programs from start to end. On a machine that has other work, those of the processor say
more.
FOLDER gets figures.json with all numbers, and the models.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import debian
import peers
from harness import cli, lines, machine, plan, tables
from harness.comparison import Comparison
from peers.base import ROOT
from peers.sentences import LENGTH

WARM = 5
"""Steps before those that are timed."""
_LINE = re.compile(r"\s*train \| step:\s+(\d+) ")
_FIRST, _SECOND = "synopsis", "description"


@dataclasses.dataclass
class Training:
    """A training: the seconds of the steps after the first ones, and of the whole program.

    Seconds of the processor are those of all threads.
    """

    peer: str
    seconds: float
    processor: float
    whole: float


@dataclasses.dataclass(frozen=True)
class Mark:
    """When a step was done: the time, and the seconds that the program had of the processor."""

    at: float
    processor: float

    @classmethod
    def now(cls, pid: int) -> Mark:
        """Returns the present of a process."""
        return cls(time.monotonic(), machine.process_seconds(machine.read(f"/proc/{pid}/stat")))


def main() -> int:
    """Reads the arguments, trains, and prints the table."""
    args = arguments()
    out = pathlib.Path(args.out or tempfile.mkdtemp(prefix="embed-"))
    out.mkdir(parents=True, exist_ok=True)
    bench = Bench(args, out)
    bench.prepare()
    done: list[Training] = []
    for _ in range(args.rounds):
        for train in (bench.gorbit, bench.peer):
            done.append(train())
            write(out, done, {})
    recalls = bench.scores()
    write(out, done, recalls)
    print(report(done, recalls, args.steps - WARM))
    cli.say(f"numbers and models are in {out}")
    return 0


def write(out: pathlib.Path, done: list[Training], recalls: dict[str, float]) -> None:
    """Writes the numbers that are known so far."""
    numbers = {"trainings": [dataclasses.asdict(t) for t in done], "recall_10": recalls}
    (out / "figures.json").write_text(json.dumps(numbers, indent=1))


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=2, help="trainings of each (default: 2)")
    p.add_argument("--steps", type=int, default=60, help="of a training (default: 60)")
    p.add_argument("--batch", type=int, default=32, help="pairs of a batch (default: 32)")
    p.add_argument("--learning-rate", default="5e-5")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--held", type=float, default=0.05, help="share of the pairs (default: 0.05)")
    p.add_argument(
        "--lists",
        type=pathlib.Path,
        help="folder of apt's lists with Translation-en (default: fetched)",
    )
    p.add_argument(
        "--weights",
        default=os.path.join(ROOT, ".cache", "minilm"),
        help="folder of pretrained weights (default: the demo's)",
    )
    p.add_argument("--gorbit", default=os.path.join(ROOT, "bin", "gorbit"))
    p.add_argument("--venvs", metavar="DIR", help="use the environment DIR/st")
    p.add_argument("--out", help="folder for the results (default: one in /tmp)")
    args = p.parse_args()
    if args.rounds < 1:
        p.error(f"--rounds is {args.rounds}; expected 1 or more")
    if args.steps <= WARM or args.steps % WARM:
        p.error(f"--steps is {args.steps}; expected a multiple of {WARM} above {WARM}")
    if not 0 < args.held < 1:
        p.error(f"--held is {args.held}; expected a share between 0 and 1")
    for path in (os.path.join(args.weights, "vocab.txt"), args.gorbit):
        if not os.path.exists(path):
            p.error(f"{path} is not there; name it with --weights or --gorbit")
    return args


class Bench(Comparison):
    """The steps of a comparison, whose files are in a folder."""

    def __init__(self, args: argparse.Namespace, out: pathlib.Path) -> None:
        """Takes the arguments."""
        super().__init__("embed_st", args.gorbit, "st", args.venvs, beneath=["hf"])
        self._args, self._out = args, out

    def prepare(self) -> None:
        """Makes the pairs, the data, the graph and the first model."""
        args, out = self._args, self._out
        try:
            found = pairs(debian.descriptions(args.lists or debian.fetched(out), "en"))
        except (OSError, ValueError, subprocess.CalledProcessError) as err:
            sys.exit(f"embed_st: {err}")
        splits = split(found, args.held)
        for name, rows in splits.items():
            columns = {"first": [a for a, _ in rows], "second": [b for _, b in rows]}
            (out / f"{name}.json").write_text(json.dumps(columns))
            with (out / f"{name}.jsonl").open("w") as file:
                file.writelines(json.dumps({_FIRST: a, _SECOND: b}) + "\n" for a, b in rows)
        cli.say(f"{len(found)} pairs, {len(splits['dev'])} of them held out")
        vocab = os.path.join(args.weights, "vocab.txt")
        command = ["convert", "--task", "embed", "--vocab", vocab, "--max-length", str(LENGTH)]
        command += ["--text-column", _FIRST, "--pair-column", _SECOND, "--overwrite"]
        self._call(*command, "--train", f"{out}/train.jsonl", "--out", f"{out}/data")
        command = [sys.executable, "-m", "gorbit_export", "bert", "--task", "embed", "--overwrite"]
        command += ["--config", os.path.join(args.weights, "config.json")]
        command += ["--data", f"{out}/data", "--out", f"{out}/graph"]
        self._run(command, {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools")})
        self._worker("train", 0, into=f"{out}/first")

    def gorbit(self) -> Training:
        """Trains with gorbit."""
        args, out = self._args, self._out
        command = [args.gorbit, "train", "--graph", f"{out}/graph", "--data", f"{out}/data"]
        command += ["--init", os.path.join(args.weights, "model.safetensors")]
        command += ["--run", f"{out}/run", "--overwrite", "--steps", str(args.steps)]
        command += ["--batch-size", str(args.batch), "--learning-rate", args.learning_rate]
        command += ["--seed", str(args.seed), "--schedule", "linear"]
        command += ["--eval-interval", "-2"]
        command += ["--set", f"optimizer.warmup_ratio={plan.WARMUP_RATIO}"]
        command += ["--set", f"optimizer.weight_decay={plan.WEIGHT_DECAY}"]
        command += ["--set", f"optimizer.clip_norm={plan.CLIP_NORM}"]
        command += ["--set", f"train.steps_per_loop={WARM}"]
        cli.say(" ".join(command))
        marks: dict[int, Mark] = {}
        begun = time.monotonic()
        for pid, line in self._follow(args.gorbit, command):
            if match := _LINE.match(line):
                marks[int(match[1])] = Mark.now(pid)
        whole = time.monotonic() - begun
        return self._training("gorbit", marks, whole)

    def peer(self) -> Training:
        """Trains with sentence-transformers."""
        marks: dict[int, Mark] = {}
        begun = time.monotonic()
        self._worker("train", self._args.steps, marks, into=f"{self._out}/trained")
        whole = time.monotonic() - begun
        return self._training(peers.SENTENCES.name, marks, whole)

    def _training(self, peer: str, marks: dict[int, Mark], whole: float) -> Training:
        first, last = marks[WARM], marks[self._args.steps]
        return Training(peer, last.at - first.at, last.processor - first.processor, whole)

    def scores(self) -> dict[str, float]:
        """Returns Recall@10 of the first weights and of the last model of each."""
        out = self._out
        command = ["export", "--run", f"{out}/run", "--format", "huggingface", "--overwrite"]
        self._call(*command, "--checkpoint", "latest", "--out", f"{out}/served")
        models = {"first weights": f"{out}/first", "gorbit": f"{out}/served"}
        models[peers.SENTENCES.name] = f"{out}/trained"
        told = self._worker("score", 0, models=json.dumps(models))
        return {i["model"]: i["recall"] for i in told if "model" in i}

    def _worker(
        self, variant: str, steps: int, marks: dict[int, Mark] | None = None, **asked: str
    ) -> list[dict[str, float]]:
        """Runs the peer, and returns what it tells; `marks` gets when each step was done."""
        args = self._args
        asked |= {"seed": str(args.seed), "batch": str(args.batch), "weights": args.weights}
        asked["learning_rate"] = args.learning_rate
        with tempfile.TemporaryDirectory() as scratch:
            job = plan.Job(
                variant, steps=steps, data=str(self._out), scratch=scratch, options=asked
            )
            command = peers.SENTENCES.command(job, self._python)
            told = []
            for pid, line in self._follow(peers.SENTENCES.name, command):
                mark = lines.parse(line)
                if isinstance(mark, lines.Info):
                    told.append(mark.values)
                elif mark is not None and marks is not None:
                    marks[mark.done] = Mark.now(pid)
        return told


def pairs(english: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Returns the different synopses with their descriptions, sorted, of debian.descriptions."""
    return sorted({(synopsis, text) for _, text, synopsis in debian.summaries(english)})


def split(found: list[tuple[str, str]], held: float) -> dict[str, list[tuple[str, str]]]:
    """Returns the pairs for training and those held out, by the hash of their descriptions.

    A description that several packages have is in one split, and a pair's split depends on no
    other pair. The rule is that of gorbit convert --split-by-hash.
    """
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "dev": []}
    for pair in found:
        splits["dev" if debian.checksum(pair[1]) < held * 2**64 else "train"].append(pair)
    return splits


def report(done: list[Training], recalls: dict[str, float], steps: int) -> str:
    """Returns the table, with the ratios of the seconds within each round."""
    rows = [["first weights", "", "", "", f"{recalls['first weights']:.4f}"]]
    pick = ("seconds", "processor", "whole")
    own = [t for t in done if t.peer == "gorbit"]
    other = [t for t in done if t.peer != "gorbit"]
    for trainings in (own, other):
        name = trainings[0].peer
        seconds = [", ".join(f"{getattr(t, p):.1f}" for t in trainings) for p in pick]
        rows.append([name, *seconds, f"{recalls[name]:.4f}"])
    ratios = [[getattr(b, p) / getattr(a, p) for a, b in zip(own, other)] for p in pick]
    cells = [f"{statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})" for r in ratios]
    rows.append(["times as fast", *cells, ""])
    header = ["", f"s of {steps} steps, by round", "of the processor", "s of the program"]
    header += ["Recall@10"]
    return tables.markdown(header, rows)


if __name__ == "__main__":
    sys.exit(main())
