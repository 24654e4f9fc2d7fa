package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// LockName is the file by which [Lock] locks a folder.
const LockName = ".lock"

// LockedError says that another process works in a run folder.
type LockedError struct {
	Dir   string
	PID   int    // 0 where the holder did not say
	Host  string // "" likewise
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

// Lock takes a run folder for this process, or says in a [LockedError] who has
// it. The lock is the operating system's, so it goes with the process however
// that ends; unlock gives it back earlier. The file stays.
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
		// The holder may be writing its name at this moment; then it has none yet.
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &h) == nil {
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
