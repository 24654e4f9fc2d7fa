package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// sole makes this the only process that sends a run to a place, until release is called. It does nothing
// without a run or for one in a bucket, and warns where the run's folder cannot be written to.
func sole(run string, log *slog.Logger, place ...string) (release func(), err error) {
	if run == "" || vfs.Scheme(run) != "" {
		return func() {}, nil
	}
	to := strings.Join(place, " ")
	sum := sha256.Sum256([]byte(to))
	path := filepath.Join(run, fmt.Sprintf(".sent-%x.lock", sum[:6]))
	unlock, other, err := vfs.Lock(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return func() {}, nil // there is no run, which others say
	}
	if err != nil {
		log.Warn("another process may send the run at the same time: its folder cannot be locked", "run", run, "error", err)
		return func() {}, nil
	}
	if other != nil {
		return nil, fmt.Errorf("%s is being sent to %s by %v; wait for it, or end it", run, to, *other)
	}
	return func() {
		_ = vfs.Remove(path)
		_ = unlock()
	}, nil
}
