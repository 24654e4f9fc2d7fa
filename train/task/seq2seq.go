package task

import (
	"fmt"
	"slices"

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
		if reason := checkWords(c, m); reason != "" {
			return reason
		}
		return checkEnd(c, m)
	},
}

// checkEnd returns why a model would not learn to end its texts: its own tokens do not end the targets.
func checkEnd(c *graphs.Contract, m *convert.Manifest) string {
	if c.Generation == nil || m.TargetEnd == nil {
		return ""
	}
	ends := c.Generation.EOSTokenIDs
	if len(ends) == 0 || slices.Contains(ends, *m.TargetEnd) {
		return ""
	}
	return fmt.Sprintf("has targets that end with token %d, and the model ends texts with %v, as eos_token_id in its config.json says; expected the same: convert with the model's tokenizer, or correct config.json and export again", *m.TargetEnd, ends)
}
