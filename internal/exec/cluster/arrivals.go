package cluster

import (
	"net"
	"slices"
	"sync"
)

// arrivals are connections that have not said yet who they are. There is a limit; where it is
// reached, the one that has been there for longest is closed. So a chief, which greets at once, gets
// in while others hold connections open.
type arrivals struct {
	mu  sync.Mutex
	all []net.Conn // the oldest first
}

func (a *arrivals) add(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) == maxGreetings {
		a.all[0].Close()
		a.all = slices.Delete(a.all, 0, 1)
	}
	a.all = append(a.all, conn)
}

func (a *arrivals) remove(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.all, conn); i >= 0 {
		a.all = slices.Delete(a.all, i, i+1)
	}
}
