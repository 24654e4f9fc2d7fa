package params

import "github.com/gorbit-ml/gorbit/internal/base/fault"

// Values of checkpoint.best_mode. "" is the same as modeAuto.
const (
	ModeAuto = "auto"
	ModeMax  = "max"
	ModeMin  = "min"
)

// bestAuto is the value of checkpoint.best that stands for the best metric of the graph.
const BestAuto = "auto"

// Error reports invalid params. It is a usage error.
type Error struct{ Err error }

func (e *Error) Error() string { return "params: " + e.Err.Error() }

// Is reports whether the target is the error's class, fault.Usage.
func (e *Error) Is(target error) bool { return target == fault.Usage }
func (e *Error) Unwrap() error        { return e.Err }
