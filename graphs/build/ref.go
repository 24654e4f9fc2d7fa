package build

import "strconv"

// Ref refers to an output of a node, or to the node itself where a node is meant, as in Group. The
// zero Ref refers to nothing.
type Ref struct {
	Node string
	// Index is the number of the output; After makes a Ref that has none.
	Index int
}

// control is the Index of control inputs, as in TensorFlow.
const control = -1

// Output returns the reference to an output of the node.
func (r Ref) Output(i int) Ref { return Ref{r.Node, i} }

// After returns the control input that waits for the node.
func (r Ref) After() Ref { return Ref{r.Node, control} }

// IsZero reports whether r refers to nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String returns the reference as graphs have it: "node" for the first output, "node:1" for another,
// "^node" for a control input.
func (r Ref) String() string {
	switch r.Index {
	case 0:
		return r.Node
	case control:
		return "^" + r.Node
	}
	return r.Node + ":" + strconv.Itoa(r.Index)
}

// texts returns references as graphs have them.
func texts(refs []Ref) []string {
	out := make([]string, len(refs))
	for i, r := range refs {
		out[i] = r.String()
	}
	return out
}
