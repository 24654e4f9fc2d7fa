package gcs

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	connectTime = 15 * time.Second
	// connections is how many idle connections are kept, enough for the readers of a training.
	connections = 32
)

// newTransport returns a transport whose connections fail after stall without a byte, in either
// direction. Deadlines of requests would not do: a transfer may take long, and must not stall.
func newTransport(stall time.Duration) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dialer := &net.Dialer{Timeout: connectTime, KeepAlive: 30 * time.Second}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stallConn{c, stall}, nil
	}
	t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	return t
}

// stallConn is a connection that fails after a time without progress. An idle connection fails
// as well, which only makes the transport open another.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func (c *stallConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *stallConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
