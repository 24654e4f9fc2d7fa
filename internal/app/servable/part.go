package servable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// newPart makes a folder next to out for an unfinished served model, and removes the folders left
// by killed exports to out. Such a folder is locked while its process lives, so a folder without a
// lock is a leftover.
//
// release ends the lock and removes the folder if it is still there.
func newPart(out string) (part string, release func(), err error) {
	parent, prefix := filepath.Dir(out), "."+filepath.Base(out)+".part-"
	leftover := regexp.MustCompile("^" + regexp.QuoteMeta(prefix) + `\d+(` + regexp.QuoteMeta(oldSuffix) + `)?$`)
	entries, err := vfs.ReadDir(parent)
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || !leftover.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		lock, err := lockFolder(path, unix.LOCK_NB)
		if err != nil {
			continue // an export that is running, or has just ended
		}
		err = removeLeftover(path, out)
		lock.Close()
		if err != nil {
			return "", nil, fmt.Errorf("remove the leftovers of a killed export: %w", err)
		}
	}
	part = filepath.Join(parent, fmt.Sprint(prefix, os.Getpid()))
	for {
		if err := vfs.Mkdir(part, 0o777); err != nil {
			return "", nil, err
		}
		lock, err := lockFolder(part, 0) // waits only for an export that takes it for a leftover
		if errors.Is(err, fs.ErrNotExist) {
			continue // which was removed
		}
		if err != nil {
			return "", nil, err
		}
		return part, func() {
			_ = vfs.RemoveAll(part) // what cannot be removed now is by the next export
			lock.Close()
		}, nil
	}
}

// lockFolder locks a folder until the file is closed. With unix.LOCK_NB it fails if another process has
// locked it.
func lockFolder(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|how); err != nil {
		err = fmt.Errorf("lock %s: %w", path, err)
	} else {
		_, err = os.Stat(path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
