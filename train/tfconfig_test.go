package train

import (
	"fmt"
	"testing"

	"github.com/gorbit-ml/gorbit/train/params"
)

func TestParseTFConfig(t *testing.T) {
	for _, test := range []struct{ value, want string }{
		{`{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}`, "{[a:1 b:2] 1}"},
		{`{"cluster": {"chief": ["c:3"], "worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}`, "{[c:3 a:1 b:2] 1}"},
		{`{"cluster": {"chief": ["c:3"], "worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}`, "{[c:3 a:1] 0}"},
		{`{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}`, "params: TF_CONFIG: task.index is 1; expected 0 or more and less than 1, the number of tasks of type worker"},
		{`{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}`, `params: TF_CONFIG: the cluster has tasks of type "ps"; expected chief or worker`},
		{`{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}`, `params: TF_CONFIG: task.type is "evaluator"; expected chief or worker`},
		{`{"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief", "index": 0}}`, "params: TF_CONFIG: the cluster has 2 chiefs; expected at most 1"},
		{`{"task": {"type": "worker", "index": 0}}`, "params: TF_CONFIG: the cluster has no workers; expected at least 1"},
		{`{`, "params: TF_CONFIG: invalid JSON: unexpected end of JSON input"},
		{`3`, "params: TF_CONFIG: the value is a number; expected an object"},
		{`{"cluster": ["a:1"]}`, "params: TF_CONFIG: cluster is a list; expected an object"},
		{`{"cluster": {"worker": "a:1"}}`, "params: TF_CONFIG: a task type of cluster is text; expected a list of addresses, HOST:PORT"},
		{`{"cluster": {"worker": [1]}}`, "params: TF_CONFIG: an address in cluster is a number; expected text"},
		{`{"cluster": {"worker": ["a:1"]}, "task": {"type": 1}}`, "params: TF_CONFIG: task.type is a number; expected text"},
		{`{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "0"}}`, "params: TF_CONFIG: task.index is text; expected a whole number, 0 or more"},
		{`{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0.5}}`, "params: TF_CONFIG: task.index is the number 0.5; expected a whole number, 0 or more"},
	} {
		c, err := ParseTFConfig(test.value)
		got := fmt.Sprint(c)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s\n is %s\nwant %s", test.value, got, test.want)
		}
	}
}

func TestClusterStrategy(t *testing.T) {
	for _, test := range []struct {
		workers     []string
		asked, want params.Strategy
	}{
		{[]string{"a:1", "b:2"}, params.Strategy{Name: "multiworker", Devices: "cpu:2", Input: "local"}, params.Strategy{Name: "multiworker", Workers: "a:1,b:2", Input: "local"}},
		{[]string{"a:1"}, params.Strategy{Name: "multiworker", Workers: "a:1", Devices: "cpu:2", Input: "local"}, params.Strategy{Name: "auto", Devices: "cpu:2", Input: "chief"}},
		{[]string{"a:1"}, params.Strategy{Name: "auto", Input: "nobody"}, params.Strategy{Name: "auto", Input: "nobody"}},
	} {
		if got := (Cluster{Workers: test.workers}).Strategy(test.asked); got != test.want {
			t.Errorf("%q: %+v is %+v, want %+v", test.workers, test.asked, got, test.want)
		}
	}
}

func FuzzParseTFConfig(f *testing.F) {
	f.Add(`{"cluster": {"chief": ["c:3"], "worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}`)
	f.Fuzz(func(t *testing.T, value string) {
		c, err := ParseTFConfig(value)
		if err == nil && (c.Task < 0 || c.Task >= len(c.Workers)) {
			t.Errorf("task %d of %d", c.Task, len(c.Workers))
		}
	})
}
