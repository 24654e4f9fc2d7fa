"""Sends a run to Weights & Biases: gorbit track runs/mrpc --follow -- python3 wandb_hook.py.

Each line of standard input is a JSON object; docs/guide/track.md says what is in them. The run's
folder keeps the id of the run there, in wandb.json, so that the same command continues it. A hook
gets the whole run each time, and leaves out what is there. WANDB_PROJECT and the other variables of
wandb say where to.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import uuid
from typing import Any

import wandb


def run_id(folder: pathlib.Path) -> str:
    """Returns the id of a run folder's run at Weights & Biases, a new one for a new run.

    It is kept before anything is sent: a hook that is killed has no second run.
    """
    path = folder / "wandb.json"
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"id": uuid.uuid4().hex}))
        part.replace(path)
    return json.loads(path.read_text())["id"]


def same(value: float, kept: Any) -> bool:
    """Returns whether a value is the one that the run has, where NaN and Infinity may be text."""
    if kept is None:
        return False
    other = float(kept)
    return value == other or (value != value and other != other)


class Rows:
    """Sends a row for each step, with the metrics of its training and evaluation.

    A row that was sent cannot be changed. What the last one lacks, such as an evaluation that a
    continued run makes at the step at which it was stopped, is a second row of the step. So the
    charts go by the rows' value "step", and not by the number of the row.
    """

    def __init__(self, event: dict[str, Any]) -> None:
        """Begins the run, or continues it, with the event that describes it."""
        folder = pathlib.Path(event["folder"])
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "gorbit"),
            id=run_id(folder),
            resume="allow",
            name=folder.name,
            config=event["params"],
        )
        self.run.define_metric("*", step_metric="step")
        # The last step that the run has. Rows of earlier versions of this file have no "step".
        self.sent = int(self.run.summary.get("step", self.run.step - 1))
        self.step, self.row = 0, {}

    def add(self, event: dict[str, Any]) -> None:
        """Adds the metrics of a step, and sends the row of the step before."""
        if event["step"] != self.step:
            self.send()
            self.step = event["step"]
        for name, value in event["metrics"].items():
            self.row[f"{event['phase']}/{name}"] = float(value)

    def send(self) -> None:
        """Sends the row, or what the run does not have of it."""
        row = self.row if self.step >= self.sent else {}
        if self.step == self.sent:
            row = {k: v for k, v in row.items() if not same(v, self.run.summary.get(k))}
        if row:
            self.run.log({**row, "step": self.step}, step=max(self.step, self.run.step))
            self.sent = self.step
        self.row = {}

    def end(self, event: dict[str, Any]) -> None:
        """Sends the last row and how the run ended."""
        self.send()
        self.run.summary["state"] = event["state"]
        if best := event.get("best"):
            self.run.summary[f"best/{best['metric']}"] = float(best["value"])
            self.run.summary["best/step"] = best["step"]
        self.run.finish(exit_code=1 if event["state"] == "failed" else 0)


def main() -> None:
    """Reads the events of a run and sends them."""
    rows = None
    for line in sys.stdin:
        event = json.loads(line)
        if event["event"] == "run":
            rows = Rows(event)
        elif event["event"] == "metrics":
            rows.add(event)
        elif event["event"] == "end":
            rows.end(event)


if __name__ == "__main__":
    main()
