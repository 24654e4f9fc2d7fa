package served

import (
	"cmp"
	"runtime"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	fpb "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	npb "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opb "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	dtpb "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	spb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// mostLanes is the largest number of cores that get a call each. With more, two calls share them.
const mostLanes = 4

// substitute puts kernels in the place of the functions that they implement, and returns their names.
func substitute(saved *spb.SavedModel) []string {
	var names []string
	ops := kernels.Ops()
	for _, meta := range saved.GetMetaGraphs() {
		for _, f := range meta.GetGraphDef().GetLibrary().GetFunction() {
			i := slices.IndexFunc(ops, func(op kernels.Op) bool {
				return implements(f) == op.Implements && fits(f.GetSignature().GetInputArg(), op.Inputs) && fits(f.GetSignature().GetOutputArg(), op.Outputs)
			})
			if i >= 0 {
				replace(f, ops[i])
				names = append(names, ops[i].Name)
			}
		}
	}
	return names
}

// implements returns the name of what a function implements; those that take caches have it elsewhere.
func implements(f *fpb.FunctionDef) string {
	return cmp.Or(string(f.GetAttr()["_implements"].GetS()), string(f.GetAttr()[variablesAttr].GetS()))
}

// variablesAttr is the attribute for what functions that take variables implement.
const variablesAttr = "api_implements"

// fits reports whether arguments of a function are those of an operation.
func fits(args []*opb.OpDef_ArgDef, of []kernels.Arg) bool {
	return slices.EqualFunc(args, of, func(d *opb.OpDef_ArgDef, a kernels.Arg) bool { return d.GetType().String() == a.DType })
}

// replace makes an operation the body of a function.
func replace(f *fpb.FunctionDef, op kernels.Op) {
	body := &npb.NodeDef{Name: "op", Op: op.Name}
	f.NodeDef, f.Ret, f.ControlRet, f.Signature.ControlOutput = []*npb.NodeDef{body}, make(map[string]string), nil, nil
	for _, a := range f.GetSignature().GetInputArg() {
		body.Input = append(body.Input, a.GetName())
		if a.GetType() == dtpb.DataType_DT_RESOURCE {
			f.ControlRet, f.Signature.ControlOutput = map[string]string{"op": "op"}, []string{"op"}
		}
	}
	delete(f.Attr, variablesAttr) // by which TensorFlow looks for other functions
	for i, a := range f.GetSignature().GetOutputArg() {
		f.Ret[a.GetName()] = "op:" + op.Outputs[i].Name + ":0"
	}
}

// laneOptions are those of a session of a graph of kernels, as package saved has them: a core for each of the
// calls that run side by side, if any do, but all of them for the kernels of one that is alone, and few passes
// over the graph. run runs a call of the session.
func laneOptions(several bool) (lanes int, run func(func() error) error, options *tf.SessionOptions, err error) {
	config := &spb.ConfigProto{AllowSoftPlacement: true, GraphOptions: &spb.GraphOptions{RewriteOptions: &spb.RewriterConfig{
		MetaOptimizerIterations: spb.RewriterConfig_ONE,
		ShapeOptimization:       spb.RewriterConfig_OFF,
		MemoryOptimization:      spb.RewriterConfig_NO_MEM_OPT,
		ConstantFolding:         spb.RewriterConfig_OFF,
		ArithmeticOptimization:  spb.RewriterConfig_OFF,
		LayoutOptimizer:         spb.RewriterConfig_OFF,
		LoopOptimization:        spb.RewriterConfig_OFF,
		ImplementationSelector:  spb.RewriterConfig_OFF,
	}}}
	lanes, run = 2, plainly
	if n := runtime.NumCPU(); several && n <= mostLanes {
		lanes, run = n, kernels.Run
		config.IntraOpParallelismThreads, config.InterOpParallelismThreads = 1, int32(n)
	}
	options = new(tf.SessionOptions)
	options.Config, err = proto.Marshal(config)
	return lanes, run, options, err
}

// plainly runs a call that has nothing to do with others.
func plainly(call func() error) error { return call() }
