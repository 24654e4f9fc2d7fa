package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"

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
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("%s is in use by process %d on %s since %s", e.Dir, e.PID, e.Host, e.Since.Format(time.DateTime))
}

type lockHolder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// Lock locks a run folder for this process. If another process has locked it, the error
// is a [LockedError] that names the process. The lock belongs to the operating system, so
// it ends with the process in any case; unlock releases it earlier. The file stays.
func Lock(dir string) (unlock func() error, err error) {
	path := filepath.Join(dir, LockName)
	lock := flock.New(path)
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if !ok {
		e := &LockedError{Dir: dir}
		var h lockHolder
		// The holder may just be writing its name; then it is still unknown.
		if data, err := vfs.ReadFile(path); err == nil && json.Unmarshal(data, &h) == nil {
			e.PID, e.Host, e.Since = h.PID, h.Host, h.Since
		}
		return nil, e
	}
	host, _ := os.Hostname()
	data, err := json.Marshal(lockHolder{os.Getpid(), host, time.Now().Truncate(time.Second)})
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		lock.Unlock()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return lock.Unlock, nil
}

// Holder reports which process has locked a run folder; nil if none has. It does not wait, and it
// does not lock a folder whose holder is a process of this machine that has ended.
func Holder(dir string) (*LockedError, error) {
	path := filepath.Join(dir, LockName)
	data, err := vfs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	var h lockHolder
	host, _ := os.Hostname()
	if json.Unmarshal(data, &h) == nil && h.PID > 0 && h.Host == host && errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH) {
		return nil, nil // so that a training which starts just now finds the folder free
	}
	// A shared lock is refused while a training has its own.
	lock := flock.New(path, flock.SetFlag(os.O_RDONLY))
	free, err := lock.TryRLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if free {
		return nil, lock.Unlock()
	}
	return &LockedError{Dir: dir, PID: h.PID, Host: h.Host, Since: h.Since}, nil
}
