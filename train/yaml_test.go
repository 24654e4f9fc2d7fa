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
		{"train:\n  batch_size: [1, 2]\n", "train.batch_size: expected a whole number, not a list"},
		{"train:\n  batch_size: {a: 1}\n", "train.batch_size: expected a whole number, not a section with names in it"},
		{"train:\n  batch_size: 99999999999999999999\n", "train.batch_size: expected a whole number, not 99999999999999999999"},
		{"train:\n  batch_size: yes please\n", "train.batch_size: expected a whole number, not yes please"},
		{"train: [1]\n", "train: expected a section with names in it, not a list"},
		{"optimizer:\n  hyperparameters: 3\n", "optimizer.hyperparameters: expected a section with names in it, not 3"},
		{"optimizer:\n  hyperparameters:\n    beta_1: [1]\n", "optimizer.hyperparameters.beta_1: expected a number, not a list"},
		{"optimizer:\n  hyperparameters:\n    beta_1:\n", "optimizer.hyperparameters.beta_1 has no value"},
		{"optimizer:\n  learning_rate: \"\"\n", `optimizer.learning_rate: expected a number, not ""`},
		{"graph: [a]\n", "graph: expected a text, not a list"},
		{"strategy:\n  worker_timeout: soon\n", "strategy.worker_timeout: expected a time such as 60s, not soon"},
		{"summary:\n  enabled: 3\n", "summary.enabled: expected true or false, not 3"},
		{"- 1\n", "the file: expected a section with names in it, not a list"},
		{"seed: 1\nseed: 2\n", "seed is given twice, the second time in line 2"},
		{"epochs: 3\n", "there is no param epochs"},
		{"seed: 1\n---\nseed: 2\n", "a second document begins in line 2, expected one: take out the line with ---"},
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
