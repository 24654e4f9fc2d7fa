package vfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LockHolder is the process that has locked a file. It is in the file.
type LockHolder struct {
	PID   int       `json:"pid"`  // 0 if unknown
	Host  string    `json:"host"` // "" if unknown
	Since time.Time `json:"since"`
}

// String says who the holder is.
func (h LockHolder) String() string {
	if h.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d on %s since %s", h.PID, h.Host, h.Since.Format(time.DateTime))
}

// A lock that this process has given up is still held while a child that was started meanwhile has the
// process's files, until it runs its own program.
const (
	ownTries = 20
	ownPause = 10 * time.Millisecond
)

// Lock locks a file of this machine for this process, and makes it if necessary. The lock belongs to
// the operating system, so it ends with the process in any case; unlock releases it earlier. If another
// process has locked the file, Lock does not wait but returns that.
func Lock(path string) (unlock func() error, other *LockHolder, err error) {
	for tries := 1; ; tries++ {
		file, err := OS{}.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, nil, err
		}
		lock := file.(*os.File)
		err = flock(lock, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			h := holderIn(path)
			if h.PID == os.Getpid() && tries < ownTries {
				lock.Close()
				time.Sleep(ownPause)
				continue
			}
			return nil, h, lock.Close()
		}
		now, statErr := os.Lstat(path)
		if info, infoErr := lock.Stat(); err == nil && (statErr != nil || infoErr != nil || !os.SameFile(now, info)) {
			lock.Close() // its holder removed it just before it unlocked it
			continue
		}
		if err != nil {
			return nil, nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, lock.Close())
		}
		sign(lock)
		return lock.Close, nil, nil
	}
}

// sign writes who this process is. On a full disk it stays unknown.
func sign(lock *os.File) {
	host, _ := os.Hostname()
	data, err := json.Marshal(LockHolder{os.Getpid(), host, time.Now().Truncate(time.Second)})
	if err == nil && lock.Truncate(0) == nil {
		_, _ = lock.WriteAt(append(data, '\n'), 0)
	}
}

// holderIn returns who signed a file. It may just be signing it; then it is unknown.
func holderIn(path string) *LockHolder {
	h := new(LockHolder)
	if data, err := ReadFile(path); err != nil || json.Unmarshal(data, h) != nil {
		return new(LockHolder)
	}
	return h
}

// Holder returns the process that has locked a file; nil if none has, or if there is no file. It does
// not wait, and it does not lock a file whose holder is a process of this machine that has ended.
func Holder(path string) (*LockHolder, error) {
	lock, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	h := holderIn(path)
	host, _ := os.Hostname()
	if h.PID > 0 && h.Host == host && errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH) {
		return nil, nil // so that a process which starts just now finds it free
	}
	// A shared lock is refused while another process has its own.
	switch err := flock(lock, unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return nil, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return h, nil
	default:
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
}
