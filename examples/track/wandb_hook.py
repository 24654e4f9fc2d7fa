"""Sends a run to Weights & Biases: gorbit track runs/mrpc --follow -- python3 wandb_hook.py.

Each line of standard input is a JSON object; docs/guide/track.md says what is in them. The run's
folder keeps the id of the run there, in wandb.json, so that the same command continues it. A hook
gets the whole run each time, and leaves out the steps that are there. WANDB_PROJECT and the other
variables of wandb say where to.
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


class Rows:
    """Sends one row for each step.

    A step's metrics of training and evaluation are lines of their own here, and one row there: a
    run that is continued takes no second row of a step.
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
        self.step, self.row = 0, {}

    def add(self, event: dict[str, Any]) -> None:
        """Adds the metrics of a step, and sends the row of the step before."""
        if event["step"] != self.step:
            self.send()
            self.step = event["step"]
        for name, value in event["metrics"].items():
            self.row[f"{event['phase']}/{name}"] = float(value)

    def send(self) -> None:
        """Sends the row, unless the run had it before it was continued."""
        if self.row and self.step >= self.run.step:
            self.run.log(self.row, step=self.step)
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
