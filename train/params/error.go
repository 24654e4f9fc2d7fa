package params

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Error reports invalid params. It is a usage error.
type Error struct {
	// Params are those that it is about, the first one first; none if it is about no param.
	Params []string
	Err    error
}

// Errorf returns an *Error of a param, which begins with its name. The text follows after a space, or
// at once if it begins with a colon.
func Errorf(param, format string, args ...any) *Error {
	text := fmt.Errorf(format, args...)
	if strings.HasPrefix(text.Error(), ":") {
		return &Error{Params: []string{param}, Err: fmt.Errorf("%s%w", param, text)}
	}
	return &Error{Params: []string{param}, Err: fmt.Errorf("%s %w", param, text)}
}

// And returns the error with more params that it is about.
func (e *Error) And(params ...string) *Error {
	e.Params = append(e.Params, params...)
	return e
}

func (e *Error) Error() string { return "params: " + e.Err.Error() }

// Is reports whether the target is the error's class, fault.Usage.
func (e *Error) Is(target error) bool { return target == fault.Usage }
func (e *Error) Unwrap() error        { return e.Err }
