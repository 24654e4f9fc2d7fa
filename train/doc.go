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
package train
