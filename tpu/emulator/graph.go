package emulator

import (
	"fmt"
	"strings"

	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
)

// graph is what is kept of the graph that the client of a session sent, in one part or more.
type graph struct {
	nodes    map[string]*node
	clusters []*cluster
}

// node is what later parts of a graph, and steps, need to know of a node.
type node struct {
	op      string
	cluster *cluster // of which it is a member, or nil
	outputs int      // of each replica, if it runs once for all replicas, or -1
	inputs  []string // of TPUReplicatedInput and TPUReplicatedOutput
	uses    bits     // what must run for it
	shape   *tspb.TensorShapeProto
	def     *npb.NodeDef // of the part that is being lowered
}

// bits is a set: the first is that something runs on a core, the others are clusters.
type bits uint64

const onCore bits = 1

const maxClusters = 62

// cluster is a replicated computation: the nodes with one value of the attribute
// _tpu_replicate.
type cluster struct {
	name    string
	bit     bits
	devices []string // of the replicas
	before  string   // the node that its nodes wait for; "" is none
	after   string   // the node that waits for all of them
	broken  error    // why it can't be compiled, or nil
}

// copyName is the name of a replica's copy of a node.
func copyName(name string, replica int) string { return fmt.Sprintf("tpu_%d/%s", replica, name) }

// sharedName is the name of what runs once for all replicas.
func sharedName(name string) string { return "tpu/" + name }

// nodesOf reads the nodes of a part of a graph.
func nodesOf(g *gpb.GraphDef) (map[string]*node, error) {
	out := make(map[string]*node, len(g.GetNode()))
	for _, def := range g.GetNode() {
		if out[def.GetName()] != nil {
			return nil, fmt.Errorf("node %q is in the graph twice", def.GetName())
		}
		n := &node{op: def.GetOp(), outputs: -1, def: def}
		switch n.op {
		case opInput, opOutput:
			n.inputs = def.GetInput()
		case "VarHandleOp":
			n.shape = def.GetAttr()["shape"].GetShape()
		}
		if strings.Contains(def.GetDevice(), "/device:"+typeCore+":") {
			n.uses |= onCore
		}
		out[def.GetName()] = n
	}
	return out, nil
}

// at returns a node of this part or an earlier one, or nil.
func (w *lowering) at(name string) *node {
	if n := w.nodes[name]; n != nil {
		return n
	}
	return w.old.nodes[name]
}

// follow makes each node of this part use what its inputs use.
func (w *lowering) follow(g *gpb.GraphDef) {
	users := make(map[string][]*node)
	var next []*npb.NodeDef
	for _, def := range g.GetNode() {
		n := w.nodes[def.GetName()]
		for _, input := range def.GetInput() {
			_, name, _ := splitInput(input)
			users[name] = append(users[name], n)
			if old := w.old.nodes[name]; old != nil && w.nodes[name] == nil {
				n.uses |= old.uses
			}
		}
		if n.uses != 0 {
			next = append(next, def)
		}
	}
	for len(next) > 0 {
		def := next[len(next)-1]
		next = next[:len(next)-1]
		uses := w.nodes[def.GetName()].uses
		for _, user := range users[def.GetName()] {
			if user.uses|uses != user.uses {
				user.uses |= uses
				next = append(next, user.def)
			}
		}
	}
}

// uses is what a step uses that runs these nodes or tensors.
func (g *graph) uses(names []string) bits {
	var out bits
	for _, tensor := range names {
		name, _, _ := strings.Cut(tensor, ":")
		if n := g.nodes[name]; n != nil {
			out |= n.uses
		}
	}
	return out
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

// static reports whether a shape is known in all its dimensions.
func static(shape *tspb.TensorShapeProto) bool {
	if shape == nil || shape.GetUnknownRank() {
		return false
	}
	for _, d := range shape.GetDim() {
		if d.GetSize() < 0 {
			return false
		}
	}
	return true
}
