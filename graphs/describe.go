package graphs

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/gorbit-ml/gorbit/graphs/safety"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// ModelReport describes any SavedModel: one to train, a served one, or one that another program
// wrote. Lists are sorted.
type ModelReport struct {
	Path            string `json:"path"`
	TensorFlow      string `json:"tensorflow"`
	SavedModelBytes int64  `json:"saved_model_bytes"`
	// Graphs are the model's graphs, most often one.
	Graphs []GraphReport `json:"graphs"`
	// Unsafe lists the operations that can access files, processes, the network or Python.
	Unsafe []safety.Use `json:"unsafe"`
}

// GraphReport describes one graph of a SavedModel.
type GraphReport struct {
	Tags       []string          `json:"tags"`
	Signatures []SignatureReport `json:"signatures"`
	// Functions is the number of functions in the library, and Nodes that of the nodes in the graph
	// and in the functions.
	Functions int           `json:"functions"`
	Nodes     int           `json:"nodes"`
	Variables []StoredValue `json:"variables"`
	Ops       []OpCount     `json:"ops"`
}

// SignatureReport describes a signature: what a server calls.
type SignatureReport struct {
	Name    string      `json:"name"`
	Method  string      `json:"method"`
	Inputs  []ArgReport `json:"inputs"`
	Outputs []ArgReport `json:"outputs"`
}

// StoredValue is a variable of a graph. Bytes is -1 if its shape is not fixed or its elements differ
// in size.
type StoredValue struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"`
}

// Describe reads the SavedModel at a path. It refuses no operation, and runs nothing.
func Describe(path string) (*ModelReport, error) {
	data, err := vfs.ReadBounded(filepath.Join(path, modelFile), MaxModelBytes)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("graph %s: not a SavedModel: it has no %s", path, modelFile)
	}
	if err != nil {
		return nil, fmt.Errorf("graph %s: %w", path, err)
	}
	model, err := parseModel(data)
	if err != nil {
		return nil, fmt.Errorf("graph %s: not a SavedModel: %s cannot be parsed: %w", path, modelFile, err)
	}
	if len(model.GetMetaGraphs()) == 0 {
		return nil, fmt.Errorf("graph %s: not a SavedModel: %s has no graphs", path, modelFile)
	}
	return describeModel(path, model, int64(len(data))), nil
}

func describeModel(path string, model *spb.SavedModel, size int64) *ModelReport {
	r := &ModelReport{Path: path, SavedModelBytes: size, Unsafe: append([]safety.Use{}, safety.Check(model)...)}
	for _, g := range model.GetMetaGraphs() {
		r.TensorFlow = g.GetMetaInfoDef().GetTensorflowVersion()
		r.Graphs = append(r.Graphs, describeGraph(g))
	}
	return r
}

func describeGraph(g *spb.MetaGraphDef) GraphReport {
	r := GraphReport{Tags: append([]string{}, g.GetMetaInfoDef().GetTags()...), Signatures: []SignatureReport{}, Variables: []StoredValue{}, Ops: []OpCount{}}
	for _, name := range sortedKeys(g.GetSignatureDef()) {
		s := g.GetSignatureDef()[name]
		if strings.HasPrefix(name, "__saved_model_") {
			continue // how TensorFlow initializes the model
		}
		r.Signatures = append(r.Signatures, SignatureReport{name, s.GetMethodName(), tensors(s.GetInputs()), tensors(s.GetOutputs())})
	}
	library := newLibrary(g.GetGraphDef().GetLibrary())
	r.Functions = len(library.functions)
	counts := make(map[string]int)
	count := func(nodes []*npb.NodeDef) {
		r.Nodes += len(nodes)
		for _, node := range nodes {
			if _, ok := library.functions[node.GetOp()]; !ok {
				counts[node.GetOp()]++
			}
		}
	}
	count(g.GetGraphDef().GetNode())
	for _, f := range library.functions {
		count(f.GetNodeDef())
	}
	for _, op := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if d := counts[b] - counts[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	}) {
		r.Ops = append(r.Ops, OpCount{op, counts[op]})
	}
	r.Variables = append(r.Variables, variablesOf(g)...)
	return r
}

// tensors describes the tensors of a signature by name.
func tensors(infos map[string]*spb.TensorInfo) []ArgReport {
	var args []Arg
	for _, name := range sortedKeys(infos) {
		args = append(args, newArg(name, infos[name].GetDtype(), infos[name].GetTensorShape()))
	}
	return argReports(args)
}

// variablesOf lists the variables of a graph: those of the object graph or, in models of TensorFlow 1,
// the nodes that make variables.
func variablesOf(g *spb.MetaGraphDef) []StoredValue {
	var out []StoredValue
	add := func(a Arg) {
		v := StoredValue{Name: a.Name, DType: DTypeName(a.DType), Bytes: dtype.DType(a.DType).Size()}
		if a.Ranked {
			v.Shape = append([]int64{}, a.Shape...)
		}
		if !a.Ranked || v.Bytes == 0 {
			v.Bytes = -1
		}
		for _, d := range a.Shape {
			if v.Bytes < 0 || d < 0 || d > 0 && v.Bytes > (1<<62)/d {
				v.Bytes = -1
				break
			}
			v.Bytes *= d
		}
		out = append(out, v)
	}
	if o, err := readObjects(g.GetObjectGraphDef()); err == nil {
		paths := o.paths()
		for id, node := range o.graph.GetNodes() {
			if v := node.GetVariable(); v != nil {
				name := paths[int32(id)]
				if name == "" {
					name = fmt.Sprintf("%s (node %d)", v.GetName(), id)
				}
				add(newArg(name, v.GetDtype(), v.GetShape()))
			}
		}
	}
	if out == nil {
		for _, node := range g.GetGraphDef().GetNode() {
			if op := node.GetOp(); op == "VarHandleOp" || op == "VariableV2" || op == "Variable" {
				add(newArg(node.GetName(), node.GetAttr()["dtype"].GetType(), node.GetAttr()["shape"].GetShape()))
			}
		}
	}
	slices.SortFunc(out, func(a, b StoredValue) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// maxPath limits the length of a path that is listed. Names come from the file.
const maxPath = 1 << 12

// paths returns a shortest path to every node that can be reached from the root, but for paths that
// are longer than any model's.
func (o *objects) paths() map[int32]string {
	nodes := o.graph.GetNodes()
	out := map[int32]string{0: ""}
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, child := range nodes[at].GetChildren() {
			if _, ok := out[child.GetNodeId()]; ok {
				continue
			}
			path := strings.TrimPrefix(out[at]+"/"+child.GetLocalName(), "/")
			if len(path) > maxPath {
				continue
			}
			out[child.GetNodeId()] = path
			queue = append(queue, child.GetNodeId())
		}
	}
	return out
}

// Write writes the report as text.
func (r *ModelReport) Write(w io.Writer) error {
	p := &printer{tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	p.row("SavedModel", r.Path)
	p.row("TensorFlow", fmt.Sprintf("%s, saved_model.pb %s", r.TensorFlow, words.Bytes(r.SavedModelBytes)))
	for _, g := range r.Graphs {
		p.row("graph", fmt.Sprintf("tags %s: %s in the graph and %s, %s", listText(g.Tags), count(g.Nodes, "node"), count(g.Functions, "function"), count(len(g.Variables), "variable")))
		for _, s := range g.Signatures {
			p.title("signature " + s.Name)
			for _, a := range s.Inputs {
				p.arg("in", a)
			}
			for _, a := range s.Outputs {
				p.arg("out", a)
			}
		}
		p.title("variables")
		for _, v := range g.Variables {
			size, shape := "", "any shape"
			if v.Bytes >= 0 {
				size = words.Bytes(v.Bytes)
			}
			if v.Shape != nil {
				shape = shapeText(v.Shape)
			}
			p.row(printable(v.Name), v.DType, shape, size)
		}
		p.title("operations")
		for _, op := range g.Ops {
			p.row(printable(op.Op), fmt.Sprint(op.Count))
		}
	}
	if len(r.Unsafe) > 0 {
		p.title("operations that reach beyond the graph")
		for _, u := range r.Unsafe {
			p.row(printable(u.Op), "in "+printable(u.Function), u.Reason)
		}
	}
	return p.flush()
}

// printable returns a name from a file as it is if a terminal can show it, and quoted otherwise.
func printable(name string) string {
	if q := fmt.Sprintf("%q", name); q != `"`+name+`"` {
		return q
	}
	return name
}
