package kernels_test

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
)

var (
	benchShape = flag.String("shape", "2,128,2,512", "layers, width, heads and inner width of BenchmarkKernels' model")
	benchReach = flag.Int("window", 64, "how far local attention of BenchmarkKernels' model looks")
	benchRows  = flag.String("rows", "53,60;41,53", "its sequences' lengths: a comma between those of a row, a semicolon between rows")
)

// BenchmarkKernels makes the calls of each kernel that a training step of a BERT
// makes, one after the other, each with tensors of its own.
func BenchmarkKernels(b *testing.B) {
	if err := kernels.Register(); err != nil {
		b.Fatal(err)
	}
	shape := numbers(b, *benchShape)
	if len(shape) != 4 {
		b.Fatalf("-shape %s is not four numbers", *benchShape)
	}
	layers, width, heads, inner := shape[0], shape[1], shape[2], shape[3]
	ids := sequences(b, *benchRows)
	positions := int64(len(ids) * len(ids[0]))
	weights := [][]int64{{30522, width}, {512, width}, {2, width}, {width}, {width}}
	for range layers {
		weights = append(weights, []int64{width, 3 * width}, []int64{3 * width}, []int64{width, width}, []int64{width},
			[]int64{width}, []int64{width}, []int64{width, inner}, []int64{inner}, []int64{inner, width}, []int64{width}, []int64{width}, []int64{width})
	}
	wide, narrow, triple := []int64{positions, inner}, []int64{positions, width}, []int64{positions, 3 * width}

	for _, k := range []struct {
		name  string
		calls int64
		add   func(c *calls)
	}{
		{"gelu", layers, func(c *calls) { c.call("GorbitGelu", c.noise(wide)) }},
		{"gelu_gradient", layers, func(c *calls) { c.call("GorbitGeluGradient", c.noise(wide), c.noise(wide)) }},
		{"residual_norm", 2 * layers, func(c *calls) {
			c.call("GorbitResidualNormDropout", append([]tf.Input{c.noise(narrow), c.noise(narrow), c.noise(narrow[1:]), c.noise(narrow[1:]),
				c.constant(float32(1e-12))}, c.drawn()...)...)
		}},
		{"residual_norm_gradient", 2 * layers, func(c *calls) {
			in := append([]tf.Input{c.noise(narrow), c.noise(narrow[1:])}, c.drawn()...)
			c.call("GorbitResidualNormDropoutGradient", append(in, c.noise(narrow), c.full([]int64{positions, 1}, 1), c.constant([]bool{}))...)
		}},
		{"attention", layers, func(c *calls) {
			c.call("GorbitAttentionDropout", append([]tf.Input{c.noise(triple), c.constant(ids), c.constant(int32(heads))}, c.drawn()...)...)
		}},
		{"attention_gradient", layers, func(c *calls) {
			in := append([]tf.Input{c.noise(narrow), c.noise(triple), c.constant(ids), c.constant(int32(heads))}, c.drawn()...)
			// What forward has kept: the scores' maximum and the reciprocal of the sum.
			in = append(in, c.noise(narrow), c.full([]int64{positions, heads, 2}, 0.02))
			for range 4 {
				in = append(in, c.constant([]float32{}))
			}
			c.call("GorbitAttentionDropoutGradient", in...)
		}},
		{"local_attention", layers, func(c *calls) {
			in := []tf.Input{c.noise(triple), c.constant(ids), c.constant(int32(heads)), c.constant(int32(*benchReach))}
			c.call("GorbitLocalAttentionDropout", append(in, c.drawn()...)...)
		}},
		{"local_attention_gradient", layers, func(c *calls) {
			in := []tf.Input{c.noise(narrow), c.noise(triple), c.constant(ids), c.constant(int32(heads)), c.constant(int32(*benchReach))}
			in = append(in, c.drawn()...)
			in = append(in, c.noise(narrow), c.full([]int64{positions, heads, 2}, 0.02))
			for range 4 {
				in = append(in, c.constant([]float32{}))
			}
			c.call("GorbitLocalAttentionDropoutGradient", in...)
		}},
		{"squares", 1, func(c *calls) {
			var all tf.OutputList
			for _, shape := range weights {
				all = append(all, c.noise(shape))
			}
			c.call("GorbitSquares", all)
		}},
		{"adamw", 1, func(c *calls) {
			for _, shape := range weights {
				in := []tf.Input{c.variable(c.filled(shape, 0.1)), c.variable(c.filled(shape, 0.1)), c.variable(c.filled(shape, 0.1)), c.noise(shape)}
				in = append(in, c.constant(float32(1)), c.constant(int64(1)))
				for _, x := range []float32{1e-6, 0.01, 0.9, 0.999, 1e-6} {
					in = append(in, c.constant(x))
				}
				c.call("GorbitAdamw", in...)
			}
		}},
	} {
		b.Run(k.name, func(b *testing.B) {
			c := &calls{b: b, graph: tf.NewGraph()}
			for range k.calls {
				k.add(c)
			}
			c.run(b)
		})
	}
}

// BenchmarkCopy copies half a gigabyte to another, on two goroutines.
func BenchmarkCopy(b *testing.B) {
	const size, parts = 512 << 20, 2
	from, to := make([]byte, size), make([]byte, size)
	for i := range from {
		from[i] = byte(i)
	}
	once := func() {
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() { copy(to[i*size/parts:(i+1)*size/parts], from[i*size/parts:]) })
		}
		wg.Wait()
	}
	once()
	b.SetBytes(2 * size) // read and written
	for b.Loop() {
		once()
	}
}

// calls is a graph of variables and of calls that follow each other.
type calls struct {
	b      testing.TB
	graph  *tf.Graph
	assign []*tf.Operation
	last   []*tf.Operation
	nodes  int
}

func (c *calls) add(spec tf.OpSpec) *tf.Operation {
	spec.Name = fmt.Sprintf("n%d", c.nodes)
	c.nodes++
	op, err := c.graph.AddOperation(spec)
	if err != nil {
		c.b.Fatal(err)
	}
	return op
}

func (c *calls) call(name string, inputs ...tf.Input) {
	c.last = []*tf.Operation{c.add(tf.OpSpec{Type: name, Input: inputs, ControlDependencies: c.last})}
}

func (c *calls) constant(value any) tf.Output {
	t, err := tf.NewTensor(value)
	if err != nil {
		c.b.Fatal(err)
	}
	return c.add(tf.OpSpec{Type: "Const", Attrs: map[string]any{"dtype": t.DataType(), "value": t}}).Output(0)
}

// drawn returns what dropout draws its numbers by: rate, key, counter.
func (c *calls) drawn() []tf.Input {
	return []tf.Input{c.constant(float32(0.1)), c.constant(uint64(c.nodes)), c.constant([]uint64{1, 2})}
}

// variable returns the handle of a variable that starts with a value.
func (c *calls) variable(value tf.Output) tf.Output {
	handle := c.add(tf.OpSpec{Type: "VarHandleOp", Attrs: map[string]any{
		"dtype": tf.Float, "shape": tf.Shape{}, "shared_name": fmt.Sprintf("v%d", c.nodes)}}).Output(0)
	c.assign = append(c.assign, c.add(tf.OpSpec{Type: "AssignVariableOp", Input: []tf.Input{handle, value}}))
	return handle
}

func (c *calls) read(value tf.Output) tf.Output {
	return c.add(tf.OpSpec{Type: "ReadVariableOp", Input: []tf.Input{c.variable(value)}, Attrs: map[string]any{"dtype": tf.Float}}).Output(0)
}

// filled returns a tensor of one number everywhere.
func (c *calls) filled(shape []int64, x float32) tf.Output {
	return c.add(tf.OpSpec{Type: "Fill", Input: []tf.Input{c.constant(shape), c.constant(x)}}).Output(0)
}

// full returns what a variable of one number everywhere holds.
func (c *calls) full(shape []int64, x float32) tf.Output { return c.read(c.filled(shape, x)) }

// noise returns what a variable of random numbers holds.
func (c *calls) noise(shape []int64) tf.Output {
	random := c.add(tf.OpSpec{Type: "RandomStandardNormal", Input: []tf.Input{c.constant(shape)}, Attrs: map[string]any{"dtype": tf.Float}})
	return c.read(random.Output(0))
}

// session opens the graph as it is. The optimizer would make one of calls that it takes for equal,
// and none of those whose results nobody takes.
func (c *calls) session() *tf.Session {
	config, err := proto.Marshal(&cpb.ConfigProto{InterOpParallelismThreads: 1, GraphOptions: &cpb.GraphOptions{
		OptimizerOptions: &cpb.OptimizerOptions{OptLevel: cpb.OptimizerOptions_L0},
		RewriteOptions:   &cpb.RewriterConfig{DisableMetaOptimizer: true}}})
	if err != nil {
		c.b.Fatal(err)
	}
	session, err := tf.NewSession(c.graph, &tf.SessionOptions{Config: config})
	if err != nil {
		c.b.Fatal(err)
	}
	return session
}

// run measures the last call, and all before it.
func (c *calls) run(b *testing.B) {
	session := c.session()
	defer session.Close()
	step := func(targets []*tf.Operation) {
		if _, err := session.Run(nil, nil, targets); err != nil {
			c.b.Fatal(err)
		}
	}
	step(c.assign)
	for range 3 {
		step(c.last)
	}
	for b.Loop() {
		step(c.last)
	}
}

func numbers(b testing.TB, list string) []int64 {
	var out []int64
	for _, field := range strings.Split(list, ",") {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n < 1 {
			b.Fatalf("%q in %s is no size", field, list)
		}
		out = append(out, n)
	}
	return out
}

// sequences lays out rows, the shorter ones with padding at their ends.
func sequences(b testing.TB, list string) [][]int32 {
	var rows [][]int32
	longest := 0
	for _, row := range strings.Split(list, ";") {
		var ids []int32
		for i, n := range numbers(b, row) {
			for range n {
				ids = append(ids, int32(i+1))
			}
		}
		rows, longest = append(rows, ids), max(longest, len(ids))
	}
	for i := range rows {
		rows[i] = append(rows[i], make([]int32, longest-len(rows[i]))...)
	}
	return rows
}
