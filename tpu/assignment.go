package tpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Assignment assigns the replicas of a model to cores.
type Assignment struct {
	// Coordinates are the coordinates of each replica's core.
	Coordinates []Coordinate
	// Cores are the same cores by task and device.
	Cores []Core
}

// Flat returns the concatenated coordinates, the form of the attribute device_assignment of
// TPUReplicateMetadata, for callers who make that operation.
func (a *Assignment) Flat() []int64 {
	out := make([]int64, 0, len(a.Coordinates)*len(Coordinate{}))
	for _, at := range a.Coordinates {
		for _, v := range at {
			out = append(out, int64(v))
		}
	}
	return out
}

// Assign assigns each replica to a core of its own. The order is that of TensorFlow 2.18 with a
// computation shape of one core (device_assignment in
// tensorflow/python/tpu/device_assignment.py):
//
//   - All cores of a mesh with one core per chip: a ring through the chips, so that neighbouring
//     replicas are on neighbouring chips.
//   - Some of the cores, or chips with two cores: a block as close to a cube as possible, in the
//     order core of the chip, x, y, z.
//   - A mesh with missing cores: in the order of tasks and devices.
//
// It returns an error of class fault.Usage if there are fewer cores than replicas.
func (t *Topology) Assign(replicas int) (*Assignment, error) {
	if replicas < 1 || replicas > t.Cores() {
		return nil, fault.Usagef("%d replicas given; expected 1 to %d, the number of cores of the TPU", replicas, t.Cores())
	}
	var at []Coordinate
	switch {
	case !t.complete():
		at = t.Coordinates[:replicas]
	case replicas == t.Cores() && t.Mesh[3] == 1:
		at = ring(t.Mesh[0], t.Mesh[1], t.Mesh[2])
	default:
		at = block(t.Mesh, replicas)
	}
	a := &Assignment{Coordinates: slices.Clone(at)}
	for _, c := range at {
		a.Cores = append(a.Cores, t.cores[c])
	}
	return a, nil
}

// block returns the first places of the block closest to a cube that has room for all replicas.
func block(mesh Coordinate, replicas int) []Coordinate {
	// Shortest axis first; equal axes in the order core, x, y, z.
	axes := []int{3, 0, 1, 2}
	slices.SortStableFunc(axes, func(a, b int) int { return cmp.Compare(mesh[a], mesh[b]) })
	var shape Coordinate
	left := replicas
	for i, axis := range axes {
		edge := int32(math.Ceil(math.Pow(float64(left), 1/float64(len(axes)-i))))
		shape[axis] = min(edge, mesh[axis])
		left = (left + int(shape[axis]) - 1) / int(shape[axis])
	}
	out := make([]Coordinate, replicas)
	for r := range out {
		rest := int32(r)
		for _, axis := range []int{3, 0, 1, 2} {
			out[r][axis] = rest % shape[axis]
			rest /= shape[axis]
		}
	}
	return out
}

// ring returns all chips of a mesh in an order in which each chip is a neighbour of the one before
// it, and the last one is a neighbour of the first. A mesh with an odd edge has no such ring; its
// chips are returned in the order of their coordinates.
func ring(x, y, z int32) []Coordinate {
	var out []Coordinate
	add := func(x, y, z int32) { out = append(out, Coordinate{x, y, z, 0}) }
	odd := func(n int32) bool { return n > 1 && n%2 != 0 }
	long := 0
	for _, n := range []int32{x, y, z} {
		if n > 1 {
			long++
		}
	}
	if long < 2 || odd(x) || odd(y) || odd(z) {
		for k := range z {
			for j := range y {
				for i := range x {
					add(i, j, k)
				}
			}
		}
		return out
	}
	add(0, 0, 0)
	switch {
	case z == 1:
		loop(x, y, func(i, j int32) { add(i, j, 0) })
	case y == 1:
		loop(x, z, func(i, k int32) { add(i, 0, k) })
	case x == 1:
		loop(y, z, func(j, k int32) { add(0, j, k) })
	default:
		// A loop in each layer, in alternating directions, joined at the first chips.
		for k := range z {
			layer := len(out)
			loop(x, y, func(i, j int32) { add(i, j, k) })
			if k%2 != 0 {
				slices.Reverse(out[layer:])
			}
		}
		for k := z - 1; k > 0; k-- {
			add(0, 0, k)
		}
	}
	return out
}

// loop visits a rectangle from one neighbour of its first corner to the other: back and forth
// through all columns but the first, and back through that one.
func loop(width, height int32, visit func(i, j int32)) {
	for j := int32(0); j < height/2; j++ {
		for i := int32(1); i < width; i++ {
			visit(i, 2*j)
		}
		for i := width - 1; i > 0; i-- {
			visit(i, 2*j+1)
		}
	}
	for j := height - 1; j > 0; j-- {
		visit(0, j)
	}
}
