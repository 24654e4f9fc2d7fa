package params

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// PreflightError reports everything that is wrong with a run before its first step. Each finding
// includes how to fix it.
type PreflightError struct {
	Findings []string
	// Damaged reports that files have changed since they were written.
	Damaged bool
}

func (e *PreflightError) Error() string {
	if len(e.Findings) == 1 {
		return e.Findings[0]
	}
	out := fmt.Sprintf("%d problems found:", len(e.Findings))
	for i, finding := range e.Findings {
		out += fmt.Sprintf(" (%d) %s.", i+1, finding)
	}
	return out
}

// Lines is Error with each finding on a line of its own.
func (e *PreflightError) Lines() string {
	if len(e.Findings) == 1 {
		return e.Findings[0]
	}
	out := fmt.Sprintf("%d problems found:", len(e.Findings))
	for i, finding := range e.Findings {
		out += fmt.Sprintf("\n  (%d) %s", i+1, finding)
	}
	return out
}

// Is reports whether the target is the error's class, fault.Damaged or fault.Usage.
func (e *PreflightError) Is(target error) bool {
	return e.Damaged && target == fault.Damaged || !e.Damaged && target == fault.Usage
}
