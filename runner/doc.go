// Package runner is the training loop: a Controller that interleaves training,
// evaluation, checkpoints, summaries and actions in the manner of Orbit (the
// outer loop of the TensorFlow Model Garden), and standard Trainer and
// Evaluator implementations for it to drive.
//
// The package computes nothing itself and knows no TensorFlow. It reaches the
// model, the data, the checkpoints and the event files through small
// interfaces declared here ([Model], [EvalModel], [Source], [Checkpointer],
// [Summaries], [Observer]), so the loop is tested as a state machine from
// scripts.
//
// # Words
//
// A step is one applied optimizer update; the global step is the graph's own
// counter of them. A batch whose update was skipped is not a step. A loop is a
// run of steps between two looks of the Controller. Loops end at multiples of
// StepsPerLoop, SaveInterval, SummaryInterval and the evaluation interval,
// counted from step 0, and at the last step; every loop that ends gives one log
// line.
//
// # Resuming
//
// What is printed at a step depends on that step alone and never on where an
// earlier process ended:
//
//   - the ends of loops are functions of the absolute step;
//   - the sums of a loop that a stop signal cut short are part of the saved
//     state and are continued after the restart;
//   - saving is the last thing that happens at a step: the lines, summaries,
//     evaluation and actions of step N all precede the checkpoint of step N, so
//     the log of a killed run up to its last checkpoint, followed by the log of
//     the resumed run, is the log of the uninterrupted one (times aside).
//
// An evaluation that a stop signal or an error cut short is recorded as still
// to be done and is done first after the restart.
//
// # Stopping
//
// Cancelling the context given to the Controller's methods is the request to
// stop: the step under way is finished (steps and saves never see the
// cancellation), a checkpoint is saved and the method returns an error that
// wraps [ErrStopped].
//
// # Units
//
// Learning rates are per step, rates are per second of training time
// (evaluation and saving not counted), losses and metrics are means over
// weighted examples, computed from sums in float64.
//
// # Sources
//
// Control flow and log lines follow Orbit's documentation (Controller.train,
// evaluate, train_and_evaluate, evaluate_continuously). Schedules follow the
// get_*_schedule functions of Hugging Face Transformers; each names its
// formula.
package runner
