package cluster

import (
	"io"
	"net"
	"sync"
)

// conns are open connections that end together.
type conns struct {
	mu   sync.Mutex
	over bool
	all  map[net.Conn]bool
}

func newConns() *conns { return &conns{all: make(map[net.Conn]bool)} }

// keep registers a connection. It returns false after close.
func (c *conns) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.all[conn] = true
	return true
}

func (c *conns) drop(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, conn)
	conn.Close()
}

// close closes all connections. From now on, none is kept.
func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for conn := range c.all {
		conn.Close()
	}
}

// join forwards what each of two connections sends to the other, until one of them closes. Then it
// closes both. The connections must have been kept.
func (c *conns) join(a, b net.Conn) {
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(a, b) // if one side closes, close the other
		c.drop(a)
	})
	_, _ = io.Copy(b, a)
	c.drop(b)
	answers.Wait()
}
