package task

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// CheckKind returns why data that was converted for a kind of answers cannot be used for another one, or
// "". Data that was made by a schema may be of any kind.
func CheckKind(m *convert.Manifest, want convert.Kind) string {
	got := m.Kind()
	if got == want || got == "" {
		return ""
	}
	task := string(want)
	if want == convert.Classification {
		task = convert.TextTask
	}
	return fmt.Sprintf("has the answers of task %s; expected those of %s, as in the graph; convert it with --task %s", got, want, task)
}

// CheckLabels returns why the labels of data are not those of a graph, or "". names are the graph's; it
// may not know them, and then classes is their number, or 0.
func CheckLabels(m *convert.Manifest, names []string, classes int) string {
	switch {
	case len(m.Labels) == 0:
		return ""
	case names != nil && !slices.Equal(m.Labels, names):
		return fmt.Sprintf("has the labels %s; expected %s, as in the graph; export with --data", table.List(m.Labels), table.List(names))
	case classes > 0 && len(m.Labels) != classes:
		return fmt.Sprintf("has %d labels; expected %d, as in the graph; export with --data", len(m.Labels), classes)
	}
	return ""
}

// FirstDifference says where the names of numbers, there and here, begin to differ, or "". what is what a
// name is of, such as label.
func FirstDifference(what string, there, here []string) string {
	for i := range min(len(there), len(here)) {
		if there[i] != here[i] {
			return fmt.Sprintf("%s %d is %s there and %s here", what, i, table.Clip(strconv.Quote(there[i])), table.Clip(strconv.Quote(here[i])))
		}
	}
	if len(there) != len(here) {
		return fmt.Sprintf("%s has %d names there and %d here", what, len(there), len(here))
	}
	return ""
}

// CheckAnswered returns why a split cannot be trained or evaluated on, or "": each record must have an
// answer, which is called by its name, such as number.
func CheckAnswered(name string, s *convert.Split, answer string) string {
	if s.Answered == s.Records || s.Features != nil {
		return ""
	}
	return fmt.Sprintf("%d of the %d examples of split %s have no %s", s.Records-s.Answered, s.Records, name, answer)
}

// OnlyLabel returns the label that all examples of a split have, and whether there is one. Data with
// fewer than two labels have none.
func OnlyLabel(m *convert.Manifest, s *convert.Split) (label string, only bool) {
	if len(m.Labels) < 2 {
		return "", false
	}
	n := 0
	for i, count := range s.LabelCounts {
		if count > 0 {
			label, n = m.Labels[i], n+1
		}
	}
	return label, n == 1
}
