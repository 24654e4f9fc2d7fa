// Package train puts the parts together: from the params of a run it opens the
// graph, the data, a strategy and the checkpoints, and trains, evaluates and
// predicts. The commands of cmd/gorbit are thin shells over it.
//
// A run lives in a folder:
//
//	params.yaml        what the run was started with, resolved
//	init.txt           what the initial weights filled, tensor by tensor
//	checkpoints/       ckpt-<step>.*, and TensorFlow's checkpoint state file
//	metrics.jsonl      one line per loop and evaluation, without times: equal bit
//	                   for bit however often the run was stopped and resumed
//	train/, eval/      TensorBoard event files
//	vocab.txt,         of the data, so that the run predicts and exports without it
//	data.json
//
// # Own callbacks
//
// Env.TrainActions and Env.EvalActions run behind those of the run: one that returns
// runner.ErrStopTraining ends the training well, one that returns runner.ErrStopped stops the
// run to be continued. What Env.Persist names is saved with the checkpoints. None of them
// changes what the run computes.
//
// # Own loops
//
// [Model], [Source], [Checkpoints] and [Initialize] connect a strategy, a dataset and the
// checkpoints with the interfaces of package runner, or with a loop of one's own:
// examples/customloop is one.
//
// # Files
//
// Files call one way, from the use of a run to its parts:
//
//	run, predict    a run folder that is evaluated or asked
//	train           Train, and what is done when a worker is lost
//	attempt         one try: builds the loop and runs it
//	training, past  what a training knows before the first step, and of earlier processes
//	setup           params, graph and data, opened and checked
//	local, source, model, checkpoints, initialize    between strategy, data and loop
//	strategy, data, metrics, board, replicas         one part of the run each
//	params, env     what the caller says
//
// go test ./internal/archtest -run FilesCallOneWay -v prints the order of all files.
package train
