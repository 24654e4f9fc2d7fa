package emulator

import (
	_ "embed"
	"slices"
	"strings"

	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
)

// xlaOps are the operations that TensorFlow compiles for XLA on the CPU, made by
// testdata/generate.py.
//
//go:embed testdata/xla_ops.txt
var xlaOps string

// compiled are the operations of xlaOps and those that are compiled for TPUs only, or taken
// away before.
var compiled = func() map[string]bool {
	out := make(map[string]bool)
	for op := range strings.Lines(xlaOps) {
		out[strings.TrimSpace(op)] = true
	}
	for _, op := range []string{opSum, opReplicaID, "AllToAll", "CollectivePermute", "Switch", "Merge", "InfeedDequeue", "InfeedDequeueTuple", "OutfeedEnqueue", "OutfeedEnqueueTuple"} {
		out[op] = true
	}
	return out
}()

// shapeInputs are the inputs that must be known when a program is compiled, by operation: the
// arguments of CompileTimeConstantInput in tensorflow/compiler/tf2xla/kernels. -1 is the last.
var shapeInputs = map[string][]int{
	"Reshape": {1}, "Fill": {0}, "BroadcastTo": {1}, "Range": {0, 1, 2}, "Slice": {2}, "ExpandDims": {1}, "Transpose": {1}, "ConcatV2": {-1}, "Split": {0}, "SplitV": {1, 2},
	"Sum": {1}, "Mean": {1}, "Prod": {1}, "Max": {1}, "Min": {1}, "All": {1}, "Any": {1}, "EuclideanNorm": {1}, "ArgMax": {1}, "ArgMin": {1}, "Cumsum": {1}, "Cumprod": {1},
	"Tile": {1}, "Pad": {1}, "PadV2": {1}, "MirrorPad": {1}, "ReverseV2": {1}, "GatherV2": {2}, "OneHot": {1}, "ScatterNd": {2}, "LinSpace": {2}, "Empty": {0},
	"UnsortedSegmentSum": {2}, "UnsortedSegmentMax": {2}, "UnsortedSegmentMin": {2}, "UnsortedSegmentProd": {2},
	"RandomUniform": {0}, "RandomStandardNormal": {0}, "TruncatedNormal": {0}, "RandomUniformInt": {0},
	"StatelessRandomUniform": {0}, "StatelessRandomUniformV2": {0}, "StatelessRandomUniformFullInt": {0}, "StatelessRandomUniformFullIntV2": {0},
	"StatelessRandomNormal": {0}, "StatelessRandomNormalV2": {0}, "StatelessTruncatedNormal": {0}, "StatelessTruncatedNormalV2": {0},
}

// Bounds of the work to find out what is known when a program is compiled. What is beyond them
// counts as known.
const (
	maxDepth = 4096
	maxSteps = 1 << 20
)

// compiler asks of a computation what TensorFlow's compiler for TPUs asks of it before it
// compiles: that it has all operations, and that shapes are known.
type compiler struct {
	w     *lowering
	c     *cluster
	steps int
	seen  map[string]bool // functions by the arguments that are known
}

// compile returns the error with which a computation could not be compiled, or nil.
func (w *lowering) compile(c *cluster, members []*npb.NodeDef) error {
	k := compiler{w: w, c: c, seen: make(map[string]bool)}
	b := body{compiler: &k, name: c.name, nodes: make(map[string]*npb.NodeDef), graph: true}
	for _, m := range members {
		b.nodes[m.GetName()] = m
	}
	return b.check(members)
}

// body is the computation itself, or a function that it calls.
type body struct {
	*compiler
	name  string
	nodes map[string]*npb.NodeDef
	args  map[string]bool // arguments of a function: whether they are known
	graph bool
	known map[string]bool // inputs that were asked for
	depth int
}

// check looks at the nodes in their order.
func (b *body) check(nodes []*npb.NodeDef) error {
	b.known = make(map[string]bool)
	for _, n := range nodes {
		op := n.GetOp()
		if !compiled[op] && b.w.library[op] == nil {
			return quotef("Compilation failure: Detected unsupported operations when trying to compile graph %s[] on XLA_TPU_JIT: %s "+
				"(No registered '%s' OpKernel for XLA_TPU_JIT devices compatible with node {{node %s}}){{node %s}}", b.name, op, op, n.GetName(), n.GetName())
		}
		data := dataOf(n)
		for _, i := range shapeInputs[op] {
			if i < 0 {
				i = len(data) - 1
			}
			if i >= 0 && i < len(data) && !b.isKnown(data[i]) {
				return quotef("Compilation failure: Input %d to node `%s` of %s with op %s must be a compile-time constant. "+
					"XLA compilation requires that operator arguments that represent shapes or dimensions be evaluated to concrete values at compile time. "+
					"This error means that a shape or dimension argument could not be evaluated at compile time, usually because the value of the argument depends on "+
					"a parameter to the computation, on a variable, or on a stateful operation such as a random number generator.", i, n.GetName(), b.name, op)
			}
		}
		if err := b.functions(n, data); err != nil {
			return err
		}
	}
	return nil
}

// functions checks the functions that a node calls.
func (b *body) functions(n *npb.NodeDef, data []string) error {
	if call, ok := callers[n.GetOp()]; ok && call.first <= len(data) {
		data = data[call.first:]
	}
	for _, name := range functionsOf(n) {
		f := b.w.library[name]
		if f == nil || b.depth >= maxDepth || b.steps > maxSteps {
			continue
		}
		inner := b.function(f)
		key := []byte(name + "\x00")
		for i, arg := range f.GetSignature().GetInputArg() {
			// A loop changes its variables, unless it hands them on.
			known := i >= len(data) || b.isKnown(data[i]) && (!isLoop(n.GetOp()) || handsOn(b.w.library, n, i))
			inner.args[arg.GetName()] = known
			key = append(key, map[bool]byte{false: '0', true: '1'}[known])
		}
		if b.seen[string(key)] {
			continue
		}
		b.seen[string(key)] = true
		if err := inner.check(f.GetNodeDef()); err != nil {
			return err
		}
	}
	return nil
}

// function is the body of a function, with no arguments yet.
func (b *body) function(f *fpb.FunctionDef) *body {
	inner := &body{compiler: b.compiler, name: f.GetSignature().GetName(), nodes: make(map[string]*npb.NodeDef, len(f.GetNodeDef())),
		args: make(map[string]bool), known: make(map[string]bool), depth: b.depth + 1}
	for _, n := range f.GetNodeDef() {
		inner.nodes[n.GetName()] = n
	}
	b.steps += len(f.GetNodeDef())
	return inner
}

func isLoop(op string) bool { return op == "While" || op == "StatelessWhile" }

// handsOn reports whether a loop's body returns its i-th argument as it is.
func handsOn(library map[string]*fpb.FunctionDef, n *npb.NodeDef, i int) bool {
	sig := library[n.GetAttr()["body"].GetFunc().GetName()].GetSignature()
	if i >= len(sig.GetInputArg()) || i >= len(sig.GetOutputArg()) {
		return false
	}
	ret := library[sig.GetName()].GetRet()[sig.GetOutputArg()[i].GetName()]
	return ret == sig.GetInputArg()[i].GetName()
}

// dataOf are the inputs of a node that are no control inputs.
func dataOf(n *npb.NodeDef) []string {
	end := slices.IndexFunc(n.GetInput(), func(i string) bool { return strings.HasPrefix(i, "^") })
	if end < 0 {
		end = len(n.GetInput())
	}
	return n.GetInput()[:end]
}

// isKnown reports whether a value is known when the program is compiled. It says so of all that
// it has no reason to doubt.
func (b *body) isKnown(input string) bool {
	name, _, _ := strings.Cut(input, ":")
	if b.steps++; b.steps > maxSteps || b.depth >= maxDepth {
		return true
	}
	n := b.nodes[name]
	if n == nil {
		if b.graph {
			return b.w.at(name) != nil && b.w.at(name).op == "Const"
		}
		known, ok := b.args[name]
		return !ok || known
	}
	if known, ok := b.known[input]; ok {
		return known
	}
	b.known[input] = true // of a circle
	b.depth++
	known := b.knows(n, input)
	b.depth--
	b.known[input] = known
	return known
}

// knows is isKnown of a result of a node.
func (b *body) knows(n *npb.NodeDef, input string) bool {
	switch n.GetOp() {
	case "Const", "Shape", "ShapeN", "Size", "Rank":
		return true
	case "ReadVariableOp", "VarHandleOp", opReplicaID, "RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt", "XlaRngBitGenerator":
		return false
	case "If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile":
		return true
	case "PartitionedCall", "StatefulPartitionedCall":
		return b.result(n, input)
	case "IdentityN":
		data := dataOf(n)
		return len(data) == 0 || b.isKnown(data[indexOf(input, len(data))])
	}
	for _, input := range dataOf(n) {
		if !b.isKnown(input) {
			return false
		}
	}
	return true
}

// result is isKnown of a result of a function.
func (b *body) result(n *npb.NodeDef, input string) bool {
	f := b.w.library[n.GetAttr()["f"].GetFunc().GetName()]
	if f == nil {
		return true
	}
	inner, data := b.function(f), dataOf(n)
	for i, arg := range f.GetSignature().GetInputArg() {
		inner.args[arg.GetName()] = i >= len(data) || b.isKnown(data[i])
	}
	outputs := f.GetSignature().GetOutputArg()
	return len(outputs) == 0 || inner.isKnown(f.GetRet()[outputs[indexOf(input, len(outputs))].GetName()])
}

// indexOf is the number at the end of an input, "node:1" or "node:output:1", of so many.
func indexOf(input string, of int) int {
	index, err := number(input[strings.LastIndexByte(input, ':')+1:], max(1, of), "output")
	if err != nil {
		return 0
	}
	return index
}
