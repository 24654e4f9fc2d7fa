package emulator

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	avpb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"

	"github.com/gorbit-ml/gorbit/tpu"
)

// Operations of a replicated computation, see tensorflow/python/tpu/tpu_replication.py.
const (
	opMetadata    = "TPUReplicateMetadata"
	opInput       = "TPUReplicatedInput"
	opOutput      = "TPUReplicatedOutput"
	opCompilation = "TPUCompilationResult"
	opSum         = "CrossReplicaSum"
	opReplicaID   = "XlaReplicaId"
	opVariable    = "VarHandleOp"
)

// maxLowered is the greatest number of nodes to make of a part of a graph.
const maxLowered = 4 << 20

// nodeName is what TensorFlow allows as the name of a node.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$`)

// lowering turns the replicated computations in a part of a graph into a copy for each
// replica, which are placed on the replicas' cores. docs/design/emulator.md says what becomes
// of which node.
type lowering struct {
	layout   layout
	topology *tpu.Topology
	old      *graph // the parts before
	nodes    map[string]*node
	clusters map[string]*cluster // of this part
	library  map[string]*fpb.FunctionDef
	sums     map[string]bool   // functions with a sum over the replicas in them, however deep
	wide     map[string]string // functions for all replicas, by cluster and function
	out      *gpb.GraphDef
	left     int // nodes that may still be made
}

// lower replaces the nodes of a part of a graph that belong to replicated computations, and
// returns what is to be kept of the part. It refuses what it can't lower.
func lower(g *gpb.GraphDef, old *graph, l layout, topology *tpu.Topology) (*graph, error) {
	nodes, err := nodesOf(g)
	if err != nil {
		return nil, err
	}
	w := &lowering{layout: l, topology: topology, old: old, nodes: nodes, clusters: make(map[string]*cluster), library: make(map[string]*fpb.FunctionDef),
		sums: make(map[string]bool), wide: make(map[string]string), left: maxLowered,
		out: &gpb.GraphDef{Versions: g.GetVersions(), Library: g.GetLibrary()}}
	part := &graph{nodes: nodes}
	if part.clusters, err = w.findClusters(g); err != nil {
		return nil, err
	}
	w.follow(g)
	if len(part.clusters) > 0 {
		for _, f := range g.GetLibrary().GetFunction() {
			w.library[f.GetSignature().GetName()] = f
		}
		w.findSums()
		if err := w.all(g, part.clusters); err != nil {
			return nil, err
		}
		g.Node = w.out.GetNode()
	}
	for _, n := range nodes {
		n.def = nil
	}
	return part, nil
}

// findClusters finds the computations, in the order of their metadata, and their members.
func (w *lowering) findClusters(g *gpb.GraphDef) ([]*cluster, error) {
	var out []*cluster
	for _, def := range g.GetNode() {
		if def.GetOp() != opMetadata {
			continue
		}
		name := string(def.GetAttr()[attrReplicate].GetS())
		bad := func(format string, args ...any) ([]*cluster, error) {
			return nil, fmt.Errorf("node %s (%s): %w", def.GetName(), opMetadata, fmt.Errorf(format, args...))
		}
		switch {
		case !nodeName.MatchString(name):
			return bad("the attribute %s is %q; expected the name of its computation", attrReplicate, name)
		case w.clusters[name] != nil, slices.ContainsFunc(w.old.clusters, func(c *cluster) bool { return c.name == name }):
			return bad("%w", emulatorOnly(fmt.Errorf("the computation %s is in the graph already; expected it as a whole, with one %s", name, opMetadata)))
		case len(w.old.clusters)+len(out) >= maxClusters:
			return bad("%w", emulatorOnly(fmt.Errorf("more than %d computations in a session", maxClusters)))
		}
		devices, err := devicesOf(def.GetAttr(), w.layout, w.topology)
		if err != nil {
			return bad("%w", err)
		}
		c := &cluster{name: name, bit: onCore << (1 + len(w.old.clusters) + len(out)), devices: devices, after: sharedName(name) + "/after"}
		w.nodes[def.GetName()].uses |= c.bit | onCore
		w.clusters[name] = c
		out = append(out, c)
	}
	for _, def := range g.GetNode() {
		attr, ok := def.GetAttr()[attrReplicate]
		if !ok || def.GetOp() == opMetadata {
			continue
		}
		c := w.clusters[string(attr.GetS())]
		if c == nil {
			return nil, fmt.Errorf("node %s (%s): EncapsulateTPUComputationsPass failed: Missing TPUReplicateMetadata node for %q", def.GetName(), def.GetOp(), attr.GetS())
		}
		n := w.nodes[def.GetName()]
		n.cluster = c
		n.uses |= c.bit | onCore
	}
	return out, nil
}

// all makes the nodes of the part.
func (w *lowering) all(g *gpb.GraphDef, clusters []*cluster) error {
	members := make(map[*cluster][]*npb.NodeDef)
	for _, def := range g.GetNode() {
		n := w.nodes[def.GetName()]
		if n.cluster == nil {
			continue
		}
		members[n.cluster] = append(members[n.cluster], def)
		if w.isWide(def) {
			n.outputs = len(w.results(def))
		}
	}
	for _, c := range clusters {
		if err := w.setBefore(c, members[c]); err != nil {
			return err
		}
	}
	for _, def := range g.GetNode() {
		if err := w.node(def); err != nil {
			return fmt.Errorf("node %s (%s): %w", def.GetName(), def.GetOp(), err)
		}
	}
	for _, c := range clusters {
		if err := w.setAfter(c, members[c]); err != nil {
			return err
		}
		c.broken = w.compile(c, members[c])
	}
	return nil
}

// emit adds nodes that were made, if there is room.
func (w *lowering) emit(nodes ...*npb.NodeDef) error {
	if w.left -= len(nodes); w.left < 0 {
		return emulatorOnly(fmt.Errorf("more than %d nodes for all replicas", maxLowered))
	}
	w.out.Node = append(w.out.Node, nodes...)
	return nil
}

// node adds what becomes of a node.
func (w *lowering) node(n *npb.NodeDef) error {
	if c := w.nodes[n.GetName()].cluster; c != nil {
		made, err := w.expand(graphScope{w, c}, c, n)
		if err != nil {
			return err
		}
		if c.before != "" && !slices.ContainsFunc(n.GetInput(), func(input string) bool {
			_, name, _ := splitInput(input)
			at := w.at(name)
			return at != nil && at.cluster == c
		}) {
			for _, m := range made {
				m.Input = append(m.Input, "^"+c.before)
			}
		}
		return w.emit(made...)
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
	for _, input := range n.GetInput() {
		moved, err := w.outside(input)
		if err != nil {
			return err
		}
		inputs = append(inputs, moved...)
	}
	n.Input = dataFirst(inputs)
	// Places of nodes that are gone.
	if class := n.GetAttr()["_class"].GetList(); class != nil {
		class.S = slices.DeleteFunc(class.S, func(s []byte) bool {
			at := w.at(strings.TrimPrefix(string(s), "loc:@"))
			return at != nil && (at.cluster != nil || at.op == opInput || at.op == opOutput)
		})
	}
	return w.emit(n)
}

// dataFirst moves control inputs after the data, and keeps one of each.
func dataFirst(inputs []string) []string {
	var data, control []string
	for _, input := range inputs {
		switch {
		case !strings.HasPrefix(input, "^"):
			data = append(data, input)
		case !slices.Contains(control, input):
			control = append(control, input)
		}
	}
	return append(data, control...)
}

// outside translates an input of a node that is not replicated. What uses a result of a
// computation waits for all replicas, as it does on a TPU: their programs run as a whole.
func (w *lowering) outside(input string) ([]string, error) {
	control, name, port := splitInput(input)
	at := w.at(name)
	switch {
	case at == nil && control == "":
		return nil, fmt.Errorf("input %s is not in the graph", input)
	case at == nil, at.cluster == nil && at.op != opInput && at.op != opOutput:
		return []string{input}, nil
	case at.op == opOutput:
		c, result, err := w.result(name, at, port)
		if err != nil || control != "" {
			return []string{"^" + c.after}, err
		}
		return []string{result, "^" + c.after}, nil
	case control != "" && at.cluster != nil:
		return []string{"^" + at.cluster.after}, nil
	}
	return nil, fmt.Errorf("input %s is inside of the computation for TPUs; expected an output of %s", input, opOutput)
}

// result is the computation that a TPUReplicatedOutput is of, and the replica's value at one of
// its ports.
func (w *lowering) result(name string, at *node, port string) (*cluster, string, error) {
	none := &cluster{}
	if len(at.inputs) == 0 {
		return none, "", fmt.Errorf("input %s has no input", name)
	}
	_, from, _ := splitInput(at.inputs[0])
	member := w.at(from)
	if member == nil || member.cluster == nil {
		return none, "", fmt.Errorf("input %s of %s is not inside of a computation for TPUs", at.inputs[0], name)
	}
	c := member.cluster
	replica := 0
	if port != "" {
		var err error
		if replica, err = number(port[1:], len(c.devices), "replica"); err != nil {
			return none, "", err
		}
	}
	value, err := graphScope{w, c}.input(at.inputs[0], replica)
	return c, value, err
}

// setBefore makes a computation's nodes wait for all that any of them waits for, as the
// programs on the cores do. Values that are fed, and variables, are there anyway.
func (w *lowering) setBefore(c *cluster, members []*npb.NodeDef) error {
	var waits []string
	add := func(input string) error {
		_, name, _ := splitInput(input)
		switch at := w.at(name); {
		case at == nil:
			waits = append(waits, "^"+name)
		case at.cluster == c, at.op == opMetadata, at.op == opVariable, at.op == "Const", at.op == "Placeholder":
		case at.op == opOutput:
			of, _, err := w.result(name, at, "")
			if err != nil {
				return err
			}
			waits = append(waits, "^"+of.after)
		case at.cluster == nil && at.op != opInput:
			waits = append(waits, "^"+name)
		}
		return nil
	}
	for _, m := range members {
		for _, input := range m.GetInput() {
			control, name, _ := splitInput(input)
			from := []string{input}
			if at := w.at(name); at == nil {
				return fmt.Errorf("node %s (%s): input %s is not in the graph", m.GetName(), m.GetOp(), input)
			} else if at.op == opInput && control == "" {
				from = at.inputs
			}
			for _, input := range from {
				if err := add(input); err != nil {
					return fmt.Errorf("node %s (%s): %w", m.GetName(), m.GetOp(), err)
				}
			}
		}
	}
	if waits = dataFirst(waits); len(waits) == 0 {
		return nil
	}
	c.before = sharedName(c.name) + "/before"
	return w.emit(&npb.NodeDef{Name: c.before, Op: "NoOp", Input: waits})
}

// setAfter makes the node that waits for all of a computation.
func (w *lowering) setAfter(c *cluster, members []*npb.NodeDef) error {
	used := make(map[string]bool)
	for _, m := range members {
		for _, input := range m.GetInput() {
			_, name, _ := splitInput(input)
			used[name] = true
		}
	}
	all := &npb.NodeDef{Name: c.after, Op: "NoOp"}
	for replica, device := range c.devices {
		one := &npb.NodeDef{Name: copyName(c.name, replica) + "/after", Op: "NoOp", Device: device}
		for _, m := range members {
			switch {
			case used[m.GetName()]:
			case w.nodes[m.GetName()].outputs < 0:
				one.Input = append(one.Input, "^"+copyName(m.GetName(), replica))
			case replica == 0:
				all.Input = append(all.Input, "^"+sharedName(m.GetName()))
			}
		}
		all.Input = append(all.Input, "^"+one.Name)
		if err := w.emit(one); err != nil {
			return err
		}
	}
	return w.emit(all)
}

// graphScope names the nodes of a computation in the graph itself.
type graphScope struct {
	w *lowering
	c *cluster
}

func (graphScope) copy(name string, replica int) string { return copyName(name, replica) }
func (graphScope) shared(name string) string            { return sharedName(name) }
func (graphScope) output(node, _ string) string         { return node }

func (s graphScope) constant(input string) *npb.NodeDef {
	_, name, _ := splitInput(input)
	if n := s.w.nodes[name]; n != nil && n.op == "Const" {
		return n.def
	}
	return nil
}

func (s graphScope) input(input string, replica int) (string, error) {
	control, name, port := splitInput(input)
	at := s.w.at(name)
	switch {
	case at == nil:
		return "", fmt.Errorf("input %s is not in the graph", input)
	case at.cluster == s.c && at.outputs < 0:
		return control + copyName(name, replica) + port, nil
	case at.cluster == s.c && control != "":
		return control + sharedName(name), nil
	case at.cluster == s.c:
		k := 0
		if port != "" {
			var err error
			if k, err = number(port[1:], max(1, at.outputs), "output"); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("%s:%d", sharedName(name), replica*at.outputs+k), nil
	case at.cluster != nil:
		return "", fmt.Errorf("input %s is inside of another computation for TPUs; expected an output of %s", input, opOutput)
	case at.op == opMetadata && control != "", at.op == opInput && control != "", at.op == opOutput && control != "":
		return "", nil // the whole computation waits for what they wait for
	case at.op == opInput:
		return s.replicated(name, at, replica)
	case at.op == opOutput:
		_, value, err := s.w.result(name, at, port)
		return value, err
	case at.op == opVariable && control == "":
		return "", emulatorOnly(fmt.Errorf("the variable %s is shared by the replicas; expected one for each core, through %s", name, opInput))
	}
	return input, nil
}

// replicated is a replica's input of a TPUReplicatedInput.
func (s graphScope) replicated(name string, input *node, replica int) (string, error) {
	data := slices.DeleteFunc(slices.Clone(input.inputs), func(i string) bool { return strings.HasPrefix(i, "^") })
	if len(data) != len(s.c.devices) {
		return "", quotef("Mismatched number of replicas. Computation has %d replicas, input '{{node %s}}' has %d replicas.", len(s.c.devices), name, len(data))
	}
	_, from, port := splitInput(data[replica])
	switch at := s.w.at(from); {
	case at == nil:
		return "", fmt.Errorf("input %s of %s is not in the graph", data[replica], name)
	case at.op == opOutput:
		_, value, err := s.w.result(from, at, port)
		return value, err
	case at.cluster != nil || at.op == opInput:
		return "", fmt.Errorf("input %s of %s is inside of a computation for TPUs; expected a node outside", data[replica], name)
	case at.op == opVariable && !static(at.shape):
		return "", quotef("Cannot colocate nodes {{colocation_node %s}} and {{colocation_node %s/_execute_%d_0}} because no device type supports both of those nodes and the other nodes colocated with them. "+
			"(The shape of the variable %s is not fully known; expected one with all its dimensions)", from, s.c.name, replica, from)
	}
	return data[replica], nil
}

// strip removes attributes that say where a node belongs.
func strip(attr map[string]*avpb.AttrValue) {
	maps.DeleteFunc(attr, func(name string, _ *avpb.AttrValue) bool {
		return strings.HasPrefix(name, "_tpu") || name == "_class" || name == "_XlaMustCompile"
	})
}

// limit is something that a TPU may do and the emulator does not.
type limit struct{ error }

func (l limit) Unwrap() error { return l.error }

func emulatorOnly(err error) error { return limit{err} }

// isLimit reports whether an error is one of the emulator's own limits.
func isLimit(err error) bool {
	var l limit
	return errors.As(err, &l)
}
