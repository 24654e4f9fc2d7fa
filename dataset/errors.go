package dataset

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// ErrClosed is returned by a Dataset after Close.
var ErrClosed = errors.New("dataset is closed")

// RecordError reports a record with unexpected content.
type RecordError struct {
	File    string // path; empty for an example passed to FromExamples
	Record  int64  // number of the record in the file, or of the example, from 0
	Feature string // the invalid feature; empty if it is the whole record
	Reason  string // what is wrong and what was expected
	Err     error  // the cause, if it comes from another package
}

// Error names the file, the record and the feature, and says what is wrong.
func (e *RecordError) Error() string {
	var b strings.Builder
	if e.File == "" {
		fmt.Fprintf(&b, "example %d: ", e.Record)
	} else {
		fmt.Fprintf(&b, "%s: record %d: ", e.File, e.Record)
	}
	if e.Feature != "" {
		fmt.Fprintf(&b, "feature %q ", e.Feature)
	}
	b.WriteString(e.Reason)
	return b.String()
}

// Is reports whether the target is the error's class, fault.Damaged.
func (e *RecordError) Is(target error) bool { return target == fault.Damaged }

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// StateError reports a State that belongs to other data or settings.
type StateError struct {
	Differences []string // one clause per difference
	// Invalid says that the state itself is wrong, whatever the settings are.
	Invalid bool
}

// Is reports whether the target is the error's class: fault.Usage, as other data or settings were
// chosen, or fault.Damaged for an invalid state.
func (e *StateError) Is(target error) bool {
	if e.Invalid {
		return target == fault.Damaged
	}
	return target == fault.Usage
}

// Error names everything that differs.
func (e *StateError) Error() string {
	return "the saved position does not match the data: " + strings.Join(e.Differences, "; ")
}
