package strategy

import (
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// calls returns the programs for a shape: 0 for Config.Axes, i for MoreAxes[i-1].
func (m *TPU) calls(shape int) *compose.TPUCalls {
	if shape == 0 {
		return m.plan.TPU
	}
	return &m.plan.TPU.More[shape-1]
}

// shapeOf returns the shape of a batch as calls takes it. It is 0 for a batch of an unknown shape,
// which the program for that refuses.
func (m *TPU) shapeOf(batch []Feature) int {
	for i, calls := range m.plan.TPU.More {
		if checkShapes(calls.Evaluate.Feeds, batch) == nil {
			return i + 1
		}
	}
	return 0
}

// shapeOfStep returns the shape of a step's batches, see shapeOf.
func (m *TPU) shapeOfStep(in StepInput) int {
	if len(in.Batches) == 0 {
		return 0
	}
	return m.shapeOf(in.Batches[0])
}

// checkShapes returns an error unless the features have the shapes of the TPU's program.
func checkShapes(p compose.TPUFeeds, batch []Feature) error {
	for i, want := range p.Features {
		for _, f := range batch {
			if f.Name != want.Name {
				continue
			}
			for axis, size := range f.Shape {
				if len(f.Shape) != len(p.Shapes[i]) || int64(size) != p.Shapes[i][axis] {
					return fault.Usagef("feature %s has shape %v; expected %v, the shape that the TPU's program was made for", f.Name, f.Shape, p.Shapes[i])
				}
			}
		}
	}
	return nil
}
