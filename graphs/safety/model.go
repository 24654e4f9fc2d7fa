package safety

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Serving is the function that Check names in a Use.
const Serving = "serving"

// Check lists the unsafe operations of a tensorflow.SavedModel. It checks all nodes, because a
// loader runs some that no signature uses (the main op, the init op), and all functions, because
// TensorFlow may replace a called function by another one. Run names the tensors or operations that
// the caller runs in addition to those that the model itself names. The list is sorted by
// operation.
//
// Every SavedModel has functions that save and restore its variables. These are allowed as long as
// they can do nothing else:
//
//   - The restore function may read the files that the loader names, which are the model's own
//     variables, but no others.
//   - The save function may write files if nothing runs it: no node uses its result, and no
//     signature, collection or name in run refers to it.
func Check(savedModel proto.Message, run ...string) []Use {
	found := make(map[string]string)
	for meta := range items(message{savedModel.ProtoReflect()}, "meta_graphs") {
		checkGraph(meta, run, found)
	}
	return List(Serving, found)
}

// checkGraph adds the unsafe operations of a tensorflow.MetaGraphDef.
func checkGraph(meta message, run []string, found map[string]string) {
	graph := meta.sub("graph_def")
	l := newLibrary(graph.sub("library"))
	saver := readSaver(meta, run)
	for node := range items(graph, "node") {
		l.judge(node, found)
	}
	saving, restoring := l.saverFunctions(graph, saver)
	for name := range l.functions {
		uses := make(map[string]string)
		for node := range l.nodes(name) {
			if name != restoring || !restoresArgument(node, l.functions[name][0]) {
				l.judge(node, uses)
			}
		}
		if saving[name] {
			delete(uses, "SaveV2")
			delete(uses, "MergeV2Checkpoints")
		}
		maps.Copy(found, uses)
	}
}

// judge adds a node's operation to found if it is unsafe. A call of a function is not an operation.
func (l library) judge(node message, found map[string]string) {
	op, attrs := node.text("op"), node.Get(node.field("attr")).Map()
	reason := Reason(op, func(name string) (string, bool) {
		key := protoreflect.ValueOfString(name).MapKey()
		if !attrs.Has(key) {
			return "", true
		}
		value := message{attrs.Get(key).Message()}
		return value.text("s"), value.text("placeholder") == ""
	})
	if _, ok := l.functions[op]; ok && reason == isUnknown {
		return
	}
	if reason != "" {
		found[op] = reason
	}
}

// restoresArgument reports whether a node restores from the files named by the function's first
// argument.
func restoresArgument(node, function message) bool {
	if node.text("op") != "RestoreV2" {
		return false
	}
	inputs := node.list("input")
	for arg := range items(function.sub("signature"), "input_arg") {
		return inputs.Len() > 0 && inputs.Get(0).String() == arg.text("name")
	}
	return false
}

// saver describes how a SavedModel saves and restores its variables.
type saver struct {
	filename      string // a tensor
	save, restore string // operations
	// savesNever is true if nothing runs the save operation.
	savesNever bool
}

func readSaver(meta message, run []string) saver {
	def := meta.sub("saver_def")
	s := saver{def.text("filename_tensor_name"), operation(def.text("save_tensor_name")), operation(def.text("restore_op_name")), true}
	s.savesNever = s.save != s.restore
	asked := func(name string) {
		if operation(name) == s.save {
			s.savesNever = false
		}
	}
	for _, name := range run {
		asked(name)
	}
	for node := range items(meta.sub("graph_def"), "node") {
		for i, inputs := 0, node.list("input"); i < inputs.Len(); i++ {
			asked(inputs.Get(i).String())
		}
	}
	for _, signature := range meta.entries("signature_def") {
		for _, tensors := range []protoreflect.Name{"inputs", "outputs"} {
			for _, tensor := range signature.entries(tensors) {
				asked(tensor.text("name"))
			}
		}
	}
	for _, collection := range meta.entries("collection_def") {
		for i, names := 0, collection.sub("node_list").list("value"); i < names.Len(); i++ {
			asked(names.Get(i).String())
		}
	}
	return s
}

// operation returns the operation of a tensor or control input.
func operation(name string) string {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "^"), ":")
	return name
}

// library is a tensorflow.FunctionDefLibrary.
type library struct {
	functions map[string][]message // a forged library may have several with the same name
	gradients map[string][]string
}

// nodes returns the nodes of all functions of a name.
func (l library) nodes(function string) iter.Seq[message] {
	return func(yield func(message) bool) {
		for _, f := range l.functions[function] {
			for node := range items(f, "node_def") {
				if !yield(node) {
					return
				}
			}
		}
	}
}

func newLibrary(def message) library {
	l := library{make(map[string][]message), make(map[string][]string)}
	for f := range items(def, "function") {
		name := f.sub("signature").text("name")
		l.functions[name] = append(l.functions[name], f)
	}
	for g := range items(def, "gradient") {
		l.gradients[g.text("function_name")] = append(l.gradients[g.text("function_name")], g.text("gradient_func"))
	}
	return l
}

// saverFunctions returns the functions that only save the model's variables, and the function that
// restores them, or "" if there is none.
func (l library) saverFunctions(graph message, s saver) (saving map[string]bool, restoring string) {
	var toSave, others []string
	for node := range items(graph, "node") {
		switch name := node.text("name"); {
		case name == s.save && s.savesNever:
			toSave = callees(toSave, node)
		case name == s.restore:
			var nested []string
			restoring, nested = s.restores(node)
			others = append(others, nested...)
		default:
			others = callees(others, node)
		}
	}
	saving = l.reach(toSave)
	for name, fs := range l.functions {
		// TensorFlow may replace a function by another one that implements the same
		// interface.
		implements := fs[0].Get(fs[0].field("attr")).Map().Has(protoreflect.ValueOfString("api_implements").MapKey())
		if !saving[name] && name != restoring || implements || len(fs) > 1 {
			others = append(others, name)
		}
	}
	for node := range l.nodes(restoring) { // the functions it calls have arguments of their own
		others = callees(others, node)
	}
	elsewhere := l.reach(others)
	if elsewhere[restoring] || saving[restoring] {
		restoring = ""
	}
	maps.DeleteFunc(saving, func(name string, _ bool) bool { return elsewhere[name] })
	return saving, restoring
}

// restores returns the function that a node calls with the saver's file name as first argument, or
// "", and the other functions that the node names.
func (s saver) restores(node message) (function string, others []string) {
	others = callees(nil, node)
	op, inputs := node.text("op"), node.list("input")
	if op != "StatefulPartitionedCall" && op != "PartitionedCall" || inputs.Len() == 0 || tensor(inputs.Get(0).String()) != tensor(s.filename) {
		return "", others
	}
	key := protoreflect.ValueOfString("f").MapKey()
	if attrs := node.Get(node.field("attr")).Map(); attrs.Has(key) {
		function = message{attrs.Get(key).Message()}.sub("func").text("name")
	}
	if i := slices.Index(others, function); i >= 0 {
		others = slices.Delete(others, i, i+1)
	}
	return function, others
}

// tensor returns a tensor's name including the output number.
func tensor(name string) string {
	if !strings.Contains(name, ":") {
		name += ":0"
	}
	return name
}

// reach returns the roots and all functions that they call, directly or not.
func (l library) reach(roots []string) map[string]bool {
	reached := make(map[string]bool)
	roots = slices.Clone(roots)
	for len(roots) > 0 {
		name := roots[len(roots)-1]
		roots = roots[:len(roots)-1]
		if l.functions[name] == nil || reached[name] {
			continue
		}
		reached[name] = true
		roots = append(roots, l.gradients[name]...)
		for node := range l.nodes(name) {
			roots = callees(roots, node)
		}
	}
	return reached
}

// callees appends the names of the functions that a node may call: its operation, and the functions
// in its attributes.
func callees(names []string, node message) []string {
	names = append(names, node.text("op"))
	var visit func(owner message)
	visit = func(owner message) {
		for _, value := range owner.entries("attr") {
			for f := range items(value.sub("list"), "func") {
				names = append(names, f.text("name"))
				visit(f)
			}
			if f := value.sub("func"); f.IsValid() {
				names = append(names, f.text("name"))
				visit(f)
			}
		}
	}
	visit(node)
	return names
}
