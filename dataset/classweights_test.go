package dataset_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// weighted is a layout of the samples without rows, whose label is of a dtype.
func weighted(label DType) dense.Config {
	return dense.Config{MaxLength: 64, Features: []Spec{
		{Name: "input_ids", DType: Int32, Shape: []int{-1}},
		{Name: "labels", Record: []string{"label_ids"}, DType: label, Role: Label},
		{Name: "example_weights", DType: Float32, Role: Weight},
	}}
}

// TestClassWeights wants each example of a batch, and of its parts, to weigh what its class does, and
// the places without an example nothing.
func TestClassWeights(t *testing.T) {
	weights := &ClassWeights{Label: packed.LabelIDs, Weight: packed.ExampleWeights, Of: []float64{0.5, 3}}
	want := map[int64]float32{0: 0.5, 1: 3, 2: 1}
	for _, c := range []struct {
		name   string
		layout Layout
	}{
		{"rows", packed.Config{}},
		{"fixed rows", packed.Config{RowLength: 64, Rows: 4}},
		{"int64", weighted(Int64)},
		{"uint8", weighted(Uint8)},
	} {
		d := open(t, Config{BatchSize: 12, Epochs: 2, Seed: 4, Layout: c.layout, ClassWeights: weights}, samples(t, 50))
		d.Divide(3, 0)
		examples := 0
		for _, b := range rest(t, d, 1000) {
			for _, part := range append(b.Parts, b) {
				label, weight := part.Feature(packed.LabelIDs), part.Feature(packed.ExampleWeights)
				for i, w := range weight.Float32 {
					var class int64
					switch {
					case label.Int32 != nil:
						class = int64(label.Int32[i])
					case label.Int64 != nil:
						class = label.Int64[i]
					default:
						class = int64(label.Uint8[i])
					}
					if i >= part.Examples {
						if w != 0 {
							t.Fatalf("%s: place %d without an example weighs %v", c.name, i, w)
						}
						continue
					}
					examples++
					if w != want[class] {
						t.Fatalf("%s: an example of class %d weighs %v, expected %v", c.name, class, w, want[class])
					}
				}
			}
		}
		if examples != 4*50 {
			t.Errorf("%s: %d examples, expected %d", c.name, examples, 4*50)
		}
	}
}

// TestClassWeightsAreKept wants a position to be that of its weights only.
func TestClassWeightsAreKept(t *testing.T) {
	f := samples(t, 50)
	of := func(w ...float64) Config {
		return Config{BatchSize: 8, ClassWeights: &ClassWeights{Label: packed.LabelIDs, Weight: packed.ExampleWeights, Of: w}}
	}
	saved := viaJSON(t, next(t, open(t, of(1, 0.1), f)).State)
	if err := open(t, of(1, 0.1), f).Restore(saved); err != nil {
		t.Error(err)
	}
	many := make([]float64, 100)
	for i := range many {
		many[i] = 1
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{of(1, 0.2), "the list of class weights was 1 0.1 and is 1 0.2"},
		{Config{BatchSize: 8}, "the list of class weights was 1 0.1 and is not set"},
		{of(many...), "the list of class weights was 1 0.1 and is 100 numbers with the checksum "},
	} {
		var e *StateError
		if err := open(t, c.cfg, f).Restore(saved); !errors.As(err, &e) || !errors.Is(err, fault.Usage) || len(e.Differences) != 1 || !strings.HasPrefix(e.Differences[0], c.want) {
			t.Errorf("%v, expected %q", err, c.want)
		}
	}
}

func TestClassWeightsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		weights ClassWeights
		want    string
	}{
		{ClassWeights{Label: "labels", Weight: "example_weights", Of: []float64{1, 0}}, "weight of class 1 is 0; expected a finite number above 0"},
		{ClassWeights{Label: "labels", Weight: "example_weights", Of: []float64{1e39}}, "weight of class 0 is 1e+39"},
		{ClassWeights{Label: "labels"}, "name no label or no weight"},
		{ClassWeights{Label: "kinds", Weight: "example_weights"}, "expected two features of a batch"},
		{ClassWeights{Label: "example_weights", Weight: "example_weights"}, "expected an integer and a float32 for each example"},
		{ClassWeights{Label: "input_ids", Weight: "example_weights"}, "expected an integer and a float32 for each example"},
	} {
		d, err := OpenFiles(withLayout(Config{BatchSize: 8, ClassWeights: &c.weights}), samples(t, 50))
		if err == nil {
			err = failure(t, d)
			d.Close()
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, expected %q", err, c.want)
		}
	}
}
