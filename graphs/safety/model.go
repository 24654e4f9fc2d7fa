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

// Check lists the operations of a tensorflow.SavedModel that reach beyond its graphs,
// or might: in all nodes, for a loader runs some that no signature leads to (the main
// op, the init op), and in all functions, for TensorFlow may put one in the place of
// another that is called. Run names the tensors or operations that the caller runs
// besides those that the model itself names. The list is sorted by operation.
//
// Every SavedModel holds functions that save and restore its variables, and these are
// left out, as far as they can do nothing else:
//
//   - The function that restores may read the files whose name the loader gives it,
//     which are the model's own variables, and no others.
//   - The function that saves may write, if nothing runs it: no node takes its result,
//     and no signature, collection or name in run asks for it.
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

// judge adds a node's operation to found if it is unsafe. The call of a function by
// its name is no operation.
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

// restoresArgument reports whether a node restores from the files that the function's
// first argument names.
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

// saver is how a SavedModel saves and restores its variables.
type saver struct {
	filename      string // a tensor
	save, restore string // operations
	// savesNever says that nothing runs the operation that saves.
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

// operation returns the operation of a tensor's or a control input's name.
func operation(name string) string {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "^"), ":")
	return name
}

// library is a tensorflow.FunctionDefLibrary by name.
type library struct {
	functions map[string][]message // a forged one may have several of a name
	gradients map[string][]string
}

// nodes are those of all functions of a name.
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

// saverFunctions returns the functions that save the model's variables and do nothing
// else, and the one that restores them, or "".
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
		// TensorFlow may put a function in the place of another that implements the same.
		implements := fs[0].Get(fs[0].field("attr")).Map().Has(protoreflect.ValueOfString("api_implements").MapKey())
		if !saving[name] && name != restoring || implements || len(fs) > 1 {
			others = append(others, name)
		}
	}
	for node := range l.nodes(restoring) { // what it calls has arguments of its own
		others = callees(others, node)
	}
	elsewhere := l.reach(others)
	if elsewhere[restoring] || saving[restoring] {
		restoring = ""
	}
	maps.DeleteFunc(saving, func(name string, _ bool) bool { return elsewhere[name] })
	return saving, restoring
}

// restores returns the function that a node calls with the saver's file name as the
// first argument, or "", and the other functions that it names.
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

// tensor returns a tensor's name with the number of the output.
func tensor(name string) string {
	if !strings.Contains(name, ":") {
		name += ":0"
	}
	return name
}

// reach returns the functions that the roots lead to, with them.
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

// callees adds the names that a node may call a function by: its operation, and the
// functions among its attributes.
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
