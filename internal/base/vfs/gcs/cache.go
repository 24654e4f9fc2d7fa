package gcs

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// cache keeps copies of objects in a folder, up to a number of bytes. The name of a copy is made
// of the object's name and generation, so a copy is never stale. A copy is written under another
// name and renamed once its size and checksum are right. Processes share the folder: a copy that
// another one has open stays readable when it is removed.
type cache struct {
	dir   string
	limit int64

	mu   sync.Mutex
	used map[string]bool          // copies that this process has asked for
	busy map[string]chan struct{} // copies being made by this process; closed at the end
}

func newCache(dir string, limit int64) *cache {
	return &cache{dir: dir, limit: limit, used: map[string]bool{}, busy: map[string]chan struct{}{}}
}

const (
	copyEnding = ".copy"
	partEnding = ".part"
	// abandoned is the age at which the part of a killed process is removed.
	abandoned = 24 * time.Hour
)

// path returns the path of a copy without its ending.
func (c *cache) path(at location, generation int64) string {
	sum := sha256.Sum256([]byte(at.String()))
	return filepath.Join(c.dir, fmt.Sprintf("%s-%d", hex.EncodeToString(sum[:16]), generation))
}

// keep returns the copy of an object, which it makes if necessary, or nil if there is no room.
func (s *Store) keep(ctx context.Context, at location, o object) (*os.File, error) {
	c := s.cache
	path := c.path(at, o.generation) + copyEnding
	done, err := c.claim(ctx, path)
	if err != nil {
		return nil, err
	}
	defer done()
	if f, err := c.open(path, o.size); f != nil || err != nil {
		return f, err
	}
	if err := os.MkdirAll(c.dir, 0o777); err != nil {
		return nil, err
	}
	if room, err := c.makeRoom(o.size); !room || err != nil {
		return nil, err
	}
	part := fmt.Sprintf("%s.%s%s", path, rand.Text(), partEnding)
	if err := s.download(ctx, at, o, part); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return nil, nil
		}
		return nil, err
	}
	if err := os.Rename(part, path); err != nil {
		return nil, errors.Join(err, os.Remove(part))
	}
	return c.open(path, o.size)
}

// claim waits until no other goroutine makes the copy.
func (c *cache) claim(ctx context.Context, path string) (done func(), err error) {
	for {
		c.mu.Lock()
		other := c.busy[path]
		if other == nil {
			mine := make(chan struct{})
			c.busy[path] = mine
			c.used[path] = true
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.busy, path)
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// open opens a copy and marks it as used now. It returns nil if there is none of that size.
func (c *cache) open(path string, size int64) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() != size { // something else damaged it
		f.Close()
		return nil, os.Remove(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // only the order of removal depends on it
	return f, nil
}

// makeRoom removes the copies that were not used for the longest time until another one fits. It
// reports whether it does. Copies that this process has asked for stay.
func (c *cache) makeRoom(size int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return false, err
	}
	type copied struct {
		path string
		size int64
		used time.Time
	}
	var removable []copied
	total := size
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			continue // another process has just removed it
		}
		path := filepath.Join(c.dir, e.Name())
		switch {
		case strings.HasSuffix(path, partEnding):
			if time.Since(st.ModTime()) > abandoned {
				os.Remove(path)
				continue
			}
		case strings.HasSuffix(path, copyEnding) && !c.used[path]:
			removable = append(removable, copied{path, st.Size(), st.ModTime()})
		}
		total += st.Size()
	}
	slices.SortFunc(removable, func(a, b copied) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	// Nothing is removed for a file that would not fit anyway.
	free := int64(0)
	for _, r := range removable {
		free += r.size
	}
	if total-free > c.limit {
		return false, nil
	}
	for _, r := range removable {
		if total <= c.limit {
			break
		}
		if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		total -= r.size
	}
	return true, nil
}
