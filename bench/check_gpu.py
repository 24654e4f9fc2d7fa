"""Compares gorbit on this machine's GPUs with gorbit on its CPU, and measures its speed there.

    make check-gpu                                                # sets up what it needs before
    .venv/bin/python bench/check_gpu.py --config tiny --steps 5
    .venv/bin/python bench/check_gpu.py --device cpu              # the CPU with itself

The same steps of the same model and data run on the CPU in float32 and on the device in each
precision: on one device, on one with the graph compiled by XLA, and mirrored over all GPUs, or over
two and over three virtual ones where there is one.
Losses and variables must agree within the tolerances below. After that comes the table of
`bench --gpu --quick`: gorbit and its peers on one GPU. The report goes to standard output; the
exit code is 1 where something does not agree or did not run, the table apart.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from harness import gpu

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCH = 32
ROWS = 16
VOCABULARY = 30522
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Dropout off; a constant rate, so that steps do not depend on how many there are.
COMPARED = (
    *("--schedule", "constant", "--warmup-ratio", "0", "--learning-rate", "1e-4"),
    *("--set", "optimizer.hyperparameters.hidden_dropout=0"),
    *("--set", "optimizer.hyperparameters.attention_dropout=0"),
    *("--set", "optimizer.hyperparameters.classifier_dropout=0"),
)
# Low enough that no step overflows: one that is passed over is another batch from there on.
FP16_SCALE = ("--set", "optimizer.hyperparameters.loss_scale=128")
_STEP = re.compile(r"train \| step:\s+\d+ \|")


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """What may differ from the CPU's float32.

    Attributes:
        loss: of any step's loss, relative to it.
        weights: of all variables together: norm of the difference by norm of the variables.
        moved: the same by the norm of what training changed. Adam divides a gradient by its
            size, so that one that is nearly zero turns rounding into steps of full length.
    """

    loss: float
    weights: float
    moved: float


TOLERANCES = {
    "float32": Tolerance(loss=1e-4, weights=1e-4, moved=5e-3),
    "bf16": Tolerance(loss=5e-3, weights=5e-3, moved=0.25),
    "fp16": Tolerance(loss=1e-3, weights=1e-3, moved=0.08),
}


class CheckError(Exception):
    """Something could not be run; the message is for the user."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A run to compare or to measure."""

    name: str
    precision: str
    flags: tuple[str, ...]
    xla: bool = False

    @property
    def graph(self) -> str:
        """The name of its export."""
        return f"graph-{self.precision}" + "-xla" * self.xla


def main(argv: Sequence[str] | None = None) -> int:
    """Checks the arguments."""
    args = parser().parse_args(argv)
    try:
        if args.device == "gpu":
            gpu.find()
        if args.probe:
            return 0
        with tempfile.TemporaryDirectory(prefix="check-gpu-") as folder:
            return check(args, pathlib.Path(args.keep or folder))
    except (CheckError, gpu.NoGpuError) as err:
        print(f"check-gpu: {err}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = argparse.ArgumentParser(prog="check_gpu.py", description=__doc__.splitlines()[0])
    add = p.add_argument
    add("--probe", action="store_true", help="only check whether there is a GPU")
    add("--device", choices=["gpu", "cpu"], default="gpu", help="cpu compares the CPU with itself")
    add("--config", default="minilm", help="model, as the exporter names them (default: minilm)")
    add("--steps", type=int, default=20, help="steps to compare (default: 20)")
    add("--timed-steps", type=int, default=100, help="steps to time, 0 for none (default: 100)")
    add(
        "--precisions",
        nargs="+",
        choices=list(TOLERANCES),
        default=list(TOLERANCES),
        help="default: all",
    )
    add(
        "--strategies",
        nargs="+",
        choices=["one", "xla", "mirrored"],
        default=["one", "xla", "mirrored"],
        help="xla is one device whose graph XLA compiles (default: all)",
    )
    add("--gorbit", default=str(ROOT / "bin" / "gorbit"), help="the program (default: bin/gorbit)")
    add("--no-bench", action="store_true", help="omit the table of gorbit and its peers")
    add("--keep", metavar="DIR", help="keep exports, data and runs in this folder")
    add(
        "--timeout",
        type=int,
        default=1800,
        help="time limit of a command in seconds (default: 1800)",
    )
    return p


def check(args: argparse.Namespace, folder: pathlib.Path) -> int:
    """Runs everything and prints the report."""
    folder.mkdir(parents=True, exist_ok=True)
    offer = json.loads(command(args, [args.gorbit, "devices", "--json", "--devices", args.device]))
    described = describe(offer)
    print(f"# gorbit on {described}\n", flush=True)
    data = make_data(args, folder)
    on_cpu = Case("cpu", "float32", ("--set", "runtime.device=/device:CPU:0"))
    chosen = cases(args, len(offer["devices"]))
    for case in {c.graph: c for c in [on_cpu, *chosen]}.values():
        export(args, folder, case)

    reference = train(args, folder, data, on_cpu)
    failures = []
    tell(f"{args.steps} steps of {args.config} against the CPU's in float32, batches of {BATCH}:")
    tell("\n| | precision | loss | weights | change of the weights | |\n" + "| --- " * 6 + "|")
    for case in chosen:
        try:
            run = train(args, folder, data, case)
            row, agrees = compare(args, folder / on_cpu.graph, reference, run, case)
        except CheckError as err:
            row, agrees = f"| {case.name} | {case.precision} | | | | failed: {err} |", False
        tell(row)
        if not agrees:
            failures.append(f"{case.name} in {case.precision}")
    for precision in args.precisions:
        t = TOLERANCES[precision]
        tell(
            f"\nTolerance in {precision}: loss {t.loss:g}, weights {t.weights:g}, "
            f"change {t.moved:g}, relative."
        )
    if args.timed_steps:
        speed(args, folder, data, chosen)
    if args.device == "gpu" and not args.no_bench:
        bench(args)
    if failures:
        print(f"check-gpu: does not agree with the CPU: {', '.join(failures)}", file=sys.stderr)
        return 1
    tell("\nAll agree.")
    return 0


def cases(args: argparse.Namespace, devices: int) -> list[Case]:
    """The runs that are compared and timed."""
    kind = args.device
    one = ("--set", f"runtime.device=/device:{kind.upper()}:0")
    # TensorFlow makes virtual devices where fewer are there than are asked for. Without NCCL,
    # two exchange gradients by edges of the graph, and only three by collectives.
    counts, virtual = ([devices], "") if devices > 1 else ([2, 3], "virtual ")
    options = {
        "one": [(f"one {kind}", one, False)],
        "xla": [(f"one {kind}, XLA", one, True)],
        "mirrored": [
            (
                f"mirrored, {n} {virtual}{kind}s",
                ("--strategy", "mirrored", "--devices", f"{kind}:{n}"),
                False,
            )
            for n in counts
        ],
    }
    chosen = [option for s in args.strategies for option in options[s]]
    return [Case(name, p, flags, xla) for p in args.precisions for name, flags, xla in chosen]


def describe(offer: dict) -> str:
    """Describes the devices and versions."""
    models = [d.get("model") or d["type"] for d in offer["devices"]]
    counted = [f"{models.count(m)} x {m}" for m in dict.fromkeys(models)]
    cuda = offer["cuda"]
    versions = f"TensorFlow {offer['tensorflow']}"
    if cuda.get("runtime"):
        versions += f", CUDA {cuda['runtime']}, driver's CUDA {cuda.get('driver', 'none')}"
    return f"{', '.join(counted)} ({versions})"


def tell(line: str) -> None:
    """Prints a line of the report at once: a run takes minutes."""
    print(line, flush=True)


def command(
    args: argparse.Namespace, words: Sequence[object], env: dict[str, str] | None = None
) -> str:
    """Runs a command and returns what it printed; its last line says why it failed."""
    words = [str(w) for w in words]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=args.timeout,
            check=False,
        )
    except FileNotFoundError:
        raise CheckError(f"{words[0]} is missing; run make build") from None
    except subprocess.TimeoutExpired:
        raise CheckError(f"{' '.join(words[:2])} took more than {args.timeout} seconds") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CheckError(f"exit code {done.returncode} of {' '.join(words[:2])}: {said[-1]}")
    return done.stdout


def make_data(args: argparse.Namespace, folder: pathlib.Path) -> pathlib.Path:
    """Writes pairs of random words, as long as MRPC's, as records."""
    rng = random.Random(1)
    words = [f"w{i}" for i in range(VOCABULARY - len(SPECIALS))]
    (folder / "vocab.txt").write_text("\n".join([*SPECIALS, *words]) + "\n")
    lines = ["label\ta\tb"]
    for _ in range(BATCH * 20):
        total = min(104, max(16, round(rng.gauss(53, 16)))) - 3
        pair = rng.choices(words, k=total)
        label = rng.randrange(2)
        lines.append(f"{label}\t{' '.join(pair[: total // 2])}\t{' '.join(pair[total // 2 :])}")
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")
    columns = ("--label-column", "label", "--text-column", "a", "--pair-column", "b")
    out = folder / "data"
    command(
        args,
        [
            *(args.gorbit, "convert", "--vocab", folder / "vocab.txt", *columns),
            *("--train", folder / "train.tsv", "--out", out, "--overwrite"),
        ],
    )
    return out


def export(args: argparse.Namespace, folder: pathlib.Path, case: Case) -> None:
    """Exports the model of a case; all begin with the same variables."""
    words = [sys.executable, "-m", "gorbit_export", "bert-classifier", "--config", args.config]
    words += ["--precision", case.precision, *(["--xla"] if case.xla else [])]
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    env = {**hidden, "PYTHONPATH": str(ROOT / "tools")}
    command(args, [*words, "--out", folder / case.graph, "--overwrite"], env)


def training(args: argparse.Namespace, graph: pathlib.Path, data: pathlib.Path) -> list[object]:
    """Returns the flags that all runs have in common."""
    return [
        *(args.gorbit, "train", "--progress", "off", "--graph", graph, "--data", data),
        *("--batch-size", BATCH, "--steps-per-loop", 1, "--eval-interval", -2),
        *("--set", f"data.rows={ROWS}"),  # or XLA's runs would have other batches on GPUs
        *("--set", "summary.enabled=false"),
    ]


def train(
    args: argparse.Namespace,
    folder: pathlib.Path,
    data: pathlib.Path,
    case: Case,
) -> pathlib.Path:
    """Trains the steps that are compared, and returns the run's folder."""
    run = folder / f"run-{case.name}-{case.precision}".replace(" ", "-").replace(",", "")
    shutil.rmtree(run, ignore_errors=True)
    words = [*training(args, folder / case.graph, data), "--run", run, "--steps", args.steps]
    if case.precision == "fp16":
        words += FP16_SCALE
    # With TF32 a float32 product has 10 bits; the CPU's has 23.
    command(
        args, [*words, *COMPARED, *case.flags, *slow(args, case)], {"NVIDIA_TF32_OVERRIDE": "0"}
    )
    return run


def slow(args: argparse.Namespace, case: Case) -> tuple[str, ...]:
    """Returns the flags that allow a CPU to emulate a precision."""
    if args.device == "cpu" and case.precision != "float32":
        return ("--set", "runtime.allow_slow_precision=true")
    return ()


def variables(prefix: str) -> dict:
    """The model's variables of a checkpoint, and the count of updates, by name."""
    # It is slow to load, and a probe does without. Reading a file touches no GPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    reader = tf.train.load_checkpoint(prefix)
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    names = [n for n in reader.get_variable_to_shape_map() if n.endswith(end)]
    kept = [n for n in names if n.startswith("model/") or n == "optimizer/iterations" + end]
    return {n[: -len(end)]: reader.get_tensor(n) for n in kept}


def outputs(run: pathlib.Path) -> list[dict]:
    """Returns the loss of every step, and in fp16 the number of steps skipped so far."""
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [e["outputs"] for e in entries if e["phase"] == "train"]


def compare(
    args: argparse.Namespace,
    graph: pathlib.Path,
    reference: pathlib.Path,
    run: pathlib.Path,
    case: Case,
) -> tuple[str, bool]:
    """A row of the table, and whether the run agrees with the reference."""
    import numpy as np

    begin = variables(str(graph / "variables" / "variables"))
    want, got = (variables(str(r / "checkpoints" / f"ckpt-{args.steps}")) for r in (reference, run))
    steps = int(got.pop("optimizer/iterations"))
    given = outputs(run)
    want.pop("optimizer/iterations")
    if want.keys() != got.keys():
        raise CheckError(f"variables differ by name: {sorted(want.keys() ^ got.keys())[:3]}")

    def norm(parts: list) -> float:
        return float(np.sqrt(sum(np.sum(np.square(p.astype(np.float64))) for p in parts)))

    apart = norm([got[n] - want[n] for n in want])
    found = Tolerance(
        loss=max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(given, outputs(reference))),
        weights=apart / norm(list(want.values())),
        moved=apart / norm([want[n] - begin[n] for n in want]),
    )
    bound = TOLERANCES[case.precision]
    verdict = "agrees"
    # Written so that NaN is a failure.
    if not (
        found.loss <= bound.loss and found.weights <= bound.weights and found.moved <= bound.moved
    ):
        verdict = "**differs**"
    if skipped := given[-1].get("skipped_steps", 0):
        verdict = f"**passed over {skipped:g} batches that overflowed**: other data than the CPU's"
    if steps != args.steps:
        verdict = f"**made {steps} updates**"
    row = f"{found.loss:.1e} | {found.weights:.1e} | {found.moved:.1e}"
    return f"| {case.name} | {case.precision} | {row} | {verdict} |", verdict == "agrees"


def speed(
    args: argparse.Namespace,
    folder: pathlib.Path,
    data: pathlib.Path,
    chosen: Sequence[Case],
) -> None:
    """Prints the speed of training, with TF32 and dropout at their defaults."""
    tell(f"\nTraining {args.config}, pairs of MRPC's lengths, batches of {BATCH}:")
    tell("\n| | precision | examples/s |\n| --- | --- | --- |")
    for case in chosen:
        words = [*training(args, folder / case.graph, data), "--run", folder / "timed"]
        words += ["--steps", args.timed_steps + args.timed_steps // 4, *case.flags]
        shutil.rmtree(folder / "timed", ignore_errors=True)
        try:
            rate = f"{timed([str(w) for w in [*words, *slow(args, case)]], args):,.1f}"
        except CheckError as err:
            rate = f"failed: {err}"
        tell(f"| {case.name} | {case.precision} | {rate} |")


def bench(args: argparse.Namespace) -> None:
    """Lets the benchmark print its table. A failure is printed; the exit code stays the same."""
    tell("\nGorbit and its peers on one GPU, by bench --gpu --quick:\n")
    words = [sys.executable, ROOT / "bench", "--gpu", "--quick", "--gorbit", args.gorbit]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run([str(w) for w in words], env=env, check=False)
    if done.returncode != 0:
        tell(f"\nThe table was not made: bench ended with exit code {done.returncode}.")


def timed(words: list[str], args: argparse.Namespace) -> float:
    """Examples per second of the median step after the first fifth, by the steps' lines.

    A shape that XLA meets then for the first time takes its compilation's time.
    """
    marks = []
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            for line in process.stdout:
                if _STEP.match(line):
                    marks.append(time.monotonic())
        if process.returncode != 0:
            log.seek(0)
            said = log.read().strip().splitlines() or ["it said nothing"]
            raise CheckError(said[-1])
    later = marks[len(marks) // 5 :]
    return BATCH / statistics.median(b - a for a, b in zip(later, later[1:]))


if __name__ == "__main__":
    sys.exit(main())
