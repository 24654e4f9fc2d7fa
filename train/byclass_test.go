package train

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestClassWeights wants class weights to be weights of examples: a run with them is, bit for bit, one
// on records that have them. It keeps them.
func TestClassWeights(t *testing.T) {
	m := anyModelNamed("flowers")
	p := m.params(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Best, p.Summary.Enabled = 6, params.NoEval, "", false
	p.Optimizer.LearningRate = 0.01
	given := p
	given.Data.Dir, given.Data.Features = t.TempDir(), maps.Clone(p.Data.Features)
	weights := []float32{0.5, 1, 3}
	record := m.record
	m.record = func(r *rand.Rand) []tfrecord.Feature {
		features := record(r)
		return append(features, tfrecord.FloatFeature("example_weights", weights[features[1].Int64s[0]]))
	}
	other := m.params(t)
	given.Data.Dir = other.Data.Dir
	p.Data.ClassWeights = params.ByClass{Of: map[string]float64{"0": 0.5, "2": 3}}
	dir := t.TempDir()
	run := filepath.Join(dir, "classes")
	mustTrain(t, p, run)
	mustTrain(t, given, filepath.Join(dir, "examples"))
	sameRuns(t, run, filepath.Join(dir, "examples"))

	p.Train.Steps = 8
	p.Data.ClassWeights = params.ByClass{Rule: params.ClassesNone}
	if _, err := Train(t.Context(), p, run, quiet()); err == nil || !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "the list of class weights was 0.5 1 3 and is not set; to train with these from the start, choose another folder with --run") {
		t.Errorf("continued with other weights: %v", err)
	}
	p.Data.ClassWeights = params.ByClass{Rule: params.ClassesBalanced}
	if _, err := Train(t.Context(), p, filepath.Join(dir, "balanced"), quiet()); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "data.class_weights: balanced needs the number of examples of each class") {
		t.Errorf("balanced without a manifest: %v", err)
	}
}

// TestSampling wants a run to be sampled as its params say, in the middle of an epoch too, and to keep
// the sampling.
func TestSampling(t *testing.T) {
	long(t)
	p := anyModelNamed("flowers").params(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Best, p.Summary.Enabled = 12, params.NoEval, "", false
	p.Checkpoint.Interval, p.Data.Sampling = 4, params.ByClass{Of: map[string]float64{"1": 1e6}}
	whole, run := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, whole)
	stopAt(t, p, run, 5)
	mustTrain(t, p, run)
	sameRuns(t, run, whole)
	_, set := opened(t, p)
	b, err := set.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range integers(b.Feature(anyLabel(t, p))) {
		if class != 1 {
			t.Errorf("an example of class %d was drawn, expected class 1", class)
		}
	}
	p.Train.Steps, p.Data.Sampling = 16, params.ByClass{Rule: params.ClassesUniform}
	if _, err := Train(t.Context(), p, run, quiet()); err == nil || !strings.Contains(err.Error(), "the sampling was by class, 1 1e+06 1 and is uniform") {
		t.Errorf("continued with another sampling: %v", err)
	}
	p = anyModelNamed("words").params(t)
	p.Data.Sampling = params.ByClass{Rule: params.ClassesBalanced}
	if _, err := Train(t.Context(), p, run, quiet()); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "data.sampling: label sum of the graph is float32") {
		t.Errorf("sampled by a number: %v", err)
	}
}

// anyLabel is the name of the label of a run's graph.
func anyLabel(t *testing.T, p params.Params) string {
	t.Helper()
	export, err := prepare.OpenExport(t.Context(), p.Graph, quiet().prepare())
	if err != nil {
		t.Fatal(err)
	}
	return export.Contract.Label().Name
}

// TestClassWeightsOfContracts reads class weights for labels of all kinds.
func TestClassWeightsOfContracts(t *testing.T) {
	feature := func(name, dtype, role string, below int64, shape ...int64) graphs.Feature {
		f := graphs.Feature{Name: name, DType: dtype, Role: role, Shape: append([]int64{-1}, shape...), Axes: []string{prepare.AxisExamples}}
		for range shape {
			f.Axes = append(f.Axes, "width")
		}
		if below > 0 {
			f.Below = &below
		}
		return f
	}
	label, weight := feature("kind", "int64", graphs.RoleLabel, 3), feature("w", "float32", graphs.RoleWeight, 0)
	hot := feature("hot", "float32", graphs.RoleLabel, 0, 3)
	hot.Make = "multi_hot"
	offset := feature("start", "int32", graphs.RoleLabel, 0)
	offset.Make = "offset"
	texts := &convert.Manifest{Labels: []string{"bad", "so so", "1"}, Splits: map[string]*convert.Split{"train": {Records: 12, LabelCounts: []int64{6, 0, 2}}}}
	rows := &convert.Manifest{Features: []convert.Feature{{Name: "sort", Categories: []string{"a", "b", "c"}}},
		Splits: map[string]*convert.Split{"train": {Features: map[string]*convert.Statistics{"sort": {Counts: []int64{1, 1, 2}}}}}}
	for _, c := range []struct {
		name     string
		features []graphs.Feature
		manifest *convert.Manifest
		given    string
		want     string // numbers, or a part of an error
	}{
		{"none", nil, nil, "none", "<nil>"},
		{"balanced", []graphs.Feature{label, weight}, texts, "balanced", "kind w [0.6666666666666666 1 2]"},
		{"balanced, of a schema", []graphs.Feature{label, weight}, rows, "balanced", "kind w [1.3333333333333333 1.3333333333333333 0.6666666666666666]"},
		{"names", []graphs.Feature{label, weight}, texts, "{so so: 2, bad: 0.5}", "kind w [0.5 2 1]"},
		{"names come before numbers", []graphs.Feature{label, weight}, texts, "{1: 4, 0: 2}", "kind w [2 1 4]"},
		{"numbers", []graphs.Feature{label, weight}, nil, "{2: 4}", "kind w [1 1 4]"},
		{"without a limit", []graphs.Feature{feature("kind", "int32", graphs.RoleLabel, 0), weight}, nil, "{2: 4}", "kind w [1 1 4]"},
		{"column", []graphs.Feature{feature("kind", "int32", graphs.RoleLabel, 3, 1), weight}, nil, "{2: 4}", "kind w [1 1 4]"},
		{"twice", []graphs.Feature{label, weight}, texts, "{bad: 4, 0: 2}", "0 and bad are the same class"},
		{"unknown name", []graphs.Feature{label, weight}, texts, "{good: 4}", `there is no class "good"; expected one of bad, so so, 1, or 0 to 2`},
		{"name without names", []graphs.Feature{label, weight}, nil, "{good: 4}", `there is no class "good"; expected 0 to 2, because the data do not name the classes`},
		{"number out of range", []graphs.Feature{label, weight}, nil, "{3: 4}", `there is no class "3"; expected 0 to 2`},
		{"balanced without counts", []graphs.Feature{label, weight}, nil, "balanced", "balanced needs the number of examples of each class"},
		{"float", []graphs.Feature{feature("degrees", "float32", graphs.RoleLabel, 0), weight}, nil, "{0: 2}", "label degrees of the graph is float32 on the axes examples; expected one integer for each example"},
		{"several labels", []graphs.Feature{hot, weight}, nil, "{0: 2}", "label hot of the graph is float32 on the axes examples, width, made as multi_hot"},
		{"a class for each token", []graphs.Feature{feature("tags", "int32", graphs.RoleLabel, 3, -1), weight}, nil, "{0: 2}", "label tags of the graph is int32 on the axes examples, width"},
		{"two labels", []graphs.Feature{offset, label, weight}, nil, "{0: 2}", "the graph has 2 labels (start, kind)"},
		{"an offset", []graphs.Feature{offset, weight}, nil, "{0: 2}", "made as offset; expected one integer"},
		{"no label", []graphs.Feature{weight}, nil, "{0: 2}", "the graph has 0 labels"},
		{"no weight", []graphs.Feature{label}, nil, "{0: 2}", "no feature with a weight for each example"},
	} {
		p := params.Defaults()
		p.Data.Features["kind"] = "sort"
		if err := p.Set("data.class_weights=" + c.given); err != nil {
			t.Fatal(err)
		}
		w, err := prepare.ClassWeightsOf(p, &graphs.Contract{Features: c.features}, c.manifest)
		got := "<nil>"
		if w != nil {
			got = fmt.Sprint(w.Label, " ", w.Weight, " ", w.Of)
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, "params: data.class_weights: ") || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s, expected %q", c.name, got, c.want)
		}
	}
}
