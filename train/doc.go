// Package train runs trainings: from the params of a run (package params) it opens the graph, the
// data, a strategy and the checkpoints, and trains, evaluates and predicts. The commands of
// cmd/gorbit are thin wrappers around it.
//
// A run has a folder:
//
//	params.yaml        the resolved params of the run
//	init.txt           what happened to each tensor of the initial weights
//	checkpoints/       ckpt-<step>.*, and TensorFlow's checkpoint state file
//	metrics.jsonl      one line per loop and evaluation, without times: the same bytes however
//	                   often the run was stopped and resumed
//	train/, eval/      TensorBoard event files
//	vocab.txt,         copies from the data, so that the run can predict and export without it
//	data.json
//
// # Callbacks
//
// Env.TrainActions and Env.EvalActions run after the run's own actions. An action that returns
// runner.ErrStopTraining ends the training successfully; one that returns runner.ErrStopped stops
// the run so that it can be continued. The states in Env.Persist are saved with the checkpoints.
// None of them changes what the run computes.
//
// # Custom loops
//
// Package loop connects a strategy, a dataset and the checkpoints to the interfaces of package
// runner, or to your own loop: see examples/customloop. [Layout] says what the batches of a graph are.
//
// # Files
//
//	train, attempt        Train, and one attempt of it, after which a lost worker may come back
//	training, earlier     the state before the first step, and the state left by earlier processes
//	resumefrom, overwrite Env.ResumeFrom and Env.Overwrite
//	run, predict          evaluation of and prediction with a run folder
//	drawbatch             the batch of any step as the model sees it
//	env                   input of the caller, with the params of package params
package train
