package task

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// LanguageModel is the name in contracts of the task of causal language models: which token follows
// others. Its metrics are the graph's: accuracy, of the tokens that follow another, and perplexity.
const LanguageModel = "lm"

var languageModel = Kind{
	Name:      LanguageModel,
	Better:    map[string]runner.Better{"accuracy": runner.HigherIsBetter},
	CheckData: checkWords,
}

// checkWords checks that the data has tokens of the graph's vocabulary. Records of any task of texts
// will do.
func checkWords(c *graphs.Contract, m *convert.Manifest) string {
	for _, f := range c.Features {
		if f.Name != convert.InputIDs || f.Below == nil || m.Vocab.Size == 0 || m.Vocab.Rows(int(*f.Below)) {
			continue
		}
		return fmt.Sprintf("has a vocabulary of %d tokens; expected %d, as in the graph; export with --data", m.Vocab.Size, *f.Below)
	}
	return ""
}
