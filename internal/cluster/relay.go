package cluster

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// relay is a loopback port to which the chief's TensorFlow session connects. It forwards everything
// to the first worker's server.
//
// If its connection breaks, TensorFlow retries a call, and it waits forever for a server that is
// gone. There is no way to cancel this. So when the cluster has failed, the relay breaks its
// connections and answers the retried calls itself, with the status aborted, which ends them.
type relay struct {
	listener net.Listener
	to       string
	refusals http.Server // answers refused calls
	refused  chan net.Conn
	closed   chan struct{}
	running  sync.WaitGroup
	// ctx ends when calls are refused.
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	reason string // why calls are refused, or ""
	conns  map[net.Conn]bool
}

// newRelay returns a relay to an address.
func newRelay(to string) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener, to: to, refused: make(chan net.Conn), closed: make(chan struct{}), conns: make(map[net.Conn]bool)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.refusals.Protocols = new(http.Protocols)
	r.refusals.Protocols.SetUnencryptedHTTP2(true)
	r.refusals.Handler = http.HandlerFunc(r.refuseCall)
	r.refusals.ErrorLog = log.New(io.Discard, "", 0)
	r.running.Go(r.accept)
	r.running.Go(func() { _ = r.refusals.Serve((*refusedListener)(r)) }) // until it is closed
	return r, nil
}

func (r *relay) addr() string { return r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of files or memory, which is temporary.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		r.running.Go(func() { r.serve(conn) })
	}
}

// serve forwards a connection, or passes it on to be refused.
func (r *relay) serve(conn net.Conn) {
	if !r.keep(conn) {
		select {
		case r.refused <- conn:
		case <-r.closed:
			conn.Close()
		}
		return
	}
	defer r.drop(conn)
	server, err := new(net.Dialer).DialContext(r.ctx, "tcp", r.to)
	if err != nil {
		return // TensorFlow tries again
	}
	if !r.keep(server) {
		server.Close()
		return
	}
	defer r.drop(server)
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(conn, server) // if one side closes, close the other
		r.drop(conn)
	})
	_, _ = io.Copy(server, conn)
	r.drop(server)
	answers.Wait()
}

// keep registers a connection. It returns false if connections are refused now.
func (r *relay) keep(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason != "" {
		return false
	}
	r.conns[conn] = true
	return true
}

func (r *relay) drop(conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
	conn.Close()
}

// refuse closes all connections and refuses calls from now on.
func (r *relay) refuse(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason != "" {
		return
	}
	r.reason = reason
	r.cancel()
	for conn := range r.conns {
		conn.Close()
	}
}

// refuseCall answers a gRPC call with headers only.
func (r *relay) refuseCall(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", "10") // aborted
	h.Set("Grpc-Message", url.PathEscape(clip(r.reason)))
}

func (r *relay) close() {
	r.refuse("the session with the workers is over")
	close(r.closed)
	r.listener.Close()
	r.refusals.Close()
	r.running.Wait()
}

// refusedListener passes the refused connections to an http.Server.
type refusedListener relay

func (l *refusedListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.refused:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *refusedListener) Close() error   { return nil }
func (l *refusedListener) Addr() net.Addr { return l.listener.Addr() }
