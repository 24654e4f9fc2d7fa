// Package web has what programs share that speak to servers of others.
package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

const (
	connectTime = 15 * time.Second
	// connections is how many idle connections are kept, enough for the readers of a training.
	connections = 32
)

// Transport returns a transport whose connections fail after stall without a byte, in either
// direction. Deadlines of requests would not do: a transfer may take long, and must not stall.
func Transport(stall time.Duration) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dialer := &net.Dialer{Timeout: connectTime, KeepAlive: 30 * time.Second}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stallConn{Conn: c, stall: stall}, nil
	}
	t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	return t
}

// stallConn is a connection that fails after a time without progress. An idle connection fails
// as well, which only makes the transport open another.
type stallConn struct {
	net.Conn
	stall time.Duration
	wrote atomic.Int64 // when bytes were last written, in nanoseconds
}

// Read waits longer while a request is still being written: a server answers when it has all of it.
func (c *stallConn) Read(p []byte) (int, error) {
	for {
		if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(time.Unix(0, c.wrote.Load())) >= c.stall {
			return n, err
		}
	}
}

func (c *stallConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.wrote.Store(time.Now().UnixNano())
	}
	return n, err
}

// IsLoopback reports whether a host, a name or an address, is this machine by its spelling: localhost,
// or a loopback address.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
