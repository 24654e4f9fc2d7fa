package graphs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// modelFile is the file with the graphs of a SavedModel.
const modelFile = "saved_model.pb"

// MaxModelBytes is protobuf's limit on the size of a message.
const MaxModelBytes = 2<<30 - 1

// readModel returns the only graph of a SavedModel and the size of its file.
func readModel(path string) (*spb.MetaGraphDef, int64, error) {
	switch info, err := os.Stat(path); {
	case os.IsNotExist(err):
		return nil, 0, fmt.Errorf("graph %s: no such folder", path)
	case err != nil:
		return nil, 0, fmt.Errorf("graph %s: %w", path, err)
	case !info.IsDir():
		return nil, 0, fmt.Errorf("graph %s: not a SavedModel: it is a file, not a folder", path)
	}
	data, err := vfs.ReadBounded(filepath.Join(path, modelFile), MaxModelBytes)
	if os.IsNotExist(err) {
		return nil, 0, fmt.Errorf("graph %s: not a SavedModel: it has no %s", path, modelFile)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("graph %s: %w", path, err)
	}
	model, err := parseModel(data)
	if err != nil {
		return nil, 0, fmt.Errorf("graph %s: not a SavedModel: %s cannot be parsed: %w", path, modelFile, err)
	}
	if graphs := model.GetMetaGraphs(); len(graphs) != 1 || len(graphs[0].GetObjectGraphDef().GetNodes()) == 0 {
		return nil, 0, &ContractError{path, "not written by TensorFlow 2's tf.saved_model.save (it has no object graph)"}
	}
	return model.GetMetaGraphs()[0], int64(len(data)), nil
}

func parseModel(data []byte) (*spb.SavedModel, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("the file is empty")
	}
	model := new(spb.SavedModel)
	if err := proto.Unmarshal(data, model); err != nil {
		return nil, err
	}
	return model, nil
}

// objects is the object graph of a SavedModel: nodes with named children. The first node is the
// root.
type objects struct {
	graph *spb.SavedObjectGraph
	// children of a node by name, filled on first use.
	children map[int32]map[string]int32
}

func readObjects(graph *spb.SavedObjectGraph) (*objects, error) {
	nodes := graph.GetNodes()
	if len(nodes) == 0 {
		return nil, fmt.Errorf("the object graph is empty")
	}
	for _, node := range nodes {
		for _, child := range node.GetChildren() {
			if id := child.GetNodeId(); id < 0 || int(id) >= len(nodes) {
				return nil, fmt.Errorf("the object graph refers to node %d of %d", id, len(nodes))
			}
		}
	}
	return &objects{graph: graph, children: make(map[int32]map[string]int32)}, nil
}

// lookup returns the node at a path from the root. A node may have several paths.
func (o *objects) lookup(path string) (int32, bool) {
	var at int32
	for name := range strings.SplitSeq(path, "/") {
		names, ok := o.children[at]
		if !ok {
			list := o.graph.GetNodes()[at].GetChildren()
			names = make(map[string]int32, len(list))
			for _, child := range list {
				names[child.GetLocalName()] = child.GetNodeId()
			}
			o.children[at] = names
		}
		if at, ok = names[name]; !ok {
			return 0, false
		}
	}
	return at, true
}

// variable returns the node, dtype and shape of the variable at a path.
func (o *objects) variable(path string) (int32, Arg, bool) {
	id, ok := o.lookup(path)
	if !ok {
		return 0, Arg{}, false
	}
	v := o.graph.GetNodes()[id].GetVariable()
	if v == nil {
		return 0, Arg{}, false
	}
	return id, newArg(path, v.GetDtype(), v.GetShape()), true
}

// function returns a function of the root. Names are the names of the variables by node.
func (o *objects) function(name string, names map[int32]string) (*Function, error) {
	id, ok := o.lookup(name)
	if !ok {
		return nil, fmt.Errorf("no function %s", name)
	}
	object := o.graph.GetNodes()[id]
	var graphName string
	switch concrete := object.GetFunction().GetConcreteFunctions(); {
	case len(concrete) == 1:
		graphName = concrete[0]
	case len(concrete) > 1:
		return nil, fmt.Errorf("function %s was traced %d times; expected once", name, len(concrete))
	case object.GetBareConcreteFunction() != nil:
		graphName = object.GetBareConcreteFunction().GetConcreteFunctionName()
	default:
		return nil, fmt.Errorf("%s is not a traced function", name)
	}
	concrete, ok := o.graph.GetConcreteFunctions()[graphName]
	if !ok {
		return nil, fmt.Errorf("function %s: the object graph has no concrete function %s", name, graphName)
	}
	f := &Function{Name: name, GraphName: graphName}
	var err error
	if f.Inputs, err = flatten(concrete.GetCanonicalizedInputSignature()); err != nil {
		return nil, fmt.Errorf("function %s: inputs: %w", name, err)
	}
	if f.Outputs, err = flatten(concrete.GetOutputSignature()); err != nil {
		return nil, fmt.Errorf("function %s: outputs: %w", name, err)
	}
	for _, id := range concrete.GetBoundInputs() {
		variable, ok := names[id]
		if !ok {
			return nil, fmt.Errorf("function %s captures %s, which is not among the variables of %s (constants and tables cannot be captured)", name, o.describe(id), ContractFile)
		}
		f.Captures = append(f.Captures, variable)
	}
	return f, nil
}

// describe returns a description of a node for errors.
func (o *objects) describe(id int32) string {
	nodes := o.graph.GetNodes()
	if id < 0 || int(id) >= len(nodes) {
		return fmt.Sprintf("node %d of %d", id, len(nodes))
	}
	kind := "a node"
	switch nodes[id].GetKind().(type) {
	case *spb.SavedObject_Variable:
		kind = "variable"
	case *spb.SavedObject_Constant:
		kind = "constant"
	case *spb.SavedObject_Resource:
		kind = "resource"
	case *spb.SavedObject_Asset:
		kind = "asset"
	}
	if path := o.path(id); path != "" {
		return kind + " " + path
	}
	return fmt.Sprintf("%s without a name (node %d)", kind, id)
}

// path returns a shortest path to a node, or "" for the root and unreachable nodes.
func (o *objects) path(id int32) string {
	type step struct {
		parent int32
		name   string
	}
	nodes := o.graph.GetNodes()
	steps := map[int32]step{0: {}}
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		for _, child := range nodes[queue[0]].GetChildren() {
			if _, ok := steps[child.GetNodeId()]; !ok {
				steps[child.GetNodeId()] = step{queue[0], child.GetLocalName()}
				queue = append(queue, child.GetNodeId())
			}
		}
	}
	if _, ok := steps[id]; !ok {
		return ""
	}
	var names []string
	for ; id != 0; id = steps[id].parent {
		names = append(names, steps[id].name)
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// maxDepth limits the nesting of a function's arguments and outputs. An export has a dict in a
// tuple.
const maxDepth = 64

// flatten lists the leaves of a structured value in the order of tf.nest.flatten (dict keys are
// sorted), which is the order of a function's arguments. The name of a leaf in a dict is its key.
// Names must be unique.
func flatten(v *spb.StructuredValue) ([]Arg, error) {
	var out []Arg
	seen := make(map[string]bool)
	var walk func(v *spb.StructuredValue, key string, depth int) error
	walk = func(v *spb.StructuredValue, key string, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("nested more than %d deep", maxDepth)
		}
		var items []*spb.StructuredValue
		switch k := v.GetKind().(type) {
		case *spb.StructuredValue_TensorSpecValue:
			name := k.TensorSpecValue.GetName()
			if key != "" {
				name = key
			}
			if seen[name] {
				return fmt.Errorf("%s is declared twice", name)
			}
			seen[name] = true
			out = append(out, newArg(name, k.TensorSpecValue.GetDtype(), k.TensorSpecValue.GetShape()))
		case *spb.StructuredValue_TupleValue:
			items = k.TupleValue.GetValues()
		case *spb.StructuredValue_ListValue:
			items = k.ListValue.GetValues()
		case *spb.StructuredValue_DictValue:
			fields := k.DictValue.GetFields()
			for _, key := range sortedKeys(fields) {
				if err := walk(fields[key], key, depth+1); err != nil {
					return err
				}
			}
		case *spb.StructuredValue_NoneValue:
		default:
			return fmt.Errorf("a %s is neither a tensor nor a structure of tensors", kindName(k))
		}
		for _, item := range items {
			if err := walk(item, key, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	err := walk(v, "", 0)
	return out, err
}

// kindName turns a generated type such as *spb.StructuredValue_StringValue into "StringValue".
func kindName(kind any) string {
	if kind == nil {
		return "value without a kind"
	}
	name := fmt.Sprintf("%T", kind)
	return name[strings.LastIndexByte(name, '_')+1:]
}

func newArg(name string, dtype dtpb.DataType, shape *tspb.TensorShapeProto) Arg {
	a := Arg{Name: name, DType: dtype, Ranked: !shape.GetUnknownRank()}
	for _, d := range shape.GetDim() {
		a.Shape = append(a.Shape, d.GetSize())
	}
	return a
}
