package study

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/app/tune"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

//go:embed testdata/optuna.py
var optunaScript string

// optunaPython names a Python that has optuna.
const optunaPython = "GORBIT_OPTUNA"

// TestOptuna opens the journal of a study with optuna, which adds two trials, and continues with
// the study.
func TestOptuna(t *testing.T) {
	python := os.Getenv(optunaPython)
	if python == "" {
		t.Skipf("%s is not set; expected a Python that has optuna, as after python3 -m venv optuna; optuna/bin/pip install optuna", optunaPython)
	}
	folder := filepath.Join(t.TempDir(), "study")
	c := searched(t)
	c.Pruner.Name, c.Pruner.Startup, c.Trials = tune.Median, 1, 12
	tr := &trainer{t: t, fails: map[int]string{0: `step 11: the loss is "NaN"`}}
	j, err := drive(t.Context(), t, folder, c, tr, io.Discard, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := askOptuna(t, python, folder)
	states := map[tune.State]bool{}
	j.View(func(s *tune.Study) {
		for i, own := range s.Trials() {
			states[own.State] = true
			want := optunaTrial{own.Number, strings.Replace(own.State.String(), "failed", "fail", 1), map[string]any{}, nil, map[string]string{}, own.Run}
			if own.HasValue {
				want.Value = &own.Value
			}
			for _, r := range own.Reports {
				want.Reports[fmt.Sprint(r.Step)] = fmt.Sprint(r.Value)
			}
			for name, v := range own.Params {
				want.Params[name] = v
				if d := own.Distributions[name]; d.Kind == tune.Categorical {
					want.Params[name] = d.Choices[int(v)]
				}
			}
			if !reflect.DeepEqual(got.Trials[i], want) {
				t.Errorf("optuna reads %+v, expected %+v", got.Trials[i], want)
			}
		}
		if len(got.Trials) != len(s.Trials()) || got.Best != s.Best().Number {
			t.Errorf("optuna has %d trials and finds %d the best; expected %d and %d", len(got.Trials), got.Best, len(s.Trials()), s.Best().Number)
		}
	})
	if !states[tune.Complete] || !states[tune.Pruned] || !states[tune.Failed] {
		t.Errorf("the states are only %v", states)
	}
	c.Trials = 14
	j, err = drive(t.Context(), t, folder, c, tr, io.Discard, 1)
	if err != nil {
		t.Fatal(err)
	}
	j.View(func(s *tune.Study) {
		all := s.Trials()
		added := all[got.Added.Number]
		if len(all) != 16 || !s.Done() || added.Own() || added.Value != 0.97 || added.Params["optimizer.learning_rate"] != got.Added.Rate || len(added.Reports) != 2 {
			t.Errorf("after optuna's, the study has %d trials, and that one is %+v", len(all), added)
		}
		if all[13].State != tune.Failed || !all[14].Own() || !all[15].Own() {
			t.Errorf("the last trials are %+v", all[13:])
		}
	})
}

// optunaTrial is a trial as optuna reads it.
type optunaTrial struct {
	Number  int               `json:"number"`
	State   string            `json:"state"`
	Params  map[string]any    `json:"params"`
	Value   *float64          `json:"value"`
	Reports map[string]string `json:"reports"`
	Run     string            `json:"run"`
}

// optunaSays is what the script prints.
type optunaSays struct {
	Trials []optunaTrial
	Best   int
	Added  struct {
		Number int
		Rate   float64
	}
}

// askOptuna runs the script on the journal in a folder.
func askOptuna(t *testing.T, python, folder string) (got optunaSays) {
	t.Helper()
	cmd := testkit.Command(t, python, "-c", optunaScript, filepath.Join(folder, JournalFile), "study")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}
