package train

import "github.com/gorbit-ml/gorbit/internal/base/fault"

// The classes of errors, for errors.Is; an error of neither is any other failure. The programs' exit
// codes follow them. A run that was stopped and saved ends with runner.ErrStopped.
var (
	// ErrUsage is a mistake in the params, the environment or the choice of files.
	ErrUsage error = fault.Usage
	// ErrDamaged is corrupt or invalid data: records, checkpoints, exports.
	ErrDamaged error = fault.Damaged
)
