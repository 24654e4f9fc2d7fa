// Package flat converts the features of a micro-batch to the form that a composed graph is fed
// with: the concatenated values of each dtype, and a layout with the size and shape of each
// feature.
package flat

import (
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
)

// DTypes are the dtypes of features in the order in which they are fed.
var DTypes = []string{"int32", "float32", "int64", "uint8", "bool"}

// always is how many of DTypes a graph is laid out for even if no feature has them.
const always = 2

// Feature is an input feature of a graph.
type Feature struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Axes  int    `json:"axes"` // number of axes
}

// Kind is the features of one dtype, those of the indices From to To-1.
type Kind struct {
	DType    string
	From, To int
}

// Kinds divides features, which must be in the order of DTypes. There is a kind of int32 and one of
// float32, even without features, and one of every other dtype that a feature has.
func Kinds(features []Feature) []Kind {
	var out []Kind
	from := 0
	for i, dtype := range DTypes {
		to := from
		for to < len(features) && features[to].DType == dtype {
			to++
		}
		if i < always || to > from {
			out = append(out, Kind{dtype, from, to})
		}
		from = to
	}
	return out
}

// Check returns an error if features are not in the order of DTypes.
func Check(features []Feature) error {
	last := 0
	for _, f := range features {
		at := slices.Index(DTypes, f.DType)
		if at < last {
			return fmt.Errorf("feature %s has dtype %q; expected features in the order of the dtypes %v", f.Name, f.DType, DTypes)
		}
		last = at
	}
	return nil
}

// Batch is a flat micro-batch. It shares the memory of the features.
type Batch struct {
	// Values are the values of the features by kind, feature by feature.
	Values [][][]byte
	// Counts are the numbers of values by kind.
	Counts []int64
	// Layout is the number of values of each kind's features, feature by feature, followed by
	// all their shapes.
	Layout []int64
}

// Lay flattens the features that a graph wants, which must be in the order of DTypes. Other features
// of the batch are ignored. It returns an error if a wanted feature is missing or has the wrong
// size, number of axes or dtype.
func Lay(want []Feature, features []dataset.Feature) (Batch, error) {
	var b Batch
	if err := Check(want); err != nil {
		return b, err
	}
	kinds := Kinds(want)
	b.Values, b.Counts = make([][][]byte, len(kinds)), make([]int64, len(kinds))
	byName := make(map[string]*dataset.Feature, len(features))
	for i := range features {
		byName[features[i].Name] = &features[i]
	}
	var shapes []int64
	for k, kind := range kinds {
		for _, w := range want[kind.From:kind.To] {
			f := byName[w.Name]
			if f == nil {
				return b, fmt.Errorf("the batch has no feature %s; the graph needs it", w.Name)
			}
			for _, d := range f.Shape {
				shapes = append(shapes, int64(d))
			}
			n := f.Len()
			switch {
			case n != f.Size():
				return b, fmt.Errorf("feature %s has %d values; expected %d for shape %v", f.Name, n, f.Size(), f.Shape)
			case len(f.Shape) != w.Axes:
				return b, fmt.Errorf("feature %s has shape %v; expected %d axes", f.Name, f.Shape, w.Axes)
			case n > 0 && string(f.DType()) != w.DType:
				return b, fmt.Errorf("feature %s has dtype %s; expected %s", f.Name, f.DType(), w.DType)
			}
			b.Values[k] = append(b.Values[k], f.Raw())
			b.Counts[k] += int64(n)
			b.Layout = append(b.Layout, int64(n))
		}
	}
	b.Layout = append(b.Layout, shapes...)
	return b, nil
}

// Sort returns features in the order of DTypes. Features of one dtype stay in their order.
func Sort[F any](features []F, dtype func(F) string) []F {
	out := slices.Clone(features)
	slices.SortStableFunc(out, func(a, b F) int { return slices.Index(DTypes, dtype(a)) - slices.Index(DTypes, dtype(b)) })
	return out
}
