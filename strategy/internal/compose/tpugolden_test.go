package compose

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// meant are the attributes in which Go's graphs differ from TensorFlow's on purpose, with the reason.
var meant = map[string]string{
	"config_proto":                     "devices of the process that traced the function; Gorbit leaves them to the session",
	"_collective_manager_ids":          "the tracing process's collectives, of which there are none",
	"_has_manual_control_dependencies": "says in Python that a control edge was written by hand; C++ does not read it",
	"_read_only_resource_inputs":       "for Python's automatic control dependencies; C++ does not read it",
	"_num_original_outputs":            "for Python's gradient of a loop",
	"_construction_context":            "where Python traced the function",
	"_user_specified_name":             "of arguments, for messages of Python",
}

// goldenStep composes the step of tools/tpu_goldens.py of the pieces that ComposeTPU is made of, and
// returns the graph and the nodes that a session would fetch. Only the functions gradients and
// update, which an export brings, are taken from the golden.
type goldenStep struct {
	t        *testing.T
	c        *composer
	replicas int

	gradients, update *graphs.Function
}

func newGoldenStep(t *testing.T, def []byte, replicas int) *goldenStep {
	t.Helper()
	var graph gpb.GraphDef
	if err := proto.Unmarshal(def, &graph); err != nil {
		t.Fatal(err)
	}
	library := graph.GetLibrary()
	library.Function = slices.Clone(library.Function)
	s := &goldenStep{t: t, replicas: replicas,
		gradients: &graphs.Function{Inputs: []graphs.Arg{{Name: "x", DType: float32Type}, {Name: "w", DType: resourceType}},
			Outputs: []graphs.Arg{{Name: "loss", DType: float32Type}, {Name: "gradient", DType: float32Type}}},
		update: &graphs.Function{Inputs: []graphs.Arg{{Name: "w", DType: resourceType}, {Name: "gradient", DType: float32Type}, {Name: "rate", DType: float32Type}},
			Outputs: []graphs.Arg{{Name: "none", DType: int32Type}}}}
	for _, f := range library.GetFunction() {
		switch name := f.GetSignature().GetName(); {
		case strings.HasPrefix(name, "__inference_gradients"):
			s.gradients.GraphName = name
		case strings.HasPrefix(name, "__inference_update"):
			s.update.GraphName = name
		}
	}
	s.c = &composer{Builder: build.New(library, graph.GetVersions())}
	return s
}

const goldenTask = "/job:worker/replica:0/task:0/device:"

// variable adds a variable as composer.variables does, and returns its handles and the other nodes.
func (s *goldenStep) variable(name string, dtype dtpb.DataType, shape []int64) (handles, nodes []build.Ref) {
	c := s.c
	c.OnDevice(goldenTask + "CPU:0")
	value := c.Placeholder(name+"/value", dtype, shape)
	var assigns []build.Ref
	for i := range s.replicas {
		c.OnDevice(fmt.Sprintf("%sTPU:%d", goldenTask, i))
		handle := c.Variable(fmt.Sprintf("%s_%d", name, i), dtype, shape)
		handles = append(handles, handle)
		nodes = append(nodes, c.Read(handle.Node+"/read", handle, dtype))
		assigns = append(assigns, c.Assign(handle.Node+"/assign", handle, value, dtype))
	}
	c.OnDevice(goldenTask + "CPU:0")
	return handles, append(nodes, c.Group(name+"/assigned", assigns...))
}

// step adds one step. Own is the builder of the graph or of the loop's body, and control an input of
// its constants, if any.
func (s *goldenStep) step(b *build.Builder, x, rate, w, count build.Ref, branch bool, control ...build.Ref) build.Ref {
	call := b.Call("gradients", s.gradients, map[string]build.Ref{"x": x, "w": w}, nil)
	total := crossReplicaSum(b, "total", call.Output(0), s.replicas)
	gradient := crossReplicaSum(b, "gradient", call.Output(1), s.replicas)
	var updated build.Ref
	if branch {
		finite := b.Node("IsFinite", "finite", []build.Ref{total}, build.Type("T", float32Type))
		cond := s.branch(b, finite, w, gradient, rate)
		updated = b.Node("Identity", "updated", []build.Ref{cond}, build.Type("T", boolType))
	} else {
		updated = b.Call("update", s.update, map[string]build.Ref{"w": w, "gradient": gradient, "rate": rate}, nil)
	}
	one := b.Node("Const", "one", append([]build.Ref{updated.After()}, control...), build.Type("dtype", int64Type),
		build.Attr{Name: "value", Value: &apb.AttrValue{Value: &apb.AttrValue_Tensor{Tensor: &tpb.TensorProto{Dtype: int64Type, Int64Val: []int64{1}, TensorShape: new(tspb.TensorShapeProto)}}}})
	counted := b.Node("AssignAddVariableOp", "counted", []build.Ref{count, one}, build.Type("dtype", int64Type))
	return b.Node("Identity", "loss", []build.Ref{total, counted.After()}, build.Type("T", float32Type))
}

// branch adds the update if a condition holds, as composer.tpuUpdate does.
func (s *goldenStep) branch(b *build.Builder, finite, w, gradient, rate build.Ref) build.Ref {
	then, otherwise := b.Function("then"), b.Function("otherwise")
	inputs, types := []build.Ref{w, gradient, rate, finite}, []dtpb.DataType{resourceType, float32Type, float32Type, boolType}
	a := args(types, then, otherwise)
	all := then.Group("updated", then.Call("update", s.update, map[string]build.Ref{"w": a[0], "gradient": a[1], "rate": a[2]}, nil))
	then.Return("applied", then.Node("Identity", "applied", []build.Ref{a[3], all.After()}, build.Type("T", boolType)), boolType)
	none := otherwise.Group("kept")
	otherwise.Return("applied", otherwise.Node("Identity", "applied", []build.Ref{a[3], none.After()}, build.Type("T", boolType)), boolType)
	return b.Branch("branch", finite, s.end(then), s.end(otherwise), inputs, types, []dtpb.DataType{boolType}, build.Shapes("output_shapes", [][]int64{nil}), compileTime)
}

// args adds arguments to two functions, and returns their references, which are the same in both.
func args(types []dtpb.DataType, one, other *build.Function) []build.Ref {
	var out []build.Ref
	for i, dtype := range types {
		out = append(out, one.Arg(fmt.Sprintf("a%d", i), dtype))
		other.Arg(fmt.Sprintf("a%d", i), dtype)
	}
	return out
}

func (s *goldenStep) end(f *build.Function) string {
	s.t.Helper()
	name, err := f.End()
	if err != nil {
		s.t.Fatal(err)
	}
	return name
}

// loop adds a loop of steps. TensorFlow's Python adds two variables of its own to a loop: a counter
// and the largest number of steps, -1 for none.
func (s *goldenStep) loop(x, rate, steps, w, count build.Ref) build.Ref {
	c := s.c
	types := []dtpb.DataType{int32Type, int32Type, int32Type, float32Type, int32Type, float32Type, resourceType, float32Type, resourceType}
	inputs := []build.Ref{c.Int32("loop/counter", 0), c.Int32("loop/most", -1), c.Int32("loop/made", 0), c.Float("loop/loss", 0), steps, x, w, rate, count}
	more, body := c.Function("more"), c.Function("body")
	a := args(types, more, body)
	more.Return("more", more.Node("Less", "less", []build.Ref{a[2], a[4]}, build.Type("T", int32Type)), boolType)
	next := func(name string, of build.Ref) build.Ref {
		return body.Node("AddV2", name, []build.Ref{of, body.Int32(name+"/one", 1)}, build.Type("T", int32Type))
	}
	for i, value := range []build.Ref{next("counter", a[0]), a[1], next("made", a[2]), s.step(body.Builder, a[5], a[7], a[6], a[8], false), a[4], a[5], a[6], a[7], a[8]} {
		body.Return(fmt.Sprintf("o%d", i), value, types[i])
	}
	shapes := make([][]int64, len(types))
	shapes[5] = []int64{4, 3}
	loop := c.Loop("loop", s.end(more), s.end(body), inputs, types, shapes, compileTime)
	return c.Node("Identity", "loop/result", []build.Ref{loop.Output(3)}, build.Type("T", float32Type))
}

// compose returns the graph and the nodes that the golden has by other names.
func (s *goldenStep) compose(kind string) ([]byte, []string) {
	c := s.c
	topology := mesh(s.t)
	assignment, err := topology.Assign(s.replicas)
	if err != nil {
		s.t.Fatal(err)
	}
	c.OnDevice(goldenTask + "CPU:0")
	var xs []build.Ref
	for i := range s.replicas {
		xs = append(xs, c.Placeholder(fmt.Sprintf("x%d", i), float32Type, []int64{4, 3}))
	}
	rate, steps := c.Placeholder("rate", float32Type, nil), c.Placeholder("steps", int32Type, nil)
	w, roots := s.variable("w", float32Type, []int64{3, 2})
	count, more := s.variable("count", int64Type, nil)
	roots = append(roots, more...)

	k := newCluster(c.Builder, "cluster", topology, assignment)
	x, r := k.input("input/x", float32Type, xs...), k.input("input/rate", float32Type, rate)
	own, counter := k.variable("variable/w", w), k.variable("variable/count", count)
	var n build.Ref
	if kind == "loop" {
		n = k.input("input/steps", int32Type, steps)
	}
	k.inside()
	var loss build.Ref
	if kind == "loop" {
		loss = s.loop(x, r, n, own, counter)
	} else {
		loss = s.step(c.Builder, x, r, own, counter, kind == "branch", k.metadata.After())
	}
	for _, of := range k.outputs([]tensor{{"output/loss", loss, float32Type}}) {
		roots = append(roots, of...)
	}
	def, err := c.Marshal()
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, root := range append(roots, k.status) {
		names = append(names, root.Node)
	}
	return def, names
}

// TestTPUGoldens holds the pieces of ComposeTPU against graphs that tf.compat.v1.tpu.replicate of
// TensorFlow 2.18 wrote (tools/tpu_goldens.py), node for node.
func TestTPUGoldens(t *testing.T) {
	for _, kind := range []string{"step", "branch", "loop"} {
		for _, replicas := range []int{2, 8} {
			t.Run(fmt.Sprintf("%s %d", kind, replicas), func(t *testing.T) {
				golden, err := os.ReadFile(fmt.Sprintf("testdata/tpu/%s_%d.pb", kind, replicas))
				if err != nil {
					t.Fatal(err)
				}
				roots := []string{"TPUCompilationResult"}
				for i := range replicas {
					roots = append(roots, fmt.Sprintf("output_0_shard_%d", i), fmt.Sprintf("w_%d/read", i), fmt.Sprintf("count_%d/read", i))
				}
				want := normalize(t, golden, append(roots, "w/assigned", "count/assigned"))
				def, nodes := newGoldenStep(t, golden, replicas).compose(kind)
				got := normalize(t, def, nodes)
				same(t, got, want)
				if len(want) < 30 || len(got) != len(want) {
					t.Errorf("%d nodes, want %d", len(got), len(want))
				}
			})
		}
	}
}
