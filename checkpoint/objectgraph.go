package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	tfproto "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	variableValue = "VARIABLE_VALUE" // the attribute that holds a variable's tensor
	attributesDir = "/.ATTRIBUTES/"
)

// escapeElement escapes a path element for a checkpoint key.
func escapeElement(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, ".", ".."), "/", ".S")
}

// VariableKey returns the checkpoint key that tf.train.Checkpoint uses for the variable
// at a path.
func VariableKey(name string) string {
	elements := strings.Split(name, "/")
	for i, e := range elements {
		elements[i] = escapeElement(e)
	}
	return strings.Join(elements, "/") + attributesDir + variableValue
}

// BuildObjectGraph builds the object graph of variables with the given paths, for the
// entry [ObjectGraphKey]. The keys of the tensors are those of [VariableKey]. Nodes are
// numbered breadth first with children in the order of their names, so the bytes depend
// only on the set of names.
func BuildObjectGraph(names []string) ([]byte, error) {
	type node struct {
		name     string // path; set for a variable
		children []string
		next     map[string]*node
	}
	root := &node{next: map[string]*node{}}
	names = slices.Clone(names)
	slices.Sort(names)
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			return nil, fmt.Errorf("object graph: two variables are named %q", name)
		}
		at := root
		for element := range strings.SplitSeq(name, "/") {
			if element == "" {
				return nil, fmt.Errorf("object graph: variable name %q has an empty element", name)
			}
			if at.name != "" {
				return nil, fmt.Errorf("object graph: %q is a variable, so %q cannot be one", at.name, name)
			}
			child := at.next[element]
			if child == nil {
				child = &node{next: map[string]*node{}}
				at.next[element] = child
				at.children = append(at.children, element)
			}
			at = child
		}
		if len(at.children) > 0 {
			return nil, fmt.Errorf("object graph: %q is a variable and a folder of others", name)
		}
		at.name = name
	}
	g := &tfproto.TrackableObjectGraph{}
	queue := []*node{root}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		out := &tfproto.TrackableObjectGraph_TrackableObject{HasCheckpointValues: wrapperspb.Bool(true)}
		if at.name != "" {
			out.Attributes = []*tfproto.TrackableObjectGraph_TrackableObject_SerializedTensor{{
				Name: variableValue, FullName: at.name, CheckpointKey: VariableKey(at.name),
			}}
		}
		for _, element := range at.children {
			out.Children = append(out.Children, &tfproto.TrackableObjectGraph_TrackableObject_ObjectReference{
				NodeId: int32(len(queue)), LocalName: element,
			})
			queue = append(queue, at.next[element])
		}
		g.Nodes = append(g.Nodes, out)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(g)
}

// ObjectGraph is the object graph of a checkpoint: which tensor belongs to
// which path of attribute names from the root object.
type ObjectGraph struct {
	nodes     []graphNode
	variables []Variable
}

// Variable is a tensor of an object graph. Its Name is the shortest path that leads to
// it, the first in breadth-first order among equals, which is also TensorFlow's name. For
// a value that is not a variable's (a lookup table's keys) it ends with /.ATTRIBUTES/ and
// the attribute's name.
type Variable struct {
	Name string
	Key  string // entry of the bundle
}

type graphNode struct {
	children map[string]int32
	slashed  []graphEdge // children whose own name contains a slash
	order    []graphEdge
	attrs    []graphAttr
	slots    []graphSlot
}

type graphEdge struct {
	name string
	node int32
}

type graphAttr struct{ name, key string }

type graphSlot struct {
	name     string
	of, node int32 // the variable, and its slot variable
}

// ParseObjectGraph reads a serialized TrackableObjectGraph.
func ParseObjectGraph(data []byte) (*ObjectGraph, error) {
	var p tfproto.TrackableObjectGraph
	if err := proto.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("object graph: %w", err)
	}
	g := &ObjectGraph{nodes: make([]graphNode, len(p.Nodes))}
	inside := func(id int32) bool { return id >= 0 && int(id) < len(p.Nodes) }
	for i, in := range p.Nodes {
		n := &g.nodes[i]
		for _, c := range in.Children {
			if !inside(c.NodeId) {
				return nil, fmt.Errorf("object graph: node %d has child %q number %d of %d nodes", i, c.LocalName, c.NodeId, len(p.Nodes))
			}
			edge := graphEdge{c.LocalName, c.NodeId}
			n.order = append(n.order, edge)
			if strings.Contains(c.LocalName, "/") {
				n.slashed = append(n.slashed, edge)
				continue
			}
			if n.children == nil {
				n.children = make(map[string]int32, len(in.Children))
			}
			if _, ok := n.children[c.LocalName]; !ok {
				n.children[c.LocalName] = c.NodeId
			}
		}
		for _, a := range in.Attributes {
			n.attrs = append(n.attrs, graphAttr{a.Name, a.CheckpointKey})
		}
		for _, s := range in.SlotVariables {
			if !inside(s.OriginalVariableNodeId) || !inside(s.SlotVariableNodeId) {
				return nil, fmt.Errorf("object graph: node %d has slot %q of node %d at node %d of %d nodes",
					i, s.SlotName, s.OriginalVariableNodeId, s.SlotVariableNodeId, len(p.Nodes))
			}
			n.slots = append(n.slots, graphSlot{s.SlotName, s.OriginalVariableNodeId, s.SlotVariableNodeId})
		}
	}
	return g, g.list()
}

// arrival is how a search came to a node.
type arrival struct {
	from int32 // the node before, -1 for the root, unseen where nothing leads to it
	name string
}

const unseen = -2

// search goes through the graph from the root, the nearest nodes first. It returns how it
// came to each node, and the nodes in the order in which it did.
func (g *ObjectGraph) search() (came []arrival, queue []int32) {
	came = make([]arrival, len(g.nodes))
	for i := range came {
		came[i].from = unseen
	}
	came[0].from = -1
	queue = []int32{0}
	for i := 0; i < len(queue); i++ {
		for _, e := range g.nodes[queue[i]].order {
			if came[e.node].from == unseen {
				came[e.node] = arrival{queue[i], e.name}
				queue = append(queue, e.node)
			}
		}
	}
	return came, queue
}

// list names each tensor by its shortest path. Paths are built from back pointers, and
// their total length is limited: a chain of nodes with long names would otherwise take
// memory quadratic in the size of the file.
func (g *ObjectGraph) list() error {
	if len(g.nodes) == 0 {
		return nil
	}
	came, queue := g.search()
	budget := 256 << 20
	path := func(id int32) (string, error) {
		var elements []string
		length := 0
		for ; came[id].from >= 0; id = came[id].from {
			elements = append(elements, came[id].name)
			length += len(came[id].name) + 1
			if length > budget {
				return "", fmt.Errorf("object graph: its paths are too long")
			}
		}
		budget -= length
		slices.Reverse(elements)
		return strings.Join(elements, "/"), nil
	}
	add := func(node int32, name string) {
		for _, a := range g.nodes[node].attrs {
			full := name
			if a.name != variableValue {
				full += attributesDir + a.name
			}
			g.variables = append(g.variables, Variable{full, a.key})
		}
	}
	for _, id := range queue {
		if len(g.nodes[id].attrs) == 0 {
			continue
		}
		name, err := path(id)
		if err != nil {
			return err
		}
		add(id, name)
	}
	for _, id := range queue {
		if len(g.nodes[id].slots) == 0 {
			continue
		}
		optimizer, err := path(id)
		if err != nil {
			return err
		}
		for _, s := range g.nodes[id].slots {
			// A slot variable has no parent: its path consists of those of its optimizer
			// and its variable.
			if came[s.of].from == unseen || came[s.node].from != unseen {
				continue
			}
			variable, err := path(s.of)
			if err != nil {
				return err
			}
			if budget -= len(optimizer) + len(s.name); budget < 0 {
				return fmt.Errorf("object graph: its paths are too long")
			}
			place := s.name + "/" + variable
			if id != 0 {
				place = optimizer + "/" + place
			}
			add(s.node, place)
		}
	}
	return nil
}

// Variables lists the tensors of the graph, breadth first, slot variables last.
// The caller must not change it.
func (g *ObjectGraph) Variables() []Variable { return g.variables }

// Key finds the bundle entry for any path that leads to the variable, not only the
// shortest.
func (g *ObjectGraph) Key(name string) (string, bool) {
	if len(g.nodes) == 0 {
		return "", false
	}
	path, attr, ok := strings.Cut(name, attributesDir)
	if !ok {
		attr = variableValue
	}
	for _, a := range g.nodesAt(path, map[string][]int32{}) {
		for _, v := range g.nodes[a].attrs {
			if v.name == attr {
				return v.key, true
			}
		}
	}
	return "", false
}

// nodesAt returns the nodes that a path leads to. It is one node, unless names contain
// slashes or optimizers have a child with the name of a slot. Results for suffixes of the
// path are stored in known.
func (g *ObjectGraph) nodesAt(path string, known map[string][]int32) (found []int32) {
	if found, ok := known[path]; ok {
		return found
	}
	defer func() { known[path] = found }()
	type place struct {
		node int32
		rest int // start of the next element in path; len(path)+1 at the end
	}
	end := len(path) + 1
	seen := map[place]bool{}
	todo := []place{{0, 0}}
	if path == "" {
		todo[0].rest = end
	}
	visit := func(p place) {
		if !seen[p] {
			seen[p] = true
			todo = append(todo, p)
		}
	}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		if p.rest == end {
			found = append(found, p.node)
			continue
		}
		n := &g.nodes[p.node]
		rest := path[p.rest:]
		element, after, more := strings.Cut(rest, "/")
		if child, ok := n.children[element]; ok {
			visit(place{child, p.rest + len(element) + 1})
		}
		for _, e := range n.slashed {
			if tail, ok := strings.CutPrefix(rest, e.name); ok && (tail == "" || tail[0] == '/') {
				visit(place{e.node, p.rest + len(e.name) + 1})
			}
		}
		if !more || len(n.slots) == 0 {
			continue
		}
		var of []int32
		for _, s := range n.slots {
			if s.name != element {
				continue
			}
			if of == nil {
				// The rest is shorter than path, so the recursion ends.
				if of = g.nodesAt(after, known); len(of) == 0 {
					break
				}
			}
			if slices.Contains(of, s.of) {
				found = append(found, s.node)
			}
		}
	}
	return found
}
