package tpu

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Coordinate is the position of a core in the mesh: x, y and z of its chip, and its number on the
// chip.
type Coordinate [4]int32

// Core identifies a core in TensorFlow's form, /job:JOB/task:TASK/device:TPU:DEVICE.
type Core struct{ Task, Device int }

// Name returns the full name of the core's device in a job.
func (c Core) Name(job string) string {
	return fmt.Sprintf("/job:%s/replica:0/task:%d/device:TPU:%d", job, c.Task, c.Device)
}

// Topology is the shape of a TPU, the result of ConfigureDistributedTPU.
type Topology struct {
	// Mesh is the size of each axis.
	Mesh Coordinate
	// Tasks is the number of hosts; each has DevicesPerTask cores.
	Tasks, DevicesPerTask int
	// Coordinates are the coordinates of the cores, by task and device.
	Coordinates []Coordinate

	serialized []byte
	cores      map[Coordinate]Core
}

// maxCores limits the cores of a topology; the largest pod has 12,288.
const maxCores = 1 << 17

// TopologyError means that a topology is not valid.
type TopologyError struct{ Reason string }

// Error returns the reason.
func (e *TopologyError) Error() string {
	return "invalid TPU topology: " + e.Reason
}

// ParseTopology parses a serialized tensorflow.tpu.TopologyProto
// (tensorflow/core/protobuf/tpu/topology.proto). It returns a *TopologyError unless every core has
// a position of its own inside the mesh.
func ParseTopology(serialized []byte) (*Topology, error) {
	var mesh, flat []int32
	var tasks, devices int32
	for b := serialized; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, notTopology(protowire.ParseError(n))
		}
		b = b[n:]
		var err error
		switch number {
		case 1:
			b, err = consumeInts(b, kind, &mesh, len(Coordinate{}))
		case 2:
			b, err = consumeInt(b, kind, &tasks)
		case 3:
			b, err = consumeInt(b, kind, &devices)
		case 4:
			b, err = consumeInts(b, kind, &flat, maxCores*len(Coordinate{}))
		default: // such as tpu_hardware_feature
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				err = protowire.ParseError(n)
			} else {
				b = b[n:]
			}
		}
		if err != nil {
			return nil, notTopology(err)
		}
	}
	if len(mesh) != len(Coordinate{}) {
		return nil, &TopologyError{fmt.Sprintf("the mesh has %d axes; expected 4 (x, y, z, core)", len(mesh))}
	}
	if tasks < 1 || devices < 1 || int64(tasks)*int64(devices) > maxCores {
		return nil, &TopologyError{fmt.Sprintf("%d tasks with %d cores each; expected 1 or more of both, and at most %d cores", tasks, devices, maxCores)}
	}
	if want := int(tasks) * int(devices) * len(mesh); len(flat) != want {
		return nil, &TopologyError{fmt.Sprintf("%d tasks with %d cores each have %d coordinates; expected %d", tasks, devices, len(flat), want)}
	}
	t := &Topology{Mesh: Coordinate(mesh), Tasks: int(tasks), DevicesPerTask: int(devices), serialized: append([]byte{}, serialized...),
		cores: make(map[Coordinate]Core, len(flat)/4)}
	for axis, size := range t.Mesh {
		if size < 1 {
			return nil, &TopologyError{fmt.Sprintf("axis %d of the mesh is %d; expected 1 or more", axis, size)}
		}
	}
	for i := range len(flat) / len(mesh) {
		at, core := Coordinate(flat[4*i:4*i+4]), Core{Task: i / t.DevicesPerTask, Device: i % t.DevicesPerTask}
		for axis, v := range at {
			if v < 0 || v >= t.Mesh[axis] {
				return nil, &TopologyError{fmt.Sprintf("core %d of task %d is at %v, outside the mesh %v", core.Device, core.Task, at, t.Mesh)}
			}
		}
		if other, ok := t.cores[at]; ok {
			return nil, &TopologyError{fmt.Sprintf("core %d of task %d is at %v, like core %d of task %d", core.Device, core.Task, at, other.Device, other.Task)}
		}
		t.cores[at] = core
		t.Coordinates = append(t.Coordinates, at)
	}
	return t, nil
}

// NewTopology returns the topology of a TPU with the given mesh, tasks and coordinates of cores.
// All tasks have the same number of cores.
func NewTopology(mesh Coordinate, tasks int, coordinates []Coordinate) (*Topology, error) {
	if tasks < 1 || len(coordinates)%tasks != 0 {
		return nil, &TopologyError{fmt.Sprintf("%d cores for %d tasks; expected a multiple", len(coordinates), tasks)}
	}
	ints := func(b []byte, number protowire.Number, values []int32) []byte {
		var packed []byte
		for _, v := range values {
			packed = protowire.AppendVarint(packed, uint64(int64(v)))
		}
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), packed)
	}
	var flat []int32
	for _, c := range coordinates {
		flat = append(flat, c[:]...)
	}
	b := ints(nil, 1, mesh[:])
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(tasks))
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), uint64(len(coordinates)/tasks))
	return ParseTopology(ints(b, 4, flat))
}

// Serialized returns the serialized TopologyProto, as needed by TPUReplicateMetadata.
func (t *Topology) Serialized() []byte { return append([]byte{}, t.serialized...) }

// Cores returns the number of cores of all tasks.
func (t *Topology) Cores() int { return len(t.Coordinates) }

// At returns the core at a position of the mesh, or false if there is none.
func (t *Topology) At(at Coordinate) (Core, bool) {
	c, ok := t.cores[at]
	return c, ok
}

// complete reports whether every position of the mesh has a core.
func (t *Topology) complete() bool {
	n := int64(1)
	for _, size := range t.Mesh {
		n *= int64(size) // each is at most 2^31, and four axes of that size have no cores
		if n > maxCores {
			return false
		}
	}
	return n == int64(len(t.Coordinates))
}

func notTopology(err error) error {
	return &TopologyError{"not a TopologyProto: " + err.Error()}
}

var errType = errors.New("a field has the wrong type")

func consumeInt(b []byte, kind protowire.Type, to *int32) ([]byte, error) {
	if kind != protowire.VarintType {
		return nil, errType
	}
	v, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	if int64(v) < math.MinInt32 || int64(v) > math.MaxInt32 {
		return nil, fmt.Errorf("%d is not a 32-bit number", int64(v))
	}
	*to = int32(int64(v))
	return b[n:], nil
}

// consumeInts appends the numbers of a repeated field, packed or not, up to a total of most.
func consumeInts(b []byte, kind protowire.Type, to *[]int32, most int) ([]byte, error) {
	one := func(b []byte) ([]byte, error) {
		if len(*to) == most {
			return nil, fmt.Errorf("a list has more than %d numbers", most)
		}
		var v int32
		rest, err := consumeInt(b, protowire.VarintType, &v)
		*to = append(*to, v)
		return rest, err
	}
	if kind == protowire.VarintType {
		return one(b)
	}
	if kind != protowire.BytesType {
		return nil, errType
	}
	packed, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	for len(packed) > 0 {
		var err error
		if packed, err = one(packed); err != nil {
			return nil, err
		}
	}
	return b[n:], nil
}
