package strategy

import (
	"fmt"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/flat"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// laid holds the values of micro-batches, one after the other.
type laid struct {
	ints, floats [][]byte
	counts       [2]int64 // of the values of each dtype
}

// add adds a micro-batch, and returns its layout and how many values of each dtype it has.
func (l *laid) add(p *compose.Feeds, batch []Feature) (layout []int64, counts [2]int64, err error) {
	want := make([]flat.Feature, len(p.Features))
	for i, f := range p.Features {
		want[i] = flat.Feature{Name: f.Name, Axes: len(f.Axes)}
	}
	b, err := flat.Lay(want, p.Int32s, batch)
	if err != nil {
		return nil, counts, err
	}
	if err := checkAxes(p.Features, batch); err != nil {
		return nil, counts, err
	}
	for _, v := range b.Int32s {
		l.ints = append(l.ints, raw(v))
		counts[0] += int64(len(v))
	}
	for _, v := range b.Float32s {
		l.floats = append(l.floats, raw(v))
		counts[1] += int64(len(v))
	}
	l.counts[0] += counts[0]
	l.counts[1] += counts[1]
	return b.Layout, counts, nil
}

// feed returns the feeds of one micro-batch per replica, by placeholder.
func feed(p *compose.Feeds, batches [][]Feature) (map[string]*tf.Tensor, error) {
	if len(batches) != p.Replicas {
		return nil, fmt.Errorf("%d micro-batches given; expected %d, one for each replica", len(batches), p.Replicas)
	}
	var l laid
	var layout []int64
	totals := make([]int64, 2*p.Replicas)
	for i, batch := range batches {
		own, counts, err := l.add(p, batch)
		if err != nil {
			return nil, err
		}
		layout = append(layout, own...)
		totals[i], totals[p.Replicas+i] = counts[0], counts[1]
	}
	replicas := int64(p.Replicas)
	return tensors([]spec{
		{p.Ints, tf.Int32, l.counts[:1], l.ints},
		{p.Floats, tf.Float, l.counts[1:], l.floats},
		{p.Layout, tf.Int64, []int64{replicas, int64(len(layout)) / replicas}, [][]byte{raw(layout)}},
		{p.Totals, tf.Int64, []int64{2, replicas}, [][]byte{raw(totals)}},
	})
}

// spec says what to feed to a placeholder.
type spec struct {
	placeholder string // "" means none
	dtype       tf.DataType
	shape       []int64
	parts       [][]byte
}

// tensors makes feeds.
func tensors(specs []spec) (map[string]*tf.Tensor, error) {
	feeds := make(map[string]*tf.Tensor, len(specs))
	for _, f := range specs {
		if f.placeholder == "" {
			continue
		}
		t, err := newTensor(f.dtype, f.shape, f.parts...)
		if err != nil {
			return nil, fmt.Errorf("feed %s: %w", f.placeholder, err)
		}
		feeds[f.placeholder] = t
	}
	return feeds, nil
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
