package dense

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
)

// ErrNone says that a model has no product that can be rewritten.
var ErrNone = errors.New("no dense layer can be computed in int8; expected float32 products with variables whose rows and columns are multiples of 16")

// Matrix says what a variable of the new graph holds: the matrices of variables of the old graph, by their
// keys in checkpoints, side by side. There are none if another variable has the matrix now.
type Matrix struct {
	Of []string
	// Shape is that before packing.
	Shape []int64
	// Table says that the variable is a table, whose rows are looked up.
	Table bool
}

// PackedShape returns the shape of the variable.
func (m Matrix) PackedShape() []int64 {
	if m.Table {
		return TableShape(m.Shape)
	}
	return PackedShape(m.Shape)
}

// Int8 rewrites the graph in place. It returns what the variables hold that change, by their keys in
// checkpoints. The error is ErrNone if there are none.
func Int8(meta *spb.MetaGraphDef) (map[string]Matrix, error) {
	r := newRewriter(meta.GetGraphDef(), PackedType)
	matrices, variables := r.rewrite()
	if len(matrices) == 0 {
		return nil, ErrNone
	}
	for key, m := range matrices {
		node := variables[key]
		node.Attr["dtype"] = typeOf(PackedType)
		node.Attr["shape"] = &apb.AttrValue{Value: &apb.AttrValue_Shape{Shape: shapeOf(m.PackedShape())}}
		if err := describe(meta.GetObjectGraphDef(), key, m.PackedShape()); err != nil {
			return nil, err
		}
	}
	return matrices, nil
}

// rewrite rewrites all but the nodes of variables. It returns what the variables hold that change, and all
// that the model restores, by their keys in checkpoints.
func (r *rewriter) rewrite() (map[string]Matrix, map[string]*npb.NodeDef) {
	for _, s := range r.scopes {
		s.dropAliases()
	}
	for _, s := range r.scopes {
		r.link(s)
	}
	r.checkProducers()
	variables := r.variables()
	if !slices.ContainsFunc(slices.Collect(maps.Keys(r.size)), func(e element) bool { return r.used[e] }) {
		return nil, variables
	}
	matrices := make(map[string]Matrix)
	handles := make(map[string]string, len(variables)) // keys by nodes
	for key, node := range variables {
		if r.chosen("", node.GetName()) {
			table := r.gathered[r.root(element{"", node.GetName()})]
			matrices[key] = Matrix{[]string{key}, dims(node.GetAttr()["shape"].GetShape()), table}
			handles[node.GetName()] = key
		}
	}
	r.merge(matrices, handles)
	for _, s := range r.scopes {
		r.retype(s)
	}
	r.library.Function = append(r.library.Function, r.made...)
	return matrices, variables
}

// scope is the graph, or a function.
type scope struct {
	name  string // "" is the graph
	f     *fpb.FunctionDef
	nodes []*npb.NodeDef
}

// rewriter finds which tensors hold matrices. Tensors that pass on each other's values are one set.
type rewriter struct {
	packed  dtpb.DataType // of packed matrices
	library *fpb.FunctionDefLibrary
	scopes  []*scope
	by      map[string]*scope
	graph   []*npb.NodeDef
	parent  map[element]element
	bad     map[element]bool
	used    map[element]bool // as a factor, or as a part of one
	// gathered are the sets whose rows are looked up.
	gathered map[element]bool
	size     map[element]int64     // of the sets that are chosen, by their roots: rows of matrices, columns of tables
	merged   map[*npb.NodeDef]bool // nodes that joined matrices which are in one variable now
	made     []*fpb.FunctionDef
}

// element is a tensor or the handle of a variable.
type element struct{ scope, ref string }

func newRewriter(g *gpb.GraphDef, packed dtpb.DataType) *rewriter {
	r := &rewriter{packed: packed, library: g.GetLibrary(), graph: g.GetNode(), by: make(map[string]*scope), parent: make(map[element]element),
		bad: make(map[element]bool), used: make(map[element]bool), gathered: make(map[element]bool), size: make(map[element]int64), merged: make(map[*npb.NodeDef]bool)}
	r.scopes = append(r.scopes, &scope{nodes: g.GetNode()})
	for _, f := range g.GetLibrary().GetFunction() {
		r.scopes = append(r.scopes, &scope{f.GetSignature().GetName(), f, f.GetNodeDef()})
	}
	for _, s := range r.scopes {
		r.by[s.name] = s
	}
	return r
}

func (r *rewriter) root(e element) element {
	for {
		p, ok := r.parent[e]
		if !ok || p == e {
			return e
		}
		e = p
	}
}

func (r *rewriter) join(a, b element) {
	if a, b = r.root(a), r.root(b); a != b {
		r.parent[a] = b
		r.bad[b] = r.bad[b] || r.bad[a]
		r.used[b] = r.used[b] || r.used[a]
		r.gathered[b] = r.gathered[b] || r.gathered[a]
	}
}

func (r *rewriter) spoil(e element) {
	r.parent[e] = r.root(e)
	r.bad[r.root(e)] = true
}

// at returns the element of an input in a scope; ok is false for a control input.
func (s *scope) at(input string) (e element, ok bool) {
	if strings.HasPrefix(input, "^") {
		return element{}, false
	}
	if s.name == "" {
		input = strings.TrimSuffix(input, ":0")
	}
	return element{s.name, input}, true
}

// out returns the element of an output of a node.
func (s *scope) out(n *npb.NodeDef, name string, i int) element {
	if s.name != "" {
		return element{s.name, fmt.Sprintf("%s:%s:%d", n.GetName(), name, i)}
	}
	if i == 0 {
		return element{"", n.GetName()}
	}
	return element{"", fmt.Sprintf("%s:%d", n.GetName(), i)}
}

// link joins the tensors that the nodes of a scope pass on, and spoils those that they use in other ways.
func (r *rewriter) link(s *scope) {
	for _, n := range s.nodes {
		callee := r.callee(n)
		for name, a := range n.GetAttr() {
			r.spoilArguments(a, callee, name)
		}
		for i, input := range n.GetInput() {
			e, ok := s.at(input)
			if !ok {
				continue
			}
			r.parent[e] = r.root(e)
			switch op := n.GetOp(); {
			case op == "ReadVariableOp":
				r.join(e, s.out(n, "value", 0))
			case op == "AssignVariableOp":
				if first, ok := s.at(n.GetInput()[0]); ok {
					r.join(e, first)
				}
			case op == "Identity":
				r.join(e, s.out(n, "output", 0))
			case op == "IdentityN":
				r.join(e, s.out(n, "output", i))
			case op == "ConcatV2" && s.byColumns(n):
				if i < len(n.GetInput())-1 {
					r.join(e, s.out(n, "output", 0))
					r.used[r.root(e)] = true
				}
			case callee != nil && i < len(callee.f.GetSignature().GetInputArg()):
				r.join(e, element{callee.name, callee.f.GetSignature().GetInputArg()[i].GetName()})
			case op == "MatMul" && i == 1 && s.name != "" && plain(n):
				r.used[r.root(e)] = true
			case op == "GatherV2" && i == 0 && s.name != "" && s.byRows(n):
				r.gathered[r.root(e)] = true
			case op == "DisableCopyOnRead" || op == "VarIsInitializedOp" || op == "SaveV2":
			default:
				r.spoil(e)
			}
		}
	}
	if s.f != nil {
		// A kernel may stand for the function, which takes matrices as they are.
		if implements(s.f) != "" {
			for _, arg := range s.f.GetSignature().GetInputArg() {
				r.spoil(element{s.name, arg.GetName()})
			}
		}
		for _, ref := range s.f.GetRet() {
			r.spoil(element{s.name, ref})
		}
	}
}

// callee returns the function that a node calls, or nil.
func (r *rewriter) callee(n *npb.NodeDef) *scope {
	if op := n.GetOp(); op != "PartitionedCall" && op != "StatefulPartitionedCall" {
		return nil
	}
	return r.by[n.GetAttr()["f"].GetFunc().GetName()]
}

// spoilArguments spoils the arguments of functions that an attribute names, except for that of a call.
func (r *rewriter) spoilArguments(a *apb.AttrValue, callee *scope, name string) {
	all := slices.Clone(a.GetList().GetFunc())
	if f := a.GetFunc(); f != nil && !(name == "f" && callee != nil) {
		all = append(all, f)
	}
	for _, f := range all {
		if s := r.by[f.GetName()]; s != nil && s.f != nil {
			for _, arg := range s.f.GetSignature().GetInputArg() {
				r.spoil(element{s.name, arg.GetName()})
			}
		}
	}
}

// plain reports whether a MatMul multiplies float32 matrices as they are.
func plain(n *npb.NodeDef) bool {
	a := n.GetAttr()
	return a["T"].GetType() == dtpb.DataType_DT_FLOAT && !a["transpose_a"].GetB() && !a["transpose_b"].GetB()
}

// byColumns reports whether a ConcatV2 puts matrices side by side.
func (s *scope) byColumns(n *npb.NodeDef) bool { return s.axis(n.GetInput()[len(n.GetInput())-1]) == 1 }

// byRows reports whether a GatherV2 looks up rows of float32 numbers.
func (s *scope) byRows(n *npb.NodeDef) bool {
	a := n.GetAttr()
	return a["Tparams"].GetType() == dtpb.DataType_DT_FLOAT && a["batch_dims"].GetI() == 0 && s.axis(n.GetInput()[2]) == 0
}

// axis returns the value of a constant input, or -1.
func (s *scope) axis(input string) int32 {
	name, _, _ := strings.Cut(input, ":")
	c := s.node(name)
	v := c.GetAttr()["value"].GetTensor()
	if c.GetOp() != "Const" || len(v.GetIntVal()) != 1 {
		return -1
	}
	return v.GetIntVal()[0]
}

func (s *scope) node(name string) *npb.NodeDef {
	i := slices.IndexFunc(s.nodes, func(n *npb.NodeDef) bool { return n.GetName() == name })
	if i < 0 {
		return nil
	}
	return s.nodes[i]
}

// checkProducers spoils the sets with a tensor that comes from elsewhere.
func (r *rewriter) checkProducers() {
	made := make(map[element]bool)
	for _, s := range r.scopes {
		for _, a := range s.f.GetSignature().GetInputArg() {
			made[element{s.name, a.GetName()}] = true
		}
		for _, n := range s.nodes {
			switch n.GetOp() {
			case "VarHandleOp":
				made[s.out(n, "resource", 0)] = true
			case "ReadVariableOp":
				made[s.out(n, "value", 0)] = true
			case "Identity", "ConcatV2":
				made[s.out(n, "output", 0)] = true
			case "IdentityN":
				for i := range n.GetInput() {
					made[s.out(n, "output", i)] = true
				}
			case "RestoreV2":
				for i := range n.GetAttr()["dtypes"].GetList().GetType() {
					made[s.out(n, "tensors", i)] = true
				}
			}
		}
	}
	for _, e := range slices.Collect(maps.Keys(r.parent)) {
		if !made[e] {
			r.spoil(e)
		}
	}
}

// variables finds the variable of each key that the model restores, and chooses the sets of which all
// variables fit and have the same number of rows or, of tables, of columns.
func (r *rewriter) variables() map[string]*npb.NodeDef {
	found := make(map[string]*npb.NodeDef)
	for _, call := range r.graph {
		f := r.callee(call)
		if f == nil {
			continue
		}
		for _, n := range f.nodes {
			if n.GetOp() == "AssignVariableOp" {
				key, arg := f.key(n.GetInput()[1]), f.argument(n.GetInput()[0])
				if key != "" && arg >= 0 {
					name, _, _ := strings.Cut(call.GetInput()[arg], ":")
					found[key] = r.by[""].node(name)
				}
			}
		}
	}
	keyed := make(map[*npb.NodeDef]bool)
	for _, n := range found {
		keyed[n] = true
	}
	size := make(map[element]int64)
	for _, n := range r.graph {
		if n.GetOp() != "VarHandleOp" {
			continue
		}
		root, shape := r.root(element{"", n.GetName()}), dims(n.GetAttr()["shape"].GetShape())
		fits, axis := r.fits(shape), 0
		if r.gathered[root] && r.packed == float {
			fits = false // its rows are looked up
		} else if r.gathered[root] {
			fits, axis = FitsTable(shape) && !r.used[root], 1
		}
		if !keyed[n] || n.GetAttr()["dtype"].GetType() != dtpb.DataType_DT_FLOAT || !fits || size[root] > 0 && size[root] != shape[axis] {
			r.bad[root] = true
			continue
		}
		size[root] = shape[axis]
	}
	for root, n := range size {
		if (r.used[root] || r.gathered[root]) && !r.bad[root] {
			r.size[root] = n
		}
	}
	return found
}

// fits reports whether a matrix of this shape can be packed.
func (r *rewriter) fits(shape []int64) bool {
	if r.packed == float {
		return fitsFloat32(shape)
	}
	return Fits(shape)
}

// PackedType is the type of packed matrices of int8 numbers.
const PackedType = dtpb.DataType_DT_INT32

// valueSuffix ends the names of variables' values in checkpoints.
const valueSuffix = "/.ATTRIBUTES/VARIABLE_VALUE"

// key returns the key in checkpoints of a tensor that RestoreV2 makes, or "".
func (s *scope) key(ref string) string {
	part := strings.Split(ref, ":")
	n := s.node(part[0])
	for n.GetOp() == "Identity" {
		part = strings.Split(n.GetInput()[0], ":")
		n = s.node(part[0])
	}
	if n.GetOp() != "RestoreV2" || len(part) != 3 {
		return ""
	}
	var i int
	if _, err := fmt.Sscan(part[2], &i); err != nil {
		return ""
	}
	names, _, _ := strings.Cut(n.GetInput()[1], ":")
	keys := s.node(names).GetAttr()["value"].GetTensor().GetStringVal()
	if i >= len(keys) {
		return ""
	}
	return string(keys[i])
}

// argument returns the index of an argument of a function, or -1.
func (s *scope) argument(name string) int {
	for i, a := range s.f.GetSignature().GetInputArg() {
		if a.GetName() == name {
			return i
		}
	}
	return -1
}

func (r *rewriter) chosen(scope, ref string) bool { return r.sizeOf(element{scope, ref}) > 0 }

func (r *rewriter) sizeOf(e element) int64 { return r.size[r.root(e)] }

// describe says the new form of a variable in the object graph, which Python's loader reads.
func describe(objects *spb.SavedObjectGraph, key string, shape []int64) error {
	nodes, at := objects.GetNodes(), int32(0)
	path := strings.TrimSuffix(key, valueSuffix)
	for _, name := range strings.Split(path, "/") {
		name = strings.NewReplacer("..", ".", ".S", "/").Replace(name)
		next := int32(-1)
		for _, c := range nodes[at].GetChildren() {
			if c.GetLocalName() == name {
				next = c.GetNodeId()
			}
		}
		if next < 0 || int(next) >= len(nodes) {
			return fmt.Errorf("the graph's objects have no %s", path)
		}
		at = next
	}
	v := nodes[at].GetVariable()
	if v == nil {
		return fmt.Errorf("the graph's object %s is not a variable", path)
	}
	v.Dtype, v.Shape = PackedType, shapeOf(shape)
	return nil
}

func dims(s *tspb.TensorShapeProto) []int64 {
	var out []int64
	for _, d := range s.GetDim() {
		out = append(out, d.GetSize())
	}
	return out
}

func shapeOf(dims []int64) *tspb.TensorShapeProto {
	s := new(tspb.TensorShapeProto)
	for _, d := range dims {
		s.Dim = append(s.Dim, &tspb.TensorShapeProto_Dim{Size: d})
	}
	return s
}

func typeOf(t dtpb.DataType) *apb.AttrValue {
	return &apb.AttrValue{Value: &apb.AttrValue_Type{Type: t}}
}
