"""Writes ranks.json: rank correlations by SciPy and areas under the ROC curve by scikit-learn.

python -m venv venv
venv/bin/pip install scikit-learn scipy
venv/bin/python train/task/testdata/ranks.py
"""

import json
import pathlib

import numpy as np
from scipy import stats
from sklearn import metrics


def main() -> None:
    """Writes the file."""
    rng = np.random.default_rng(4)
    cases = []
    for name, count, steps in [
        ("distinct", 50, None),
        ("ties", 60, 4),
        ("few", 3, None),
    ]:
        y = rng.normal(0, 1, count)
        p = y + rng.normal(0, 1, count)
        if steps:
            y, p = np.round(y * steps) / steps, np.round(p * steps) / steps
        w = rng.integers(0, 4, count)
        w[:2] = 1
        y, p = (v.astype(np.float32).astype(np.float64) for v in (y, p))
        positive = y > np.median(y)
        cases.append(
            {
                "name": name,
                "labels": y.tolist(),
                "predictions": p.tolist(),
                "positive": positive.astype(int).tolist(),
                "weights": w.tolist(),
                "spearman": stats.spearmanr(y, p)[0],
                # SciPy has no weights: an example of weight 2 is there twice.
                "weighted_spearman": stats.spearmanr(np.repeat(y, w), np.repeat(p, w))[
                    0
                ],
                "auc": metrics.roc_auc_score(positive, p),
                "weighted_auc": metrics.roc_auc_score(positive, p, sample_weight=w),
            }
        )
    path = pathlib.Path(__file__).resolve().parent / "ranks.json"
    path.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
