package checkpoint

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// LockName is the name of the file that [Lock] uses to lock a folder.
const LockName = ".lock"

// LockedError reports that another process uses a run folder.
type LockedError struct {
	Dir   string
	PID   int    // 0 if unknown
	Host  string // "" if unknown
	Since time.Time
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is in use by %v", e.Dir, vfs.LockHolder{PID: e.PID, Host: e.Host, Since: e.Since})
}

// Lock locks a run folder for this process. If another process has locked it, the error
// is a [LockedError] that names the process. The lock belongs to the operating system, so
// it ends with the process in any case; unlock releases it earlier. The file stays.
func Lock(dir string) (unlock func() error, err error) {
	unlock, other, err := vfs.Lock(filepath.Join(dir, LockName))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if other != nil {
		return nil, &LockedError{dir, other.PID, other.Host, other.Since}
	}
	return unlock, nil
}

// Holder reports which process has locked a run folder; nil if none has. It does not wait, and it
// does not lock a folder whose holder is a process of this machine that has ended.
func Holder(dir string) (*LockedError, error) {
	h, err := vfs.Holder(filepath.Join(dir, LockName))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if h == nil {
		return nil, nil
	}
	return &LockedError{dir, h.PID, h.Host, h.Since}, nil
}
