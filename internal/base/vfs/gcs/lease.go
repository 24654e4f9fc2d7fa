package gcs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// leaseName is the object that says who works in a folder.
const leaseName = ".gorbit-lease"

// placeName is the file of a local folder that holds its random number.
const placeName = "place"

// maxLease is the largest lease that is read.
const maxLease = 64 << 10

// holder is the content of a lease.
type holder struct {
	// ID is new for every lease, so that two leases never have the same content.
	ID       string    `json:"id"`
	PID      int       `json:"pid"`
	Host     string    `json:"host"`
	Since    time.Time `json:"since"`
	Renewals int64     `json:"renewals"`
	// Seconds is how long the lease is valid without a renewal.
	Seconds float64 `json:"valid_seconds"`
	// Place names the local folder to work in. Whoever has locked that folder knows that the
	// process of the lease has ended.
	Place string `json:"place"`
}

// LeasedError says that another process works in a folder.
type LeasedError struct {
	Folder string
	PID    int
	Host   string
	Since  time.Time
}

func (e *LeasedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another process", e.Folder)
	}
	return fmt.Sprintf("%s is in use by process %d on %s since %s; wait until it has ended, or choose another folder", e.Folder, e.PID, e.Host, e.Since.Format(time.DateTime))
}

// lostError says that the lease on a folder is not valid any more.
type lostError struct {
	folder string
	err    error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("the lease on %s is lost (%v); another process may work there now, so this one stops; the same command continues the run", e.folder, e.err)
}

func (e *lostError) Unwrap() error { return e.err }

// lease is the right to write to a folder, for one process at a time. It is an object that is
// written again at a third of its time. A process that sees no renewal for the whole time, by its
// own clock, takes the lease over, with a precondition on the generation that it saw. The holder
// stops before that: see check. So clocks need not agree, and a process that was paused for long
// finds that it has lost the lease.
type lease struct {
	s      *Store
	folder location
	valid  time.Duration

	ctx  context.Context // done when the lease is lost or released
	lose context.CancelCauseFunc
	done sync.WaitGroup

	mu         sync.Mutex
	holder     holder
	generation int64
	renewed    time.Time // before the last request that renewed it was sent
	expiry     *time.Timer
}

// acquire waits until the lease is free, for no longer than it takes to see whether its holder is
// alive. The caller has locked the local folder that place names.
func (s *Store) acquire(ctx context.Context, folder location, place string, log *slog.Logger) (*lease, error) {
	host, _ := os.Hostname()
	l := &lease{s: s, folder: folder, valid: s.cfg.Lease, holder: holder{ID: rand.Text(), PID: os.Getpid(), Host: host,
		Since: time.Now().Truncate(time.Second), Seconds: s.cfg.Lease.Seconds(), Place: place}}
	var seen *watched
	for {
		now, at, err := s.leaseOf(ctx, folder)
		if err != nil {
			return nil, err
		}
		free := at.generation == 0 || now.Place == place
		if !free && seen != nil {
			if seen.generation != at.generation {
				return nil, &LeasedError{folder.String(), now.PID, now.Host, now.Since}
			}
			free = time.Since(seen.first) >= seen.valid
		}
		if free {
			if at.generation != 0 {
				log.Warn("taking over the folder from a process that ended without releasing it", "folder", folder.String(), "pid", now.PID, "host", now.Host)
			}
			err := l.write(ctx, at.generation)
			if err == nil {
				l.begin()
				return l, nil
			}
			if !errors.Is(err, ErrChanged) {
				return nil, err
			}
			seen = nil // somebody else was first
			continue
		}
		if seen == nil {
			seen = &watched{at.generation, time.Now(), max(s.cfg.Lease, time.Duration(now.Seconds*float64(time.Second)))}
			log.Warn("the folder has a lease; waiting to see whether its process is alive", "folder", folder.String(), "pid", now.PID, "host", now.Host, "at_most", seen.valid)
		}
		select {
		case <-time.After(seen.valid / 10):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// watched is a lease of another process.
type watched struct {
	generation int64
	first      time.Time
	valid      time.Duration
}

// leaseOf returns the lease of a folder. Its generation is 0 if there is none.
func (s *Store) leaseOf(ctx context.Context, folder location) (holder, object, error) {
	data, o, err := s.content(ctx, folder.within(leaseName), maxLease)
	if errors.Is(err, fs.ErrNotExist) {
		return holder{}, object{}, nil
	}
	if errors.Is(err, ErrChanged) { // between the two requests
		return s.leaseOf(ctx, folder)
	}
	if err != nil {
		return holder{}, o, err
	}
	var h holder
	_ = json.Unmarshal(data, &h) // whoever wrote something else is unknown, and has to renew it
	return h, o, nil
}

// placeOf names a locked folder of this machine. Its random number is in a file there, because
// containers may have the same paths and host names; the number of the machine's start is there
// because a folder may be copied.
func placeOf(top string) (string, error) {
	name := filepath.Join(top, placeName)
	number, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		number = []byte(rand.Text())
		err = os.WriteFile(name, number, 0o666)
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // not on every system
	host, _ := os.Hostname()
	return fmt.Sprintf("%s %s %s %s", host, bytes.TrimSpace(boot), number, top), err
}

// write writes the lease in place of a generation.
func (l *lease) write(ctx context.Context, generation int64) error {
	data, err := json.Marshal(l.holder)
	if err != nil {
		return err
	}
	sent := time.Now()
	o, err := l.s.putBytes(ctx, l.folder.within(leaseName), append(data, '\n'), generation)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.generation, l.renewed = o.generation, sent
	return nil
}

// begin renews the lease from now on.
func (l *lease) begin() {
	l.ctx, l.lose = context.WithCancelCause(context.Background())
	l.expiry = time.AfterFunc(l.left(), func() { l.lost(errors.New("it could not be renewed in time")) })
	l.done.Go(func() {
		tick := time.NewTicker(l.valid / 3)
		defer tick.Stop()
		for {
			select {
			case <-l.ctx.Done():
				return
			case <-tick.C:
			}
			l.holder.Renewals++
			err := l.write(l.ctx, l.generation)
			switch {
			case err == nil:
				l.expiry.Reset(l.left())
			case errors.Is(err, ErrChanged):
				l.lost(err)
			}
			// After any other error there is time for another try.
		}
	})
}

// left is the time for which the lease is still valid, with a margin for what is under way. The
// clock of the day counts as well, because the other one stands still while the machine sleeps.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.valid*5/6 - max(time.Since(l.renewed), time.Now().Round(0).Sub(l.renewed.Round(0)))
}

func (l *lease) lost(err error) { l.lose(&lostError{l.folder.String(), err}) }

// check returns the context for a write, which ends when the lease is lost, or why there is none.
func (l *lease) check() (context.Context, error) {
	if l.ctx.Err() == nil && l.left() <= 0 {
		l.lost(errors.New("this process was paused"))
	}
	return l.ctx, context.Cause(l.ctx)
}

// errReleased is the cause of a context that ends with its lease.
var errReleased = errors.New("the folder was released")

// release gives the lease back.
func (l *lease) release() error {
	_, err := l.check()
	l.expiry.Stop()
	l.lose(errReleased)
	l.done.Wait()
	if err != nil {
		return nil // it is not ours
	}
	// A lease that stays expires.
	return l.s.remove(context.Background(), l.folder.within(leaseName), l.generation)
}
