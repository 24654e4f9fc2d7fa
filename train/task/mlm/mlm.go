// Package mlm implements the task of masked language models: which token was at a place that is masked.
package mlm

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/generic"
)

// Name is the name of the task in contracts.
const Name = "mlm"

// Task is the masked language model of a graph. Its metrics are the generic ones: accuracy, of the
// masked tokens, and perplexity, which the graph computes.
type Task struct{ generic.Task }

var _ task.Task = Task{}

// New returns the task of a graph with the given contract and the contract's metrics.
func New(c *graphs.Contract, results task.Results) Task { return Task{generic.New(c, results)} }

// better holds the direction of each metric that the task adds.
var better = map[string]runner.Better{
	"accuracy": runner.HigherIsBetter,
}

// Metric implements task.Task.
func (t Task) Metric(name string) task.Metric { return t.Known(name, better) }

// CheckData implements task.Task: the data has tokens of the graph's vocabulary. Records of any task of
// texts will do.
func (t Task) CheckData(m *convert.Manifest) string {
	masking := t.Contract.Masking
	if masking == nil || m.Vocab.Size == 0 || int64(m.Vocab.Size) == int64(masking.VocabSize) {
		return ""
	}
	return fmt.Sprintf("has a vocabulary of %d tokens; expected %d, as in the graph; export with --data", m.Vocab.Size, masking.VocabSize)
}
