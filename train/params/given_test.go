package params

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

func TestLocate(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{
		"base.yaml": "# first\ngraph: g\ndata:\n  dir: d\n\n  packing: tight\noptimizer:\n  learning_rate: -1\n  power:\n",
		"more.yaml": "optimizer: {learning_rate: -2}\n",
		"same.yaml": "eval: &few {batch_size: 0}\ntrain:\n  <<: *few\n",
	} {
		if err := os.WriteFile(filepath.Clean(name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rate := Errorf("optimizer.learning_rate", "is -1; expected more than 0")
	size := Errorf("train.batch_size", "is 0; expected 1 or more")
	for _, tt := range []struct {
		origin Given
		err    error
		want   string
	}{
		{Given{Files: []string{"base.yaml"}}, rate, "params: base.yaml:8: optimizer.learning_rate is -1; expected more than 0"},
		{Given{Files: []string{"base.yaml", "more.yaml"}}, rate, "params: more.yaml:1: optimizer.learning_rate is -1; expected more than 0"},
		{Given{Files: []string{"more.yaml"}, Settings: []string{"optimizer.learning_rate=-1"}}, rate,
			"params: optimizer.learning_rate=-1: optimizer.learning_rate is -1; expected more than 0"},
		{Given{Settings: []string{"optimizer={learning_rate: -1}", "seed=1"}}, rate,
			"params: optimizer={learning_rate: -1}: optimizer.learning_rate is -1; expected more than 0"},
		{Given{Settings: []string{"optimizer.learning_rate=3"}, Flags: map[string]string{"optimizer.learning_rate": "--learning-rate -1"}}, rate,
			"params: --learning-rate -1: optimizer.learning_rate is -1; expected more than 0"},
		{Given{Files: []string{"same.yaml"}}, size, "params: same.yaml:1: train.batch_size is 0; expected 1 or more"},
		// The second param that an error names, if the first has its default.
		{Given{Files: []string{"base.yaml"}}, Errorf("data.rows", "is 8 and data.packing is tight; expected none").And("data.packing"),
			"params: base.yaml:6: data.rows is 8 and data.packing is tight; expected none"},
		// Defaults, null, words that are no params, and errors of other kinds.
		{Given{Files: []string{"base.yaml"}}, size, size.Error()},
		{Given{Files: []string{"base.yaml"}}, Errorf("optimizer.power", "is -1"), "params: optimizer.power is -1"},
		{Given{Files: []string{"base.yaml"}}, &Error{Err: errors.New("optimizer.learning_rate is not what this is about")}, "params: optimizer.learning_rate is not what this is about"},
		{Given{Files: []string{"base.yaml"}}, errors.New("optimizer.learning_rate is -1"), "optimizer.learning_rate is -1"},
		{Given{Files: []string{"gone.yaml"}}, rate, rate.Error()},
	} {
		got := tt.origin.Locate(tt.err)
		if got.Error() != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.origin, got, tt.want)
		}
		if errors.Is(got, fault.Usage) != errors.Is(tt.err, fault.Usage) {
			t.Errorf("%v: the class of the error has changed", got)
		}
	}
	if err := (Given{}).Locate(nil); err != nil {
		t.Error(err)
	}
}
