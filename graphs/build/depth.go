package build

import (
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
)

// Depths returns, for every output of a function of the graph, the length of the longest chain of
// operations that it depends on. This is roughly the order in which the function computes its
// outputs. A call of another function counts as one operation.
func (b *Builder) Depths(f *graphs.Function) map[string]int {
	out := make(map[string]int)
	for _, def := range b.def.GetLibrary().GetFunction() {
		if def.GetSignature().GetName() != f.GraphName {
			continue
		}
		inputs := make(map[string][]string, len(def.GetNodeDef()))
		for _, n := range def.GetNodeDef() {
			inputs[n.GetName()] = n.GetInput()
		}
		depths := make(map[string]int, len(inputs))
		var depth func(name string) int
		depth = func(name string) int {
			name = strings.TrimPrefix(name, "^")
			name, _, _ = strings.Cut(name, ":")
			in, ok := inputs[name]
			if !ok { // an argument of the function
				return 0
			}
			if d, ok := depths[name]; ok {
				return d
			}
			depths[name] = 0 // so that cycles end
			d := 0
			for _, i := range in {
				d = max(d, depth(i))
			}
			depths[name] = d + 1
			return d + 1
		}
		for i, a := range def.GetSignature().GetOutputArg() {
			if i < len(f.Outputs) {
				out[f.Outputs[i].Name] = depth(def.GetRet()[a.GetName()])
			}
		}
	}
	return out
}
