package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// What is wrong in a params file is said in the words of params, never in those of Go.
func TestParamsFileErrors(t *testing.T) {
	for _, test := range []struct {
		file string
		line int
		want string
	}{
		{"train:\n  batch_size: [1, 2]\n", 2, "train.batch_size is a list; expected a whole number"},
		{"train:\n  batch_size: {a: 1}\n", 2, "train.batch_size is a section with names; expected a whole number"},
		{"train:\n  batch_size: 99999999999999999999\n", 2, "train.batch_size is 99999999999999999999; expected a whole number"},
		{"train:\n  batch_size: yes please\n", 2, "train.batch_size is yes please; expected a whole number"},
		{"train: [1]\n", 1, "train is a list; expected a section with names"},
		{"optimizer:\n  hyperparameters: 3\n", 2, "optimizer.hyperparameters is 3; expected a section with names"},
		{"optimizer:\n  hyperparameters:\n    beta_1: [1]\n", 3, "optimizer.hyperparameters.beta_1 is a list; expected a number"},
		{"optimizer:\n  hyperparameters:\n    beta_1:\n", 3, "optimizer.hyperparameters.beta_1 has no value"},
		{"train:\n  batch_size: \"4\"\n", 2, `train.batch_size is "4", a text in quotes; expected a whole number, without quotes`},
		{"train:\n  epochs: '1.5'\n", 2, `train.epochs is "1.5", a text in quotes; expected a number, without quotes`},
		{"optimizer:\n  learning_rate: \"\"\n", 2, `optimizer.learning_rate is ""; expected a number`},
		{"graph: [a]\n", 1, "graph is a list; expected a text"},
		{"strategy:\n  worker_timeout: soon\n", 2, "strategy.worker_timeout is soon; expected a duration such as 60s"},
		{"summary:\n  enabled: 3\n", 2, "summary.enabled is 3; expected true or false"},
		{"- 1\n", 1, "the file is a list; expected a section with names"},
		{"seed: 1\nseed: 2\n", 2, "seed is set twice; leave out one"},
		{"epochs: 3\n", 1, "there is no param epochs; did you mean train.epochs?"},
		{"seed: 1\n---\nseed: 2\n", 2, "a second document begins here; expected one; remove the line with ---"},
		{"optimizer:\n  groups:\n  - match: x\n    learning_rate_scle: 1\n", 4, "there is no param optimizer.groups[0].learning_rate_scle; did you mean learning_rate_scale?"},
		{"seed: 1\n\n# more\ntrain:\n  stps: 3\n", 5, "there is no param train.stps; did you mean train.steps?"},
		{"train:\n  steps: 3\n bad: 1\n", 2, "did not find expected key"}, // the section's first line,
		{"seed: 1\ndata: a: b\n", 2, "mapping values are not allowed in this context"},
	} {
		path := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(path, []byte(test.file), 0o644); err != nil {
			t.Fatal(err)
		}
		p := Defaults()
		err := p.Load([]string{path}, nil)
		if want := fmt.Sprintf("params: %s:%d: %s", path, test.line, test.want); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", test.file, err, want)
		}
		if !errors.Is(err, fault.Usage) {
			t.Errorf("%q: %v is not a usage error", test.file, err)
		}
	}
}

// What YAML has of shorthand is read as before.
func TestParamsFileForms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	const file = "---\nseed: 7\neval: &few {steps: 3}\ntrain:\n  <<: *few\n  batch_size: 1e2\n  epochs:\noptimizer: {hyperparameters: {beta_1: .5}}\n...\n"
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	p := Defaults()
	if err := p.Load([]string{path}, nil); err != nil {
		t.Fatal(err)
	}
	if p.Seed != 7 || p.Train.Steps != 3 || p.Train.BatchSize != 100 || p.Train.Epochs != 3 || p.Optimizer.Hyperparameters["beta_1"] != 0.5 {
		t.Errorf("%+v", p)
	}
}
