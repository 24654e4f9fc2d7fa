"""Trains the same small encoder-decoder model with gorbit and with Hugging Face's Seq2SeqTrainer.

Usage: python bench/seq2seq.py phonemes|en-de|summaries --data DIR [--budget 900] [--out FOLDER]

DIR has TASK.train.tsv and TASK.test.tsv, which bench/cmudict.py and bench/debian.py write. Both
have the tokenizer that gorbit trains on them, the same records, the same model with the same first
weights, and the same recipe: AdamW, a rate that rises for a tenth of the steps and falls to zero. A
few steps before say how many the Trainer makes in the budget; both make these steps. With
--same-time gorbit trains a second time, for as many steps as it makes in the Trainer's time.

The texts for the split test are made by gorbit evaluate from the weights of each, and scored there:
the rate of wrong phonemes, BLEU and chrF, or ROUGE. FOLDER gets scores.json, and what both wrote.
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

import peers
from harness import cli, lines, plan, tables
from harness.comparison import Comparison
from peers.base import ROOT

WARM, PROBED = 4, 12
"""Steps of the Trainer before those that are timed to learn how many fit into the budget."""
_STEP = re.compile(r"train \| step:\s+(\d+) ")


@dataclasses.dataclass(frozen=True)
class Task:
    """What is learned, and by which model.

    Attributes:
        columns: of the source and of the target.
        tokenizer: flags of gorbit tokenizer train.
        lengths: the most tokens of a source and of a target.
        hidden: the width of the model, of 64 to a head or fewer.
        batch: examples of a step.
        rate: the learning rate.
        metrics: params eval.generate.metrics.
    """

    columns: tuple[str, str]
    tokenizer: tuple[str, ...]
    lengths: tuple[int, int]
    hidden: int
    batch: int
    rate: str
    metrics: tuple[str, ...]


_WORDS = ("--type", "bpe", "--template", "roberta", "--vocab-size", "8000")
TASKS = {
    "phonemes": Task(
        ("word", "phonemes"),
        ("--type", "wordpiece", "--cased", "--vocab-size", "89"),  # all that the dictionary gives
        (48, 48),
        128,
        256,
        "2e-3",
        ("wer",),
    ),
    "en-de": Task(("en", "de"), _WORDS, (128, 128), 256, 64, "1e-3", ("bleu", "chrf")),
    "summaries": Task(
        ("text", "summary"), _WORDS, (192, 48), 256, 64, "1e-3", ("rouge1", "rouge2", "rougeL")
    ),
}
LAYERS = 4
"""Of the encoder, and of the decoder."""
SPECIAL = {"bos_token_id": ("<s>", "[CLS]"), "pad_token_id": ("<pad>", "[PAD]")}
SPECIAL |= {"eos_token_id": ("</s>", "[SEP]"), "decoder_start_token_id": ("</s>", "[SEP]")}
"""The tokens of BART, by what the tokenizers call them."""


@dataclasses.dataclass
class Result:
    """A training and its scores."""

    name: str
    steps: int
    seconds: float
    scores: dict[str, float] = dataclasses.field(default_factory=dict)


def main() -> int:
    """Reads the arguments, trains, and prints the table."""
    args = arguments()
    out = pathlib.Path(args.out or tempfile.mkdtemp(prefix="seq2seq-"))
    out.mkdir(parents=True, exist_ok=True)
    bench = Bench(args, out)
    bench.prepare()
    steps = args.steps or bench.steps()
    results: list[Result] = []

    def keep(result: Result) -> None:
        results.append(result)
        kept = [dataclasses.asdict(each) for each in results]
        (out / "scores.json").write_text(json.dumps(kept, indent=1))

    own = bench.gorbit("gorbit", "run", steps)
    keep(own)
    keep(bench.hf(steps))
    if args.same_time:
        longer = round(steps * results[1].seconds / own.seconds)
        keep(bench.gorbit("gorbit, in that time", "run-longer", longer))
    print(report(results))
    cli.say(f"numbers and models are in {out}")
    return 0


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("task", choices=list(TASKS), help="what is learned")
    p.add_argument("--data", type=pathlib.Path, required=True, help="folder of the task's files")
    length = p.add_mutually_exclusive_group()
    length.add_argument(
        "--budget", type=float, default=900, help="seconds of the Trainer's training (default: 900)"
    )
    length.add_argument("--steps", type=int, help="steps of both trainings")
    p.add_argument("--same-time", action="store_true", help="gorbit also in the Trainer's time")
    p.add_argument("--beams", type=int, default=1, help="beams of the texts (default: 1)")
    p.add_argument("--examples", type=int, help="texts to make and score (default: all of test)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--gorbit", default=os.path.join(ROOT, "bin", "gorbit"))
    p.add_argument("--venvs", metavar="DIR", help="use the environment DIR/hf")
    p.add_argument("--out", help="folder for the results, which has none (default: one in /tmp)")
    args = p.parse_args()
    if args.budget <= 0:
        p.error(f"--budget is {args.budget}; expected seconds above 0")
    if args.steps is not None and args.steps < 1:
        p.error(f"--steps is {args.steps}; expected 1 or more")
    for path in (args.data / f"{args.task}.train.tsv", args.gorbit):
        if not os.path.exists(path):
            p.error(f"{path} is not there; name it with --data or --gorbit")
    return args


class Bench(Comparison):
    """The steps of a comparison, whose files are in a folder."""

    def __init__(self, args: argparse.Namespace, out: pathlib.Path) -> None:
        """Takes the arguments."""
        super().__init__("seq2seq", args.gorbit, "hf", args.venvs)
        self._args, self._out, self._task = args, out, TASKS[args.task]

    def prepare(self) -> None:
        """Makes the tokenizer, the records, the graph, the columns and the first weights."""
        args, out, task = self._args, self._out, self._task
        train, test = (str(args.data / f"{args.task}.{s}.tsv") for s in ("train", "test"))
        both = pathlib.Path(train).read_text(encoding="utf-8").split("\n", 1)[1]
        (out / "text.txt").write_text(both.replace("\t", "\n"), encoding="utf-8")
        words = ["tokenizer", "train", *task.tokenizer, "--out", f"{out}/tok", f"{out}/text.txt"]
        self._call(*words)
        convert = ["convert", "--task", "seq2seq", "--tokenizer", f"{out}/tok"]
        convert += ["--source-column", task.columns[0], "--target-column", task.columns[1]]
        longest = [str(length) for length in task.lengths]
        convert += ["--max-length", longest[0], "--max-target-length", longest[1]]
        convert += ["--train", train, "--test", test, "--out", f"{out}/data"]
        self._call(*convert)
        config = model(json.loads((out / "tok" / "tokenizer.json").read_text()), task)
        (out / "config.json").write_text(json.dumps(config))
        export = [sys.executable, "-m", "gorbit_export", "seq2seq", "--out", f"{out}/graph"]
        export += ["--config", f"{out}/config.json", "--data", f"{out}/data"]
        self._run(export, {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools")})
        records = {"records": f"{out}/data", "splits": "train"}
        self._peer(peers.COLUMNS, sys.executable, 0, **records)
        first = {"config": f"{out}/config.json", "weights": f"{out}/first"}
        self._peer(peers.FIRST, self._python, 0, **first)

    def steps(self) -> int:
        """Returns how many steps the Trainer makes in the budget."""
        marks = self._peer(peers.LEARN, self._python, WARM + PROBED, **self._recipe())
        rate = PROBED / (marks[WARM + PROBED] - marks[WARM])
        steps = max(1, round(rate * self._args.budget))
        cli.say(f"{rate:.2f} steps/s, {steps} steps for {self._args.budget:.0f} s")
        return steps

    def gorbit(self, name: str, run: str, steps: int) -> Result:
        """Trains with gorbit, and scores."""
        args, out, task = self._args, self._out, self._task
        command = [args.gorbit, "train", "--graph", f"{out}/graph", "--data", f"{out}/data"]
        command += ["--init", f"{out}/first/model.safetensors", "--run", f"{out}/{run}"]
        command += ["--steps", str(steps), "--batch-size", str(task.batch), "--progress", "off"]
        command += ["--learning-rate", task.rate, "--eval-interval", "-2", "--schedule", "linear"]
        command += ["--seed", str(args.seed), "--set", f"optimizer.clip_norm={plan.CLIP_NORM}"]
        command += ["--set", f"optimizer.warmup_ratio={plan.WARMUP_RATIO}"]
        command += ["--set", f"optimizer.weight_decay={plan.WEIGHT_DECAY}"]
        cli.say(" ".join(command))
        begun, ended = time.monotonic(), 0.0
        for _, line in self._follow(args.gorbit, command):
            if _STEP.match(line):
                ended = time.monotonic() - begun
        return Result(name, steps, ended, self._scores(f"{out}/{run}"))

    def hf(self, steps: int) -> Result:
        """Trains with the Trainer, and scores its weights as those of gorbit."""
        out = self._out
        marks = self._peer(peers.LEARN, self._python, steps, into=f"{out}/hf", **self._recipe())
        scores = self._scores(f"{out}/hf/model.safetensors")
        return Result("Hugging Face", steps, marks[steps], scores)

    def _recipe(self) -> dict[str, str]:
        return {
            "weights": f"{self._out}/first",
            "learning_rate": self._task.rate,
            "batch": str(self._task.batch),
            "seed": str(self._args.seed),
        }

    def _scores(self, weights: str) -> dict[str, float]:
        """Makes the texts of the split test with some weights and returns their scores."""
        args, out, task = self._args, self._out, self._task
        command = [args.gorbit, "evaluate", "--generate", "--split", "test", "--json"]
        command += ["--graph", f"{out}/graph", "--data", f"{out}/data", "--init", weights]
        command += ["--set", f"eval.generate.metrics={','.join(task.metrics)}"]
        command += ["--set", f"eval.generate.num_beams={args.beams}"]
        command += ["--set", f"eval.generate.max_new_tokens={task.lengths[1]}"]
        if args.examples:
            command += ["--set", f"eval.generate.examples={args.examples}"]
        cli.say(" ".join(command))
        *_, (_, last) = self._follow(args.gorbit, command)
        told = json.loads(last)["outputs"]
        return {name: told[name] for name in (*task.metrics, "loss")}

    def _peer(self, peer: peers.Worker, python: str, steps: int, **asked: str) -> dict[int, float]:
        """Runs a peer, and returns when each step was done, in seconds since it began."""
        with tempfile.TemporaryDirectory() as scratch:
            job = plan.Job(
                peer.variants[0].name,
                steps=steps,
                data=str(self._out),
                scratch=scratch,
                options=asked,
            )
            marks, begun = {}, time.monotonic()
            for _, line in self._follow(peer.name, peer.command(job, python)):
                if isinstance(mark := lines.parse(line), lines.Mark):
                    marks[mark.done] = time.monotonic() - begun
        return marks


def model(tokenizer: dict, task: Task) -> dict[str, object]:
    """Returns the configuration of a BART for a tokenizer."""
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    special = {
        name: next(ids[each] for each in names if each in ids) for name, names in SPECIAL.items()
    }
    heads = {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    widths = {f"{side}_ffn_dim": 4 * task.hidden for side in ("encoder", "decoder")}
    return {
        "model_type": "bart",
        "vocab_size": len(tokenizer["model"]["vocab"]),
        "d_model": task.hidden,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        **heads,
        **widths,
        **special,
        "max_position_embeddings": max(task.lengths) + 2,
        "activation_function": "gelu",
        "scale_embedding": True,
        "dropout": 0.1,
        "forced_eos_token_id": None,
    }


def report(results: list[Result]) -> str:
    """Returns the table, with the time of each as a share of the Trainer's."""
    names = list(results[0].scores)
    peer = next((r.seconds for r in results if r.name == "Hugging Face"), None)
    rows = []
    for result in results:
        share = f"{result.seconds / peer:.2f}" if peer else ""
        scores = [f"{result.scores[name]:.4g}" for name in names]
        rows.append([result.name, str(result.steps), f"{result.seconds:.0f}", share, *scores])
    return tables.markdown(["", "steps", "s", "of the Trainer's time", *names], rows)


if __name__ == "__main__":
    sys.exit(main())
