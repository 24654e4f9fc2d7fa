// Package tune searches over params: it says which params the next trial has, whether a trial is worth
// continuing, and what its value is.
//
// It does no input or output. A Study is a state machine over a journal: the driver reads lines of
// the journal and passes them to Study.Apply; it calls Ask, Report and End, which return operations
// and change nothing; it appends these to the journal, and applies them once they are there. So the
// journal is all the state that there is. A driver that is killed at any point and starts again
// applies the same lines and is where it was.
//
// What a study does next depends on nothing but its configuration and its journal. The random
// numbers of a trial's param come from the study's seed, the trial's number and the param's name. A
// trial is judged when its report is applied, so that the same journal gives the same judgements.
//
// The journal is that of Optuna's JournalStorage (optuna/storages/journal/_storage.py): one JSON
// object a line. Python's optuna opens it and continues the study, and a Study continues one that
// optuna has added trials to. Samplers and pruners are those of Optuna as well, with its defaults:
// random search, grid search, the tree-structured Parzen estimator (Bergstra et al., Algorithms for
// Hyper-Parameter Optimization, 2011) that draws each param by itself, the median rule (Golovin et
// al., Google Vizier, 2017) and asynchronous successive halving (Li et al., A System for Massively
// Parallel Hyperparameter Tuning, 2020).
package tune
