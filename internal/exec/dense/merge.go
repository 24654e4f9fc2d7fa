package dense

import (
	"slices"
	"strings"

	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
)

// merge puts matrices into one variable that the graph joins by columns in every call, where nothing else
// uses them. matrices are those of the variables, by key, and handles the keys by the names of the
// variables' nodes.
func (r *rewriter) merge(matrices map[string]Matrix, handles map[string]string) {
	type joint struct {
		nodes []*npb.NodeDef
		keys  []string
	}
	joints := make(map[string]*joint) // by the first key
	other := make(map[string]bool)    // keys that are used in another way
	for _, s := range r.scopes {
		for _, n := range s.nodes {
			var keys []string
			for _, input := range n.GetInput() {
				if e, ok := s.at(input); ok && r.sizeOf(e) > 0 && s.valueOf(input) {
					keys = append(keys, r.keyOf(s, input, handles))
				}
			}
			switch {
			case len(keys) == 0 || n.GetOp() == "SaveV2" || n.GetOp() == "Identity" && s.f == nil:
			case n.GetOp() == "ConcatV2" && len(keys) == len(n.GetInput())-1 && !slices.Contains(keys, ""):
				j := joints[keys[0]]
				if j == nil {
					j = &joint{keys: keys}
					joints[keys[0]] = j
				}
				j.nodes = append(j.nodes, n)
				if !slices.Equal(j.keys, keys) {
					for _, k := range slices.Concat(j.keys, keys) {
						other[k] = true
					}
				}
			default:
				for _, k := range keys {
					other[k] = true
				}
			}
		}
	}
	for _, j := range joints {
		if slices.ContainsFunc(j.keys, func(k string) bool { return other[k] }) || !distinct(j.keys) {
			continue
		}
		whole := matrices[j.keys[0]]
		whole.Of, whole.Shape = j.keys, slices.Clone(whole.Shape)
		for _, k := range j.keys[1:] {
			whole.Shape[1] += matrices[k].Shape[1]
			matrices[k] = Matrix{Shape: []int64{whole.Shape[0], 0}}
		}
		matrices[j.keys[0]] = whole
		for _, n := range j.nodes {
			r.merged[n] = true
		}
	}
}

func distinct(keys []string) bool {
	sorted := slices.Sorted(slices.Values(keys))
	return len(slices.Compact(sorted)) == len(keys)
}

// valueOf reports whether an input is the value that a node of the scope read of a variable.
func (s *scope) valueOf(input string) bool {
	name, _, _ := strings.Cut(input, ":")
	return s.node(name).GetOp() == "ReadVariableOp"
}

// keyOf returns the key of the variable that a value was read of, or "" if it may be one of several.
func (r *rewriter) keyOf(s *scope, input string, handles map[string]string) string {
	name, _, _ := strings.Cut(input, ":")
	ref := s.node(name).GetInput()[0]
	for s.f != nil {
		arg, callers := s.argument(ref), r.callers(s)
		if arg < 0 || len(callers) != 1 {
			return ""
		}
		for from, call := range callers {
			s, ref = from, call.GetInput()[arg]
		}
	}
	return handles[strings.TrimSuffix(ref, ":0")]
}

// callers returns the call of a function in each scope that has one; more than one in a scope are none.
func (r *rewriter) callers(f *scope) map[*scope]*npb.NodeDef {
	out := make(map[*scope]*npb.NodeDef)
	for _, s := range r.scopes {
		for _, n := range s.nodes {
			if r.callee(n) != f {
				continue
			}
			if out[s] != nil {
				return nil
			}
			out[s] = n
		}
	}
	return out
}
