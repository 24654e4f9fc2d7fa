package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// connections are those of a listener, up to a limit. Others wait in the system's queue.
type connections struct {
	net.Listener
	taken  chan struct{} // one for each that is open
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	select {
	case l.taken <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.taken
		return nil, err
	}
	return &connection{Conn: c, ended: sync.OnceFunc(func() { <-l.taken })}, nil
}

// Close implements net.Listener.
func (l *connections) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// connection remembers whether the client broke it. A client that only ends what it sends, as nc -N does,
// waits for its answer; net/http ends the context of its request nonetheless.
type connection struct {
	net.Conn
	broken atomic.Bool
	ended  func()
}

// Read implements net.Conn.
func (c *connection) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.broken.Store(true)
	}
	return n, err
}

// Write implements net.Conn.
func (c *connection) Write(from []byte) (int, error) {
	n, err := c.Conn.Write(from)
	if err != nil {
		c.broken.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	defer c.ended()
	return c.Conn.Close()
}

// CloseWrite is for net/http, which uses it so that clients can read the answer before they see the end.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// askPause is how long the server waits before it asks a client that ended what it sends whether it is
// there, and then before it looks whether it was.
const askPause = time.Second

// until returns the context of the answers of a request, which ends when the time is up or the client is
// gone. Nothing may be written before it is cancelled.
//
// A client that is gone ends what it sends, too. What tells the two apart is that its system refuses what
// the server writes, so that the server writes a response that says nothing, as often as it likes: 100.
func (s *Server) until(w http.ResponseWriter, r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.Timeout)
	c, known := r.Context().Value(connectionKey{}).(*connection)
	asked := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() {
		defer close(asked)
		for pause := askPause; known && !c.broken.Load(); pause *= 2 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if r.ProtoAtLeast(1, 1) { // an older client knows no such response
				w.WriteHeader(http.StatusContinue)
			}
		}
		cancel()
	})
	return ctx, func() {
		if cancel(); !stop() {
			<-asked
		}
	}
}
