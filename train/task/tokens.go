package task

import (
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// Tokens is the name in contracts of the task of assigning a label to every word, such as its part of
// speech or a tag of named entities.
const Tokens = "tokens"

// Names of the sums, in addition to those of package runner.
const (
	// TokenCounts has, for each of C labels, the weights of the tokens whose label and prediction it is,
	// whose prediction it is, and whose label it is: [C, 3].
	TokenCounts = "token_counts"
	// EntityCounts has, for each type of entity, the weights of the entities that are predicted and
	// true, that are predicted, and that are true: [types, 3].
	EntityCounts = "entity_counts"
)

var tokens = Kind{
	Name: Tokens,
	Better: map[string]runner.Better{
		"accuracy":  runner.HigherIsBetter,
		"precision": runner.HigherIsBetter,
		"recall":    runner.HigherIsBetter,
		"f1":        runner.HigherIsBetter,
		"macro_f1":  runner.HigherIsBetter,
		F1Prefix:    runner.HigherIsBetter,
	},
	Measure:    measureTokens,
	Detail:     detailTokens,
	CheckData:  checkTokens,
	CheckSplit: func(name string, s *convert.Split) string { return CheckAnswered(name, s, "labels") },
	OnlyAnswer: OnlyLabel,
}

// measureTokens adds
//
//   - from EntityCounts, where the labels are tags of entities: precision, recall, f1, macro_f1 and
//     f1_TYPE of each type, as seqeval in its default mode;
//   - otherwise, from TokenCounts: macro_f1 over the labels that occur or are predicted, as
//     scikit-learn with zero_division=0.
func measureTokens(c *graphs.Contract, sums runner.Sums, out runner.Outputs) error {
	if flat, ok := sums[EntityCounts]; ok {
		all, err := CountsOf(EntityCounts, flat)
		if err != nil {
			return err
		}
		total := Total(all)
		out["precision"], out["recall"], out["f1"] = total.Precision(), total.Recall(), total.F1()
		out["macro_f1"] = MacroF1(all)
		AddF1(out, all, Names(c, "entities"))
	} else if flat, ok := sums[TokenCounts]; ok {
		all, err := CountsOf(TokenCounts, flat)
		if err != nil {
			return err
		}
		out["macro_f1"] = MacroF1(all)
	}
	return nil
}

// detailTokens returns the table of the types of entities, or else of the tokens' labels.
func detailTokens(c *graphs.Contract, sums runner.Sums, labels []string) (d evaluation.Detail, err error) {
	if flat, ok := sums[EntityCounts]; ok {
		all, err := CountsOf(EntityCounts, flat)
		d.Classes = Table(evaluation.OfEntity, all, Names(c, "entities"))
		return d, err
	}
	if flat, ok := sums[TokenCounts]; ok {
		all, err := CountsOf(TokenCounts, flat)
		if labels == nil {
			labels = Names(c, "labels")
		}
		d.Classes = Table(evaluation.OfTokenLabel, all, labels)
		return d, err
	}
	return d, nil
}

// checkTokens checks that the data has the labels of the graph.
func checkTokens(c *graphs.Contract, m *convert.Manifest) string {
	if reason := CheckKind(m, convert.Tokens); reason != "" {
		return reason
	}
	return CheckLabels(m, Names(c, "labels"), Classes(c))
}
