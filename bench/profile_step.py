"""Prints which parts of a training step take its processor time, as a table.

The results are in docs/measurements/performance.md.

Usage: python bench/profile_step.py --graph exports/mean --data data/mrpc

It runs the step benchmark of package train under Linux's perf, once with TensorFlow's own
operations and once with gorbit's kernels and lanes, which are the defaults of gorbit train. It then
assigns the functions that perf saw to parts.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile

from peers.base import ROOT

# Part of a step, and patterns of the file and the name of a function. The first match decides.
PARTS = (
    ("matrix products", r"^\[JIT\]", r""),
    ("matrix products", r"", r"dnnl|mkldnn|gemm|gebp|TensorContraction"),
    ("attention's own kernels", r"^train\.test", r"attention|score_|product_"),
    ("dropout, residual and layer norm, kernels", r"^train\.test", r"norm"),
    ("GELU, kernels", r"^train\.test", r"gelu"),
    ("AdamW and the gradient's norm", r"", r"^adam_|^squares_|[Aa]pplyAdam|L2Loss"),
    ("random numbers", r"", r"[Pp]hilox|[Rr]andom"),
    ("softmax, exponentials and error function", r"", r"[Ss]oftmax|exp_op|erf|logistic"),
    ("embeddings", r"", r"[Ss]egment|[Gg]ather|[Ss]catter|HandleCopies"),
    ("TensorFlow's other operations on numbers", r"^libtensorflow", r"Eigen|functor"),
    ("TensorFlow's executor and the rest of it", r"^libtensorflow", r""),
    ("system and C library", r"", r""),
)
WARM_UP_MS = 9000


def main() -> int:
    """Reads the arguments and prints the table."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--graph", required=True, help="an export")
    p.add_argument("--data", required=True, help="folder that gorbit convert wrote")
    p.add_argument("--steps", type=int, default=40)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        test = os.path.join(scratch, "train.test")
        build = f"source .tf/env && go test -c -o '{test}' ./train"
        subprocess.run(["bash", "-c", build], cwd=ROOT, check=True)
        settings = {
            "TensorFlow's operations alone": {"GORBIT_BENCH_STANDARD": "1"},
            "gorbit's kernels, lanes": {},
        }
        shares, steps = {}, {}
        for name, extra in settings.items():
            env = {"GORBIT_BENCH_GRAPH": os.path.abspath(args.graph)}
            env |= {"GORBIT_BENCH_DATA": os.path.abspath(args.data)} | extra
            shares[name], steps[name] = profile(test, scratch, args.steps, env)
    print("\n" + table(shares, steps))
    return 0


def profile(
    test: str, scratch: str, steps: int, extra: dict[str, str]
) -> tuple[dict[str, float], float]:
    """Returns the share of each part, and the processor seconds of a step."""
    data = os.path.join(scratch, "perf.data")
    command = ["perf", "record", "-q", "-o", data, "-F", "1000", "-D", str(WARM_UP_MS), test]
    command += ["-test.run", "^$", "-test.bench", "Step", "-test.benchtime", f"{steps}x"]
    out = subprocess.run(
        command, env=os.environ | extra, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    print(out.strip(), file=sys.stderr)
    report = subprocess.run(
        ["perf", "report", "-i", data, "--no-children", "--sort", "dso,symbol", "-t", "\t"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout
    cpu = re.search(r"([\d.]+) cpu-s/op", out)
    if cpu is None:
        sys.exit("profile_step: the step benchmark reported no processor time")
    return sort(report), float(cpu[1])


def sort(report: str) -> dict[str, float]:
    """Returns the sum of each part of a perf report, whose lines are share, file and function."""
    shares: dict[str, float] = collections.defaultdict(float)
    for line in report.splitlines():
        fields = [f.strip() for f in line.split("\t")]
        if len(fields) < 3 or not fields[0].endswith("%"):
            continue
        function = re.sub(r"^\[\S\] ", "", fields[2])
        part = next(
            name
            for name, file, pattern in PARTS
            if re.search(file, fields[1]) and re.search(pattern, function)
        )
        shares[part] += float(fields[0].rstrip("%"))
    return shares


def table(shares: dict[str, dict[str, float]], steps: dict[str, float]) -> str:
    """Returns the table: a row for each part, with milliseconds per step and shares."""
    names = list(dict.fromkeys(name for name, _, _ in PARTS))
    lines = ["| ms of processor time per step, and share | " + " | ".join(shares) + " |"]
    lines.append("| --- |" + " --- |" * len(shares))
    for name in names:
        cells = []
        for setting, share in shares.items():
            percent = 100 * share.get(name, 0) / max(sum(share.values()), 1e-9)
            cells.append(f"{10 * percent * steps[setting]:.0f} ({percent:.1f} %)")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    total = " | ".join(f"{1000 * s:.0f}" for s in steps.values())
    lines.append(f"| all | {total} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
