package train

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/fault"
)

// What is wrong in a params file is said in the words of params, never in those of Go.
func TestParamsFileErrors(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"train:\n  batch_size: [1, 2]\n", "train.batch_size is a list; expected a whole number"},
		{"train:\n  batch_size: {a: 1}\n", "train.batch_size is a section with names; expected a whole number"},
		{"train:\n  batch_size: 99999999999999999999\n", "train.batch_size is 99999999999999999999; expected a whole number"},
		{"train:\n  batch_size: yes please\n", "train.batch_size is yes please; expected a whole number"},
		{"train: [1]\n", "train is a list; expected a section with names"},
		{"optimizer:\n  hyperparameters: 3\n", "optimizer.hyperparameters is 3; expected a section with names"},
		{"optimizer:\n  hyperparameters:\n    beta_1: [1]\n", "optimizer.hyperparameters.beta_1 is a list; expected a number"},
		{"optimizer:\n  hyperparameters:\n    beta_1:\n", "optimizer.hyperparameters.beta_1 has no value"},
		{"train:\n  batch_size: \"4\"\n", `train.batch_size is "4", a text in quotes; expected a whole number, without quotes`},
		{"train:\n  epochs: '1.5'\n", `train.epochs is "1.5", a text in quotes; expected a number, without quotes`},
		{"optimizer:\n  learning_rate: \"\"\n", `optimizer.learning_rate is ""; expected a number`},
		{"graph: [a]\n", "graph is a list; expected a text"},
		{"strategy:\n  worker_timeout: soon\n", "strategy.worker_timeout is soon; expected a duration such as 60s"},
		{"summary:\n  enabled: 3\n", "summary.enabled is 3; expected true or false"},
		{"- 1\n", "the file is a list; expected a section with names"},
		{"seed: 1\nseed: 2\n", "seed is set twice, the second time in line 2"},
		{"epochs: 3\n", "there is no param epochs"},
		{"seed: 1\n---\nseed: 2\n", "a second document begins in line 2; expected one; remove the line with ---"},
	} {
		path := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(path, []byte(test.file), 0o644); err != nil {
			t.Fatal(err)
		}
		p := Defaults()
		err := p.Load([]string{path}, nil)
		if want := "params: " + path + ": " + test.want; err == nil || err.Error() != want {
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
