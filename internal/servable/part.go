package servable

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/vfs"
)

// newPart makes a folder beside out for a served model that is not complete yet, and removes the
// folders that killed exports to out have left. Such a folder is locked for as long as its process
// lives, however that ends, so a leftover is known by having no lock.
//
// Release ends the lock and removes what is then in the folder's place.
func newPart(files vfs.FS, out string) (part string, release func(), err error) {
	parent, prefix := filepath.Dir(out), "."+filepath.Base(out)+".part-"
	leftover := regexp.MustCompile("^" + regexp.QuoteMeta(prefix) + `\d+(` + regexp.QuoteMeta(oldSuffix) + `)?$`)
	entries, err := files.ReadDir(parent)
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || !leftover.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		lock, err := lockFolder(path)
		if err != nil {
			continue // an export that goes on, or one that has ended just now
		}
		err = removeLeftover(files, path, out)
		lock.Close()
		if err != nil {
			return "", nil, fmt.Errorf("remove what a killed export left: %w", err)
		}
	}
	part = filepath.Join(parent, fmt.Sprint(prefix, os.Getpid()))
	if err := files.Mkdir(part, 0o777); err != nil {
		return "", nil, err
	}
	lock, err := lockFolder(part)
	if err != nil {
		return "", nil, err
	}
	return part, func() {
		_ = vfs.RemoveAll(files, part) // what cannot be removed now is by the next export
		lock.Close()
	}, nil
}

// lockFolder locks a folder until it is closed, and fails where another process has locked it.
func lockFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
