"""Opens the journal of a study with optuna, prints its trials as JSON, and adds a trial."""

import json
import sys

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(
    study_name=sys.argv[2], storage=JournalStorage(JournalFileBackend(sys.argv[1]))
)
assert study.direction == optuna.study.StudyDirection.MAXIMIZE
assert study.metric_names == ["accuracy"]
trials = [
    {
        "number": t.number,
        "state": t.state.name.lower(),
        "params": t.params,
        "value": t.value,
        "reports": {str(step): str(v) for step, v in t.intermediate_values.items()},
        "run": t.user_attrs.get("gorbit:run", ""),
    }
    for t in study.get_trials()
]
best = study.best_trial.number
distributions = study.trials[0].distributions
trial = study.ask(distributions)
assert set(trial.params) == set(distributions)
trial.report(float("nan"), 10)
trial.report(0.97, 20)
study.tell(trial, 0.97)
other = study.ask()
other.suggest_float("optimizer.learning_rate", 1e-5, 1e-2, log=True)
study.tell(other, state=optuna.trial.TrialState.FAIL)
added = {"number": trial.number, "rate": trial.params["optimizer.learning_rate"]}
print(json.dumps({"trials": trials, "best": best, "added": added}))
