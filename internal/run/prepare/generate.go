package prepare

import (
	"context"
	"slices"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// CheckGenerate returns why evaluations of a graph on data cannot score generated texts, as eval.generate.metrics
// asks for; nil if they can, or are not to.
func CheckGenerate(p params.Params, c *graphs.Contract, m *convert.Manifest) error {
	const name = "eval.generate.metrics"
	all, err := p.Eval.Generate.Scores()
	if err != nil || len(all) == 0 {
		return err
	}
	for _, s := range all {
		if slices.ContainsFunc(c.Metrics, func(own graphs.Metric) bool { return own.Name == s.Name }) {
			return params.Errorf(name, "has %s, which is also a metric of the graph; leave it out", s.Name)
		}
	}
	switch given := p.Eval.Generate.Metrics; {
	case c.Generation == nil || c.Generation.Source == nil && c.Task != task.LanguageModel:
		return params.Errorf(name, "is %q, and the graph does not generate texts; expected a causal language model or an encoder-decoder model, such as gorbit_export causal and seq2seq make", given)
	case p.Strategy.Kind() == devices.TPU:
		return params.Errorf(name, "is %q, and texts are not generated on a TPU; leave it out, and use gorbit evaluate --generate without --tpu", given).And("strategy.name")
	case m == nil || !m.HasVocab():
		return params.Errorf(name, "is %q, and the data do not say their tokenizer; expected data of gorbit convert", given)
	case c.Generation.Source == nil && m.Columns.Pair == "" && m.Columns.Chat == "":
		return params.Errorf(name, "is %q, and the data have no prompts and answers; expected those of gorbit convert --task lm --text-column PROMPT --pair-column ANSWER, or --chat-column COLUMN", given)
	}
	return nil
}

// OpenSingle opens a split with one example in each row, so many in a batch, from which it is easy to take
// them.
func (s *Setup) OpenSingle(ctx context.Context, split string, examples int, use use) (*dataset.Dataset, error) {
	one := *s
	one.Params.Data.Packing, one.Params.Data.Rows, one.Params.Data.RowExamples, one.Params.Data.Buckets = string(packed.PackNone), 0, 0, ""
	one.Params.Eval.BatchSize = examples
	return one.Open(ctx, split, use)
}
