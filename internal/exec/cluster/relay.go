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

// relay is a loopback port or a Unix socket to which a TensorFlow in this process or its child
// connects. It forwards everything to the server of a worker.
//
// The chief's session connects to a relay that leads to the first worker's server.
// If its connection breaks, TensorFlow retries a call, and it waits forever for a server that is
// gone. There is no way to cancel this. So when the cluster has failed, the relay breaks its
// connections and answers the retried calls itself, with the status aborted, which ends them.
type relay struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error) // the server
	refusals http.Server                             // answers refused calls
	refused  chan net.Conn
	closed   chan struct{}
	running  sync.WaitGroup
	// ctx ends when calls are refused.
	ctx    context.Context
	cancel context.CancelFunc

	conns *conns

	mu     sync.Mutex
	reason string // why calls are refused, or ""
}

// newRelay returns a relay from a listener, which it closes at its end, to what dial connects to.
func newRelay(listener net.Listener, dial func(context.Context) (net.Conn, error)) *relay {
	r := &relay{listener: listener, dial: dial, refused: make(chan net.Conn), closed: make(chan struct{}), conns: newConns()}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.refusals.Protocols = new(http.Protocols)
	r.refusals.Protocols.SetUnencryptedHTTP2(true)
	r.refusals.Handler = http.HandlerFunc(r.refuseCall)
	r.refusals.ErrorLog = log.New(io.Discard, "", 0)
	r.running.Go(r.accept)
	r.running.Go(func() { _ = r.refusals.Serve((*refusedListener)(r)) }) // until it is closed
	return r
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
	if !r.conns.keep(conn) {
		select {
		case r.refused <- conn:
		case <-r.closed:
			conn.Close()
		}
		return
	}
	server, err := r.dial(r.ctx)
	if err != nil {
		r.conns.drop(conn) // TensorFlow tries again
		return
	}
	if !r.conns.keep(server) {
		server.Close()
		r.conns.drop(conn)
		return
	}
	r.conns.join(conn, server)
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
	r.conns.close()
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
