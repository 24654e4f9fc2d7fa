package params

import (
	"fmt"
	"strings"
	"testing"
)

// TestIntervals sets steps and shares, and writes them as they were.
func TestIntervals(t *testing.T) {
	for _, c := range []struct{ setting, want string }{ // a line of the YAML, or a part of an error
		{"train.eval_interval=50", "eval_interval: 50\n"},
		{"train.eval_interval=5000000", "eval_interval: 5000000\n"},
		{"train.eval_interval=0.1", "eval_interval: 0.1\n"},
		{"train.eval_interval=-2", "eval_interval: -2\n"},
		{"train.steps_per_loop=0", "steps_per_loop: 0\n"},
		{"checkpoint.interval=-1", "interval: -1\n"},
		{"train.eval_interval=-3", "train.eval_interval is -3; expected -2 (no evaluation)"},
		{"train.eval_interval=1.5", "train.eval_interval is 1.5; expected -2"},
		{"train.eval_interval=-0.5", "train.eval_interval is -0.5; expected -2"},
		{"train.steps_per_loop=-1", "train.steps_per_loop is -1; expected 0 (every epoch) or a number of steps, or a share of all steps, such as 0.1"},
		{"train.steps_per_loop=.inf", "train.steps_per_loop"},
		{"checkpoint.interval=-2", "checkpoint.interval is -2; expected -1 (at the end)"},
	} {
		p := Defaults()
		p.Graph, p.Data.Dir = "g", "d"
		err := p.Load(nil, []string{c.setting})
		if err == nil {
			err = p.Validate()
		}
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v; expected %q", c.setting, err, c.want)
			}
			continue
		}
		name, value, _ := strings.Cut(c.setting, "=")
		text, err := p.YAML()
		if err != nil || !strings.Contains(string(text), "  "+c.want) || fmt.Sprint(p.Flat()[name]) != value {
			t.Errorf("%s: %v, %v\n%s\nexpected %q", c.setting, err, p.Flat()[name], text, c.want)
		}
	}
	for _, c := range []struct {
		of    Interval
		steps int64
		want  Interval
	}{{0.1, 1000, 100}, {0.1, 11, 2}, {0.1, 3, 1}, {0.5, 0, 1}, {0.999, 10, 10}, {7, 3, 7}, {0, 10, 0}, {-1, 10, -1}} {
		if got := c.of.Of(c.steps); got != c.want {
			t.Errorf("%v of %d steps are %v; expected %v", c.of, c.steps, got, c.want)
		}
	}
}
