package safety

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Use is the use of an unsafe operation.
type Use struct {
	// Function is the function of the contract that uses the operation, or "serving" for the
	// serving model.
	Function string `json:"function"`
	Op       string `json:"op"`
	// Reason says what the operation can do.
	Reason string `json:"reason"`
}

// Error means that a graph or a model uses unsafe operations.
type Error struct {
	What string // "graph" or "model"
	Path string
	Uses []Use // sorted by function and operation, never empty
}

// Refuse returns an *Error if there are uses of operations that are not in allow, otherwise nil.
func Refuse(what, path string, uses []Use, allow []string) error {
	uses = slices.DeleteFunc(slices.Clone(uses), func(u Use) bool { return slices.Contains(allow, u.Op) })
	if len(uses) == 0 {
		return nil
	}
	return &Error{what, path, uses}
}

// Unused returns the operations of allow that no use needs.
func Unused(uses []Use, allow []string) []string {
	return slices.DeleteFunc(slices.Clone(allow), func(op string) bool {
		return slices.ContainsFunc(uses, func(u Use) bool { return u.Op == op })
	})
}

func (e *Error) Error() string {
	use := e.Uses[0]
	ops := make(map[string]bool)
	for _, u := range e.Uses {
		ops[plain(u.Op)] = true
	}
	more := ""
	switch n := len(ops) - 1; {
	case n == 1:
		more = " (and 1 more such operation)"
	case n > 1:
		more = fmt.Sprintf(" (and %d more such operations)", n)
	}
	return fmt.Sprintf("%s %s is refused: function %s uses %s, which %s%s; if you trust it, add --allow-op %s",
		e.What, e.Path, plain(use.Function), plain(use.Op), use.Reason, more, strings.Join(slices.Sorted(maps.Keys(ops)), ","))
}

// plain returns a name as it is where it can be read, else quoted, and cut where it is longer than
// any operation's: names come from the file.
func plain(name string) string {
	const most = 100
	if len(name) > most {
		return fmt.Sprintf("%q... of %d bytes", name[:most], len(name))
	}
	if q := strconv.Quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}

// List returns the uses of a function, sorted by operation. Found holds the reasons by operation.
func List(function string, found map[string]string) []Use {
	var uses []Use
	for _, op := range slices.Sorted(maps.Keys(found)) {
		uses = append(uses, Use{function, op, found[op]})
	}
	return uses
}
