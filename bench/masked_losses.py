"""Trains a masked language model with gorbit and its peers, and prints their losses side by side.

Usage: python bench/masked_losses.py [--steps 500] [--every 50] [--peers hf] [--text FILE]

gorbit and Hugging Face begin with the encoder of the demo's weights and a new head, and Keras with
weights drawn at random. All see the same blocks of text, each in an order and with masks of its
own: the losses of single batches differ, their means should not. The learning rate rises for a
tenth of the steps and then falls to zero. Each number is the mean of the steps since the one
before it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import subprocess
import sys
import tempfile

import peers
from harness import cli, lines, machine, plan, tables
from peers.base import ROOT
from suites import base, mlm

_LOOP = re.compile(r"train \| step:\s+(\d+) .*'loss': ([\d.]+)")
_LOSS = re.compile(r"loss_(\d+)$")


def main() -> int:
    """Reads the arguments, trains, and prints the table."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--every", type=int, default=50, help="steps between two losses")
    p.add_argument("--batch", type=int, default=plan.BATCH, help="blocks of a batch (default: 32)")
    p.add_argument("--size", default="minilm", choices=["minilm"], help="that of the weights")
    p.add_argument("--learning-rate", default="1e-4")
    p.add_argument("--weights", default=os.path.join(ROOT, ".cache", "minilm"))
    known = ("gorbit", "keras", "hf")
    p.add_argument("--peers", nargs="+", choices=known, default=["gorbit", "hf"])
    p.add_argument("--text", help="as in make bench")
    p.add_argument("--venvs", metavar="DIR", help="as in make bench")
    args = p.parse_args()
    given = ["--only", "mlm", "--quick", "--steps", str(args.steps - plan.WARM_STEPS)]
    for name in ("text", "venvs"):
        if value := getattr(args, name):
            given += [f"--{name}", value]
    options = cli.choose(cli.parser().parse_args(given))
    found = {}
    for peer in peers.MASKED:
        name = peer.name.removesuffix("-mlm")
        if name in args.peers:
            found[name] = losses(options, peer, args)
    header = ["steps", *found]
    steps = sorted({step for told in found.values() for step in told})
    rows = [
        [str(s), *(f"{told[s]:.3f}" if s in told else "" for told in found.values())] for s in steps
    ]
    print(tables.markdown(header, rows))
    return 0


def losses(options: base.Options, peer: peers.Peer, args: argparse.Namespace) -> dict[int, float]:
    """Trains with a peer and returns its mean losses by step."""
    more = {
        "losses": str(args.every),
        "learning_rate": args.learning_rate,
        "batch": str(args.batch),
    }
    if peer.name != "keras-mlm":  # whose library has names of its own for the weights
        more["weights"] = args.weights
    variant = peer.variants[0]
    steps = args.steps - plan.WARM_STEPS
    job = mlm.training(options, peer, variant, args.size, steps, more).job
    with tempfile.TemporaryDirectory() as scratch:
        job = dataclasses.replace(job, scratch=scratch)
        command = peer.command(job, options.settings.venvs[peer.venv].python)
        env = {**machine.environment(), **variant.env}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"masked_losses: {peer.name} ended with exit code {done.returncode}")
    told: dict[int, float] = {}
    for line in done.stdout.splitlines():
        if match := _LOOP.match(line):
            told[int(match[1])] = float(match[2])
        elif isinstance(mark := lines.parse(line), lines.Info):
            for name, value in mark.values.items():
                if step := _LOSS.match(name):
                    told[int(step[1])] = float(value)
    return told


if __name__ == "__main__":
    sys.exit(main())
