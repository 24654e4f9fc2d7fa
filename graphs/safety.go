package graphs

import (
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/gorbit-ml/gorbit/graphs/safety"
)

// Unsafe lists the operations that can access files, processes, the network or Python. It looks at
// the functions that composed graphs use and at the serving SavedModel, in which saving and
// restoring variables is allowed (see [safety.Check]). The list is sorted by function and
// operation.
func (e *Export) Unsafe() []safety.Use {
	var uses []safety.Use
	for _, name := range e.Contract.composed() {
		found := make(map[string]string)
		for function := range e.reach(name) {
			e.library.unsafe(e.library.functions[function].GetNodeDef(), found)
		}
		uses = append(uses, safety.List(name, found)...)
	}
	if e.serving != nil {
		uses = append(uses, safety.Check(&spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{e.serving}})...)
	}
	return uses
}

// RefuseUnsafe returns a *safety.Error if Unsafe lists operations that are not in allow.
func (e *Export) RefuseUnsafe(allow []string) error {
	return safety.Refuse("graph", e.Path, e.Unsafe(), allow)
}

// unsafe adds the unsafe operations of the nodes to found. It ignores calls of the library's
// functions.
func (l library) unsafe(nodes []*npb.NodeDef, found map[string]string) {
	for _, node := range nodes {
		if _, ok := l.functions[node.GetOp()]; ok {
			continue
		}
		reason := safety.Reason(node.GetOp(), func(name string) (string, bool) {
			value := node.GetAttr()[name]
			return string(value.GetS()), value.GetPlaceholder() == ""
		})
		if reason != "" {
			found[node.GetOp()] = reason
		}
	}
}
