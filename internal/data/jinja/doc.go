// Package jinja renders the chat templates of language models: Jinja, as transformers sets it up
// (trim_blocks, lstrip_blocks, the statements break, continue and generation, the functions
// raise_exception and strftime_now, and json.dumps as tojson).
//
// It has the part of the language that conversations need, and what it has means what it means in
// Python. All else is refused by its name, because a prompt that is nearly right gives answers that are
// nearly right: numbers with fractions (those of JSON values are written as they were, and not computed
// with), lists and objects that are printed, case of letters beyond ASCII, filters and methods that are not
// here. A branch that is not reached may have them, such as that of tools.
//
// A template comes with a model, so it is not trusted. It sees the values that it is given and nothing
// else, it cannot change them, and its work, its texts and its depth are limited.
//
// Why there is no library in its place: docs/design/decisions.md.
package jinja

import "fmt"

// Limits of a template and of a rendering.
const (
	// MaxSource is the most bytes of a template, far more than any known one has.
	MaxSource = 1 << 20
	// maxSteps is the most nodes and elements that a rendering visits, far more than those of a
	// conversation of a thousand messages.
	maxSteps = 1 << 22
	// maxBytes is the most bytes of all texts that a rendering makes or compares. To it comes
	// bytesPerByte for each byte of the values.
	maxBytes     = 16 << 20
	bytesPerByte = 32
	// maxDepth is how deep blocks and expressions nest, and how many operators stand in a row; maxCalls is
	// how deep macros call each other.
	maxDepth = 100
	maxCalls = 50
	// maxRange is the most numbers of a range, as in jinja2's sandbox.
	maxRange = 100_000
)

// Error is what is wrong with a template, or what it raised.
type Error struct {
	// Line is the line of the template, from 1; 0 if it is not known.
	Line int
	// Raised is whether the template itself refuses its values, by raise_exception.
	Raised bool
	What   string
}

func (e *Error) Error() string {
	switch {
	case e.Raised:
		return fmt.Sprintf("the chat template refuses the conversation: %s", e.What)
	case e.Line == 0:
		return e.What
	}
	return fmt.Sprintf("line %d of the chat template: %s", e.Line, e.What)
}

// fail ends parsing or rendering; the exported functions return the error.
func fail(line int, format string, args ...any) {
	panic(&Error{Line: line, What: fmt.Sprintf(format, args...)})
}

// caught turns what fail panics with into an error.
func caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		*err = r
	default:
		panic(r)
	}
}
