package compose

import (
	"fmt"
	"slices"

	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/tpu"
)

// cluster is a computation that every replica runs on its core of a TPU, in the form that
// tf.compat.v1.tpu.replicate of TensorFlow 2.18 writes (tensorflow/python/tpu/tpu.py and
// tpu_replication.py). The nodes that are added between inside and outside are the program.
type cluster struct {
	*build.Builder
	name     string
	replicas int64
	pivot    build.Ref // starts the cluster
	metadata build.Ref // TPUReplicateMetadata
	// status is the fetch of TPUCompilationResult.
	status build.Ref
}

// newCluster adds the nodes that describe a cluster. Its name must be the only one of its kind in
// the graph.
func newCluster(b *build.Builder, name string, topology *tpu.Topology, assignment *tpu.Assignment) *cluster {
	k := &cluster{Builder: b, name: name, replicas: int64(len(assignment.Cores))}
	k.OnDevice("")
	k.pivot = k.Node("NoOp", name+"/pivot", nil, build.String("_pivot_for_cluster", name))
	k.metadata = k.Node("TPUReplicateMetadata", name+"/metadata", []build.Ref{k.pivot.After()},
		k.member(),
		build.Int("num_replicas", k.replicas),
		build.String("topology", string(topology.Serialized())),
		build.Ints("device_assignment", assignment.Flat()),
		build.Bool("use_spmd_for_xla_partitioning", true))
	k.status = k.Node("TPUCompilationResult", name+"/compiled", []build.Ref{k.metadata.After()}, build.String("_tpu_compilation_status", name))
	return k
}

// member is the attribute of the nodes of the program.
func (k *cluster) member() build.Attr { return build.String("_tpu_replicate", k.name) }

// inside says that the nodes added from now on are the program.
func (k *cluster) inside() {
	k.OnDevice("")
	k.Within(k.metadata, k.member())
}

// outside ends inside.
func (k *cluster) outside() { k.Within(build.Ref{}) }

// input adds an input of the program: one tensor of each replica, or the same for all.
func (k *cluster) input(name string, dtype dtpb.DataType, values ...build.Ref) build.Ref {
	for len(values) < int(k.replicas) {
		values = append(values, values[0])
	}
	k.OnDevice("")
	all := k.Node("TPUReplicatedInput", name, values, build.Int("N", k.replicas), build.Type("T", dtype))
	return k.Node("Identity", name+"/own", []build.Ref{all, k.metadata.After()}, build.Type("T", dtype),
		build.Bool("_tpu_input_identity", true), k.member())
}

// variable adds a variable of the program, mirrored on the cores. Handles are those of the replicas.
// The shapes of the variables must be known.
func (k *cluster) variable(name string, handles []build.Ref) build.Ref {
	k.OnDevice("")
	return k.Node("TPUReplicatedInput", name, append(slices.Clone(handles), k.metadata.After()),
		build.Int("N", k.replicas), build.Type("T", dtpb.DataType_DT_RESOURCE), build.Bool("is_mirrored_variable", true))
}

// tensor is an output of a program.
type tensor struct {
	name  string
	ref   build.Ref
	dtype dtpb.DataType
}

// outputs adds the outputs of the program. They wait for the given operations of the program on all
// replicas. It returns the outputs of each replica.
func (k *cluster) outputs(values []tensor, operations ...build.Ref) [][]build.Ref {
	wait := operations
	if len(wait) == 0 {
		wait = []build.Ref{k.pivot}
	}
	k.OnDevice("")
	k.Within(build.Ref{}, k.member())
	done := k.Group(k.name+"/done", wait...)
	k.OnDevice("/device:TPU_REPLICATED_CORE:0")
	own := make([]build.Ref, len(values))
	for i, v := range values {
		own[i] = k.Node("Identity", v.name+"/own", []build.Ref{v.ref}, build.Type("T", v.dtype), build.Bool("_tpu_output_identity", true))
	}
	k.outside()
	k.OnDevice("")
	out := make([][]build.Ref, k.replicas)
	for i, v := range values {
		all := k.Node("TPUReplicatedOutput", v.name+"/all", []build.Ref{own[i]}, build.Type("T", v.dtype), build.Int("num_replicas", k.replicas))
		for r := range out {
			out[r] = append(out[r], k.Node("Identity", fmt.Sprintf("%s/%d", v.name, r), []build.Ref{all.Output(r), done.After()}, build.Type("T", v.dtype)))
		}
	}
	return out
}

// crossReplicaSum adds the sum of a tensor over all replicas, which each of them gets.
func crossReplicaSum(b *build.Builder, name string, value build.Ref, replicas int) build.Ref {
	group := make([]int32, replicas)
	for i := range group {
		group[i] = int32(i)
	}
	all := b.Const(name+"/group_assignment", &tpb.TensorProto{Dtype: dtpb.DataType_DT_INT32, IntVal: group,
		TensorShape: &tspb.TensorShapeProto{Dim: []*tspb.TensorShapeProto_Dim{{Size: 1}, {Size: int64(replicas)}}}})
	return b.Node("CrossReplicaSum", name, []build.Ref{value, all}, build.Type("T", float32Type))
}
