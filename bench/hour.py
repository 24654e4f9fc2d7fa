"""Pretrains a small encoder with gorbit and with the Hugging Face Trainer, each for the same time.

Usage: python bench/hour.py [--budget 3600] [--recipes 360] [--venvs DIR] [--out FOLDER]

Both have the tokenizer that gorbit trains on WikiText-2, the same blocks of 128 tokens, the same
model with the same first weights, and the Trainer's recipe: AdamW, a rate that rises for a tenth of
the steps and falls to zero, 15 % of the tokens masked. A few steps before say how many each makes
in the budget, evaluations not counted. The losses on the held-out split are printed by time. Then
both are fine-tuned on MRPC, from these weights and from the first ones, each by its own program.

--recipes SECONDS also pretrains with gorbit for that time in each of the ways of RECIPES: the first
is the Trainer's, and each of the others changes one thing of the one before. The last loss of each
stands beside the time at which the Trainer's curve came there.

FOLDER gets curves.json with all numbers, which is written after each pretraining and at the end,
and what both have written.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import sys
import tempfile
import time

import finetune_hf
import peers
from harness import cli, lines, plan, tables
from harness.comparison import Comparison
from peers.base import ROOT

SHARED = pathlib.Path(ROOT).parent / "shared" / "data"
PROBED = 12
"""Steps that are timed to learn how many fit into the budget, after WARM."""
WARM = 4
ROW = 128
"""Tokens of a block."""
POINTS = 10
"""Evaluations of a pretraining."""
RECIPES: dict[str, dict[str, object]] = {
    "the Trainer's recipe": {},
    "rate of 2e-3": {"rate": "2e-3"},
    "and Muon": {"optimizer": "muon"},
    "and no dropout": {"hyperparameters": "{hidden_dropout: 0, attention_dropout: 0}"},
    "and wsd": {"schedule": "wsd"},
    "and growing batches": {"batches": ((0.25, 0.1), (0.5, 0.2), (1, 0.7))},
    "and growing rows": {"rows": ((0.25, 0.1), (0.5, 0.2), (1, 0.7))},
}
"""What each way of --recipes changes. Batches and rows have shares of their size and of steps."""
_LINE = re.compile(r"\s*(train|eval) \| step:\s+(\d+) .*'loss': ([\d.]+)")


@dataclasses.dataclass
class Curve:
    """A pretraining: for each evaluation the step, the seconds of training, and the loss."""

    peer: str
    steps: int
    points: list[tuple[int, float, float]]


def main() -> int:
    """Reads the arguments, trains, and prints the tables."""
    args = arguments()
    out = pathlib.Path(args.out or tempfile.mkdtemp(prefix="hour-"))
    out.mkdir(parents=True, exist_ok=True)
    bench = Bench(args, out)
    bench.prepare()
    curves: list[Curve] = []
    for pretrain in (bench.gorbit, bench.hf):
        curves.append(pretrain())
        write(out, curves, {})
    ways = bench.recipes(args.recipes) if args.recipes else []
    write(out, curves + ways, {})
    tuned = bench.tuned()
    write(out, curves + ways, tuned)
    print(report(curves, tuned))
    if ways:
        print("\n" + compared(ways, curves[1]))
    cli.say(f"numbers and models are in {out}")
    return 0


def write(out: pathlib.Path, curves: list[Curve], tuned: dict[str, dict[str, float]]) -> None:
    """Writes the numbers that are known so far, in place of those of before."""
    numbers = {"curves": [dataclasses.asdict(c) for c in curves], "mrpc": tuned}
    new = out / "curves.json.new"
    new.write_text(json.dumps(numbers, indent=1))
    new.replace(out / "curves.json")


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--budget", type=float, default=3600, help="seconds of each pretraining")
    p.add_argument("--recipes", type=float, default=0, help="seconds of each way of RECIPES")
    p.add_argument("--vocab-size", type=int, default=8000)
    p.add_argument(
        "--held", type=int, default=300, help="KB of the held-out text (default: %(default)s)"
    )
    p.add_argument("--batch", type=int, default=32, help="blocks of a batch (default: 32)")
    p.add_argument("--learning-rate", default="5e-4", help="of the pretraining")
    p.add_argument("--tune-rate", default="1e-4", help="learning rate on MRPC")
    p.add_argument("--tune-epochs", type=int, default=3, help="epochs on MRPC")
    p.add_argument("--layers", type=int, default=4, help="of the encoder (default: 4)")
    p.add_argument("--hidden", type=int, default=256, help="its width, 64 to a head (default: 256)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--wikitext", type=pathlib.Path, default=SHARED / "wikitext2")
    p.add_argument("--mrpc", type=pathlib.Path, default=SHARED / "mrpc")
    p.add_argument("--gorbit", default=os.path.join(ROOT, "bin", "gorbit"))
    p.add_argument("--venvs", metavar="DIR", help="use the environment DIR/hf")
    p.add_argument("--out", help="folder for the results (default: one in /tmp)")
    args = p.parse_args()
    if args.budget <= 0:
        p.error(f"--budget is {args.budget}; expected seconds above 0")
    for path in (args.wikitext / "wiki.train.tokens", args.mrpc / "train.tsv", args.gorbit):
        if not os.path.exists(path):
            p.error(f"{path} is not there; name it with --wikitext, --mrpc or --gorbit")
    return args


class Bench(Comparison):
    """The steps of a comparison, whose files are in a folder."""

    def __init__(self, args: argparse.Namespace, out: pathlib.Path) -> None:
        """Takes the arguments."""
        super().__init__("hour", args.gorbit, "hf", args.venvs)
        self._args, self._out = args, out

    def prepare(self) -> None:
        """Makes the tokenizer, the data, the graphs and the first weights."""
        args, out = self._args, self._out
        train = str(args.wikitext / "wiki.train.tokens")
        held = str(out / "held.txt")
        valid = (args.wikitext / "wiki.valid.tokens").read_bytes()[: 1000 * args.held]
        pathlib.Path(held).write_bytes(valid[: valid.rfind(b"\n") + 1])
        size = ["--vocab-size", str(args.vocab_size)]
        self._call("tokenizer", "train", "--type", "wordpiece", *size, "--out", f"{out}/tok", train)
        data = ["--tokenizer", f"{out}/tok", "--out", f"{out}/blocks", "--max-length", str(ROW)]
        self._call("convert", "--task", "mlm", "--train", train, "--dev", held, *data)
        own = (str(args.mrpc / f"{s}.tsv") for s in ("train", "dev"))
        split = [word for pair in zip(("--train", "--dev"), own) for word in pair]
        data = ["--tokenizer", f"{out}/tok", "--out", f"{out}/mrpc", "--max-length", str(ROW)]
        self._call("convert", "--task", "mrpc", *split, *data)
        # The words that the tokenizer has: fewer than asked for, if the text gives no more.
        manifest = json.loads((out / "blocks" / "manifest.json").read_text())
        config = out / "config.json"
        model = {
            "model_type": "bert",
            "vocab_size": manifest["vocab"]["size"],
            "hidden_size": args.hidden,
            "num_hidden_layers": args.layers,
            "num_attention_heads": args.hidden // 64,
            "intermediate_size": 4 * args.hidden,
            "max_position_embeddings": ROW,
        }
        config.write_text(json.dumps(model))
        for task, data, optimizer in (
            ("mlm", "blocks", "adamw"),
            ("mlm", "blocks", "muon"),
            ("classification", "mrpc", "adamw"),
        ):
            command = [sys.executable, "-m", "gorbit_export", "bert", "--task", task]
            command += ["--config", str(config), "--data", f"{out}/{data}"]
            command += ["--optimizer", optimizer, "--out", f"{out}/graph-{data}-{optimizer}"]
            self._run(command, {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools")})
        for split, name in (("train", "blocks"), ("dev", "dev")):
            blocks = finetune_hf.columns(f"{out}/blocks", split, "mlm")
            (out / f"{name}.json").write_text(json.dumps(blocks))
        tokenizer = json.loads((out / "tok" / "tokenizer.json").read_text())
        words = tokenizer["model"]["vocab"]
        (out / "vocab.txt").write_text("".join(f"{w}\n" for w in sorted(words, key=words.get)))
        self._peer(peers.PRETRAIN, 0, weights=str(out / "first"), config=str(config))

    def gorbit(self) -> Curve:
        """Pretrains with gorbit as with the Trainer."""
        return self._pretrain("gorbit", "run", self._args.budget, {})

    def recipes(self, budget: float) -> list[Curve]:
        """Pretrains with gorbit in each way, for so many seconds."""
        found, recipe = [], {}
        for i, (name, change) in enumerate(RECIPES.items()):
            recipe |= change
            found.append(self._pretrain(name, f"recipe-{i}", budget, recipe))
        return found

    def _pretrain(self, name: str, run: str, budget: float, recipe: dict[str, object]) -> Curve:
        # Steps of the size that a run ends with are timed. Those before are as long as their batch.
        still = {key: recipe[key] for key in recipe if key not in ("batches", "rows")}
        done = self._gorbit(f"{run}-probe", WARM + PROBED, 0, still)
        marks = {step: at for kind, step, at, _ in done if kind == "train"}
        share = sum(size * share for size, share in recipe.get("batches", ((1, 1),)))
        rate = PROBED / (marks[WARM + PROBED] - marks[WARM]) / share
        steps = self._steps(name, rate, budget)
        points, evaluating, ended = [], 0.0, 0.0
        for kind, step, at, loss in self._gorbit(run, steps, every(steps), recipe):
            if kind == "train":
                ended = at
            else:
                points.append((step, ended - evaluating, loss))
                evaluating += at - ended
        return Curve(name, steps, points)

    def hf(self) -> Curve:
        """Pretrains with the Trainer."""
        marks: dict[int, float] = {}
        self._trainer(WARM + PROBED, 0, marks)
        rate = PROBED / (marks[WARM + PROBED] - marks[WARM])
        steps = self._steps("hf", rate, self._args.budget)
        into = str(self._out / "hf")
        told = self._trainer(steps, every(steps), {}, into=into)
        return Curve("hf", steps, [(i["step"], i["seconds"], i["loss"]) for i in told])

    def tuned(self) -> dict[str, dict[str, float]]:
        """Fine-tunes on MRPC from the pretrained weights and from the first ones."""
        args, out, found = self._args, self._out, {}
        first = str(out / "first" / "model.safetensors")
        for name, init in (("pretrained", str(out / "run")), ("first weights", first)):
            run = str(out / f"mrpc-{name.split()[0]}")
            command = ["train", "--graph", f"{out}/graph-mrpc-adamw", "--data", f"{out}/mrpc"]
            command += ["--init", init, "--run", run, "--epochs", str(args.tune_epochs)]
            command += ["--batch-size", str(plan.BATCH), "--learning-rate", args.tune_rate]
            self._call(*command, *self._flags("linear"))
            files = pathlib.Path(run, "evaluations").glob("dev-*.json")
            last = max(files, key=lambda file: int(file.stem.removeprefix("dev-")))
            metrics = json.loads(last.read_text())["metrics"]
            found[f"gorbit, {name}"] = {key: metrics[key] for key in ("accuracy", "f1")}
        scratch = out / "tuned"
        scratch.mkdir()
        for split in ("train", "dev"):
            columns = finetune_hf.columns(f"{out}/mrpc", split)
            (scratch / f"{split}.json").write_text(json.dumps(columns))
        for name, weights in (("pretrained", "hf"), ("first weights", "first")):
            told = self._peer(
                peers.QUALITY,
                0,
                data=str(scratch),
                weights=str(out / weights),
                epochs=str(args.tune_epochs),
                learning_rate=args.tune_rate,
            )
            found[f"hf, {name}"] = {key: told[-1][key] for key in ("accuracy", "f1")}
        return found

    def _flags(self, schedule: str) -> list[str]:
        return [
            "--seed", str(self._args.seed), "--schedule", schedule,
            "--set", f"optimizer.warmup_ratio={plan.WARMUP_RATIO}",
            "--set", f"optimizer.weight_decay={plan.WEIGHT_DECAY}",
            "--set", f"optimizer.clip_norm={plan.CLIP_NORM}",
        ]  # fmt: skip

    def _steps(self, peer: str, rate: float, budget: float) -> int:
        steps = max(POINTS, round(rate * budget))
        cli.say(f"{peer}: {rate:.2f} steps/s, {steps} steps for {budget:.0f} s")
        return steps

    def _gorbit(
        self, run: str, steps: int, every: int, recipe: dict[str, object]
    ) -> list[tuple[str, int, float, float]]:
        """Trains, and returns the lines of the loop with the seconds since the program began."""
        args, out = self._args, self._out
        graph = f"{out}/graph-blocks-{recipe.get('optimizer', 'adamw')}"
        command = [args.gorbit, "train", "--graph", graph, "--data", f"{out}/blocks"]
        command += ["--init", f"{out}/first/model.safetensors", "--run", f"{out}/{run}"]
        command += ["--steps", str(steps), *self._flags(recipe.get("schedule", "linear"))]
        command += ["--batch-size", str(args.batch)]
        command += ["--learning-rate", recipe.get("rate", args.learning_rate)]
        command += ["--eval-interval", str(every or -2)]
        command += ["--set", f"train.steps_per_loop={every or WARM}"]
        if "hyperparameters" in recipe:
            command += ["--set", f"optimizer.hyperparameters={recipe['hyperparameters']}"]
        for key, param, full in (("batches", "batch", args.batch), ("rows", "length", ROW)):
            if key in recipe:
                stages = growth(recipe[key], full, steps)
                command += ["--set", f"train.{param}_warmup={stages}"]
        cli.say(" ".join(command))
        found, begun = [], time.monotonic()
        for _, line in self._follow(args.gorbit, command):
            if match := _LINE.match(line):
                at = time.monotonic() - begun
                found.append((match[1], int(match[2]), at, float(match[3])))
        return found

    def _trainer(
        self, steps: int, every: int, marks: dict[int, float], **more: str
    ) -> list[dict[str, float]]:
        asked = {"vocab": str(self._out / "vocab.txt"), "weights": str(self._out / "first")}
        asked |= {"learning_rate": self._args.learning_rate, "every": str(every), **more}
        return self._peer(peers.PRETRAIN, steps, marks, **asked)

    def _peer(
        self, peer: peers.Peer, steps: int, marks: dict[int, float] | None = None, **asked: str
    ) -> list[dict[str, float]]:
        """Runs a peer, and returns what it tells; `marks` gets when each step was done."""
        data = asked.pop("data", str(self._out))
        asked |= {"seed": str(self._args.seed), "batch": str(self._args.batch)}
        with tempfile.TemporaryDirectory() as scratch:
            job = plan.Job(
                peer.variants[0].name,
                steps=steps,
                data=data,
                scratch=scratch,
                options=asked,
            )
            told, begun = [], time.monotonic()
            for _, line in self._follow(peer.name, peer.command(job, self._python)):
                mark = lines.parse(line)
                if isinstance(mark, lines.Info):
                    told.append(mark.values)
                elif mark is not None and marks is not None:
                    marks[mark.done] = time.monotonic() - begun
        return told


def growth(stages: tuple[tuple[float, float], ...], full: int, steps: int) -> str:
    """Returns a param of sizes that grow: from a share of the full one on, for a share of steps."""
    found, begun = [], 0.0
    for size, share in stages:
        found.append(f"{round(begun * steps)}:{round(size * full)}")
        begun += share
    return ", ".join(found)


def compared(ways: list[Curve], peer: Curve) -> str:
    """Returns the table of the recipes: what each reached, and when the peer's curve did."""
    rows = []
    for way in ways:
        _, seconds, loss = way.points[-1]
        reached = next((at for _, at, other in peer.points if other <= loss), None)
        then = "never" if reached is None else f"{reached:.0f}"
        rows.append([way.peer, str(way.steps), f"{seconds:.0f}", f"{loss:.3f}", then])
    header = ["recipe", "steps", "s", "loss", f"{peer.peer} there after s"]
    return tables.markdown(header, rows)


def every(steps: int) -> int:
    """Steps between two evaluations of a pretraining."""
    return max(1, steps // POINTS)


def report(curves: list[Curve], tuned: dict[str, dict[str, float]]) -> str:
    """Returns the tables: losses by time, and scores on MRPC."""
    header = ["", *(f"{c.peer}: s" for c in curves), *(f"{c.peer}: loss" for c in curves)]
    most = max(len(c.points) for c in curves)
    rows = []
    for i in range(most):
        told = [c.points[i] if i < len(c.points) else None for c in curves]
        cells = [f"{p[1]:.0f}" if p else "" for p in told]
        cells += [f"{p[2]:.3f}" if p else "" for p in told]
        rows.append([str(i + 1), *cells])
    steps = [["steps", *(str(c.steps) for c in curves), *("" for _ in curves)]]
    scores = [[name, f"{s['accuracy']:.3f}", f"{s['f1']:.3f}"] for name, s in tuned.items()]
    losses = tables.markdown(header, rows + steps)
    return f"{losses}\n\n{tables.markdown(['MRPC', 'accuracy', 'F1'], scores)}"


if __name__ == "__main__":
    sys.exit(main())
