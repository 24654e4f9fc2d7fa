package task

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// MaskedLM is the name in contracts of the task of masked language models: which token was at a place
// that is masked. Its metrics are the graph's: accuracy, of the masked tokens, and perplexity.
const MaskedLM = "mlm"

var maskedLM = Kind{
	Name: MaskedLM,
	Better: map[string]runner.Better{
		"accuracy": runner.HigherIsBetter,
	},
	CheckData: checkVocab,
}

// checkVocab checks that the data has tokens of the graph's vocabulary. Records of any task of texts
// will do.
func checkVocab(c *graphs.Contract, m *convert.Manifest) string {
	masking := c.Masking
	if masking == nil || m.Vocab.Size == 0 || m.Vocab.Rows(int(masking.VocabSize)) {
		return ""
	}
	return fmt.Sprintf("has a vocabulary of %d tokens; expected %d, as in the graph; export with --data", m.Vocab.Size, masking.VocabSize)
}
