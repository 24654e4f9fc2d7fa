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

// reportInterval is the time between two lines of a worker that waits for its chief.
const reportInterval = 30 * time.Second

// NoChiefError is a chief that a worker has waited for in vain.
type NoChiefError struct {
	Address string
	Waited  time.Duration
	Err     error // of the last attempt to reach it
}

// Error names the chief, how long it was waited for, and why it could not be reached.
func (e *NoChiefError) Error() string {
	return fmt.Sprintf("chief %s: no answer for %v: %s", e.Address, e.Waited, describe(e.Err))
}

// Unwrap returns why the chief could not be reached.
func (e *NoChiefError) Unwrap() error { return e.Err }

// AwaitChief watches a chief that lends devices itself, by a Supervisor in its own process
// at the address: it logs that it waits until the chief connects here, and again between
// two sessions. It returns a *NoChiefError once no session has lasted and nobody has answered
// at the address for the timeout, and nil when the context ends. A chief that takes long to
// open its data answers, and is waited for.
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
				s.log.Info("waiting for the chief to connect", "chief", address, "at most without an answer", timeout)
				reported = time.Now()
			}
			if err = probe(ctx, address, timeout); err == nil {
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

// serving reports whether a chief is served, and how many were so far.
func (s *Supervisor) serving() (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil, s.taken
}

// probe reports whether a process serves an address: it closes a connection whose other
// side says nothing and is done. The system accepts connections for a stopped one, too.
func probe(ctx context.Context, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	deadline, _ := ctx.Deadline()
	if err := errors.Join(conn.(*net.TCPConn).CloseWrite(), conn.SetReadDeadline(deadline)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(conn, maxLine))
	if errors.Is(err, net.ErrClosed) {
		return os.ErrDeadlineExceeded
	}
	return err
}
