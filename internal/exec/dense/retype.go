package dense

import (
	"slices"
	"strings"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// dropAliases replaces the outputs of Identity and IdentityN in a function by their inputs, and removes
// those that nothing is left to use. So what custom gradients pass on to themselves uses nothing.
func (s *scope) dropAliases() {
	if s.f == nil {
		return
	}
	source := make(map[string]string)
	for _, n := range s.nodes {
		if op := n.GetOp(); (op == "Identity" || op == "IdentityN") && !controlled(n) {
			for i, input := range n.GetInput() {
				source[s.out(n, "output", i).ref] = input
			}
		}
	}
	resolve := func(ref string) string {
		for source[ref] != "" {
			ref = source[ref]
		}
		return ref
	}
	awaited := make(map[string]bool)
	for _, n := range s.nodes {
		for i, input := range n.GetInput() {
			if strings.HasPrefix(input, "^") {
				awaited[input[1:]] = true
			}
			n.Input[i] = resolve(input)
		}
	}
	for _, name := range s.f.GetControlRet() {
		awaited[name] = true
	}
	for name, ref := range s.f.GetRet() {
		// A result that is an argument needs its Identity.
		if to := resolve(ref); strings.Contains(to, ":") {
			s.f.Ret[name] = to
		}
	}
	for _, ref := range s.f.GetRet() {
		name, _, _ := strings.Cut(ref, ":")
		awaited[name] = true
	}
	s.nodes = slices.DeleteFunc(s.nodes, func(n *npb.NodeDef) bool {
		return (n.GetOp() == "Identity" || n.GetOp() == "IdentityN") && !controlled(n) && !awaited[n.GetName()]
	})
	s.f.NodeDef = s.nodes
}

func controlled(n *npb.NodeDef) bool {
	return slices.ContainsFunc(n.GetInput(), func(in string) bool { return strings.HasPrefix(in, "^") })
}

// guessed are attributes of shapes, which TensorFlow infers again.
var guessed = []string{"_output_shapes", "_input_shapes"}

// retype gives the tensors of a scope that hold matrices their new type, and replaces the products.
func (r *rewriter) retype(s *scope) {
	products, lookups := r.products(s), r.lookups(s)
	for _, n := range s.nodes {
		r.retypeNode(s, n)
		for _, name := range guessed {
			delete(n.Attr, name)
		}
	}
	if s.f == nil {
		return
	}
	for _, name := range guessed {
		delete(s.f.Attr, name)
	}
	for i, a := range s.f.GetSignature().GetInputArg() {
		if a.GetType() == dtpb.DataType_DT_FLOAT && r.chosen(s.name, a.GetName()) {
			a.Type = r.packed
		}
		for _, name := range guessed {
			delete(s.f.GetArgAttr()[uint32(i)].GetAttr(), name)
		}
	}
	for _, p := range products {
		r.replace(s, p)
	}
	for _, n := range lookups {
		r.unpack(s, n)
	}
	s.f.NodeDef = s.nodes
}

func (r *rewriter) retypeNode(s *scope, n *npb.NodeDef) {
	to := func(i int, attr string) {
		if e, ok := s.at(n.GetInput()[i]); ok && r.sizeOf(e) > 0 {
			n.Attr[attr] = typeOf(r.packed)
		}
	}
	list := func(first int, attr string) {
		types := n.GetAttr()[attr].GetList().GetType()
		for i := range types {
			if first+i >= len(n.GetInput()) {
				break
			}
			if e, ok := s.at(n.GetInput()[first+i]); ok && types[i] == dtpb.DataType_DT_FLOAT && r.sizeOf(e) > 0 {
				types[i] = r.packed
			}
		}
	}
	switch n.GetOp() {
	case "ReadVariableOp", "AssignVariableOp":
		to(0, "dtype")
	case "Identity":
		to(0, "T")
	case "GatherV2":
		to(0, "Tparams")
	case "IdentityN":
		list(0, "T")
	case "ConcatV2":
		if e, ok := s.at(n.GetInput()[0]); ok && r.merged[n] {
			n.Op, n.Input = "Identity", n.GetInput()[:1]
			n.Attr = map[string]*apb.AttrValue{"T": typeOf(r.packed)}
		} else if ok && r.sizeOf(e) > 0 {
			to(0, "T")
			axis := &npb.NodeDef{Name: n.GetName() + "/panels", Op: "Const", Attr: map[string]*apb.AttrValue{
				"dtype": typeOf(dtpb.DataType_DT_INT32),
				"value": {Value: &apb.AttrValue_Tensor{Tensor: &tpb.TensorProto{Dtype: dtpb.DataType_DT_INT32, TensorShape: shapeOf(nil), IntVal: []int32{0}}}}}}
			s.nodes = append(s.nodes, axis)
			n.Input[len(n.Input)-1] = s.out(axis, "output", 0).ref
			n.Attr["Tidx"] = typeOf(dtpb.DataType_DT_INT32)
		}
	case "PartitionedCall", "StatefulPartitionedCall":
		list(0, "Tin")
	case "SaveV2":
		list(3, "dtypes")
	case "RestoreV2":
		types := n.GetAttr()["dtypes"].GetList().GetType()
		for i := range types {
			if r.sizeOf(s.out(n, "tensors", i)) > 0 {
				types[i] = r.packed
			}
		}
	}
}

// product is a product that is replaced, with what follows it.
type product struct {
	matmul, bias, gelu *npb.NodeDef
	rows               int64
}

// products finds the products of a function whose second factor is a chosen matrix.
func (r *rewriter) products(s *scope) (found []product) {
	for _, n := range s.nodes {
		if n.GetOp() != "MatMul" || s.f == nil {
			continue
		}
		e, ok := s.at(n.GetInput()[1])
		if !ok || r.sizeOf(e) == 0 {
			continue
		}
		p := product{matmul: n, rows: r.sizeOf(e)}
		if b := s.only(n, "product"); b.GetOp() == "BiasAdd" && b.GetInput()[0] == s.out(n, "product", 0).ref {
			p.bias = b
			if g := s.only(b, "output"); g != nil && r.callee(g) != nil && implements(r.callee(g).f) == "gorbit.gelu" {
				p.gelu = g
			}
		}
		found = append(found, p)
	}
	return found
}

// lookups finds the nodes of a function that look up rows of a chosen table.
func (r *rewriter) lookups(s *scope) (found []*npb.NodeDef) {
	for _, n := range s.nodes {
		if n.GetOp() == "GatherV2" && s.f != nil {
			if e, ok := s.at(n.GetInput()[0]); ok && r.sizeOf(e) > 0 {
				found = append(found, n)
			}
		}
	}
	return found
}

// unpack puts the call of a function, which makes numbers of packed rows, behind the node that looks them up.
func (r *rewriter) unpack(s *scope, n *npb.NodeDef) {
	e, _ := s.at(n.GetInput()[0])
	rows := &npb.NodeDef{Name: n.GetName() + "/rows", Op: n.GetOp(), Input: n.GetInput(), Attr: n.GetAttr()}
	call(n, r.rowsFunction(r.sizeOf(e)), []string{s.out(rows, "output", 0).ref}, PackedType)
	s.nodes = append(s.nodes, rows)
	s.f.NodeDef = s.nodes
}

// call makes a node the call of a function that gives float32 numbers.
func call(n *npb.NodeDef, function string, inputs []string, args ...dtpb.DataType) {
	types := func(t ...dtpb.DataType) *apb.AttrValue {
		return &apb.AttrValue{Value: &apb.AttrValue_List{List: &apb.AttrValue_ListValue{Type: t}}}
	}
	text := &apb.AttrValue{Value: &apb.AttrValue_S{}}
	n.Op, n.Input, n.Attr = "PartitionedCall", inputs, map[string]*apb.AttrValue{
		"f":   {Value: &apb.AttrValue_Func{Func: &apb.NameAttrList{Name: function}}},
		"Tin": types(args...), "Tout": types(dtpb.DataType_DT_FLOAT),
		"config": text, "config_proto": text, "executor_type": text}
}

func implements(f *fpb.FunctionDef) string { return string(f.GetAttr()["_implements"].GetS()) }

// only returns the node that alone uses an output of another, or nil.
func (s *scope) only(of *npb.NodeDef, output string) (user *npb.NodeDef) {
	ref := s.out(of, output, 0).ref
	for _, r := range s.f.GetRet() {
		if r == ref {
			return nil
		}
	}
	for _, n := range s.nodes {
		for _, input := range n.GetInput() {
			switch {
			case input == "^"+of.GetName():
				return nil
			case input == ref && user != nil:
				return nil
			case input == ref:
				user = n
			}
		}
	}
	return user
}

// replace puts the call of a function in place of a product.
func (r *rewriter) replace(s *scope, p product) {
	m := p.matmul
	inputs, gone := []string{m.GetInput()[0], m.GetInput()[1]}, []*npb.NodeDef{}
	last, name, gelu := m, "dense_int8", ""
	if p.bias != nil {
		inputs, gone = append(inputs, p.bias.GetInput()[1]), append(gone, m)
		last, name = p.bias, "dense_bias_int8"
	}
	if p.gelu != nil {
		gone = append(gone, p.bias)
		last, name, gelu = p.gelu, "dense_gelu_int8", p.gelu.GetAttr()["f"].GetFunc().GetName()
	}
	for _, n := range gone {
		for _, input := range n.GetInput() {
			if strings.HasPrefix(input, "^") {
				inputs = append(inputs, input)
			}
		}
	}
	for _, input := range last.GetInput() {
		if strings.HasPrefix(input, "^") {
			inputs = append(inputs, input)
		}
	}
	args := make([]dtpb.DataType, 0, 3)
	for _, a := range arguments(p.bias != nil) {
		args = append(args, a.GetType())
	}
	replaced := &npb.NodeDef{Name: last.GetName()}
	if r.packed == float {
		replaced.Op, replaced.Input = operations[name], inputs
	} else {
		call(replaced, r.function(name, p.rows, gelu), inputs, args...)
	}
	s.nodes = slices.DeleteFunc(s.nodes, func(n *npb.NodeDef) bool { return slices.Contains(gone, n) || n == last })
	s.nodes = append(s.nodes, replaced)
	output, result := "output", "output" // of what is replaced, and of what takes its place
	if last == m {
		output = "product"
	}
	if r.packed == float {
		result = "y"
	}
	if output != result {
		from, to := s.out(last, output, 0).ref, s.out(last, result, 0).ref
		for _, n := range s.nodes {
			for i, input := range n.GetInput() {
				if input == from {
					n.Input[i] = to
				}
			}
		}
		for name, ref := range s.f.GetRet() {
			if ref == from {
				s.f.Ret[name] = to
			}
		}
	}
}

// arguments are those of the function of a product.
func arguments(biased bool) []*opb.OpDef_ArgDef {
	args := []*opb.OpDef_ArgDef{{Name: "x", Type: dtpb.DataType_DT_FLOAT}, {Name: "w", Type: PackedType}}
	if biased {
		args = append(args, &opb.OpDef_ArgDef{Name: "bias", Type: dtpb.DataType_DT_FLOAT})
	}
	return args
}
