package emulator

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
)

// conns are the open connections by the address of the client.
type conns struct {
	mu    sync.Mutex
	open  map[string]*conn
	ended func(client string) // called when a connection ended
}

// listener counts its connections.
type listener struct {
	net.Listener
	conns *conns
}

// Accept waits for a connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	out := &conn{Conn: c, conns: l.conns}
	l.conns.mu.Lock()
	defer l.conns.mu.Unlock()
	l.conns.open[c.RemoteAddr().String()] = out
	return out, nil
}

// cut closes a client's connection after the next few bytes to it.
func (c *conns) cut(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[client]; one != nil {
		one.mu.Lock()
		defer one.mu.Unlock()
		one.cut = true
	}
}

// closeAll closes all connections.
func (c *conns) closeAll() {
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.open))
	c.mu.Unlock()
	for _, one := range open {
		one.Close()
	}
}

// conn is a connection that can be cut.
type conn struct {
	net.Conn
	conns *conns
	once  sync.Once
	mu    sync.Mutex
	cut   bool
}

// cutAfter is how much of an answer is sent before its connection is cut.
const cutAfter = 40

// Write sends data, or a little of it if the connection is to be cut.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if !cut {
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(b[:min(len(b), cutAfter)])
	return n, errors.Join(errors.New("the connection is cut, as the fault says"), err, c.Close())
}

// Close closes the connection.
func (c *conn) Close() error {
	c.once.Do(func() {
		client := c.RemoteAddr().String()
		c.conns.mu.Lock()
		if c.conns.open[client] == c {
			delete(c.conns.open, client)
		}
		c.conns.mu.Unlock()
		c.conns.ended(client)
	})
	return c.Conn.Close()
}
