package task

import (
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
)

func TestDataOfClasses(t *testing.T) {
	two := newTask(Classification, labeled(2))
	for _, c := range []struct {
		task   string
		labels []string
		split  convert.Split
		data   string // what is wrong with the data
		reason string // what is wrong with the split
		only   string // the only answer of the split
	}{
		{labels: []string{"no", "yes"}, split: convert.Split{Records: 5, LabelCounts: []int64{3, 2}}},
		{labels: []string{"no", "yes"}, split: convert.Split{Records: 5, LabelCounts: []int64{0, 5}}, only: "yes"},
		{labels: []string{"no", "yes"}, split: convert.Split{Records: 5, LabelCounts: []int64{3, 0}}, only: "no",
			reason: "2 of the 5 examples of split dev have no label"},
		{labels: []string{"a", "b", "c"}, split: convert.Split{Records: 3, LabelCounts: []int64{1, 1, 1}},
			data: "has 3 labels; expected 2, as in the graph; export with --num-labels 3"},
		{labels: []string{"yes"}, split: convert.Split{Records: 3, LabelCounts: []int64{3}},
			data: `has only the label "yes"; expected 2, as in the graph; convert rows that have all labels`},
		{task: "tokens", labels: []string{"O", "B"}, split: convert.Split{Records: 5, LabelCounts: []int64{30, 3}},
			data:   "has the answers of task tokens; expected those of classification, as in the graph; convert it with --task text",
			reason: "the 5 examples of split dev have 33 labels; expected one each, as in the graph"},
		{split: convert.Split{Records: 5}, reason: "5 of the 5 examples of split dev have no label"},
	} {
		m := &convert.Manifest{Task: c.task, Labels: c.labels}
		if got := two.CheckData(m); got != c.data {
			t.Errorf("%v: data %q, expected %q", c.labels, got, c.data)
		}
		if got := two.CheckSplit("dev", &c.split); got != c.reason {
			t.Errorf("%v: split %q, expected %q", c.split, got, c.reason)
		}
		if got, only := two.OnlyAnswer(m, &c.split); only != (c.only != "") || only && got != c.only {
			t.Errorf("%v: only answer %q, %v, expected %q", c.split, got, only, c.only)
		}
	}
	named := labeled(2)
	named.Model.Config = map[string]any{"labels": []any{"no", "yes"}}
	two = newTask(Classification, named)
	if got := two.CheckData(&convert.Manifest{Labels: []string{"no", "yes"}}); got != "" {
		t.Error(got)
	}
	if got, want := two.CheckData(&convert.Manifest{Labels: []string{"yes", "no"}}), `has the labels "yes", "no"; expected "no", "yes", as in the graph; export with --data`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
