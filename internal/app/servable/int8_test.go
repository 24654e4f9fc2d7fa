package servable

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestInt8 writes a model that computes in int8, and has Python answer with it. What it answers in float32
// is TensorFlow's.
func TestInt8(t *testing.T) {
	dir, o := fixture(t)
	if err := Write(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	float := size(t, o.Out)
	o.Int8, o.Out = true, filepath.Join(t.TempDir(), "int8")
	measured := &layout.Quality{Split: "dev", Examples: 8, Metric: layout.MetricAccuracy, Float32: 0.875, Int8: 0.75, Different: 0.125}
	o.Measure = func(_ context.Context, folder string) (*layout.Quality, error) {
		if d, err := layout.Read(folder); err != nil || d.Int8 == nil || d.Int8.Quality != nil {
			t.Errorf("measured is a model with the description %+v, %v", d, err)
		}
		return measured, nil
	}
	if err := Write(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	d, err := layout.Read(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	// Two layers of query, key, value, output and two products, and the pooler; but not the classifier.
	if i := d.Int8; i == nil || i.Layers != 13 || i.Weights != 2*(4*32*32+2*32*64)+32*32 || i.Quality == nil || *i.Quality != *measured {
		t.Errorf("the description says %+v of int8", d.Int8)
	}
	if lost := d.Int8.Quality.Lost(); lost != 12.5 {
		t.Errorf("lost are %v points; expected 12.5", lost)
	}
	if d.Int8.Embeddings == 0 {
		t.Error("the embeddings are not in int8")
	}
	if rounded := size(t, o.Out); float-rounded < 2*(d.Int8.Weights+d.Int8.Embeddings) {
		t.Errorf("the variables have %d bytes, and %d in float32; expected those of %d weights and embeddings to be a quarter", rounded, float, d.Int8.Weights+d.Int8.Embeddings)
	}
	g := readGolden(t, dir)
	var got [][]float32
	if err := json.Unmarshal([]byte(testkit.RunPython(t, loadScript, o.Out, filepath.Join(dir, "golden.json"))), &got); err != nil {
		t.Fatal(err)
	}
	same := true
	for i, row := range g.Probabilities {
		for j, want := range row {
			same = same && got[i][j] == want
			if math.Abs(float64(got[i][j]-want)) > 0.03 {
				t.Errorf("answer %d is %v; expected about %v", i, got[i], row)
			}
		}
	}
	if same {
		t.Error("the answers are those of float32")
	}
}

// TestInt8Refuses exports a model that loses too much, and one with numbers that are none.
func TestInt8Refuses(t *testing.T) {
	_, o := fixture(t)
	o.Int8 = true
	o.Measure = func(context.Context, string) (*layout.Quality, error) { return nil, fault.Usagef("it loses all") }
	if err := Write(context.Background(), o); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "it loses all") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(o.Out); err == nil {
		t.Error("the model was written")
	}
}

// size returns the bytes of a model's variables.
func size(t *testing.T, model string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(model, "variables/variables.data-00000-of-00001"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
