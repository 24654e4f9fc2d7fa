// Package runner implements the training loop: a Controller that interleaves training, evaluation,
// checkpoints, summaries and actions in the manner of Orbit (the outer loop of the TensorFlow Model
// Garden), and standard implementations of the Trainer and Evaluator that it drives.
//
// The package computes nothing itself and does not depend on TensorFlow. It reaches the model, the
// data, the checkpoints and the event files through small interfaces declared here ([Model],
// [EvalModel], [Source], [Checkpointer], [Summaries], [Observer]), so that scripted tests can run
// the loop as a state machine.
//
// # Terms
//
// A step is one applied optimizer update; the global step is the graph's own counter of updates. A
// batch whose update was skipped is not a step. A loop is a series of steps during which the
// Controller does nothing else. Loops end at multiples of StepsPerLoop, SaveInterval,
// SummaryInterval and the evaluation interval, counted from step 0, at the last step and, with LogFirstStep, at the first. Every
// completed loop writes one log line.
//
// # Resuming
//
// The output of a step depends only on that step and never on where an earlier process ended:
//
//   - the ends of loops are functions of the absolute step;
//   - the sums of a loop that was interrupted by a stop are part of the saved state, and the loop
//     continues after the restart;
//   - saving is the last thing that happens at a step: the lines, summaries, evaluation and actions
//     of step N all precede the checkpoint of step N, so the log of a killed run up to its last
//     checkpoint, followed by the log of the resumed run, equals the log of an uninterrupted run
//     (except for times).
//
// An evaluation that was interrupted by a stop or an error is recorded as pending and runs first
// after the restart.
//
// # Stopping
//
// To stop a run, cancel the context passed to the Controller's methods. The current step is
// finished (steps and saves never see the cancellation), a checkpoint is saved, and the method
// returns an error that wraps [ErrStopped].
//
// # Units
//
// Learning rates are per step. Rates are per second of training time, without evaluation and
// saving. Losses and metrics are means over weighted examples, computed from sums in float64.
//
// # Sources
//
// Control flow and log lines follow Orbit's documentation (Controller.train, evaluate,
// train_and_evaluate, evaluate_continuously). Schedules follow the get_*_schedule functions of
// Hugging Face Transformers; each names its formula.
package runner
