package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// reportInterval is the time between two log lines of a worker that waits for its chief.
const reportInterval = 30 * time.Second

// NoChiefError means that a worker has given up waiting for its chief.
type NoChiefError struct {
	Address string
	Waited  time.Duration
	Err     error // of the last attempt to reach it
}

// Error returns the chief's address, the time waited, and why it could not be reached.
func (e *NoChiefError) Error() string {
	return fmt.Sprintf("chief %s: no answer for %v: %s", e.Address, e.Waited, describe(e.Err))
}

// Unwrap returns why the chief could not be reached.
func (e *NoChiefError) Unwrap() error { return e.Err }

// AwaitChief watches a chief that is also a worker, with a Supervisor in its process at the
// address. It logs that it waits until the chief connects here, and again between two sessions. If
// there is no session and no answer at the address for the timeout, it returns a *NoChiefError.
// When the context ends, it returns nil. A chief that takes long to open its data does answer, so
// the worker waits for it.
func (s *Supervisor) AwaitChief(ctx context.Context, address string, timeout time.Duration) error {
	tick := time.NewTicker(interval(timeout))
	defer tick.Stop()
	answered := time.Now() // or was served
	var reported time.Time
	before := 0 // sessions
	for {
		var err error
		serving, sessions := s.serving()
		if serving || sessions > before {
			answered, reported, before = time.Now(), time.Time{}, sessions
		}
		if !serving {
			if time.Since(reported) >= reportInterval {
				s.log.Info("waiting for the chief to connect", "chief", address, "timeout without an answer", timeout)
				reported = time.Now()
			}
			if err = probe(ctx, s.config.Sockets, address, timeout); err == nil {
				answered = time.Now()
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if waited := time.Since(answered); err != nil && waited >= timeout {
			return &NoChiefError{Address: address, Waited: waited.Round(time.Millisecond), Err: err}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// serving reports whether there is a session, and the number of sessions so far.
func (s *Supervisor) serving() (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil, s.taken
}

// probe returns nil if a process serves an address. It closes its side of a connection and waits
// for the other side to close: to connect is not enough, because the system also accepts
// connections for a stopped process.
func probe(ctx context.Context, sockets, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dialWorker(ctx, sockets, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	deadline, _ := ctx.Deadline()
	if err := errors.Join(conn.CloseWrite(), conn.SetReadDeadline(deadline)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(conn, maxLine))
	if errors.Is(err, net.ErrClosed) {
		return os.ErrDeadlineExceeded
	}
	return err
}
