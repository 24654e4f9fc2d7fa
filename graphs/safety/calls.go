package safety

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// maxCalls is how deep calls of functions may be nested. Models nest some ten. TensorFlow needs more
// stack for each and crashes without, somewhere beyond 3000.
const maxCalls = 500

// CheckCalls returns an error that names a function of a tensorflow.SavedModel that calls itself,
// directly or not, or calls that are nested too deep. TensorFlow would follow such calls to the end of
// its stack.
func CheckCalls(savedModel proto.Message) error {
	for meta := range items(message{savedModel.ProtoReflect()}, "meta_graphs") {
		c := calls{newLibrary(meta.sub("graph_def").sub("library")), nil, make(map[string]int)}
		for _, name := range slices.Sorted(maps.Keys(c.functions)) {
			if _, err := c.depth(name); err != nil {
				return err
			}
		}
	}
	return nil
}

type calls struct {
	library
	path  []string       // the functions that are being looked at, from caller to callee
	known map[string]int // depths of functions
}

// depth returns how deep the calls of a function are nested, itself included.
func (c *calls) depth(name string) (int, error) {
	if depth, ok := c.known[name]; ok || c.functions[name] == nil {
		return depth, nil
	}
	if slices.Contains(c.path, name) {
		return 0, fmt.Errorf("function %s is called by itself or by what it calls, the last of which is %s; expected calls that end", plain(name), plain(c.path[len(c.path)-1]))
	}
	c.path = append(c.path, name)
	most := 0
	for node := range c.nodes(name) {
		for _, callee := range callees(nil, node) {
			depth, err := c.depth(callee)
			if err != nil {
				return 0, err
			}
			most = max(most, depth)
		}
	}
	if most++; most > maxCalls || len(c.path) > maxCalls {
		return 0, fmt.Errorf("functions are nested more than %d deep, down to function %s; expected %d at most", maxCalls, plain(name), maxCalls)
	}
	c.path = c.path[:len(c.path)-1]
	c.known[name] = most
	return most, nil
}
