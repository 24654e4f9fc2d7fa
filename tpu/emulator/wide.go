package emulator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	avpb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	typespb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"
)

// scope is where nodes are copied for each replica: the graph, or a function.
type scope interface {
	// copy is the name of a replica's copy of a node; shared, of what all replicas share.
	copy(name string, replica int) string
	shared(name string) string
	// output refers to the only output of a node, which has this name.
	output(node, name string) string
	// input translates an input of a replica's copy; "" is none.
	input(input string, replica int) (string, error)
	// constant returns the constant that is an input, or nil.
	constant(input string) *npb.NodeDef
}

// shape of the operations that call functions: the attributes with the types of their inputs
// and results, the number of inputs before those, and the attributes with functions.
type calls struct {
	in, out   string
	first     int
	functions []string
	lowered   bool // by _lower_using_switch_merge
}

var callers = map[string]calls{
	"While":                   {"T", "T", 0, []string{"cond", "body"}, true},
	"StatelessWhile":          {"T", "T", 0, []string{"cond", "body"}, true},
	"If":                      {"Tin", "Tout", 1, []string{"then_branch", "else_branch"}, true},
	"StatelessIf":             {"Tin", "Tout", 1, []string{"then_branch", "else_branch"}, true},
	"Case":                    {"Tin", "Tout", 1, []string{"branches"}, true},
	"StatelessCase":           {"Tin", "Tout", 1, []string{"branches"}, true},
	"PartitionedCall":         {"Tin", "Tout", 0, []string{"f"}, false},
	"StatefulPartitionedCall": {"Tin", "Tout", 0, []string{"f"}, false},
}

// functionsOf names the functions in a node's attributes.
func functionsOf(n *npb.NodeDef) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(n.GetAttr())) {
		a := n.GetAttr()[name]
		for _, f := range append(a.GetList().GetFunc(), a.GetFunc()) {
			if f != nil {
				out = append(out, f.GetName())
			}
		}
	}
	return append(out, n.GetOp()) // a function may be called as an operation
}

// findSums finds the functions that have sums over the replicas in them.
func (w *lowering) findSums() {
	callers := make(map[string][]string)
	var next []string
	for name, f := range w.library {
		for _, n := range f.GetNodeDef() {
			if acrossReplicas(n.GetOp()) && !w.sums[name] {
				w.sums[name] = true
				next = append(next, name)
			}
			for _, called := range functionsOf(n) {
				if w.library[called] != nil {
					callers[called] = append(callers[called], name)
				}
			}
		}
	}
	for len(next) > 0 {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		for _, caller := range callers[name] {
			if !w.sums[caller] {
				w.sums[caller] = true
				next = append(next, caller)
			}
		}
	}
}

// acrossReplicas reports whether an operation needs to know the other replicas.
func acrossReplicas(op string) bool {
	switch op {
	case opSum, opReplicaID, "AllToAll", "CollectivePermute", "XlaAllReduce", "XlaReduceScatter":
		return true
	}
	return false
}

// isWide reports whether a node of a computation becomes one node for all replicas: it calls a
// function that has a sum over them.
func (w *lowering) isWide(n *npb.NodeDef) bool {
	return slices.ContainsFunc(functionsOf(n), func(f string) bool { return w.sums[f] })
}

// results are the types of the results of a node that calls functions.
func (w *lowering) results(n *npb.NodeDef) []typespb.DataType {
	return n.GetAttr()[callers[n.GetOp()].out].GetList().GetType()
}

// expand makes of a node what runs for all replicas.
func (w *lowering) expand(s scope, c *cluster, n *npb.NodeDef) ([]*npb.NodeDef, error) {
	switch op := n.GetOp(); {
	case op == opSum:
		return sum(s, c, n)
	case op == opReplicaID:
		return replicaIDs(s, c, n), nil
	case acrossReplicas(op):
		return nil, emulatorOnly(fmt.Errorf("%s is not emulated; expected %s", op, opSum))
	case slices.Contains([]string{"Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration", "LoopCond"}, op):
		return nil, emulatorOnly(errors.New("a loop in frames; expected a While"))
	case w.isWide(n):
		return w.wideNode(s, c, n)
	}
	out := make([]*npb.NodeDef, len(c.devices))
	for replica, device := range c.devices {
		m := proto.CloneOf(n)
		m.Name, m.Device, m.Input = s.copy(n.GetName(), replica), device, nil
		strip(m.Attr)
		for _, input := range n.GetInput() {
			moved, err := s.input(input, replica)
			if err != nil {
				return nil, err
			}
			if moved != "" {
				m.Input = append(m.Input, moved)
			}
		}
		out[replica] = m
	}
	return out, nil
}

// replicaIDs makes the constants that are the replicas' numbers.
func replicaIDs(s scope, c *cluster, n *npb.NodeDef) []*npb.NodeDef {
	var out []*npb.NodeDef
	for replica, device := range c.devices {
		out = append(out, &npb.NodeDef{Name: s.copy(n.GetName(), replica), Op: "Const", Device: device, Attr: map[string]*avpb.AttrValue{
			"dtype": typeAttr(typespb.DataType_DT_INT32),
			"value": {Value: &avpb.AttrValue_Tensor{Tensor: &tpb.TensorProto{
				Dtype: typespb.DataType_DT_INT32, TensorShape: &tspb.TensorShapeProto{}, IntVal: []int32{int32(replica)}}}},
		}})
	}
	return out
}

// sum adds the replicas' values two at a time, in their order, on the first core, and hands
// the total to all. (AddN of three or more has another order on each device.)
func sum(s scope, c *cluster, n *npb.NodeDef) ([]*npb.NodeDef, error) {
	if len(n.GetInput()) < 2 {
		return nil, fmt.Errorf("%d inputs; expected 2", len(n.GetInput()))
	}
	if err := everyone(s.constant(n.GetInput()[1]), len(c.devices)); err != nil {
		return nil, err
	}
	total, err := s.input(n.GetInput()[0], 0)
	if err != nil {
		return nil, err
	}
	var out []*npb.NodeDef
	kind := n.GetAttr()["T"]
	for replica := 1; replica < len(c.devices); replica++ {
		value, err := s.input(n.GetInput()[0], replica)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s/sum_%d", s.shared(n.GetName()), replica)
		out = append(out, &npb.NodeDef{Name: name, Op: "AddN", Device: c.devices[0], Input: []string{total, value},
			Attr: map[string]*avpb.AttrValue{"T": kind, "N": {Value: &avpb.AttrValue_I{I: 2}}}})
		total = s.output(name, "sum")
	}
	for replica, device := range c.devices {
		m := &npb.NodeDef{Name: s.copy(n.GetName(), replica), Op: "Identity", Device: device, Input: []string{total}, Attr: map[string]*avpb.AttrValue{"T": kind}}
		for _, input := range n.GetInput()[2:] {
			moved, err := s.input(input, replica)
			if err != nil {
				return nil, err
			}
			if moved != "" {
				m.Input = append(m.Input, moved)
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// everyone checks that the groups of a sum are one of all replicas.
func everyone(groups *npb.NodeDef, replicas int) error {
	bad := emulatorOnly(fmt.Errorf("its groups are not a constant of the shape [1, %d] with the numbers of the replicas; expected one group of all replicas", replicas))
	t := groups.GetAttr()["value"].GetTensor()
	shape := t.GetTensorShape().GetDim()
	if len(shape) != 2 || shape[0].GetSize() != 1 || shape[1].GetSize() != int64(replicas) || t.GetDtype() != typespb.DataType_DT_INT32 {
		return bad
	}
	values := slices.Clone(t.GetIntVal())
	for b := t.GetTensorContent(); len(b) >= 4 && len(values) < replicas; b = b[4:] {
		values = append(values, int32(binary.LittleEndian.Uint32(b)))
	}
	for replica := range replicas {
		if !slices.Contains(values, int32(replica)) {
			return bad
		}
	}
	return nil
}

// wideNode makes one node of the calls of all replicas: the first replica's inputs and
// results come first. Its functions do the work of all.
func (w *lowering) wideNode(s scope, c *cluster, n *npb.NodeDef) ([]*npb.NodeDef, error) {
	call, ok := callers[n.GetOp()]
	if !ok {
		return nil, emulatorOnly(fmt.Errorf("it calls a function with a sum over the replicas; expected one of %v", slices.Sorted(maps.Keys(callers))))
	}
	m := proto.CloneOf(n)
	m.Name, m.Device, m.Input = s.shared(n.GetName()), "", nil
	strip(m.Attr)
	delete(m.Attr, "_num_original_outputs")
	delete(m.Attr, "_read_only_resource_inputs")
	types := n.GetAttr()[call.in].GetList().GetType()
	var data, control, first []string
	for replica := range c.devices {
		got := 0
		for i, input := range n.GetInput() {
			moved, err := s.input(input, replica)
			switch {
			case err != nil:
				return nil, err
			case strings.HasPrefix(moved, "^"):
				control = append(control, moved)
			case moved == "":
			case i < call.first:
				first = append(first, moved)
			default:
				data = append(data, moved)
				got++
			}
		}
		if got != len(types) || len(first) != call.first*(replica+1) {
			return nil, fmt.Errorf("%d inputs; expected %d", got, len(types))
		}
	}
	var out []*npb.NodeDef
	if call.first > 0 {
		var waits string
		kind := n.GetAttr()["Tcond"]
		if kind == nil {
			kind = typeAttr(typespb.DataType_DT_INT32) // of the branch of a Case
		}
		out, waits = agree(s, c, n.GetName(), first, kind)
		control = append(control, waits)
	}
	m.Input = dataFirst(slices.Concat(first[:min(call.first, len(first))], data, control))
	for _, attr := range []string{call.in, call.out} {
		m.Attr[attr] = &avpb.AttrValue{Value: &avpb.AttrValue_List{List: &avpb.AttrValue_ListValue{
			Type: slices.Repeat(n.GetAttr()[attr].GetList().GetType(), len(c.devices))}}}
	}
	if shapes := n.GetAttr()["output_shapes"].GetList().GetShape(); shapes != nil {
		m.Attr["output_shapes"] = &avpb.AttrValue{Value: &avpb.AttrValue_List{List: &avpb.AttrValue_ListValue{Shape: slices.Repeat(shapes, len(c.devices))}}}
	}
	if call.lowered {
		m.Attr["_lower_using_switch_merge"] = &avpb.AttrValue{Value: &avpb.AttrValue_B{B: true}}
	}
	for _, attr := range call.functions {
		for _, f := range append(m.Attr[attr].GetList().GetFunc(), m.Attr[attr].GetFunc()) {
			if f == nil {
				continue
			}
			var err error
			if f.Name, err = w.wideFunction(c, f.GetName(), attr == "cond"); err != nil {
				return nil, err
			}
		}
	}
	return append(out, m), nil
}

// agree checks that all replicas have the same value, and returns the nodes that do and the
// input that waits for them. Cores that go different ways to a sum wait for each other for ever.
func agree(s scope, c *cluster, name string, values []string, kind *avpb.AttrValue) (out []*npb.NodeDef, waits string) {
	at := func(part string) string { return s.shared(name) + "/" + part }
	text := fmt.Sprintf("gorbit tpu-emulator (no TPU): the replicas of %s disagree about the condition of %s, which has a sum over them in it; a TPU would hang", c.name, name)
	all := &npb.NodeDef{Name: at("agree"), Op: "NoOp", Device: c.devices[0]}
	out = append(out, &npb.NodeDef{Name: at("text"), Op: "Const", Device: c.devices[0], Attr: constant([]byte(text))})
	for replica := 1; replica < len(values); replica++ {
		equal, assert := at(fmt.Sprintf("equal_%d", replica)), at(fmt.Sprintf("assert_%d", replica))
		out = append(out,
			&npb.NodeDef{Name: equal, Op: "Equal", Device: c.devices[0], Input: []string{values[0], values[replica]}, Attr: map[string]*avpb.AttrValue{
				"T": kind, "incompatible_shape_error": {Value: &avpb.AttrValue_B{B: true}}}},
			&npb.NodeDef{Name: assert, Op: "Assert", Device: c.devices[0], Input: []string{s.output(equal, "z"), s.output(at("text"), "output")}, Attr: map[string]*avpb.AttrValue{
				"T":         {Value: &avpb.AttrValue_List{List: &avpb.AttrValue_ListValue{Type: []typespb.DataType{typespb.DataType_DT_STRING}}}},
				"summarize": {Value: &avpb.AttrValue_I{I: 3}}}})
		all.Input = append(all.Input, "^"+assert)
	}
	return append(out, all), "^" + all.Name
}

// functionScope names the nodes of a function.
type functionScope struct {
	outputs map[string]int // of each replica, of the nodes that run once for all; or -1
	nodes   map[string]*npb.NodeDef
}

func (functionScope) copy(name string, replica int) string {
	return fmt.Sprintf("r%d_%s", replica, name)
}
func (functionScope) shared(name string) string       { return "all_" + name }
func (functionScope) output(node, name string) string { return node + ":" + name + ":0" }

func (s functionScope) constant(input string) *npb.NodeDef {
	name, _, _ := strings.Cut(input, ":")
	if n := s.nodes[name]; n.GetOp() == "Const" {
		return n
	}
	return nil
}

func (s functionScope) input(input string, replica int) (string, error) {
	name, ok := strings.CutPrefix(input, "^")
	if ok {
		if outputs, ok := s.outputs[name]; ok && outputs >= 0 {
			return "^" + s.shared(name), nil
		}
		return "^" + s.copy(name, replica), nil
	}
	name, port, _ := strings.Cut(input, ":")
	outputs, ok := s.outputs[name]
	switch {
	case ok && outputs >= 0:
		output, index, _ := strings.Cut(port, ":")
		k, err := number(index, max(1, outputs), "output")
		return fmt.Sprintf("%s:%s:%d", s.shared(name), output, replica*outputs+k), err
	case ok && s.nodes[name].GetOp() == opReplicaID:
		return s.copy(name, replica) + ":output:0", nil
	}
	return s.copy(input, replica), nil
}

// wideFunction adds a function that does the work of another one for all replicas, and returns
// its name. A condition's result is the first replica's.
func (w *lowering) wideFunction(c *cluster, name string, condition bool) (string, error) {
	wide := fmt.Sprintf("%s_tpu_%s", name, strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, c.name))
	if condition {
		wide += "_cond"
	}
	switch done, begun := w.wide[wide]; {
	case begun && done == "":
		return "", emulatorOnly(fmt.Errorf("function %s calls itself", name))
	case begun:
		return done, nil
	case w.library[name] == nil:
		return "", fmt.Errorf("function %s is not in the graph's library", name)
	case w.library[wide] != nil:
		return "", emulatorOnly(fmt.Errorf("function %s is in the graph's library; expected another name", wide))
	}
	w.wide[wide] = ""
	f, err := w.widen(c, w.library[name], condition)
	if err != nil {
		return "", fmt.Errorf("function %s: %w", name, err)
	}
	f.Signature.Name = wide
	w.out.Library.Function = append(w.out.Library.Function, f)
	w.wide[wide] = wide
	return wide, nil
}

// widen makes the function.
func (w *lowering) widen(c *cluster, f *fpb.FunctionDef, condition bool) (*fpb.FunctionDef, error) {
	s := functionScope{outputs: make(map[string]int), nodes: make(map[string]*npb.NodeDef)}
	for _, n := range f.GetNodeDef() {
		s.nodes[n.GetName()] = n
		s.outputs[n.GetName()] = -1
		if w.isWide(n) {
			s.outputs[n.GetName()] = len(w.results(n))
		}
	}
	out := &fpb.FunctionDef{
		Signature:  &opb.OpDef{IsStateful: f.GetSignature().GetIsStateful()},
		Ret:        make(map[string]string),
		ControlRet: make(map[string]string),
	}
	used := make(map[string]bool)
	for _, n := range f.GetNodeDef() {
		made, err := w.expand(s, c, n)
		if err == nil {
			if w.left -= len(made); w.left < 0 {
				err = emulatorOnly(fmt.Errorf("more than %d nodes for all replicas", maxLowered))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("node %s (%s): %w", n.GetName(), n.GetOp(), err)
		}
		out.NodeDef = append(out.NodeDef, made...)
		for _, input := range n.GetInput() {
			name, _, _ := strings.Cut(strings.TrimPrefix(input, "^"), ":")
			used[name] = true
		}
	}
	for replica := range c.devices {
		for _, arg := range f.GetSignature().GetInputArg() {
			if arg.GetNumberAttr() != "" || arg.GetTypeListAttr() != "" || arg.GetTypeAttr() != "" {
				return nil, emulatorOnly(fmt.Errorf("argument %s does not have a fixed type", arg.GetName()))
			}
			a := proto.CloneOf(arg)
			a.Name = s.copy(arg.GetName(), replica)
			out.Signature.InputArg = append(out.Signature.InputArg, a)
		}
		if replica > 0 && condition {
			continue
		}
		for _, arg := range f.GetSignature().GetOutputArg() {
			value, err := s.input(f.GetRet()[arg.GetName()], replica)
			if err != nil || f.GetRet()[arg.GetName()] == "" {
				return nil, fmt.Errorf("result %s is %q; expected a node's output", arg.GetName(), f.GetRet()[arg.GetName()])
			}
			a := proto.CloneOf(arg)
			a.Name = s.copy(arg.GetName(), replica)
			out.Signature.OutputArg = append(out.Signature.OutputArg, a)
			out.Ret[a.Name] = value
		}
	}
	if condition {
		if err := w.agreed(s, c, f, out); err != nil {
			return nil, err
		}
	}
	w.keep(s, c, f, out, used)
	return out, nil
}

// agreed makes the result of a loop's condition wait until all replicas have the same.
func (w *lowering) agreed(s functionScope, c *cluster, f, out *fpb.FunctionDef) error {
	if len(out.GetSignature().GetOutputArg()) != 1 {
		return fmt.Errorf("%d results; expected 1, as the condition of a loop has", len(out.GetSignature().GetOutputArg()))
	}
	arg := f.GetSignature().GetOutputArg()[0]
	var values []string
	for replica := range c.devices {
		value, err := s.input(f.GetRet()[arg.GetName()], replica)
		if err != nil {
			return err
		}
		values = append(values, value)
	}
	kind := typeAttr(arg.GetType())
	nodes, waits := agree(s, c, f.GetSignature().GetName(), values, kind)
	result := &npb.NodeDef{Name: s.shared(f.GetSignature().GetName()) + "/result", Op: "Identity", Device: c.devices[0],
		Input: []string{values[0], waits}, Attr: map[string]*avpb.AttrValue{"T": kind}}
	out.NodeDef = append(append(out.NodeDef, nodes...), result)
	out.Ret[out.GetSignature().GetOutputArg()[0].GetName()] = s.output(result.GetName(), "output")
	return nil
}

// keep makes nodes that nothing in the function waits for a part of its call, as on a TPU,
// whose programs run as a whole.
func (w *lowering) keep(s functionScope, c *cluster, f, out *fpb.FunctionDef, used map[string]bool) {
	last := func(name string) {
		names := []string{s.shared(name)}
		if s.outputs[name] < 0 {
			names = nil
			for replica := range c.devices {
				names = append(names, s.copy(name, replica))
			}
		}
		for _, name := range names {
			if _, ok := out.ControlRet[name]; !ok {
				out.ControlRet[name] = name
				out.Signature.ControlOutput = append(out.Signature.ControlOutput, name)
			}
		}
	}
	for _, n := range f.GetNodeDef() {
		if !used[n.GetName()] {
			last(n.GetName())
		}
	}
	for _, name := range slices.Sorted(maps.Values(f.GetControlRet())) {
		if _, ok := s.outputs[name]; ok {
			last(name)
		}
	}
}

func typeAttr(t typespb.DataType) *avpb.AttrValue {
	return &avpb.AttrValue{Value: &avpb.AttrValue_Type{Type: t}}
}
