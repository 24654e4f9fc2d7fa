package graphs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	vpb "github.com/wamuir/graft/tensorflow/core/framework/versions_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// GradientPrefix begins the names of the gradients function's outputs that are
// gradients; the variable's name follows.
const GradientPrefix = "gradient/"

// ServingFolder is the folder of an export that holds its serving SavedModel,
// less the variables.
const ServingFolder = "serving"

// modelFile is what a SavedModel's graphs are in.
const modelFile = "saved_model.pb"

// maxModelBytes is protobuf's own limit on a message.
const maxModelBytes = 2<<30 - 1

// Arg is an argument or an output of a function.
type Arg struct {
	Name  string
	DType dtpb.DataType
	// Shape has -1 for open dimensions. It is nil, with Ranked false, for any shape.
	Shape  []int64
	Ranked bool
}

func (a Arg) String() string {
	if !a.Ranked {
		return fmt.Sprintf("%s %s any shape", a.Name, dtypeName(a.DType))
	}
	dims := make([]string, len(a.Shape))
	for i, d := range a.Shape {
		dims[i] = "?"
		if d >= 0 {
			dims[i] = fmt.Sprint(d)
		}
	}
	return fmt.Sprintf("%s %s [%s]", a.Name, dtypeName(a.DType), strings.Join(dims, ","))
}

// Function is one function of the contract.
type Function struct {
	// Name as in the contract: gradients, update, evaluate, predict, train_step.
	Name string
	// GraphName is its name in the function library.
	GraphName string
	// Inputs are the arguments; Captures, the variables whose handles follow them.
	Inputs   []Arg
	Captures []string
	// Outputs in the order in which a call gives them.
	Outputs []Arg
}

// Output returns the index of an output, or -1.
func (f *Function) Output(name string) int {
	return slices.IndexFunc(f.Outputs, func(a Arg) bool { return a.Name == name })
}

// Export is an opened export.
type Export struct {
	Path     string
	Contract *Contract
	// Functions by the contract's names.
	Functions map[string]*Function
	// TensorFlow is the version that wrote the export.
	TensorFlow string

	library  map[string]*fpb.FunctionDef
	grads    []*fpb.GradientDef
	versions *vpb.VersionDef
}

// Open reads the export at a path and checks it against the contract.
//
// The error is a *ContractError where the path holds a SavedModel that cannot be
// driven, and says what a SavedModel is where it holds none.
func Open(path string) (*Export, error) {
	model, err := readModel(path)
	if err != nil {
		return nil, err
	}
	contract, err := readContract(path)
	if err != nil {
		return nil, err
	}
	e := &Export{
		Path:       path,
		Contract:   contract,
		Functions:  make(map[string]*Function),
		TensorFlow: model.GetMetaInfoDef().GetTensorflowVersion(),
		library:    make(map[string]*fpb.FunctionDef),
		grads:      model.GetGraphDef().GetLibrary().GetGradient(),
		versions:   model.GetGraphDef().GetVersions(),
	}
	for _, f := range model.GetGraphDef().GetLibrary().GetFunction() {
		e.library[f.GetSignature().GetName()] = f
	}
	objects, err := readObjects(model.GetObjectGraphDef())
	if err != nil {
		return nil, &ContractError{path, err.Error()}
	}
	for _, name := range []string{"gradients", "update", "evaluate", "predict", "train_step"} {
		f, err := objects.function(name)
		if err != nil {
			return nil, &ContractError{path, err.Error()}
		}
		def, ok := e.library[f.GraphName]
		if !ok {
			return nil, &ContractError{path, fmt.Sprintf("function %s: %s is not in the function library", name, f.GraphName)}
		}
		if err := matchSignature(f, def); err != nil {
			return nil, &ContractError{path, fmt.Sprintf("function %s: %v", name, err)}
		}
		e.Functions[name] = f
	}
	if err := e.check(objects); err != nil {
		return nil, &ContractError{path, err.Error()}
	}
	return e, nil
}

func readModel(path string) (*spb.MetaGraphDef, error) {
	file := filepath.Join(path, modelFile)
	info, err := os.Stat(file)
	if err != nil {
		if _, dirErr := os.Stat(path); dirErr != nil {
			return nil, fmt.Errorf("graph %s: no such folder", path)
		}
		return nil, fmt.Errorf("graph %s: not a SavedModel: it has no %s", path, modelFile)
	}
	if info.Size() > maxModelBytes {
		return nil, fmt.Errorf("graph %s: %s has %d bytes, more than a protobuf message may have", path, modelFile, info.Size())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var model spb.SavedModel
	if err := proto.Unmarshal(data, &model); err != nil {
		return nil, fmt.Errorf("graph %s: not a SavedModel: %s cannot be parsed: %w", path, modelFile, err)
	}
	if len(model.GetMetaGraphs()) != 1 || model.GetMetaGraphs()[0].GetObjectGraphDef() == nil {
		return nil, &ContractError{path, "not written by TensorFlow 2's tf.saved_model.save (it has no object graph)"}
	}
	return model.GetMetaGraphs()[0], nil
}

// objects is the object graph of a SavedModel.
type objects struct {
	graph *spb.SavedObjectGraph
	// paths names every node by its shortest path from the root.
	paths map[int32]string
}

func readObjects(graph *spb.SavedObjectGraph) (*objects, error) {
	nodes := graph.GetNodes()
	if len(nodes) == 0 {
		return nil, fmt.Errorf("the object graph is empty")
	}
	o := &objects{graph: graph, paths: map[int32]string{0: ""}}
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, child := range nodes[at].GetChildren() {
			id := child.GetNodeId()
			if id < 0 || int(id) >= len(nodes) {
				return nil, fmt.Errorf("the object graph refers to node %d of %d", id, len(nodes))
			}
			if _, ok := o.paths[id]; ok {
				continue
			}
			o.paths[id] = strings.TrimPrefix(o.paths[at]+"/"+child.GetLocalName(), "/")
			queue = append(queue, id)
		}
	}
	return o, nil
}

// child returns the root's child of that name, nil if there is none.
func (o *objects) child(name string) *spb.SavedObject {
	for _, c := range o.graph.GetNodes()[0].GetChildren() {
		if c.GetLocalName() == name {
			return o.graph.GetNodes()[c.GetNodeId()]
		}
	}
	return nil
}

func (o *objects) function(name string) (*Function, error) {
	object := o.child(name)
	if object == nil {
		return nil, fmt.Errorf("no function %s", name)
	}
	var graphName string
	switch concrete := object.GetFunction().GetConcreteFunctions(); {
	case len(concrete) == 1:
		graphName = concrete[0]
	case len(concrete) > 1:
		return nil, fmt.Errorf("function %s was traced %d times; it must have one signature", name, len(concrete))
	case object.GetBareConcreteFunction() != nil:
		graphName = object.GetBareConcreteFunction().GetConcreteFunctionName()
	default:
		return nil, fmt.Errorf("%s is not a function that was traced", name)
	}
	concrete, ok := o.graph.GetConcreteFunctions()[graphName]
	if !ok {
		return nil, fmt.Errorf("function %s: the object graph has no %s", name, graphName)
	}
	f := &Function{Name: name, GraphName: graphName}
	if err := flatten(concrete.GetCanonicalizedInputSignature(), "", &f.Inputs); err != nil {
		return nil, fmt.Errorf("function %s: inputs: %w", name, err)
	}
	if err := flatten(concrete.GetOutputSignature(), "", &f.Outputs); err != nil {
		return nil, fmt.Errorf("function %s: outputs: %w", name, err)
	}
	for _, id := range concrete.GetBoundInputs() {
		path, ok := o.paths[id]
		if !ok || int(id) >= len(o.graph.GetNodes()) || o.graph.GetNodes()[id].GetVariable() == nil {
			return nil, fmt.Errorf("function %s captures node %d, which is no variable (constants and tables cannot be captured)", name, id)
		}
		f.Captures = append(f.Captures, path)
	}
	return f, nil
}

// variable returns a variable's dtype and shape.
func (o *objects) variable(path string) (Arg, bool) {
	for id, p := range o.paths {
		if p != path {
			continue
		}
		if v := o.graph.GetNodes()[id].GetVariable(); v != nil {
			return newArg(path, v.GetDtype(), v.GetShape()), true
		}
	}
	return Arg{}, false
}

// flatten lists the leaves of a structured value in TensorFlow's order
// (tf.nest.flatten: the keys of a dict sorted). Outputs are named by their keys.
func flatten(v *spb.StructuredValue, key string, out *[]Arg) error {
	switch k := v.GetKind().(type) {
	case *spb.StructuredValue_TensorSpecValue:
		name := k.TensorSpecValue.GetName()
		if key != "" {
			name = key
		}
		*out = append(*out, newArg(name, k.TensorSpecValue.GetDtype(), k.TensorSpecValue.GetShape()))
	case *spb.StructuredValue_TupleValue:
		for _, item := range k.TupleValue.GetValues() {
			if err := flatten(item, key, out); err != nil {
				return err
			}
		}
	case *spb.StructuredValue_ListValue:
		for _, item := range k.ListValue.GetValues() {
			if err := flatten(item, key, out); err != nil {
				return err
			}
		}
	case *spb.StructuredValue_DictValue:
		fields := k.DictValue.GetFields()
		keys := make([]string, 0, len(fields))
		for key := range fields {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			if err := flatten(fields[key], key, out); err != nil {
				return err
			}
		}
	case *spb.StructuredValue_NoneValue:
	default:
		return fmt.Errorf("a %T is neither a tensor nor a structure of tensors", k)
	}
	return nil
}

func newArg(name string, dtype dtpb.DataType, shape *tspb.TensorShapeProto) Arg {
	a := Arg{Name: name, DType: dtype, Ranked: !shape.GetUnknownRank()}
	for _, d := range shape.GetDim() {
		a.Shape = append(a.Shape, d.GetSize())
	}
	return a
}

// matchSignature checks that a function takes and gives what the object graph says.
func matchSignature(f *Function, def *fpb.FunctionDef) error {
	in, out := def.GetSignature().GetInputArg(), def.GetSignature().GetOutputArg()
	if want := len(f.Inputs) + len(f.Captures); len(in) != want {
		return fmt.Errorf("takes %d arguments, the object graph says %d", len(in), want)
	}
	if len(out) != len(f.Outputs) {
		return fmt.Errorf("gives %d outputs, the object graph says %d", len(out), len(f.Outputs))
	}
	for i, a := range f.Inputs {
		if in[i].GetType() != a.DType {
			return fmt.Errorf("argument %s is of %s, the object graph says %s", a.Name, dtypeName(in[i].GetType()), dtypeName(a.DType))
		}
	}
	for i, a := range f.Outputs {
		if out[i].GetType() != a.DType {
			return fmt.Errorf("output %s is of %s, the object graph says %s", a.Name, dtypeName(out[i].GetType()), dtypeName(a.DType))
		}
	}
	return nil
}

// check holds the functions against the contract.
func (e *Export) check(objects *objects) error {
	c := e.Contract
	var features, inputs []Arg
	for _, f := range c.Features {
		shape := make([]int64, len(f.Axes))
		for i := range shape {
			shape[i] = -1
		}
		a := Arg{Name: f.Name, DType: dtypeOf(f.DType), Shape: shape, Ranked: true}
		features = append(features, a)
		if !f.Label {
			inputs = append(inputs, a)
		}
	}
	scalars := func(list []Hyperparameter) []Arg {
		var out []Arg
		for _, h := range list {
			out = append(out, scalar(h.Name, dtpb.DataType_DT_FLOAT))
		}
		return out
	}
	seed := Arg{Name: "seed", DType: dtpb.DataType_DT_INT64, Shape: []int64{2}, Ranked: true}
	update := []Arg{scalar("variable", dtpb.DataType_DT_RESOURCE)}
	for _, slot := range c.Optimizer.Slots {
		update = append(update, scalar(slot, dtpb.DataType_DT_RESOURCE))
	}
	update = append(update,
		Arg{Name: "gradient", DType: dtpb.DataType_DT_FLOAT},
		scalar("iteration", dtpb.DataType_DT_INT64),
		scalar("learning_rate", dtpb.DataType_DT_FLOAT),
		scalar("weight_decay", dtpb.DataType_DT_FLOAT))
	update = append(update, scalars(c.Optimizer.Hyperparameters)...)

	sums := []Arg{scalar("loss_sum", dtpb.DataType_DT_FLOAT), scalar("weight_sum", dtpb.DataType_DT_FLOAT)}
	gradients := slices.Clone(sums)
	for _, v := range c.Variables {
		want := Arg{Name: v.Name, DType: dtypeOf(v.DType), Shape: v.Shape, Ranked: true}
		got, ok := objects.variable(v.Name)
		if !ok {
			return fmt.Errorf("variable %s is in %s but not in the object graph", v.Name, ContractFile)
		}
		if err := conforms(got, want); err != nil {
			return fmt.Errorf("variable %w", err)
		}
		want.Name = GradientPrefix + v.Name
		gradients = append(gradients, want)
		for _, slot := range c.Optimizer.Slots {
			if _, ok := objects.variable(SlotName(slot, v.Name)); !ok {
				return fmt.Errorf("variable %s has no slot %s", v.Name, SlotName(slot, v.Name))
			}
		}
	}
	if got, ok := objects.variable(c.Optimizer.Iterations); !ok || got.DType != dtpb.DataType_DT_INT64 {
		return fmt.Errorf("no int64 variable %s", c.Optimizer.Iterations)
	}

	for _, want := range []struct {
		name    string
		inputs  []Arg
		outputs []Arg
	}{
		{"gradients", append(append(slices.Clone(features), seed), scalars(c.Hyperparameters)...), gradients},
		{"update", update, nil},
		{"evaluate", features, sums},
		{"predict", inputs, nil},
	} {
		f := e.Functions[want.name]
		if err := conformAll(f.Inputs, want.inputs, true); err != nil {
			return fmt.Errorf("function %s: input %w", want.name, err)
		}
		if err := conformAll(f.Outputs, want.outputs, false); err != nil {
			return fmt.Errorf("function %s: output %w", want.name, err)
		}
	}
	if len(e.Functions["update"].Captures) > 0 {
		return fmt.Errorf("function update captures %s; it must take every variable as an argument", e.Functions["update"].Captures[0])
	}
	if len(e.Functions["predict"].Outputs) == 0 {
		return fmt.Errorf("function predict has no outputs")
	}
	known := make(map[string]bool, len(c.Variables))
	for _, v := range c.Variables {
		known[v.Name] = true
	}
	for _, name := range []string{"gradients", "evaluate", "predict"} {
		for _, capture := range e.Functions[name].Captures {
			if !known[capture] {
				return fmt.Errorf("function %s captures %s, which is not among the variables of %s", name, capture, ContractFile)
			}
		}
	}
	return nil
}

func scalar(name string, dtype dtpb.DataType) Arg {
	return Arg{Name: name, DType: dtype, Shape: []int64{}, Ranked: true}
}

// conformAll checks that each wanted argument is there and, if exact, no other.
func conformAll(got, want []Arg, exact bool) error {
	for _, w := range want {
		i := slices.IndexFunc(got, func(a Arg) bool { return a.Name == w.Name })
		if i < 0 {
			return fmt.Errorf("%s is missing (expected %s)", w.Name, w)
		}
		if err := conforms(got[i], w); err != nil {
			return err
		}
	}
	if exact && len(got) > len(want) {
		for _, g := range got {
			if !slices.ContainsFunc(want, func(a Arg) bool { return a.Name == g.Name }) {
				return fmt.Errorf("%s is not known to %s", g.Name, ContractFile)
			}
		}
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
		return fmt.Errorf("%s: expected %s, the graph has %s", want.Name, want, got)
	}
	return nil
}

func dtypeName(t dtpb.DataType) string {
	names := map[dtpb.DataType]string{dtpb.DataType_DT_FLOAT: "float32", dtpb.DataType_DT_DOUBLE: "float64"}
	if n, ok := names[t]; ok {
		return n
	}
	return strings.ToLower(strings.TrimPrefix(t.String(), "DT_"))
}

func dtypeOf(name string) dtpb.DataType {
	switch name {
	case "float32":
		return dtpb.DataType_DT_FLOAT
	case "float64":
		return dtpb.DataType_DT_DOUBLE
	}
	return dtpb.DataType(dtpb.DataType_value["DT_"+strings.ToUpper(name)])
}

// Library returns the functions that the named functions of the contract call,
// with them.
func (e *Export) Library(names ...string) *fpb.FunctionDefLibrary {
	reached := make(map[string]bool)
	var visit func(name string)
	visit = func(name string) {
		def, ok := e.library[name]
		if !ok || reached[name] {
			return
		}
		reached[name] = true
		for _, node := range def.GetNodeDef() {
			visit(node.GetOp())
			for _, attr := range node.GetAttr() {
				visit(attr.GetFunc().GetName())
				for _, f := range attr.GetList().GetFunc() {
					visit(f.GetName())
				}
			}
		}
	}
	for _, name := range names {
		if f, ok := e.Functions[name]; ok {
			visit(f.GraphName)
		}
	}
	library := new(fpb.FunctionDefLibrary)
	for _, name := range sortedKeys(reached) {
		library.Function = append(library.Function, e.library[name])
	}
	for _, g := range e.grads {
		if reached[g.GetFunctionName()] {
			library.Gradient = append(library.Gradient, g)
		}
	}
	return library
}

// NewBuilder returns a builder of a graph that may call the named functions.
func (e *Export) NewBuilder(functions ...string) *Builder {
	return &Builder{
		def:   &gpb.GraphDef{Versions: e.versions, Library: e.Library(functions...)},
		names: make(map[string]int),
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
