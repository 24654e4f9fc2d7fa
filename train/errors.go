package train

import "github.com/gorbit-ml/gorbit/internal/fault"

// ParamsError reports invalid params. It is a usage error.
type ParamsError struct{ Err error }

func (e *ParamsError) Error() string { return "params: " + e.Err.Error() }

// Is reports whether the target is the error's class, fault.Usage.
func (e *ParamsError) Is(target error) bool { return target == fault.Usage }
func (e *ParamsError) Unwrap() error        { return e.Err }
