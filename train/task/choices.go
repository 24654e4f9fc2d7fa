package task

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Choices is the name in contracts of the task of choosing one of several texts.
const Choices = string(convert.Choices)

var choices = Kind{
	Name:   Choices,
	Better: map[string]runner.Better{"accuracy": runner.HigherIsBetter},
	CheckData: func(c *graphs.Contract, m *convert.Manifest) string {
		if reason := CheckKind(m, convert.Choices); reason != "" {
			return reason
		}
		if got, want := len(m.Labels), Classes(c); got > 0 && want > 0 && got != want {
			return fmt.Sprintf("has up to %d choices; expected %d, as in the graph; export with --num-labels %[1]d", got, want)
		}
		return ""
	},
	CheckSplit: checkLabeled,
	OnlyAnswer: OnlyLabel,
}
