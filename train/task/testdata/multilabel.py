"""Writes multilabel.json: metrics of several labels per example by scikit-learn.

python -m venv venv
venv/bin/pip install scikit-learn
venv/bin/python train/task/testdata/multilabel.py
"""

import json
import pathlib

import numpy as np
from sklearn import metrics

BINS = 500


def main() -> None:
    """Writes the file."""
    rng = np.random.default_rng(4)
    cases = []
    for name, count, labels in [("some", 60, 3), ("rare", 40, 5), ("two", 30, 2)]:
        y = (rng.random((count, labels)) < np.linspace(0.5, 0.1, labels)).astype(int)
        # In the middle of bins, so that only those in one bin are equal.
        p = (
            np.floor(
                BINS * np.clip(0.3 * y + 0.7 * rng.random((count, labels)), 0, 0.999)
            )
            + 0.5
        ) / BINS
        guess = (p >= 0.5).astype(int)
        defined = [i for i in range(labels) if 0 < y[:, i].sum() < count]
        want = {
            f"micro_{k}": f(y, guess, average="micro", zero_division=0)
            for k, f in [
                ("f1", metrics.f1_score),
                ("precision", metrics.precision_score),
                ("recall", metrics.recall_score),
            ]
        }
        each = metrics.f1_score(y, guess, average=None, zero_division=0)
        present = [i for i in range(labels) if y[:, i].sum() + guess[:, i].sum() > 0]
        want |= {f"f1_{i}": v for i, v in enumerate(np.atleast_1d(each))}
        want["macro_f1"] = float(np.mean([np.atleast_1d(each)[i] for i in present]))
        want["auc"] = float(
            np.mean([metrics.roc_auc_score(y[:, i], p[:, i]) for i in defined])
        )
        cases.append(
            {
                "name": name,
                "labels": y.tolist(),
                "probabilities": p.tolist(),
                "want": want,
            }
        )
    path = pathlib.Path(__file__).resolve().parent / "multilabel.json"
    path.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
