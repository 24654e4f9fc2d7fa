"""Writes golden.json: densities and judgements of Optuna, for the tests of package tune.

Run with a Python that has optuna (5.0.0): python golden.py
"""

import json
import math
import pathlib
import random
import warnings

import numpy as np
import optuna
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.samplers._tpe.parzen_estimator import (
    _ParzenEstimator,
    _ParzenEstimatorParameters,
)
from optuna.samplers._tpe.sampler import default_weights

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def densities(draw: random.Random) -> list[dict]:
    """The logarithm of the density of values, for numbers of observations up to 40.

    Values with steps are fewer: of more than 16, numpy's argsort leaves equal ones in no order.
    """
    out = []
    for d in (
        FloatDistribution(-1.0, 3.0),
        FloatDistribution(1e-5, 1e-1, log=True),
        FloatDistribution(0.0, 0.3, step=0.1),
        IntDistribution(1, 64, log=True),
        IntDistribution(0, 100, step=10),
        CategoricalDistribution(["a", "b", 3]),
    ):
        for n in (0, 1, 2, 7, 15 if getattr(d, "step", None) else 40):
            one = optuna.create_study(
                sampler=optuna.samplers.RandomSampler(seed=draw.randrange(999))
            )
            values = [
                d.to_internal_repr(one.ask({"x": d}).params["x"]) for _ in range(n + 8)
            ]
            seen, at = values[:n], values[n:]
            estimator = _ParzenEstimator(
                {"x": np.array(seen)},
                {"x": d},
                _ParzenEstimatorParameters(1.0, True, False, default_weights, True),
            )
            logs = estimator.log_pdf({"x": np.array(at)}).tolist()
            out.append(
                {
                    "distribution": distribution_to_json(d),
                    "seen": seen,
                    "at": at,
                    "log": logs,
                }
            )
    return out


def judgements(draw: random.Random) -> list[dict]:
    """Which report of a trial is its last, for trials one after the other."""
    out = []
    for name, make in (
        (
            "median",
            lambda: optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=2),
        ),
        (
            "asha",
            lambda: optuna.pruners.SuccessiveHalvingPruner(
                min_resource=1, reduction_factor=2
            ),
        ),
    ):
        for direction in ("maximize", "minimize"):
            study = optuna.create_study(direction=direction, pruner=make())
            trials = []
            for number in range(24):
                peak = draw.random()
                reports = [
                    round(peak * (1 - 0.5**i) + draw.random() / 10, 6)
                    for i in range(1, 9)
                ]
                if number == 9:
                    reports[0] = math.nan
                t, last = study.ask(), len(reports)
                for i, value in enumerate(reports, 1):
                    t.report(value, i)
                    if t.should_prune():
                        last = i
                        study.tell(t, state=optuna.trial.TrialState.PRUNED)
                        break
                else:
                    best = max if direction == "maximize" else min
                    study.tell(t, best(v for v in reports if not math.isnan(v)))
                pruned = study.trials[number].state == optuna.trial.TrialState.PRUNED
                texts = [str(v) for v in reports]
                trials.append({"reports": texts, "last": last, "pruned": pruned})
            out.append({"pruner": name, "direction": direction[:3], "trials": trials})
    return out


draw = random.Random(1)
golden = {"densities": densities(draw), "judgements": judgements(draw)}
path = pathlib.Path(__file__).with_name("golden.json")
path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
