package dense

import (
	"maps"
	"slices"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// operations are those of package kernels on packed matrices of float32 numbers.
var operations = map[string]string{"dense_int8": "GorbitDense", "dense_bias_int8": "GorbitDenseBias", "dense_gelu_int8": "GorbitDenseGelu"}

// fitsFloat32 reports whether a matrix of this shape can be packed by the operation GorbitDensePack.
func fitsFloat32(shape []int64) bool {
	return len(shape) == 2 && shape[0] > 0 && shape[1] > 0 && shape[1]%columns == 0
}

// packNode is the operation that packs all matrices.
const packNode = "gorbit_pack"

// Float32 rewrites a graph in place, so that its dense layers are operations of package kernels which
// compute with packed matrices of float32 numbers. It returns the name of the operation that packs the
// matrices of the variables, to be run once after they have been restored, or "" if there are none.
// Functions for which kernels may stand must not have been replaced yet.
func Float32(g *gpb.GraphDef) string {
	r := newRewriter(g, float)
	matrices, variables := r.rewrite()
	if len(matrices) == 0 {
		return ""
	}
	p := &packing{g: g, done: &npb.NodeDef{Name: packNode, Op: "NoOp"}}
	for _, key := range slices.Sorted(maps.Keys(matrices)) {
		node := variables[key]
		node.Attr["shape"] = &apb.AttrValue{Value: &apb.AttrValue_Shape{Shape: &tspb.TensorShapeProto{UnknownRank: true}}}
		if len(matrices[key].Of) > 0 {
			p.pack(node.GetName(), matrices[key].Of, variables)
		}
	}
	g.Node = append(g.Node, p.done)
	return packNode
}

// packing adds the nodes that pack matrices.
type packing struct {
	g    *gpb.GraphDef
	done *npb.NodeDef
}

// pack has a variable hold the packed matrices of some, side by side. The others hold nothing then.
func (p *packing) pack(variable string, keys []string, variables map[string]*npb.NodeDef) {
	name := packNode + "/" + variable
	var parts []string
	for _, key := range keys {
		handle := variables[key].GetName()
		p.add(name+"/"+handle, "ReadVariableOp", []string{handle}, map[string]*apb.AttrValue{"dtype": typeOf(float)})
		parts = append(parts, name+"/"+handle)
	}
	whole := parts[0]
	if len(parts) > 1 {
		whole = name + "/joined"
		p.constant(name+"/axis", &tpb.TensorProto{Dtype: index, TensorShape: shapeOf(nil), IntVal: []int32{1}})
		p.add(whole, "ConcatV2", append(parts, name+"/axis"), map[string]*apb.AttrValue{"T": typeOf(float), "Tidx": typeOf(index),
			"N": {Value: &apb.AttrValue_I{I: int64(len(keys))}}})
	}
	p.add(name+"/packed", "GorbitDensePack", []string{whole}, nil)
	p.assign(name+"/assign", variable, name+"/packed")
	if len(keys) == 1 {
		return
	}
	p.constant(name+"/nothing", &tpb.TensorProto{Dtype: float, TensorShape: shapeOf([]int64{0})})
	for _, key := range keys {
		if handle := variables[key].GetName(); handle != variable {
			p.assign(name+"/empty/"+handle, handle, name+"/nothing", "^"+name+"/packed")
		}
	}
}

func (p *packing) assign(name, variable, value string, after ...string) {
	p.add(name, "AssignVariableOp", append([]string{variable, value}, after...), map[string]*apb.AttrValue{"dtype": typeOf(float)})
	p.done.Input = append(p.done.Input, "^"+name)
}

func (p *packing) constant(name string, t *tpb.TensorProto) {
	p.add(name, "Const", nil, map[string]*apb.AttrValue{"dtype": typeOf(dtpb.DataType(t.Dtype)), "value": {Value: &apb.AttrValue_Tensor{Tensor: t}}})
}

func (p *packing) add(name, op string, inputs []string, attrs map[string]*apb.AttrValue) {
	p.g.Node = append(p.g.Node, &npb.NodeDef{Name: name, Op: op, Input: inputs, Attr: attrs})
}
