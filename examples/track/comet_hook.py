"""Sends a run to Comet: gorbit track runs/mrpc --follow -- python3 comet_hook.py.

Each line of standard input is a JSON object; docs/guide/track.md says what is in them. The run's
folder keeps the key of the experiment, and which steps of each phase it has, in comet.json, so that
the same command continues it. COMET_API_KEY and the other variables of comet_ml say where to.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import uuid
from typing import Any

import comet_ml

# Metrics between two records of what was sent. A hook that is killed sends at most so many again.
FLUSH_EVERY = 50


class Experiment:
    """An experiment of Comet, and what it has of the run."""

    def __init__(self, event: dict[str, Any]) -> None:
        """Begins the experiment, or continues it, with the event that describes the run."""
        folder = pathlib.Path(event["folder"])
        self.path = folder / "comet.json"
        # The key is kept before anything is sent: a hook that is killed has no second experiment.
        self.state: dict[str, Any] = {"key": uuid.uuid4().hex, "sent": {}}
        if self.path.exists():
            self.state = json.loads(self.path.read_text())
        self.keep()
        self.comet = comet_ml.start(
            project_name=os.environ.get("COMET_PROJECT_NAME", "gorbit"),
            experiment_key=self.state["key"],
            mode="get_or_create",
        )
        self.comet.set_name(folder.name)
        self.comet.log_parameters(event["params"])
        self.sent, self.unkept = dict(self.state["sent"]), 0

    def keep(self) -> None:
        """Keeps the state in the run's folder."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.state))
        part.replace(self.path)

    def add(self, event: dict[str, Any]) -> None:
        """Sends the metrics of a step that the experiment does not have."""
        phase, step = event["phase"], event["step"]
        if step <= self.sent.get(phase, -1):
            return
        values = {f"{phase}/{name}": float(value) for name, value in event["metrics"].items()}
        self.comet.log_metrics(values, step=step)
        self.sent[phase] = step
        self.unkept += 1
        if self.unkept == FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Waits until Comet has what was sent, and keeps that it does."""
        if self.unkept and self.comet.flush():
            self.state["sent"], self.unkept = dict(self.sent), 0
            self.keep()

    def end(self, event: dict[str, Any]) -> None:
        """Sends how the run ended."""
        others = {"state": event["state"], "step": event["step"]}
        if best := event.get("best"):
            others |= {f"best/{best['metric']}": float(best["value"]), "best/step": best["step"]}
        self.comet.log_others(others)
        self.flush()
        self.comet.end()


def main() -> None:
    """Reads the events of a run and sends them."""
    experiment = None
    for line in sys.stdin:
        event = json.loads(line)
        if event["event"] == "run":
            experiment = Experiment(event)
        elif event["event"] == "metrics":
            experiment.add(event)
        elif event["event"] == "end":
            experiment.end(event)


if __name__ == "__main__":
    main()
