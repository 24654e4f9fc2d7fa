// Package tfsession makes the calls of TensorFlow sessions whose servers are on other machines. None of
// them waits without an end.
//
// TensorFlow's client waits for its server, and that one for the others of its cluster, also for one
// that is gone. Nothing cancels such a call. That holds for every call that asks the server: to run, to
// create or extend the session, which a run does before, to list the devices, and to close the session.
// To make a session, and to free it once it is closed, asks nobody.
//
// So each call is made on a goroutine of its own, and is left behind when its context has ended: it
// returns later, or stays until the process ends. Until it returns, what it uses is not freed: the
// tensors that it is fed, the graph, and the session, which is closed only after it. A session that is
// left behind does not disturb later ones with the same servers, where each has a name of its own.
package tfsession

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
)

// Config describes a session.
type Config struct {
	// Peer is the server in log lines; "" leaves it out.
	Peer string
	// Grace is how long a call to run or to list devices is waited for after its context has ended:
	// what ended the context may end the call, too.
	Grace time.Duration
	// Log takes a line if a call is left behind, the first of the session; nil is none.
	Log *slog.Logger
}

// Session is a session with servers on other machines. Its methods may be called concurrently.
type Session struct {
	config Config
	tf     *tf.Session
	calls  sync.RWMutex // held for reading during a call, also one that is left behind, and for writing to close
	left   atomic.Bool  // a call was left behind
}

// New returns a session that calls a session of TensorFlow, which nothing else may call or close.
func New(session *tf.Session, c Config) *Session {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Session{config: c, tf: session}
}

// Run feeds tensors, runs the targets and returns what is fetched. Once the context has ended, it
// returns the cause, and the call is left behind unless it returns within Config.Grace.
func (s *Session) Run(ctx context.Context, feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, targets []*tf.Operation) ([]*tf.Tensor, error) {
	return s.Call(ctx, func(on *tf.Session) ([]*tf.Tensor, error) { return on.Run(feeds, fetches, targets) })
}

// Call is Run for a function that runs TensorFlow's session in its own way.
func (s *Session) Call(ctx context.Context, run func(*tf.Session) ([]*tf.Tensor, error)) ([]*tf.Tensor, error) {
	return await(ctx, s, "run", s.config.Grace, func() ([]*tf.Tensor, error) {
		s.calls.RLock()
		defer s.calls.RUnlock()
		return run(s.tf)
	})
}

// ListDevices returns the devices of all servers. It ends with the context as Run does.
func (s *Session) ListDevices(ctx context.Context) ([]tf.Device, error) {
	return await(ctx, s, "list devices", s.config.Grace, func() ([]tf.Device, error) {
		s.calls.RLock()
		defer s.calls.RUnlock()
		return s.tf.ListDevices()
	})
}

// Close ends and frees the session, after all of its calls. It is left behind when the context ends. If
// a call was left behind, Close does not wait: the session is closed when the call returns.
func (s *Session) Close(ctx context.Context) error {
	if s.left.Load() {
		go s.close()
		return nil
	}
	_, err := await(ctx, s, "close", 0, func() (struct{}, error) { return struct{}{}, s.close() })
	return err
}

func (s *Session) close() error {
	s.calls.Lock()
	defer s.calls.Unlock()
	err := s.tf.Close()
	if err != nil {
		// The client has forgotten the session's name, so that this time it asks nobody and frees it.
		_ = s.tf.Close()
	}
	return err
}

// await makes a call that knows no context.
func await[T any](ctx context.Context, s *Session, what string, grace time.Duration, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	began, done := time.Now(), make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(grace):
		s.leave(what, time.Since(began))
	}
	var none T
	return none, context.Cause(ctx)
}

// leave notes that a call did not come back.
func (s *Session) leave(what string, waited time.Duration) {
	if s.left.Swap(true) {
		return
	}
	line := []any{"call", what, "waited", waited.Round(10 * time.Millisecond)}
	if s.config.Peer != "" {
		line = append(line, "server", s.config.Peer)
	}
	s.config.Log.Warn("TensorFlow does not come back from a call, which is left behind with its session", line...)
}
