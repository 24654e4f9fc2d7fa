package tfserver

// #include <stdlib.h>
// void gorbit_route(int i, const char *path);
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

const (
	// maxRoutes is the size of the table in sockets.c.
	maxRoutes = 4096
	// maxSocket is the longest path of a Unix socket, in bytes, without the zero at its end.
	maxSocket = 107
	// routePort is the port of all routes' addresses. No program listens on it.
	routePort = 2222
)

// CheckSocket returns an error if a path is too long for a Unix socket.
func CheckSocket(path string) error {
	if len(path) > maxSocket || strings.ContainsRune(path, 0) {
		return fmt.Errorf("the path of the socket %s has %d bytes; expected at most %d: set TMPDIR to a folder with a shorter name", path, len(path), maxSocket)
	}
	return nil
}

// Route is a TCP address that TensorFlow's clients in this process can use for a Unix socket.
type Route struct{ slot int }

// routes are the slots in use. They are the process's, as the connect function is.
var routes struct {
	sync.Mutex
	used [maxRoutes]bool
	next int
}

// NewRoute returns an address that leads to the Unix socket at a path, until it is closed. Only
// connections of C libraries in this process follow it.
func NewRoute(path string) (*Route, error) {
	if path == "" {
		return nil, errors.New("the path of the socket is empty")
	}
	if err := CheckSocket(path); err != nil {
		return nil, err
	}
	routes.Lock()
	defer routes.Unlock()
	// A slot is used again as late as possible: TensorFlow may still try an old address.
	for range maxRoutes {
		slot := routes.next
		routes.next = (slot + 1) % maxRoutes
		if !routes.used[slot] {
			routes.used[slot] = true
			set(slot, path)
			return &Route{slot}, nil
		}
	}
	return nil, fmt.Errorf("all %d addresses for sockets are in use", maxRoutes)
}

func set(slot int, path string) {
	s := C.CString(path)
	defer C.free(unsafe.Pointer(s))
	C.gorbit_route(C.int(slot), s)
}

// Address returns the IP:PORT of the route.
func (r *Route) Address() string {
	return fmt.Sprintf("127.99.%d.%d:%d", r.slot/256, r.slot%256, routePort)
}

// Close ends the route: connections to its address are refused from now on.
func (r *Route) Close() {
	routes.Lock()
	defer routes.Unlock()
	set(r.slot, "")
	routes.used[r.slot] = false
}
