package tpuemulator

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	avpb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/tpu"
)

// Operations of a replicated computation, see tensorflow/python/tpu/tpu_replication.py.
const (
	opMetadata    = "TPUReplicateMetadata"
	opInput       = "TPUReplicatedInput"
	opOutput      = "TPUReplicatedOutput"
	opCompilation = "TPUCompilationResult"
	opSum         = "CrossReplicaSum"
)

// lowering turns a replicated computation into a copy for each replica, which are placed on
// the replicas' cores. A sum over the replicas becomes a sum of the copies' values, in the
// order of the replicas, on each.
type lowering struct {
	layout   layout
	replicas []string // the devices of the cores
	nodes    map[string]*npb.NodeDef
	out      []*npb.NodeDef
}

// lower replaces the nodes of a graph that has a replicated computation; other graphs stay
// as they are. Everything that it cannot lower it refuses.
func lower(g *gpb.GraphDef, l layout, topology *tpu.Topology) error {
	var metadata *npb.NodeDef
	w := lowering{layout: l, nodes: make(map[string]*npb.NodeDef, len(g.GetNode()))}
	replicated := false
	for _, n := range g.GetNode() {
		w.nodes[n.GetName()] = n
		if n.GetOp() == opMetadata {
			if metadata != nil {
				return fmt.Errorf("nodes %s and %s: two computations for TPUs in a graph; expected one", metadata.GetName(), n.GetName())
			}
			metadata = n
		}
		replicated = replicated || member(n)
	}
	switch {
	case metadata == nil && !replicated:
		return nil
	case metadata == nil:
		return errors.New("a computation for TPUs without " + opMetadata)
	}
	for _, f := range g.GetLibrary().GetFunction() {
		for _, n := range f.GetNodeDef() {
			if n.GetOp() == opSum {
				return fmt.Errorf("node %s of function %s is a %s; expected it in the graph itself", n.GetName(), f.GetSignature().GetName(), opSum)
			}
		}
	}
	var err error
	if w.replicas, err = replicasOf(metadata, l, topology); err != nil {
		return fmt.Errorf("node %s: %w", metadata.GetName(), err)
	}
	for _, n := range g.GetNode() {
		if err := w.node(n); err != nil {
			return fmt.Errorf("node %s (%s): %w", n.GetName(), n.GetOp(), err)
		}
	}
	g.Node = w.out
	return nil
}

// member reports whether a node is part of the computation that is replicated.
func member(n *npb.NodeDef) bool {
	_, ok := n.GetAttr()[attrReplicate]
	return ok && n.GetOp() != opMetadata
}

// replicasOf names the device of each replica: the core at its coordinates, or without any
// the cores in their order.
func replicasOf(metadata *npb.NodeDef, l layout, topology *tpu.Topology) ([]string, error) {
	attr := metadata.GetAttr()
	n := int(attr["num_replicas"].GetI())
	if n < 1 || n > topology.Cores() {
		return nil, fmt.Errorf("%d replicas on %d cores", n, topology.Cores())
	}
	if cores, ok := attr["num_cores_per_replica"]; ok && cores.GetI() != 1 {
		return nil, fmt.Errorf("%d cores per replica; expected 1", cores.GetI())
	}
	flat := attr["device_assignment"].GetList().GetI()
	if len(flat) == 0 {
		for _, at := range topology.Coordinates[:n] {
			flat = append(flat, int64(at[0]), int64(at[1]), int64(at[2]), int64(at[3]))
		}
	}
	if len(flat) != 4*n {
		return nil, fmt.Errorf("a device assignment of %d numbers; expected 4 for each of %d replicas", len(flat), n)
	}
	var out []string
	for at := range slices.Chunk(flat, 4) {
		var place tpu.Coordinate
		for axis, v := range at {
			place[axis] = int32(min(max(v, -1), math.MaxInt32)) // no core is at either
		}
		core, ok := topology.At(place)
		name := core.Name(l.job)
		if !ok || slices.Contains(out, name) {
			return nil, fmt.Errorf("a replica at %v; expected a core of its own for each", at)
		}
		out = append(out, name)
	}
	return out, nil
}

// node adds what becomes of a node.
func (w *lowering) node(n *npb.NodeDef) error {
	if member(n) {
		for replica := range w.replicas {
			c, err := w.copy(n, replica)
			if err != nil {
				return err
			}
			w.out = append(w.out, c)
		}
		return nil
	}
	switch n.GetOp() {
	case opInput, opOutput:
		return nil // their users have the inputs of them
	case opMetadata:
		n.Op, n.Attr = "NoOp", nil
	case opCompilation:
		n.Op, n.Attr = "Const", constant(nil) // an empty CompilationResultProto is a success
	}
	var inputs []string
	for _, in := range n.GetInput() {
		moved, err := w.outside(in)
		if err != nil {
			return err
		}
		inputs = append(inputs, moved...)
	}
	n.Input = inputs
	// Places of nodes that are gone.
	if class := n.GetAttr()["_class"].GetList(); class != nil {
		class.S = slices.DeleteFunc(class.S, func(s []byte) bool {
			at, ok := w.nodes[strings.TrimPrefix(string(s), "loc:@")]
			return ok && (member(at) || at.GetOp() == opInput || at.GetOp() == opOutput)
		})
	}
	w.out = append(w.out, n)
	return nil
}

// copy is a replica's copy of a node.
func (w *lowering) copy(n *npb.NodeDef, replica int) (*npb.NodeDef, error) {
	switch n.GetOp() {
	case "Enter", "RefEnter":
		return nil, errors.New("a loop in frames; expected none")
	}
	c := proto.CloneOf(n)
	c.Name, c.Device, c.Input = copyName(n.GetName(), replica), w.replicas[replica], nil
	maps.DeleteFunc(c.Attr, func(name string, _ *avpb.AttrValue) bool {
		return strings.HasPrefix(name, "_tpu") || name == "_class"
	})
	inputs := n.GetInput()
	if n.GetOp() == opSum {
		if err := w.everyone(n); err != nil {
			return nil, err
		}
		c.Op = "AddN"
		c.Attr = map[string]*avpb.AttrValue{"T": n.GetAttr()["T"], "N": {Value: &avpb.AttrValue_I{I: int64(len(w.replicas))}}}
		for of := range w.replicas {
			in, err := w.inside(inputs[0], of)
			if err != nil {
				return nil, err
			}
			c.Input = append(c.Input, in)
		}
		inputs = inputs[2:]
	}
	for _, in := range inputs {
		moved, err := w.inside(in, replica)
		if err != nil {
			return nil, err
		}
		c.Input = append(c.Input, moved)
	}
	return c, nil
}

// everyone checks that a sum is one over all replicas: its groups are one of all.
func (w *lowering) everyone(n *npb.NodeDef) error {
	if len(n.GetInput()) < 2 {
		return fmt.Errorf("%d inputs; expected 2", len(n.GetInput()))
	}
	_, name, _ := splitInput(n.GetInput()[1])
	groups := w.nodes[name]
	shape := groups.GetAttr()["value"].GetTensor().GetTensorShape().GetDim()
	if groups.GetOp() != "Const" || len(shape) != 2 || shape[0].GetSize() != 1 || shape[1].GetSize() != int64(len(w.replicas)) {
		return fmt.Errorf("its groups are not a constant of the shape [1, %d]; expected one group of all replicas", len(w.replicas))
	}
	return nil
}

// inside translates an input of a replica's copy.
func (w *lowering) inside(input string, replica int) (string, error) {
	control, name, port := splitInput(input)
	at := w.nodes[name]
	switch {
	case at == nil:
		return "", fmt.Errorf("input %s is not in this part of the graph", input)
	case member(at):
		return control + copyName(name, replica) + port, nil
	case at.GetOp() != opInput:
		return input, nil
	case control != "":
		return "", fmt.Errorf("it waits for %s, a %s", name, opInput)
	case len(at.GetInput()) < len(w.replicas) || at.GetAttr()["is_packed"].GetB():
		return "", fmt.Errorf("input %s has %d inputs; expected one for each of %d replicas", name, len(at.GetInput()), len(w.replicas))
	}
	return at.GetInput()[replica], nil
}

// outside translates an input of a node that is not replicated.
func (w *lowering) outside(input string) ([]string, error) {
	control, name, port := splitInput(input)
	at := w.nodes[name]
	switch {
	case at != nil && control != "" && member(at):
		var all []string
		for replica := range w.replicas {
			all = append(all, control+copyName(name, replica))
		}
		return all, nil
	case at != nil && control == "" && at.GetOp() == opOutput:
		replica := 0
		if port != "" {
			var err error
			if replica, err = number(port[1:], len(w.replicas), "replica"); err != nil {
				return nil, err
			}
		}
		if len(at.GetInput()) == 0 {
			return nil, fmt.Errorf("input %s has no input", name)
		}
		in, err := w.inside(at.GetInput()[0], replica)
		return []string{in}, err
	case at != nil && (member(at) || at.GetOp() == opInput || at.GetOp() == opOutput):
		return nil, fmt.Errorf("input %s is inside of the computation for TPUs; expected an output of %s", input, opOutput)
	}
	return []string{input}, nil
}

// splitInput cuts an input, "^node", "node" or "node:1".
func splitInput(input string) (control, name, port string) {
	name, ok := strings.CutPrefix(input, "^")
	if ok {
		return "^", name, ""
	}
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		name, port = name[:i], name[i:]
	}
	return "", name, port
}

func copyName(name string, replica int) string { return "tpu_" + strconv.Itoa(replica) + "/" + name }

// lowered is lower with the error as an answer to the client.
func lowered(g *gpb.GraphDef, l layout, topology *tpu.Topology) error {
	if err := lower(g, l, topology); err != nil {
		return refuse(codes.Unimplemented, "%v: the emulator does not run this computation for TPUs", err)
	}
	return nil
}
