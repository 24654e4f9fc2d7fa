"""Writes regression.json: metrics of regressions by scikit-learn and SciPy.

python -m venv venv
venv/bin/pip install scikit-learn scipy
venv/bin/python train/task/testdata/regression.py
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
    for name, count, mean, noise in [
        ("good", 50, 3, 0.5),
        ("poor", 20, -1, 9),
        ("far", 40, 1e4, 1),
    ]:
        y = rng.normal(mean, 2, count).astype(np.float32).astype(np.float64)
        p = (y + rng.normal(0, noise, count)).astype(np.float32).astype(np.float64)
        want = {
            "mse": metrics.mean_squared_error(y, p),
            "mae": metrics.mean_absolute_error(y, p),
            "r2": metrics.r2_score(y, p),
            "pearson": stats.pearsonr(y, p)[0],
        }
        cases.append(
            {
                "name": name,
                "labels": y.tolist(),
                "predictions": p.tolist(),
                "want": want,
            }
        )
    path = pathlib.Path(__file__).resolve().parent / "regression.json"
    path.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
