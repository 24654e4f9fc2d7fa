package emulator

import (
	"fmt"
	"slices"

	avpb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"

	"github.com/gorbit-ml/gorbit/tpu"
)

// devicesOf names the device of each replica of a computation, as its TPUReplicateMetadata has
// it. What it refuses, and the words, are those of BuildDeviceAssignment in
// tensorflow/core/tpu/graph_rewrite/distributed_tpu_rewrite_pass.cc.
func devicesOf(metadata map[string]*avpb.AttrValue, l layout, t *tpu.Topology) ([]string, error) {
	replicas, cores := metadata["num_replicas"].GetI(), t.Cores()
	flat := metadata["device_assignment"].GetList().GetI()
	topology := metadata["topology"].GetS()
	switch {
	case replicas < 1:
		return nil, fmt.Errorf("num_replicas must be >= 1, got %d", replicas)
	case replicas > int64(cores):
		return nil, quotef("Requested num_replicas=%d but there are only %d cores in the TPU topology.", replicas, cores)
	}
	if n, ok := metadata["num_cores_per_replica"]; ok && n.GetI() != 1 {
		return nil, emulatorOnly(fmt.Errorf("%d cores per replica; expected 1", n.GetI()))
	}
	if len(topology) == 0 {
		switch {
		case replicas != 1 && replicas != int64(cores):
			return nil, quotef("TPUReplicate asked to create %d replicas, but the number of cores in the TPU topology is %d and no TPU device assignment was supplied. "+
				"A TPU device assignment is required if the number of replicas is not 1 or the number of cores in the topology (%d)", replicas, cores, cores)
		case len(flat) > 0:
			return nil, quotef("A TPU topology must be provided if device_assignment_attr is non-empty")
		}
		out := make([]string, replicas)
		for i := range out {
			out[i] = tpu.Core{Task: i / t.DevicesPerTask, Device: i % t.DevicesPerTask}.Name(l.job)
		}
		return out, nil
	}
	given, err := givenTopology(topology, t)
	if err != nil {
		return nil, err
	}
	if int64(len(flat)) != 4*replicas {
		return nil, quotef("Length of device_assignment attribute must be equal to num_replicas (%d) * num_cores_per_replica (1) * 4 got %d", replicas, len(flat))
	}
	var out []string
	for at := range slices.Chunk(flat, 4) {
		for _, v := range at {
			if v < 0 || v >= maxCoordinate {
				return nil, quotef("Invalid core number in device assignment: %d", v)
			}
		}
		core, ok := given.At(tpu.Coordinate{int32(at[0]), int32(at[1]), int32(at[2]), int32(at[3])})
		name := core.Name(l.job)
		switch {
		case !ok:
			return nil, quotef("Mesh coordinates (%d,%d,%d,%d) are not valid for the current TPU topology", at[0], at[1], at[2], at[3])
		case slices.Contains(out, name):
			return nil, quotef("Duplicate coordinates (%d,%d,%d,%d) in TPU device assignment", at[0], at[1], at[2], at[3])
		}
		out = append(out, name)
	}
	return out, nil
}

// maxCoordinate is kTPUMaxTopologySize.
const maxCoordinate = 4096

// givenTopology parses a computation's topology, which must be one of the emulated TPU:
// ParseTopologyAttr in the file named above.
func givenTopology(serialized []byte, t *tpu.Topology) (*tpu.Topology, error) {
	given, err := tpu.ParseTopology(serialized)
	switch {
	case err != nil:
		return nil, err
	case given.Tasks != t.Tasks:
		return nil, quotef("Mismatched number of TPU tasks (%d != %d)", given.Tasks, t.Tasks)
	case given.DevicesPerTask != t.DevicesPerTask:
		return nil, quotef("Mismatched number of TPUs per task (%d != %d).", given.DevicesPerTask, t.DevicesPerTask)
	}
	for _, at := range given.Coordinates {
		if _, ok := t.At(at); !ok {
			return nil, quotef("Mesh coordinates (%d,%d,%d,%d) are not valid for the current TPU topology", at[0], at[1], at[2], at[3])
		}
	}
	return given, nil
}
