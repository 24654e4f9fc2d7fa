// Package runfolder reads what a training left in the folder of its run: params, metrics, events,
// checkpoints, and the journal of the processes that trained. It also writes that journal.
//
// Reading never changes a folder, and another process may be training in it. What a run lacks is
// left out. What is damaged is left out as well, and named in [Run.Problems].
package runfolder

// Files and folders of a run.
const (
	Params        = "params.yaml"
	History       = "params-history.jsonl"
	Metrics       = "metrics.jsonl"
	Data          = "data.json"
	Vocab         = "vocab.txt"
	Tokenizer     = "tokenizer.json"  // in place of Vocab, of data that were made with one
	SentencePiece = "tokenizer.model" // the same
	Init          = "init.txt"
	Journal       = "processes.jsonl"
	Trainer       = "trainer_state.json"
	Checkpoints   = "checkpoints"
	TrainEvents   = "train"
	EvalEvents    = "eval"
	ProfileFolder = "profile"
	PluginsFolder = "plugins" // in TrainEvents, of TensorBoard's plugins
)
