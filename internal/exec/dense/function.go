package dense

import (
	"fmt"
	"slices"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// exact is the most rows of a product whose sums of whole numbers float32 holds exactly.
const exact = 1024

// least is the largest number of a row below which it counts as zeros, as in the kernel.
const least = 1e-30

// function returns the name of the function of a product with a matrix of so many rows: of that of
// TensorFlow's operations.
func (r *rewriter) function(name string, rows int64, gelu string) string {
	full := fmt.Sprintf("__gorbit_%s_%d", name, rows)
	if gelu != "" {
		full += "_" + gelu
	}
	if !slices.ContainsFunc(r.made, func(f *fpb.FunctionDef) bool { return f.GetSignature().GetName() == full }) {
		r.made = append(r.made, Function(full, name, rows, gelu))
	}
	return full
}

// body is the body of a function that is made node by node. Slice, Transpose and the like are for float32
// alone: of those on whole numbers, TensorFlow writes to standard error that oneDNN has none.
type body struct{ nodes []*npb.NodeDef }

// node adds a node and returns its first output.
func (b *body) node(op, output string, inputs []string, attrs map[string]*apb.AttrValue) string {
	name := fmt.Sprintf("n%d", len(b.nodes))
	b.nodes = append(b.nodes, &npb.NodeDef{Name: name, Op: op, Input: inputs, Attr: attrs})
	return name + ":" + output + ":0"
}

func (b *body) float(v float32) string {
	return b.constant(&tpb.TensorProto{Dtype: dtpb.DataType_DT_FLOAT, TensorShape: shapeOf(nil), FloatVal: []float32{v}})
}

func (b *body) ints(v ...int32) string {
	return b.constant(&tpb.TensorProto{Dtype: dtpb.DataType_DT_INT32, TensorShape: shapeOf([]int64{int64(len(v))}), IntVal: v})
}

func (b *body) constant(t *tpb.TensorProto) string {
	return b.node("Const", "output", nil, map[string]*apb.AttrValue{"dtype": typeOf(t.Dtype), "value": {Value: &apb.AttrValue_Tensor{Tensor: t}}})
}

const float, index = dtpb.DataType_DT_FLOAT, dtpb.DataType_DT_INT32

func of(t dtpb.DataType) map[string]*apb.AttrValue { return map[string]*apb.AttrValue{"T": typeOf(t)} }

func (b *body) binary(op, x, y string) string { return b.node(op, "z", []string{x, y}, of(float)) }

func (b *body) slice(x string, begin, size []int32) string {
	return b.node("Slice", "output", []string{x, b.ints(begin...), b.ints(size...)},
		map[string]*apb.AttrValue{"T": typeOf(float), "Index": typeOf(index)})
}

func (b *body) transpose(x string, axes ...int32) string {
	return b.node("Transpose", "y", []string{x, b.ints(axes...)}, map[string]*apb.AttrValue{"T": typeOf(float), "Tperm": typeOf(index)})
}

func (b *body) reshape(x string, dims ...int32) string {
	return b.node("Reshape", "output", []string{x, b.ints(dims...)}, map[string]*apb.AttrValue{"T": typeOf(float), "Tshape": typeOf(index)})
}

func (b *body) cast(x string, from, to dtpb.DataType) string {
	return b.node("Cast", "y", []string{x}, map[string]*apb.AttrValue{"SrcT": typeOf(from), "DstT": typeOf(to), "Truncate": {Value: &apb.AttrValue_B{}}})
}

// Function makes the function `full` of a product with a packed matrix of so many rows, of TensorFlow's
// operations. name is dense_int8, dense_bias_int8 or dense_gelu_int8, for which gelu names a function.
func Function(full, name string, rows int64, gelu string) *fpb.FunctionDef {
	b := new(body)
	n := int32(rows)
	largest := b.node("Max", "output", []string{b.node("Abs", "y", []string{"x"}, of(float)), b.ints(1)},
		map[string]*apb.AttrValue{"T": typeOf(float), "Tidx": typeOf(index), "keep_dims": {Value: &apb.AttrValue_B{B: true}}})
	some := b.node("GreaterEqual", "z", []string{largest, b.float(least)}, of(float))
	factor := b.node("SelectV2", "output", []string{some, b.binary("RealDiv", b.float(Steps), largest), b.float(0)}, of(float))
	x := b.node("Round", "y", []string{b.binary("Mul", "x", factor)}, of(float))
	// The first of each four columns, then the second, and so on, as the rows of w are.
	x = b.reshape(b.transpose(b.reshape(x, -1, n/fours, fours), 0, 2, 1), -1, n)
	w := b.reshape(b.transpose(b.bytes(b.part("w", 0, n/fours), 1), 1, 0, 2), n, -1)
	scale := b.node("Bitcast", "output", []string{b.part("w", n/fours, n/fours+1)}, map[string]*apb.AttrValue{"T": typeOf(PackedType), "type": typeOf(float)})
	scale = b.binary("Mul", b.binary("Mul", largest, b.float(1.0/Steps)), b.reshape(scale, -1))

	y := b.binary("Mul", b.exactly(x, w, n), scale)
	if name != "dense_int8" {
		y = b.binary("AddV2", y, "bias")
	}
	if gelu != "" {
		list := &apb.AttrValue{Value: &apb.AttrValue_List{List: &apb.AttrValue_ListValue{Type: []dtpb.DataType{float}}}}
		text := &apb.AttrValue{Value: &apb.AttrValue_S{}}
		y = b.node("PartitionedCall", "output", []string{y}, map[string]*apb.AttrValue{"Tin": list, "Tout": list,
			"f": {Value: &apb.AttrValue_Func{Func: &apb.NameAttrList{Name: gelu}}}, "config": text, "config_proto": text, "executor_type": text})
	}
	return &fpb.FunctionDef{
		Signature: &opb.OpDef{Name: full, InputArg: arguments(name != "dense_int8"), OutputArg: []*opb.OpDef_ArgDef{{Name: "y", Type: float}}},
		NodeDef:   b.nodes,
		Ret:       map[string]string{"y": y},
		Attr:      map[string]*apb.AttrValue{"_implements": {Value: &apb.AttrValue_S{S: []byte("gorbit." + name)}}},
	}
}

// part returns rows of the panels of a packed matrix.
func (b *body) part(w string, from, to int32) string {
	mask := func(v int64) *apb.AttrValue { return &apb.AttrValue{Value: &apb.AttrValue_I{I: v}} }
	return b.node("StridedSlice", "output", []string{w, b.ints(0, from, 0), b.ints(0, to, 0), b.ints(1, 1, 1)}, map[string]*apb.AttrValue{
		"T": typeOf(PackedType), "Index": typeOf(index), "begin_mask": mask(0b101), "end_mask": mask(0b101)})
}

// rowsFunction returns the name of the function that makes numbers of packed rows of a table of so many columns.
func (r *rewriter) rowsFunction(columns int64) string {
	full := fmt.Sprintf("__gorbit_rows_int8_%d", columns)
	if !slices.ContainsFunc(r.made, func(f *fpb.FunctionDef) bool { return f.GetSignature().GetName() == full }) {
		r.made = append(r.made, rowsOf(full, int32(columns)))
	}
	return full
}

// rowsOf makes the function that makes float32 numbers of packed rows, whatever axes are before them.
func rowsOf(full string, columns int32) *fpb.FunctionDef {
	b := new(body)
	part := func(from, to int32) string {
		mask := func(v int64) *apb.AttrValue { return &apb.AttrValue{Value: &apb.AttrValue_I{I: v}} }
		return b.node("StridedSlice", "output", []string{"x", b.ints(0, from), b.ints(0, to), b.ints(1, 1)},
			map[string]*apb.AttrValue{"T": typeOf(PackedType), "Index": typeOf(index), "ellipsis_mask": mask(0b01)})
	}
	scale := b.node("Bitcast", "output", []string{part(columns/fours, columns/fours+1)}, map[string]*apb.AttrValue{"T": typeOf(PackedType), "type": typeOf(float)})
	y := b.binary("Mul", b.bytes(part(0, columns/fours), -1), scale)
	return &fpb.FunctionDef{
		Signature: &opb.OpDef{Name: full, InputArg: []*opb.OpDef_ArgDef{{Name: "x", Type: PackedType}}, OutputArg: []*opb.OpDef_ArgDef{{Name: "y", Type: float}}},
		NodeDef:   b.nodes,
		Ret:       map[string]string{"y": y},
	}
}

// bytes returns numbers of four bytes as float32 numbers, joined by an axis: all first bytes, and so on.
func (b *body) bytes(w string, by int32) string {
	var parts []string
	for left := int32(24); left >= 0; left -= 8 {
		up := b.node("LeftShift", "z", []string{w, b.ints(left)}, of(PackedType))
		parts = append(parts, b.cast(b.node("RightShift", "z", []string{up, b.ints(24)}, of(PackedType)), PackedType, float))
	}
	axis := b.constant(&tpb.TensorProto{Dtype: index, TensorShape: shapeOf(nil), IntVal: []int32{by}})
	return b.node("ConcatV2", "output", append(parts, axis),
		map[string]*apb.AttrValue{"T": typeOf(float), "Tidx": typeOf(index), "N": {Value: &apb.AttrValue_I{I: fours}}})
}

// exactly returns a product of whole numbers, rounded once: parts of it are exact in float32.
func (b *body) exactly(x, w string, rows int32) string {
	product := func(x, w string) string {
		return b.node("MatMul", "product", []string{x, w}, of(float))
	}
	if rows <= exact {
		return product(x, w)
	}
	const double = dtpb.DataType_DT_DOUBLE
	var parts []string
	for at := int32(0); at < rows; at += exact {
		n := min(exact, rows-at)
		parts = append(parts, b.cast(product(b.slice(x, []int32{0, at}, []int32{-1, n}), b.slice(w, []int32{at, 0}, []int32{n, -1})), float, double))
	}
	sum := b.node("AddN", "sum", parts, map[string]*apb.AttrValue{"T": typeOf(double), "N": {Value: &apb.AttrValue_I{I: int64(len(parts))}}})
	return b.cast(sum, double, float)
}
