package train

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// groupParams is a run of 3 or more steps with frozen variables, and others with a scale.
func groupParams(t *testing.T, steps int64) params.Params {
	t.Helper()
	p := deepParams(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Interval = steps, 3, 3
	p.Optimizer.Schedule, p.Optimizer.WarmupRatio = "constant", 0
	p.Summary.Enabled = false
	if err := p.Load(nil, []string{
		`optimizer.groups=[{match: model/encoder/(embeddings|layers/0)/.*, frozen: true}, {match: .*/bias, learning_rate_scale: 0.5}]`}); err != nil {
		t.Fatal(err)
	}
	return p
}

// assigned are the variables that were set, by name. It implements Variables.
type assigned map[string]*tf.Tensor

func (a assigned) Variables() []strategy.VariableSpec { return nil }

func (a assigned) Read(context.Context, ...string) ([]*tf.Tensor, error) { return nil, nil }

func (a assigned) Assign(_ context.Context, values map[string]*tf.Tensor) error {
	maps.Copy(a, values)
	return nil
}

func (a assigned) bytes(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := a[name].WriteContentsTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// trainedLog trains in a folder and returns what was logged.
func trainedLog(t *testing.T, p params.Params, run string) string {
	t.Helper()
	var log bytes.Buffer
	env := quiet()
	env.Log = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := Train(t.Context(), p, run, env); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

// TestFrozenVariables trains with frozen variables, stops, and continues: with the same groups, whose
// bits are those of a run that did not stop, and then without groups.
func TestFrozenVariables(t *testing.T) {
	long(t)
	whole, run := t.TempDir(), t.TempDir()
	log := trainedLog(t, groupParams(t, 6), whole)
	for _, want := range []string{
		`msg="optimizer group" match=model/encoder/(embeddings|layers/0)/.* variables=21 parameters=`, ` frozen=true`,
		`match=.*/bias variables=9 parameters=`, `in_earlier_groups=9 learning_rate_scale=0.5 weight_decay_scale=1`, `match="(the others)" variables=`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	trainedLog(t, groupParams(t, 3), run)
	trainedLog(t, groupParams(t, 6), run)
	sameRuns(t, run, whole)

	frozen := func(name string) bool {
		return strings.HasPrefix(name, "model/encoder/embeddings/") || strings.HasPrefix(name, "model/encoder/layers/0/")
	}
	export, _ := opened(t, groupParams(t, 3))
	first := make(assigned)
	if _, err := loop.Initialize(t.Context(), first, export, loop.Init{}); err != nil {
		t.Fatal(err)
	}
	check := func(kept bool) {
		got, step := final(t, run)
		if _, err := os.Stat(filepath.Join(run, runfolder.Checkpoints, fmt.Sprintf("ckpt-%d.data-00001-of-00002", step))); (err == nil) != kept {
			t.Errorf("frozen variables have a file of their own: %v", err)
		}
		for _, v := range export.Contract.Variables {
			if same := bytes.Equal(got[v.Name], first.bytes(t, v.Name)); same != (kept && frozen(v.Name)) {
				t.Errorf("%s has its first value: %v", v.Name, same)
			}
			if _, ok := got[graphs.SlotName("m", v.Name)]; ok == (kept && frozen(v.Name)) {
				t.Errorf("%s has a slot in the checkpoint: %v", v.Name, ok)
			}
		}
	}
	check(true)

	p := groupParams(t, 9)
	p.Optimizer.Groups = nil
	if log := trainedLog(t, p, run); !strings.Contains(log, "variables that were frozen are trained from here on") || strings.Contains(log, "optimizer group") {
		t.Error(log)
	}
	check(false)
	history, err := os.ReadFile(filepath.Join(run, runfolder.History))
	if err != nil || !strings.Contains(string(history), `{"step":6,"param":"optimizer.groups[0].frozen","old":true,"new":null}`) {
		t.Errorf("history %s, %v", history, err)
	}
}

// TestGroupsInYAML reads groups, and writes and reads them again.
func TestGroupsInYAML(t *testing.T) {
	p := groupParams(t, 3)
	want := []params.Group{{Match: "model/encoder/(embeddings|layers/0)/.*", LearningRateScale: 1, WeightDecayScale: 1, Frozen: true}, {Match: ".*/bias", LearningRateScale: 0.5, WeightDecayScale: 1, Frozen: false}}
	if !reflect.DeepEqual(p.Optimizer.Groups, want) {
		t.Errorf("%+v", p.Optimizer.Groups)
	}
	content, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "params.yaml")
	writeFile(t, path, content)
	if again, err := params.Read(path); err != nil || !reflect.DeepEqual(again.Optimizer, p.Optimizer) {
		t.Errorf("%+v, %v", again.Optimizer, err)
	}
	for setting, want := range map[string]string{
		"optimizer.groups=3":                                       "optimizer.groups is 3; expected a list",
		"optimizer.groups=[3]":                                     "optimizer.groups[0] is 3; expected a section with names",
		"optimizer.groups=[{math: a}]":                             "there is no param optimizer.groups[0].math",
		"optimizer.groups=[{match: a}, {match: b, frozen: 3}]":     "optimizer.groups[1].frozen is 3; expected true or false",
		"optimizer.swa=-1":                                         "optimizer.swa is -1; expected 0 (off) or the number of a step",
		"optimizer.ema=1":                                          "optimizer.ema is 1; expected 0 (off) or more and less than 1",
		"optimizer.groups=[{frozen: true}]":                        "optimizer.groups[0].match is empty",
		"optimizer.groups=[{match: a, learning_rate_scale: 0}]":    "optimizer.groups[0].learning_rate_scale is 0; expected more than 0",
		"optimizer.groups=[{match: 'model/head/.*'}]":              "optimizer.groups[0].match is \"model/head/.*\", which matches no trained variable",
		"optimizer.groups=[{match: .*, frozen: true}]":             "are frozen; expected at least one to train",
		"optimizer.groups=[{match: 'model/encoder/layers/[0-5]'}]": "matches no trained variable",
	} {
		p := groupParams(t, 3)
		err := p.Load(nil, []string{setting})
		if err == nil {
			_, err = Train(t.Context(), p, t.TempDir(), quiet())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; expected %q", setting, err, want)
		}
	}
	if err := params.CheckReading([]string{"optimizer.groups=[]"}); err == nil {
		t.Error("groups were accepted where nothing is trained")
	}
}

// TestAverages trains with moving averages, stops, and continues: in the same bits, and the evaluations
// are those of the averages. Then it continues without averages, and with them again.
func TestAverages(t *testing.T) {
	long(t)
	params := func(steps int64, ema float64) params.Params {
		p := groupParams(t, steps)
		p.Optimizer.Groups, p.Optimizer.EMA = p.Optimizer.Groups[:1], ema
		return p
	}
	whole, run := t.TempDir(), t.TempDir()
	if log := trainedLog(t, params(6, 0.9), whole); !strings.Contains(log, `msg="evaluations and exports use moving averages of the variables" ema=0.9`) {
		t.Error(log)
	}
	trainedLog(t, params(3, 0.9), run)
	trainedLog(t, params(6, 0.9), run)
	sameRuns(t, run, whole)

	saved, _ := final(t, run)
	averages := 0
	check := func(folder string, averaged bool) {
		var log bytes.Buffer
		env := quiet()
		env.Log = slog.New(slog.NewTextHandler(&log, nil))
		r := loaded(t, folder, env)
		if said := strings.Contains(log.String(), "using the moving averages of the variables"); said != averaged {
			t.Errorf("averages are used: %v; the log: %s", averaged, log.String())
		}
		values, err := r.Variables(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held, _ := final(t, folder)
		for name := range values {
			want := held[name]
			if average, ok := held[graphs.AveragePrefix+name]; ok {
				averages++
				if want = average; bytes.Equal(average, held[name]) {
					t.Errorf("the average of %s is its value", name)
				}
			}
			if !bytes.Equal(assigned(values).bytes(t, name), want) {
				t.Errorf("%s is not what was expected to be exported", name)
			}
		}
		out, err := r.Evaluate(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Count(log.String(), "using the moving averages of the variables"); said > 1 {
			t.Errorf("the line on averages is there %d times:\n%s", said, log.String())
		}
		in := evaluations(t, folder)
		if got, want := out["loss"], in[len(in)-1].Outputs["loss"]; math.Abs(got-want) > 1e-6 {
			t.Errorf("the evaluation of the run has a loss of %v; that in training %v", got, want)
		}
	}
	check(run, true)
	if averages == 0 || saved[graphs.AveragePrefix+"model/encoder/embeddings/word/table"] != nil {
		t.Errorf("%d variables have averages, or a frozen one has", averages)
	}
	if log := trainedLog(t, params(9, 0), run); strings.Contains(log, "averages") {
		t.Error(log)
	}
	check(run, false)
	if log := trainedLog(t, params(12, 0.5), run); !strings.Contains(log, "they begin at the values of the variables") || strings.Contains(log, "were frozen") {
		t.Error(log)
	}
	check(run, true)
}
