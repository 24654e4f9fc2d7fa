package task

import (
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Seq2Seq is the task of encoder-decoder models: targets of sources.
const Seq2Seq = string(convert.Seq2Seq)

var seq2seq = Kind{
	Name:   Seq2Seq,
	Better: map[string]runner.Better{"accuracy": runner.HigherIsBetter},
	CheckData: func(c *graphs.Contract, m *convert.Manifest) string {
		if reason := CheckKind(m, convert.Seq2Seq); reason != "" {
			return reason
		}
		return checkWords(c, m)
	},
}
