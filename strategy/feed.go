package strategy

import (
	"fmt"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// laid holds the values of micro-batches, one after the other.
type laid struct {
	values [][][]byte // by kind
	counts []int64    // of the values of each kind
}

func newLaid(kinds int) laid { return laid{make([][][]byte, kinds), make([]int64, kinds)} }

// add adds a micro-batch, and returns its layout and how many values of each kind it has.
func (l *laid) add(features []graphs.Feature, batch []Feature) (layout, counts []int64, err error) {
	b, err := flat.Lay(compose.Flat(features), batch)
	if err != nil {
		return nil, nil, err
	}
	if err := checkAxes(features, batch); err != nil {
		return nil, nil, err
	}
	for k, values := range b.Values {
		l.values[k] = append(l.values[k], values...)
		l.counts[k] += b.Counts[k]
	}
	return b.Layout, b.Counts, nil
}

// specs says what to feed to the placeholders of the kinds.
func (l *laid) specs(kinds []flat.Kind, placeholders []build.Ref) []spec {
	out := make([]spec, len(kinds))
	for k, kind := range kinds {
		out[k] = spec{placeholders[k], tf.DataType(dtype.Of(kind.DType)), l.counts[k : k+1], l.values[k]}
	}
	return out
}

// feedSet holds the tensors that a call takes, by placeholder.
type feedSet map[build.Ref]*tf.Tensor

// feed returns the feeds of one micro-batch per replica.
func feed(p *compose.Feeds, batches [][]Feature) (feedSet, error) {
	if len(batches) != p.Replicas {
		return nil, fmt.Errorf("%d micro-batches given; expected %d, one for each replica", len(batches), p.Replicas)
	}
	l := newLaid(len(p.Kinds))
	var layout []int64
	totals := make([]int64, len(p.Kinds)*p.Replicas)
	for i, batch := range batches {
		own, counts, err := l.add(p.Features, batch)
		if err != nil {
			return nil, err
		}
		layout = append(layout, own...)
		for k, n := range counts {
			totals[k*p.Replicas+i] = n
		}
	}
	replicas := int64(p.Replicas)
	return tensors(append(l.specs(p.Kinds, p.Values),
		spec{p.Layout, tf.Int64, []int64{replicas, int64(len(layout)) / replicas}, [][]byte{raw(layout)}},
		spec{p.Totals, tf.Int64, []int64{int64(len(p.Kinds)), replicas}, [][]byte{raw(totals)}},
	))
}

// spec says what to feed to a placeholder.
type spec struct {
	placeholder build.Ref // the zero Ref means none
	dtype       tf.DataType
	shape       []int64
	parts       [][]byte
}

// tensors makes feeds.
func tensors(specs []spec) (feedSet, error) {
	out := make(feedSet, len(specs))
	for _, f := range specs {
		if f.placeholder.IsZero() {
			continue
		}
		t, err := newTensor(f.dtype, f.shape, f.parts...)
		if err != nil {
			return nil, fmt.Errorf("feed %s: %w", f.placeholder, err)
		}
		out[f.placeholder] = t
	}
	return out, nil
}

// checkAxes returns an error if an axis has different sizes in two features of a batch.
func checkAxes(want []graphs.Feature, batch []Feature) error {
	type first struct {
		feature *Feature
		at      int
	}
	seen := make(map[string]first)
	for _, w := range want {
		i := slices.IndexFunc(batch, func(f Feature) bool { return f.Name == w.Name })
		f := &batch[i]
		for k, axis := range w.Axes {
			if size := w.Shape[k]; size >= 0 && size != int64(f.Shape[k]) {
				return fmt.Errorf("feature %s has shape %v; expected %d for the axis %s", f.Name, f.Shape, size, axis)
			}
			one, ok := seen[axis]
			if !ok {
				seen[axis] = first{f, k}
			} else if one.feature.Shape[one.at] != f.Shape[k] {
				return fmt.Errorf("feature %s has shape %v and feature %s has %v; expected the same %s", f.Name, f.Shape, one.feature.Name, one.feature.Shape, axis)
			}
		}
	}
	return nil
}
