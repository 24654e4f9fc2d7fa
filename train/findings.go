package train

import (
	"fmt"
	"log/slog"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/params"
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

// preflight checks a run before its graph is composed.
type preflight struct {
	params   params.Params
	contract *graphs.Contract
	records  *data
	log      *slog.Logger
	found    PreflightError
}

// add adds a finding.
func (f *preflight) add(format string, args ...any) {
	f.found.Findings = append(f.found.Findings, fmt.Sprintf(format, args...))
}

// of returns the manifest's entry for a split, or nil if there is none.
func (f *preflight) of(split string) *convert.Split {
	if f.records.manifest == nil {
		return nil
	}
	return f.records.manifest.Splits[split]
}
