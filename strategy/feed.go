package strategy

import (
	"fmt"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/flat"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// feed returns the feeds of one micro-batch per replica, by placeholder.
func feed(p *compose.Feeds, batches [][]Feature) (map[string]*tf.Tensor, error) {
	if len(batches) != p.Replicas {
		return nil, fmt.Errorf("%d micro-batches given; expected %d, one for each replica", len(batches), p.Replicas)
	}
	want := make([]flat.Feature, len(p.Features))
	for i, f := range p.Features {
		want[i] = flat.Feature{Name: f.Name, Axes: len(f.Axes)}
	}
	var ints, floats [][]byte
	var counts [2]int64
	var layout []int64
	totals := make([]int64, 2*p.Replicas)
	count := func(replica, kind, n int) {
		counts[kind] += int64(n)
		totals[kind*p.Replicas+replica] += int64(n)
	}
	for i, batch := range batches {
		laid, err := flat.Lay(want, p.Int32s, batch)
		if err != nil {
			return nil, err
		}
		if err := checkAxes(p.Features, batch); err != nil {
			return nil, err
		}
		for _, v := range laid.Int32s {
			ints = append(ints, raw(v))
			count(i, 0, len(v))
		}
		for _, v := range laid.Float32s {
			floats = append(floats, raw(v))
			count(i, 1, len(v))
		}
		layout = append(layout, laid.Layout...)
	}
	feeds := make(map[string]*tf.Tensor, 4)
	replicas := int64(p.Replicas)
	for _, f := range []struct {
		placeholder string
		dtype       tf.DataType
		shape       []int64
		parts       [][]byte
	}{
		{p.Ints, tf.Int32, counts[:1], ints},
		{p.Floats, tf.Float, counts[1:], floats},
		{p.Layout, tf.Int64, []int64{replicas, int64(len(layout)) / replicas}, [][]byte{raw(layout)}},
		{p.Totals, tf.Int64, []int64{2, replicas}, [][]byte{raw(totals)}},
	} {
		if f.placeholder == "" {
			continue
		}
		t, err := newTensor(f.dtype, f.shape, f.parts...)
		if err != nil {
			return nil, fmt.Errorf("features: %w", err)
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
