"""Asks a served model what digits the first rows of a table show.

    python examples/digits/ask.py --model served/digits/1 --table digits/dev.csv

The request and the reply have the form of TensorFlow Serving's REST API. With --url, as of
http://localhost:8501/v1/models/digits:predict, they go to a server; without it, TensorFlow loads
the folder and answers here.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import urllib.request
from typing import Any

SIDE = 8


def request(table: pathlib.Path, rows: int) -> tuple[dict[str, Any], list[str]]:
    """Returns a request for the first rows of a table, and the digits that they show."""
    with open(table, encoding="utf-8") as file:
        first = [row for row, _ in zip(csv.DictReader(file), range(rows))]
    instances = []
    for row in first:
        pixels = [[int(row[f"pixel{i}"])] for i in range(SIDE * SIDE)]
        instances.append({"image": [pixels[y : y + SIDE] for y in range(0, len(pixels), SIDE)]})
    return {"signature_name": "serving_default", "instances": instances}, [
        row["digit"] for row in first
    ]


def answer(model: pathlib.Path, body: dict[str, Any]) -> dict[str, Any]:
    """Answers a request with a folder, as TensorFlow Serving would."""
    import numpy as np
    import tensorflow as tf

    served = tf.saved_model.load(str(model))
    signature = served.signatures[body["signature_name"]]
    inputs = {}
    for name, spec in signature.structured_input_signature[1].items():
        values = np.array([one[name] for one in body["instances"]], spec.dtype.as_numpy_dtype)
        inputs[name] = tf.constant(values)
    outputs = {name: value.numpy() for name, value in signature(**inputs).items()}
    count = len(body["instances"])
    return {
        "predictions": [{k: v[i].tolist() for k, v in outputs.items()} for i in range(count)],
    }


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Asks a served model for the digits of a table.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--model", type=pathlib.Path, help="folder that gorbit export wrote")
    where.add_argument("--url", help="address of a model at TensorFlow Serving, with :predict")
    parser.add_argument("--table", required=True, type=pathlib.Path, help="CSV file of digits")
    parser.add_argument("--rows", type=int, default=3, help="how many (default: %(default)s)")
    args = parser.parse_args()
    body, digits = request(args.table, args.rows)
    if args.url:
        data = json.dumps(body).encode()
        with urllib.request.urlopen(args.url, data, timeout=60) as reply:
            replied = json.load(reply)
    else:
        replied = answer(args.model, body)
    for digit, one in zip(digits, replied["predictions"]):
        best = max(range(10), key=one["probabilities"].__getitem__)
        print(f"the digit {digit} is read as {best}, with {one['probabilities'][best]:.2f}")


if __name__ == "__main__":
    main()
