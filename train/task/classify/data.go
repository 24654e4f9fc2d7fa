package classify

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/train/task"
)

// CheckData implements task.Task: the data has as many labels as the graph.
func (t Task) CheckData(m *convert.Manifest) string {
	got, want := len(m.Labels), task.Classes(t.Contract)
	switch {
	case got == 0 || want == 0 || got == want:
		return ""
	case got == 1:
		return fmt.Sprintf("has only the label %q; expected %d, as in the graph; convert rows that have all labels", m.Labels[0], want)
	default:
		return fmt.Sprintf("has %d labels; expected %d, as in the graph; export with --num-labels %[1]d", got, want)
	}
}

// CheckSplit implements task.Task: every example has a label.
func (t Task) CheckSplit(name string, s *convert.Split) string {
	var labeled int64
	for _, n := range s.LabelCounts {
		labeled += n
	}
	if labeled != s.Records {
		return fmt.Sprintf("%d of the %d examples of split %s have no label", s.Records-labeled, s.Records, name)
	}
	return ""
}

// OnlyAnswer implements task.Task: the label of all examples.
func (t Task) OnlyAnswer(m *convert.Manifest, s *convert.Split) (label string, only bool) {
	return task.OnlyLabel(m, s)
}
