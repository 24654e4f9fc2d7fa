package dense_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	. "github.com/gorbit-ml/gorbit/dataset/dense"
)

// TestGoldenBatch compares a batch of SequenceExamples with what TensorFlow's parser, decoders and
// padding make of the same records.
func TestGoldenBatch(t *testing.T) {
	text, err := os.ReadFile("testdata/clips.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]struct {
		Shape  []int
		Values []float64
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/clips.tfrecord")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "clips.tfrecord") // an index is written next to it
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	layout := Config{Features: []dataset.Spec{
		{Name: "ids", DType: dataset.Int32, Shape: []int{-1}, Below: number(100)},
		{Name: "points", DType: dataset.Float32, Shape: []int{-1, 2}},
		{Name: "frames", DType: dataset.Uint8, Shape: []int{-1, 3, 2, 1}},
		{Name: "mask", DType: dataset.Bool, Shape: []int{-1}, Make: MakeMask},
		{Name: "lengths", DType: dataset.Int64, Make: MakeLength},
		{Name: "label", DType: dataset.Int32, Role: dataset.Label, Below: number(3)},
		{Name: "image", DType: dataset.Uint8, Shape: []int{2, 2, 3}},
		{Name: "scale", DType: dataset.Float32, Shape: []int{2}},
		{Name: "example_weights", DType: dataset.Float32, Role: dataset.Weight},
	}}
	b := all(t, dataset.Config{Files: []string{path}, BatchSize: 8, Shuffle: dataset.ShuffleNone, Layout: layout})[0]
	for name, w := range want {
		f := b.Feature(name)
		var got []float64
		switch f.DType() {
		case dataset.Int32:
			got = floats(f.Int32)
		case dataset.Int64:
			got = floats(f.Int64)
		case dataset.Uint8:
			got = floats(f.Uint8)
		case dataset.Float32:
			got = floats(f.Float32)
		case dataset.Bool:
			got = floats(f.Raw())
		}
		if !slices.Equal(f.Shape, w.Shape) || !slices.Equal(got, w.Values) {
			t.Errorf("%s: %v of shape %v, want %v of %v", name, got, f.Shape, w.Values, w.Shape)
		}
	}
	if len(want)+1 != len(b.Features) {
		t.Errorf("the golden file has %d features, the batch %d", len(want), len(b.Features))
	}
}

func floats[T int32 | int64 | uint8 | float32](values []T) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}
