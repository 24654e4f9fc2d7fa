package convert

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// RowError reports a row of an input that cannot be used.
type RowError struct {
	Path   string
	Line   int64 // counts from 1; the first line of the row
	Reason string
}

func (e *RowError) Error() string { return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Reason) }

// Is reports whether the target is the error's class, fault.Damaged.
func (e *RowError) Is(target error) bool { return target == fault.Damaged }

// ManifestError reports a dataset with an invalid manifest, or a file that does not match
// it.
type ManifestError struct {
	Path   string // the manifest or the file
	Reason string
}

func (e *ManifestError) Error() string { return fmt.Sprintf("dataset: %s: %s", e.Path, e.Reason) }

// Is reports whether the target is the error's class, fault.Damaged.
func (e *ManifestError) Is(target error) bool { return target == fault.Damaged }

// ExistsError reports that the output folder has a dataset, or parts of one, and
// Config.Overwrite is not set.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("%s already exists; choose another folder, or overwrite it", e.Path)
}

// Is reports whether the target is the error's class, fault.Usage.
func (e *ExistsError) Is(target error) bool { return target == fault.Usage }
