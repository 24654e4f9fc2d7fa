package prepare

import (
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// Rows that nothing would cut are not cut in silence.
func TestLengthWarmup(t *testing.T) {
	p := params.Params{}
	p.Train.LengthWarmup, p.Data.RowLength = "0:8,4:16", 16
	sequences, positions := graphs.Feature{Name: packed.SequenceIDs}, graphs.Feature{Name: packed.PositionIDs}
	for _, test := range []struct {
		c    graphs.Contract
		want string
	}{
		{graphs.Contract{Task: task.LanguageModel, Features: []graphs.Feature{sequences, positions}}, ""},
		{graphs.Contract{Task: task.LanguageModel, Features: []graphs.Feature{sequences}}, "the graph has no feature position_ids"},
		{graphs.Contract{Task: task.LanguageModel, Features: []graphs.Feature{positions}}, "the graph has no feature sequence_ids"},
		{graphs.Contract{Task: "classification", Features: []graphs.Feature{sequences, positions}}, "expected mlm or lm"},
	} {
		err := checkLengthWarmup(p, &test.c)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %d features: %v; expected %q", test.c.Task, len(test.c.Features), err, test.want)
		}
	}
}
