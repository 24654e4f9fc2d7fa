// Package flat lays the features of a micro-batch out as a composed graph takes them: the
// numbers of each dtype one after the other, and a layout that says where each begins and
// what shape it has.
package flat

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Feature is a feature that a graph takes.
type Feature struct {
	Name string `json:"name"`
	Axes int    `json:"axes"` // how many
}

// Batch is a micro-batch laid out. Its numbers are those of the features: they share
// their memory.
type Batch struct {
	// Int32s and Float32s are the features' numbers, feature after feature.
	Int32s   [][]int32
	Float32s [][]float32
	// Layout is how many numbers each feature has, in the order in which the graph takes
	// them, and then their shapes, one after the other.
	Layout []int64
}

// Lay lays out the features that a graph takes, of which so many are of int32 and come
// first; the others are of float32. Features that the graph does not take are left out;
// one that it takes and the batch lacks is an error.
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
			return b, fmt.Errorf("the batch has no feature %s, which the graph takes", w.Name)
		}
		size := 1
		for _, d := range f.Shape {
			size *= d
			shapes = append(shapes, int64(d))
		}
		values := len(f.Int32) + len(f.Float32)
		switch {
		case values != size:
			return b, fmt.Errorf("feature %s: %d values for shape %v", f.Name, values, f.Shape)
		case len(f.Shape) != w.Axes:
			return b, fmt.Errorf("feature %s has shape %v; the graph takes %d axes", f.Name, f.Shape, w.Axes)
		case i < int32s && len(f.Float32) > 0 || i >= int32s && len(f.Int32) > 0:
			return b, fmt.Errorf("feature %s is not of the dtype that the graph takes", f.Name)
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
