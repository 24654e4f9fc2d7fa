// Package study runs the trials of a study of package tune: each is a gorbit train process in a run
// folder of its own.
//
// The folder of a study has these files. journal.log is the only one that a study depends on.
//
//	journal.log      what was tried and found; Optuna's journal
//	base.yaml        the params that all trials have
//	trials/0007/     the run of a trial
//	logs/0007.log    what its processes printed
//	best.yaml        the params of the best trial
//	report.html      the best trials side by side
//
// A Driver that was killed continues where the journal ends. The trials that ran then are run again
// by the same command, which makes gorbit train continue them from their last checkpoint, bit for
// bit; the evaluations that they make once more are in the journal already and are not told again.
package study
