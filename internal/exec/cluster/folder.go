package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
)

// folders begins the names of the folders of sockets, in the folder for temporary files.
const folders = "gorbit-sockets-"

// folder is a folder for Unix sockets that only this user may enter. It is locked, so that one whose
// process was killed can be told from those in use.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder, and removes those that killed processes of this user have left.
func newFolder() (*folder, error) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), folders+"*"))
	for _, path := range left {
		// Those of other users cannot be opened.
		if f, err := lockFolder(path); err == nil {
			f.remove()
		}
	}
	for {
		path, err := os.MkdirTemp("", folders)
		if err != nil {
			return nil, fmt.Errorf("make a folder for sockets: %w", err)
		}
		f, err := lockFolder(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
			continue // another process took it for one that was left
		}
		if err == nil {
			err = tfserver.CheckSocket(socket(path, maxTasks))
		}
		if err != nil {
			os.RemoveAll(path)
			return nil, err
		}
		return f, nil
	}
}

// lockFolder locks a folder that nobody has locked and that still is at its path.
func lockFolder(path string) (*folder, error) {
	lock, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &folder{path, lock}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return f, nil
}

// remove removes the folder and what is in it.
func (f *folder) remove() {
	os.RemoveAll(f.path)
	f.lock.Close()
}

// socket returns the path of a task's socket in a folder.
func socket(dir string, task int) string { return filepath.Join(dir, strconv.Itoa(task)) }

// ownSocket returns the path of the socket of a worker's own server.
func ownSocket(dir string) string { return filepath.Join(dir, "own") }
