package train

import (
	"errors"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

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
	run, _ := stoppedEndsAsAnother(t, p, 5)
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
