"""Sends a run to Weights & Biases: gorbit track runs/mrpc --follow -- python3 wandb_hook.py.

Each line of standard input is a JSON object; docs/guide/track.md says what is in them. The same few
lines serve any tracker that has a Python package.
"""

import json
import pathlib
import sys

import wandb

run = None
for line in sys.stdin:
    event = json.loads(line)
    if event["event"] == "run":
        folder = pathlib.Path(event["folder"])
        run = wandb.init(project="gorbit", name=folder.name, config=event["params"])
    elif event["event"] == "metrics":
        values = {f"{event['phase']}/{name}": float(v) for name, v in event["metrics"].items()}
        run.log(values, step=event["step"])
    elif event["event"] == "end":
        run.finish(exit_code=0 if event["state"] == "finished" else 1)
