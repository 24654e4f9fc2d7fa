package graphs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	vpb "github.com/wamuir/graft/tensorflow/core/framework/versions_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/gorbit-ml/gorbit/graphs/safety"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
)

// GradientPrefix is the prefix of the outputs of the gradients function that are gradients. The
// name of the variable follows it.
const GradientPrefix = "gradient/"

// ServingFolder is the folder of an export with its serving SavedModel, without the variables.
const ServingFolder = "serving"

// Arg is an input or an output of a function.
type Arg struct {
	Name  string
	DType dtpb.DataType
	// Shape has -1 for unknown dimensions. If any shape is possible, it is nil and Ranked is
	// false.
	Shape  []int64
	Ranked bool
}

func (a Arg) String() string {
	shape := "any shape"
	if a.Ranked {
		shape = shapeText(a.Shape)
	}
	return a.Name + " " + DTypeName(a.DType) + " " + shape
}

// StatePrefix is the prefix of the outputs of the gradients function that are changes of states,
// multiplied by weight_sum. The name of the state follows it.
const StatePrefix = "state/"

// EachPrefix is the prefix of the outputs of the evaluate function that are not sums but values of
// every example, or token, which evaluations collect.
const EachPrefix = "each/"

// MergePrefix is the prefix under which a strategy reads what the function merge gives. The name of
// the variable follows it.
const MergePrefix = "merge/"

// Function is one function of the contract.
type Function struct {
	// Name is the name in the contract: gradients, the name of an update, evaluate, predict,
	// results or train_step.
	Name string
	// GraphName is its name in the function library.
	GraphName string
	// Inputs are the arguments. Captures are the variables whose handles follow them.
	Inputs   []Arg
	Captures []string
	// Outputs are the outputs in the order of a call's outputs.
	Outputs []Arg
	// XLA means that calls are compiled by XLA.
	XLA bool
}

// Output returns the index of an output, or -1.
func (f *Function) Output(name string) int {
	return slices.IndexFunc(f.Outputs, func(a Arg) bool { return a.Name == name })
}

// Export is an opened export.
type Export struct {
	Path     string
	Contract *Contract
	// Functions are the functions by their names in the contract.
	Functions map[string]*Function
	// TensorFlow is the version that wrote the export.
	TensorFlow string
	// ModelBytes is the size of saved_model.pb.
	ModelBytes int64

	library  library
	versions *vpb.VersionDef
	// serving is the graph in ServingFolder; nil if there is none.
	serving *spb.MetaGraphDef
}

// functionNames are the functions of a contract with one update that is called update.
var functionNames = []string{"gradients", "update", "evaluate", "predict", "results", "merge", "generate", "encode", "train_step"}

// functions returns the functions of the contract. A step of several phases is no function.
func (c *Contract) functions() []string {
	if len(c.Phases) > 0 {
		return c.composed()
	}
	return append(c.composed(), "train_step")
}

// composed returns the functions that composed graphs use.
func (c *Contract) composed() []string {
	out := append(c.gradientFunctions(), sortedKeys(c.Updates)...)
	out = append(out, "evaluate", "predict")
	if len(c.Results) > 0 {
		out = append(out, "results")
	}
	if len(c.Merge) > 0 {
		out = append(out, "merge")
	}
	return append(out, c.generating()...)
}

// passes returns the functions that run the model.
func (c *Contract) passes() []string { return append(c.gradientFunctions(), "evaluate", "predict") }

// Open reads the export at a path and checks it against the contract.
//
// It returns a *ContractError if the SavedModel does not follow the training contract.
func Open(path string) (*Export, error) {
	model, size, err := readModel(path)
	if err != nil {
		return nil, err
	}
	contract, err := ReadContract(path)
	if err != nil {
		return nil, err
	}
	e, err := newExport(path, contract, model)
	if err != nil {
		return nil, &ContractError{path, err.Error()}
	}
	e.ModelBytes = size
	if err := safety.CheckCalls(&spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{model}}); err != nil {
		return nil, &ContractError{path, err.Error()}
	}
	serving := filepath.Join(path, ServingFolder)
	if _, err := os.Stat(serving); err == nil {
		if e.serving, _, err = readModel(serving); err != nil {
			return nil, err
		}
		if err := safety.CheckCalls(&spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{e.serving}}); err != nil {
			return nil, &ContractError{serving, err.Error()}
		}
	}
	return e, nil
}

// newExport makes an Export and checks the model against the contract.
func newExport(path string, contract *Contract, model *spb.MetaGraphDef) (*Export, error) {
	e := &Export{
		Path:       path,
		Contract:   contract,
		Functions:  make(map[string]*Function),
		TensorFlow: model.GetMetaInfoDef().GetTensorflowVersion(),
		library:    newLibrary(model.GetGraphDef().GetLibrary()),
		versions:   model.GetGraphDef().GetVersions(),
	}
	objects, err := readObjects(model.GetObjectGraphDef())
	if err != nil {
		return nil, err
	}
	names, err := e.checkVariables(objects)
	if err != nil {
		return nil, err
	}
	for _, name := range contract.functions() {
		f, err := objects.function(name, names)
		if err != nil {
			return nil, err
		}
		def, ok := e.library.functions[f.GraphName]
		if !ok {
			return nil, fmt.Errorf("function %s: %s is not in the function library", name, f.GraphName)
		}
		if err := matchSignature(f, def); err != nil {
			return nil, fmt.Errorf("function %s: %w", name, err)
		}
		f.XLA = contract.XLA && slices.Contains(contract.passes(), name)
		e.Functions[name] = f
	}
	return e, e.checkFunctions()
}

// matchSignature checks that the inputs and outputs of a function are those that the object graph
// declares.
func matchSignature(f *Function, def *fpb.FunctionDef) error {
	in, out := def.GetSignature().GetInputArg(), def.GetSignature().GetOutputArg()
	if want := len(f.Inputs) + len(f.Captures); len(in) != want {
		return fmt.Errorf("%s takes %d arguments; the object graph declares %d", f.GraphName, len(in), want)
	}
	if len(out) != len(f.Outputs) {
		return fmt.Errorf("%s returns %d outputs; the object graph declares %d", f.GraphName, len(out), len(f.Outputs))
	}
	for i, arg := range in {
		name, dtype := "of captured variable ", dtpb.DataType_DT_RESOURCE
		if i < len(f.Inputs) {
			name, dtype = f.Inputs[i].Name, f.Inputs[i].DType
		} else {
			name += f.Captures[i-len(f.Inputs)]
		}
		if arg.GetType() != dtype {
			return fmt.Errorf("argument %s has dtype %s in %s; the object graph declares %s", name, DTypeName(arg.GetType()), f.GraphName, DTypeName(dtype))
		}
	}
	for i, a := range f.Outputs {
		if out[i].GetType() != a.DType {
			return fmt.Errorf("output %s has dtype %s in %s; the object graph declares %s", a.Name, DTypeName(out[i].GetType()), f.GraphName, DTypeName(a.DType))
		}
	}
	return nil
}

// checkVariables checks the variables against the contract and returns their names by node.
func (e *Export) checkVariables(objects *objects) (map[int32]string, error) {
	c := e.Contract
	names := make(map[int32]string)
	find := func(want Arg, what string) error {
		id, got, ok := objects.variable(want.Name)
		if !ok {
			return fmt.Errorf("%s %s is not in the object graph", what, want.Name)
		}
		if other, ok := names[id]; ok {
			return fmt.Errorf("%s %s is the same variable as %s", what, want.Name, other)
		}
		names[id] = want.Name
		if err := conforms(got, want); err != nil {
			return fmt.Errorf("%s %w", what, err)
		}
		return nil
	}
	for _, v := range c.Variables {
		want := Arg{Name: v.Name, DType: dtypeOf(v.DType), Shape: v.Shape, Ranked: true}
		if err := find(want, "variable"); err != nil {
			return nil, err
		}
		for _, slot := range c.SlotsOf(v) {
			want.Name, want.Shape = SlotName(slot.Name, v.Name), slot.Shape
			if err := find(want, "slot"); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range c.States {
		if err := find(Arg{Name: s.Name, DType: dtypeOf(s.DType), Shape: s.Shape, Ranked: true}, "state"); err != nil {
			return nil, err
		}
	}
	counts := []string{c.Optimizer.Iterations}
	for _, p := range c.Phases {
		counts = append(counts, p.Iterations())
	}
	for _, name := range counts {
		if err := find(scalar(name, dtpb.DataType_DT_INT64), "variable"); err != nil {
			return nil, err
		}
	}
	return names, find(scalar(c.State, dtpb.DataType_DT_STRING), "variable")
}

// want is what a function must take and give. It may take more, but nothing that is not optional.
type want struct {
	name             string
	inputs, optional []Arg
	outputs, more    []Arg // more may be missing
}

// checkFunctions checks the functions against the contract.
func (e *Export) checkFunctions() error {
	c := e.Contract
	for _, want := range slices.Concat(c.wantPasses(), c.wantUpdates(), c.wantMerge(), c.wantGenerate()) {
		f := e.Functions[want.name]
		if err := conformAll(f.Inputs, want.inputs, want.optional, true); err != nil {
			return fmt.Errorf("function %s: input %w", want.name, err)
		}
		if err := conformAll(f.Outputs, want.outputs, want.more, false); err != nil {
			return fmt.Errorf("function %s: output %w", want.name, err)
		}
	}
	for _, name := range sortedKeys(c.Updates) {
		f := e.Functions[name]
		if len(f.Captures) > 0 {
			return fmt.Errorf("function %s captures %s; expected every variable as an argument", name, f.Captures[0])
		}
		for _, a := range f.Inputs {
			if a.Ranked && a.Name == "gradient" && c.Updates[name].Elementwise {
				return fmt.Errorf("function %s: input %s; expected any shape of an elementwise update", name, a)
			}
		}
	}
	if len(e.Functions["predict"].Outputs) == 0 {
		return fmt.Errorf("function predict has no outputs")
	}
	for _, name := range slices.Concat(c.passes(), []string{"merge"}, c.generating()) {
		f := e.Functions[name]
		if f == nil {
			continue
		}
		for _, capture := range f.Captures {
			if !c.reads(capture) {
				return fmt.Errorf("function %s captures %s; expected only variables and states of the model", name, capture)
			}
		}
	}
	for _, check := range []func() error{e.checkOpenAxes, e.checkStates, e.checkResults, e.checkGenerate} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// wantPasses returns what the functions that run the model must take and give.
func (c *Contract) wantPasses() []want {
	var features, inputs, ids []Arg
	for _, f := range c.Features {
		a := Arg{Name: f.Name, DType: dtypeOf(f.DType), Shape: f.Shape, Ranked: true}
		switch f.Role {
		case RoleID:
			ids = append(ids, a)
		case RoleInput:
			inputs = append(inputs, a)
			features = append(features, a)
		default:
			features = append(features, a)
		}
	}
	seed := Arg{Name: "seed", DType: dtpb.DataType_DT_INT64, Shape: []int64{2}, Ranked: true}
	sums := []Arg{scalar("loss_sum", dtpb.DataType_DT_FLOAT), scalar("weight_sum", dtpb.DataType_DT_FLOAT)}
	var outputs []Arg
	if c.Version > oldestVersion {
		for _, o := range c.Outputs {
			shape := slices.Repeat([]int64{open}, len(o.Axes))
			outputs = append(outputs, Arg{Name: o.Name, DType: dtypeOf(o.DType), Shape: shape, Ranked: true})
		}
	}
	return append(c.wantGradients(append(append(slices.Clone(features), seed), scalars(c.Hyperparameters)...), ids, sums),
		want{name: "evaluate", inputs: features, optional: ids, outputs: sums},
		want{name: "predict", inputs: inputs, optional: ids, outputs: outputs})
}

// wantUpdates returns what the functions that update variables must take.
func (c *Contract) wantUpdates() []want {
	var out []want
	for _, name := range sortedKeys(c.Updates) {
		arguments := []Arg{scalar("variable", dtpb.DataType_DT_RESOURCE)}
		for _, slot := range c.Updates[name].Slots {
			arguments = append(arguments, scalar(slot.Name, dtpb.DataType_DT_RESOURCE))
		}
		arguments = append(arguments,
			Arg{Name: "gradient", DType: dtpb.DataType_DT_FLOAT},
			scalar("gradient_scale", dtpb.DataType_DT_FLOAT),
			scalar("iteration", dtpb.DataType_DT_INT64),
			scalar("learning_rate", dtpb.DataType_DT_FLOAT),
			scalar("weight_decay", dtpb.DataType_DT_FLOAT))
		out = append(out, want{name: name, inputs: append(arguments, scalars(c.Optimizer.Hyperparameters)...)})
	}
	return out
}

// wantMerge returns what the function merge must give, if there is one.
func (c *Contract) wantMerge() []want {
	if len(c.Merge) == 0 {
		return nil
	}
	w := want{name: "merge"}
	for _, name := range c.Merge {
		shape, _ := c.shape(name)
		w.outputs = append(w.outputs, Arg{Name: name, DType: dtpb.DataType_DT_FLOAT, Shape: shape, Ranked: true})
	}
	return []want{w}
}

// checkOpenAxes checks that the axes that the contract leaves open are open in the functions.
func (e *Export) checkOpenAxes() error {
	for _, name := range e.Contract.passes() {
		for _, got := range e.Functions[name].Inputs {
			f := e.Contract.Feature(got.Name)
			if f == nil || !got.Ranked {
				continue
			}
			for i, d := range f.Shape {
				if d == open && got.Shape[i] != open {
					return fmt.Errorf("function %s: input %s: the graph has %s; expected the open axis %s", name, f.Name, got, f.Axes[i])
				}
			}
		}
	}
	return nil
}

// checkResults checks the function results against the sums that it takes.
func (e *Export) checkResults() error {
	c := e.Contract
	if len(c.Results) == 0 {
		return nil
	}
	results, evaluate := e.Functions["results"], e.Functions["evaluate"]
	w := want{name: "results"}
	trained := make(map[string]int)
	for i, name := range c.Results {
		at := evaluate.Output(name)
		if at < 0 {
			return fmt.Errorf("function evaluate: output %s is missing; expected it, because results takes it", name)
		}
		sum := evaluate.Outputs[at]
		if sum.DType != dtpb.DataType_DT_FLOAT || !sum.Ranked || slices.Contains(sum.Shape, open) {
			return fmt.Errorf("function evaluate: output %s: the graph has %s; expected a float32 of fixed shape, because results takes it", name, sum)
		}
		for _, pass := range c.gradientFunctions() {
			gradients := e.Functions[pass]
			if at := gradients.Output(name); at >= 0 {
				trained[pass]++
				if err := conforms(gradients.Outputs[at], sum); err != nil {
					return fmt.Errorf("function %s: output %w", pass, err)
				}
			}
		}
		sum.Name = fmt.Sprintf("sum_%d", i)
		w.inputs = append(w.inputs, sum)
	}
	for _, pass := range c.gradientFunctions() {
		if n := trained[pass]; n > 0 && n < len(c.Results) {
			return fmt.Errorf("function %s gives %d of the %d sums that results takes; expected all or none", pass, n, len(c.Results))
		}
	}
	for _, m := range c.Metrics {
		w.outputs = append(w.outputs, scalar(m.Name, dtpb.DataType_DT_FLOAT))
	}
	if err := conformAll(results.Inputs, w.inputs, nil, true); err != nil {
		return fmt.Errorf("function results: input %w", err)
	}
	if err := conformAll(results.Outputs, w.outputs, nil, false); err != nil {
		return fmt.Errorf("function results: output %w", err)
	}
	if len(results.Captures) > 0 {
		return fmt.Errorf("function results captures %s; expected sums as arguments only", results.Captures[0])
	}
	return nil
}

func scalars(list []Hyperparameter) []Arg {
	var out []Arg
	for _, h := range list {
		out = append(out, scalar(h.Name, dtpb.DataType_DT_FLOAT))
	}
	return out
}

func scalar(name string, dtype dtpb.DataType) Arg {
	return Arg{Name: name, DType: dtype, Shape: []int64{}, Ranked: true}
}

// conformAll checks that got has all wanted arguments and, if exact, no others that are not optional.
func conformAll(got, want, optional []Arg, exact bool) error {
	byName := make(map[string]Arg, len(got))
	for _, g := range got {
		byName[g.Name] = g
	}
	for _, w := range want {
		g, ok := byName[w.Name]
		if !ok {
			return fmt.Errorf("%s is missing; expected %s", w.Name, w)
		}
		if err := conforms(g, w); err != nil {
			return err
		}
		delete(byName, w.Name)
	}
	for _, w := range optional {
		if g, ok := byName[w.Name]; ok {
			if err := conforms(g, w); err != nil {
				return err
			}
			delete(byName, w.Name)
		}
	}
	if exact && len(byName) > 0 {
		return fmt.Errorf("%s is not declared in %s", sortedKeys(byName)[0], ContractFile)
	}
	return nil
}

func conforms(got, want Arg) error {
	ok := got.DType == want.DType
	if ok && want.Ranked && got.Ranked {
		ok = len(got.Shape) == len(want.Shape)
		for i := 0; ok && i < len(want.Shape); i++ {
			ok = got.Shape[i] < 0 || want.Shape[i] < 0 || got.Shape[i] == want.Shape[i]
		}
	}
	if !ok {
		return fmt.Errorf("%s: the graph has %s; expected %s", want.Name, got, want)
	}
	return nil
}

// DTypeName returns the name that a contract gives a dtype, such as float32.
func DTypeName(t dtpb.DataType) string { return dtype.DType(t).String() }

func dtypeOf(name string) dtpb.DataType { return dtpb.DataType(dtype.Of(name)) }

// library is a function library.
type library struct {
	functions map[string]*fpb.FunctionDef
	gradients []*fpb.GradientDef
}

// Attributes of nodes and of arguments that Python writes for its own use: TensorFlow infers the shapes
// of a node's outputs, and calls arguments by their names in the function.
const (
	outputShapes = "_output_shapes"
	pythonsName  = "_user_specified_name"
)

// newLibrary takes over a library and takes these attributes from it. They are two of five, and
// TensorFlow copies all of them with the functions of a session for each graph that it prepares.
func newLibrary(def *fpb.FunctionDefLibrary) library {
	l := library{make(map[string]*fpb.FunctionDef, len(def.GetFunction())), def.GetGradient()}
	for _, f := range def.GetFunction() {
		for _, node := range f.GetNodeDef() {
			delete(node.GetAttr(), outputShapes)
		}
		for _, arg := range f.GetArgAttr() {
			delete(arg.GetAttr(), pythonsName)
		}
		l.functions[f.GetSignature().GetName()] = f
	}
	return l
}

// reach returns the names of the roots and of all functions that they call, directly or not.
func (l library) reach(roots ...string) map[string]bool {
	gradients := make(map[string][]string)
	for _, g := range l.gradients {
		gradients[g.GetFunctionName()] = append(gradients[g.GetFunctionName()], g.GetGradientFunc())
	}
	reached := make(map[string]bool)
	for len(roots) > 0 {
		name := roots[len(roots)-1]
		roots = roots[:len(roots)-1]
		def, ok := l.functions[name]
		if !ok || reached[name] {
			continue
		}
		reached[name] = true
		roots = append(roots, gradients[name]...)
		for _, node := range def.GetNodeDef() {
			roots = appendCallees(roots, node)
		}
	}
	return reached
}

// appendCallees appends the names of the functions that a node may call: its operation, and the
// functions in its attributes.
func appendCallees(names []string, node *npb.NodeDef) []string {
	names = append(names, node.GetOp())
	var visit func(attrs map[string]*apb.AttrValue)
	visit = func(attrs map[string]*apb.AttrValue) {
		for _, attr := range attrs {
			for _, f := range attr.GetList().GetFunc() {
				names = append(names, f.GetName())
				visit(f.GetAttr())
			}
			if f := attr.GetFunc(); f != nil {
				names = append(names, f.GetName())
				visit(f.GetAttr())
			}
		}
	}
	visit(node.GetAttr())
	return names
}

// Library returns the named functions of the contract and all functions that they call.
func (e *Export) Library(names ...string) *fpb.FunctionDefLibrary {
	reached := e.reach(names...)
	out := new(fpb.FunctionDefLibrary)
	for _, name := range sortedKeys(reached) {
		out.Function = append(out.Function, e.library.functions[name])
	}
	for _, g := range e.library.gradients {
		if reached[g.GetFunctionName()] {
			out.Gradient = append(out.Gradient, g)
		}
	}
	return out
}

func (e *Export) reach(names ...string) map[string]bool {
	var roots []string
	for _, name := range names {
		if f, ok := e.Functions[name]; ok {
			roots = append(roots, f.GraphName)
		}
	}
	return e.library.reach(roots...)
}

// Versions returns the versions of the graph that holds the export's functions.
func (e *Export) Versions() *vpb.VersionDef { return e.versions }

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
