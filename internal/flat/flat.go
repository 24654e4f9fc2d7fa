// Package flat converts the features of a micro-batch to the form that a composed graph is fed
// with: the concatenated values of each dtype, and a layout with the size and shape of each
// feature.
package flat

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Feature is an input feature of a graph.
type Feature struct {
	Name string `json:"name"`
	Axes int    `json:"axes"` // number of axes
}

// Batch is a flat micro-batch. It shares the memory of the features.
type Batch struct {
	// Int32s and Float32s are the values of the features, feature by feature.
	Int32s   [][]int32
	Float32s [][]float32
	// Layout is the number of values of each feature, in the order of the graph's inputs,
	// followed by all their shapes.
	Layout []int64
}

// Lay flattens the features that a graph wants. The first int32s of them have dtype int32, the
// others float32. Other features of the batch are ignored. It returns an error if a wanted feature
// is missing or has the wrong size, number of axes or dtype.
func Lay(want []Feature, int32s int, features []dataset.Feature) (Batch, error) {
	var b Batch
	var shapes []int64
	byName := make(map[string]*dataset.Feature, len(features))
	for i := range features {
		byName[features[i].Name] = &features[i]
	}
	for i, w := range want {
		f := byName[w.Name]
		if f == nil {
			return b, fmt.Errorf("the batch has no feature %s; the graph needs it", w.Name)
		}
		size := 1
		for _, d := range f.Shape {
			size *= d
			shapes = append(shapes, int64(d))
		}
		values := len(f.Int32) + len(f.Float32)
		switch {
		case values != size:
			return b, fmt.Errorf("feature %s has %d values; expected %d for shape %v", f.Name, values, size, f.Shape)
		case len(f.Shape) != w.Axes:
			return b, fmt.Errorf("feature %s has shape %v; expected %d axes", f.Name, f.Shape, w.Axes)
		case i < int32s && len(f.Float32) > 0:
			return b, fmt.Errorf("feature %s has dtype float32; expected int32", f.Name)
		case i >= int32s && len(f.Int32) > 0:
			return b, fmt.Errorf("feature %s has dtype int32; expected float32", f.Name)
		case i < int32s:
			b.Int32s = append(b.Int32s, f.Int32)
		default:
			b.Float32s = append(b.Float32s, f.Float32)
		}
		b.Layout = append(b.Layout, int64(values))
	}
	b.Layout = append(b.Layout, shapes...)
	return b, nil
}
